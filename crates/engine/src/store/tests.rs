//! Promises of the store.

use super::*;
use crate::job::Status;

fn store(folder: &tempfile::TempDir) -> Store {
    Store::open(&folder.path().join("state/jobs.sqlite")).unwrap()
}

fn outline(name: &str) -> Outline {
    Outline { job: name.into(), hosts: vec!["algo-1".into()], merges: false }
}

/// A job that was taken in at a time, in milliseconds.
fn add(store: &mut Store, name: &str, at: u64) -> Result<Job, StoreError> {
    let job = Job::submit(&outline(name), Timestamp(at));
    store.add(&job, &outline(name), "{}").map(|()| job)
}

/// Lets something happen to it.
fn happen(store: &mut Store, job: &mut Job, at: u64, event: &Event) {
    job.apply(Timestamp(at), event.clone());
    store.append(job, Timestamp(at), event, &[]).unwrap();
}

#[test]
fn what_was_stored_is_there_after_opening_again_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = store(&folder);
    let mut job = add(&mut first, "Job", 5).unwrap();
    let planned = Event::Planned { warnings: vec!["w".into()] };
    happen(&mut first, &mut job, 6, &planned);
    happen(&mut first, &mut job, 7, &Event::StopRequested);
    first.add_placement("job", 1, "[1]").unwrap();
    drop(first);
    let stored = store(&folder).job("jOB").unwrap().unwrap();
    assert_eq!((stored.name.as_str(), stored.created), ("Job", Timestamp(5)));
    assert_eq!(stored.events, [(Timestamp(6), planned), (Timestamp(7), Event::StopRequested)]);
    assert_eq!(stored.placements, [(1, "[1]".to_owned())]);
    assert_eq!(stored.replayed(), job);
}

#[test]
fn a_name_is_taken_once_whatever_its_case() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    add(&mut store, "Job", 5).unwrap();
    let again = add(&mut store, "jOB", 6);
    assert!(matches!(again, Err(StoreError::Exists { job }) if job == "Job"));
}

#[test]
fn a_removed_job_leaves_nothing_and_its_name_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    let mut job = add(&mut store, "job", 5).unwrap();
    happen(&mut store, &mut job, 6, &Event::Launched);
    store.add_tags("job", &[("k".into(), "v".into())]).unwrap();
    store.remove("job").unwrap();
    assert_eq!(store.job("job").unwrap(), None);
    add(&mut store, "job", 7).unwrap();
    assert_eq!(store.job("job").unwrap().unwrap().events, []);
    assert_eq!(store.tags("job").unwrap(), []);
}

#[test]
fn a_file_of_another_version_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    store(&folder).connection.pragma_update(None, "user_version", 99).unwrap();
    let error = Store::open(&folder.path().join("state/jobs.sqlite")).unwrap_err();
    assert!(error.to_string().contains("version 99"), "{error}");
}

#[test]
fn jobs_that_have_not_ended_are_found_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    for (name, at) in [("b", 1), ("a", 2), ("c", 3)] {
        let mut job = add(&mut store, name, at).unwrap();
        if name == "a" {
            happen(&mut store, &mut job, 4, &Event::StopRequested);
        }
    }
    assert_eq!(store.unfinished().unwrap(), ["b", "c"]);
}

#[test]
fn tags_are_kept_in_the_order_in_which_they_came_and_replaced_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    add(&mut store, "job", 1).unwrap();
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    store.add_tags("job", &pairs(&[("b", "1"), ("a", "2")])).unwrap();
    store.add_tags("JOB", &pairs(&[("c", "3"), ("b", "4")])).unwrap();
    assert_eq!(store.tags("job").unwrap(), pairs(&[("b", "4"), ("a", "2"), ("c", "3")]));
    store.remove_tags("job", &["a".to_owned(), "never".to_owned()]).unwrap();
    assert_eq!(store.tags("job").unwrap(), pairs(&[("b", "4"), ("c", "3")]));
}

/// Names of a whole list, page by page.
fn listed(store: &Store, query: &JobQuery) -> Vec<String> {
    let mut query = query.clone();
    let mut names = Vec::new();
    loop {
        let page = store.list(&query).unwrap();
        names.extend(page.iter().map(|listed| listed.name.clone()));
        if page.len() < query.limit {
            return names;
        }
        query.after = page.last().map(|last| last.cursor(query.sort_by));
    }
}

#[test]
fn lists_are_filtered_before_they_are_cut_into_pages() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    for number in 0..10 {
        // Two of each time, so that names have to decide.
        let mut job = add(&mut store, &format!("job-{number}"), number / 2).unwrap();
        if number % 3 == 0 {
            happen(&mut store, &mut job, 100 - number, &Event::StopRequested);
        }
    }
    let query = JobQuery { limit: 2, ..JobQuery::default() };
    let all: Vec<_> = (0..10).map(|number| format!("job-{number}")).collect();
    assert_eq!(listed(&store, &query), all);
    let descending = JobQuery { descending: true, ..query.clone() };
    assert_eq!(listed(&store, &descending), all.iter().rev().cloned().collect::<Vec<_>>());
    let stopped = JobQuery { status: Some(Status::Stopped), ..query.clone() };
    assert_eq!(listed(&store, &stopped), ["job-0", "job-3", "job-6", "job-9"]);
    let modified = JobQuery { sort_by: SortBy::Modified, ..stopped };
    assert_eq!(listed(&store, &modified), ["job-9", "job-6", "job-3", "job-0"]);
    let named = JobQuery { name_contains: Some("B-3".into()), ..query.clone() };
    assert_eq!(listed(&store, &named), ["job-3"]);
    let long = "j".repeat(100_000);
    for (part, found) in [
        (long.as_str(), 0),
        ("", 10),
        ("JO", 10),
        ("-", 10),
        ("3-", 0),
        ("job-33", 0),
        ("ü", 0),
        ("%", 0),
        ("_", 0),
        ("\\", 0),
    ] {
        let named = JobQuery { name_contains: Some(part.into()), ..query.clone() };
        assert_eq!(listed(&store, &named).len(), found, "{part:?}");
    }
    let timed =
        JobQuery { created_after: Some(Timestamp(1)), created_before: Some(Timestamp(3)), ..query.clone() };
    assert_eq!(listed(&store, &timed), ["job-4", "job-5"]);
    let by_status = JobQuery { sort_by: SortBy::Status, limit: 3, ..query };
    assert_eq!(listed(&store, &by_status)[6..], ["job-0", "job-3", "job-6", "job-9"]);
}

#[test]
fn jobs_of_the_version_before_are_kept_and_can_be_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(folder.path().join("state")).unwrap();
    fs_err::create_dir_all(folder.path().join("runs/job/attempt-1")).unwrap();
    let plan = r#"{"instances": [{"host": "algo-1"}, {"host": "algo-2"}], "merge": null}"#;
    fs_err::write(folder.path().join("runs/job/attempt-1/plan.json"), plan).unwrap();
    let old = Connection::open(folder.path().join("state/jobs.sqlite")).unwrap();
    old.execute_batch(
        "CREATE TABLE jobs (name TEXT PRIMARY KEY COLLATE NOCASE, request TEXT NOT NULL, created INTEGER NOT NULL) STRICT;
         CREATE TABLE events (job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
             number INTEGER NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY (job, number)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE placements (job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
             placement TEXT NOT NULL) STRICT;
         INSERT INTO jobs VALUES ('Job', '{}', 5), ('gone', '{}', 6);
         INSERT INTO events VALUES ('Job', 1, 7, '\"Launched\"'), ('Job', 2, 8, '\"StopRequested\"');
         INSERT INTO placements VALUES ('Job', '[1]');
         PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(old);
    let stored = store(&folder).job("job").unwrap().unwrap();
    assert_eq!((stored.name.as_str(), stored.outline.hosts.len()), ("Job", 2));
    assert_eq!(stored.placements, [(1, "[1]".to_owned())]);
    let job = stored.replayed();
    assert_eq!((job.status, job.running_hosts().len()), (Status::Stopping, 2));
    let again = store(&folder);
    assert_eq!(again.unfinished().unwrap(), ["Job"]);
    assert_eq!(again.job("gone").unwrap(), None, "it has no plan to go on with");
}

#[test]
fn many_processes_make_the_file_at_once() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| store(&folder));
            }
        });
    }
}

#[test]
fn jobs_of_version_2_are_kept_listed_and_found_by_what_they_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(folder.path().join("state")).unwrap();
    let old = Connection::open(folder.path().join("state/jobs.sqlite")).unwrap();
    old.execute_batch(
        "CREATE TABLE jobs (name TEXT PRIMARY KEY COLLATE NOCASE, request TEXT NOT NULL, created INTEGER NOT NULL,
             outline TEXT NOT NULL, status TEXT NOT NULL, secondary TEXT NOT NULL, modified INTEGER NOT NULL,
             ended INTEGER) STRICT;
         CREATE INDEX jobs_created ON jobs (created, name);
         CREATE INDEX jobs_modified ON jobs (modified, name);
         CREATE INDEX jobs_status ON jobs (status, created);
         CREATE TABLE events (job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
             number INTEGER NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY (job, number)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE placements (job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
             attempt INTEGER NOT NULL, placement TEXT NOT NULL) STRICT;
         CREATE INDEX placements_job ON placements (job);
         CREATE TABLE tags (job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
             number INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (job, key)
         ) STRICT, WITHOUT ROWID;
         INSERT INTO jobs VALUES
             ('Job', '{\"HyperParameters\": {\"k\": \"7\"}}', 5,
              '{\"job\": \"Job\", \"hosts\": [\"algo-1\"], \"merges\": false}', 'Stopped', 'Stopped', 8, 8);
         INSERT INTO events VALUES ('Job', 0, 6, '{\"Planned\": {\"warnings\": [\"w\"]}}'),
             ('Job', 1, 8, '\"StopRequested\"');
         INSERT INTO placements VALUES ('Job', 1, '[1]');
         INSERT INTO tags VALUES ('Job', 0, 'team', 'blue');
         PRAGMA user_version = 2;",
    )
    .unwrap();
    drop(old);
    let mut store = store(&folder);
    let stored = store.job("job").unwrap().unwrap();
    assert_eq!((stored.events.len(), stored.placements.len()), (2, 1));
    assert_eq!(store.shown("job").unwrap().unwrap().1, stored.replayed());
    let wanted = vec![
        Wanted::Number { name: "HyperParameters.k".into(), compared: Compared::Greater, number: 6.0 },
        Wanted::Tag { key: "team".into(), value: "blue".into() },
    ];
    assert_eq!(listed(&store, &JobQuery { wanted, limit: 9, ..JobQuery::default() }), ["Job"]);
    let mut job = stored.replayed();
    happen(&mut store, &mut job, 9, &Event::Resumed);
    assert_eq!(store.unfinished().unwrap(), ["Job"]);
}

#[test]
fn a_job_that_has_ended_is_shown_as_its_replay_and_one_that_is_resumed_is_not_taken_for_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    let mut job = add(&mut store, "Job", 5).unwrap();
    assert_eq!(store.shown("job").unwrap().unwrap().1, job);
    for event in [Event::StopRequested, Event::Resumed] {
        happen(&mut store, &mut job, 6, &event);
        let (request, shown) = store.shown("jOB").unwrap().unwrap();
        assert_eq!((request.as_str(), &shown), ("{}", &job));
        assert_eq!(shown, store.job("job").unwrap().unwrap().replayed());
    }
    assert_eq!(store.shown("other").unwrap(), None);
}

#[test]
fn jobs_are_found_by_tags_and_facts_however_many_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(&folder);
    for number in 0..6 {
        let name = format!("job-{number}");
        let job = Job::submit(&outline(&name), Timestamp(number));
        let request = format!(r#"{{"HyperParameters": {{"k": "{number}", "s": "{}"}}}}"#, "x".repeat(300));
        store.add(&job, &outline(&name), &request).unwrap();
        store.add_tags(&name, &[("even".into(), (number % 2 == 0).to_string())]).unwrap();
    }
    let number = |compared, number| Wanted::Number { name: "HyperParameters.k".into(), compared, number };
    let even = Wanted::Tag { key: "even".into(), value: "true".into() };
    let table = [
        (vec![number(Compared::Greater, 3.0)], vec!["job-4", "job-5"]),
        (vec![number(Compared::LessOrEqual, 2.0), even.clone()], vec!["job-0", "job-2"]),
        (vec![number(Compared::Equal, 2.0)], vec!["job-2"]),
        (vec![Wanted::Text { name: "HyperParameters.k".into(), value: "5".into() }], vec!["job-5"]),
        (vec![Wanted::Name("JOB-1".into())], vec!["job-1"]),
        (vec![Wanted::Name("job-1".into()), even], vec![]),
    ];
    for (wanted, expected) in table {
        for sort_by in [SortBy::Created, SortBy::Name, SortBy::Modified, SortBy::Status] {
            let query = JobQuery { wanted: wanted.clone(), sort_by, limit: 1, ..JobQuery::default() };
            assert_eq!(listed(&store, &query), expected, "{query:?}");
        }
    }
    let long = Wanted::Text { name: "HyperParameters.s".into(), value: "x".repeat(300) };
    let query = JobQuery { wanted: vec![long], limit: 10, ..JobQuery::default() };
    assert_eq!(listed(&store, &query).len(), 6);
}
