//! Promises of the loop, over the fake backend.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::*;
use crate::backend::conformance::job_plan;
use crate::backend::fake::FakeBackend;
use crate::backend::{Launch, Presence};
use crate::job::Status;
use crate::run::{Appender, Report};

fn engine(folder: &Path) -> Engine {
    Engine::open(folder, Arc::new(FakeBackend::new())).unwrap()
}

fn submission(words: &[&str], folder: &Path) -> Submission {
    Submission { request: "{}".into(), plan: job_plan(words, folder), manifests: Manifests::new() }
}

async fn drive(driver: Driver) -> Job {
    let (_commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, _shown) = mpsc::unbounded_channel();
    driver.drive(&mut obeyed, notices).await.unwrap()
}

#[tokio::test]
async fn a_job_completes_when_its_last_instance_has() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let job = drive(engine.submit(submission(&["true", "true"], folder.path())).await.unwrap()).await;
    assert_eq!(job.status, Status::Completed);
}

#[tokio::test]
async fn a_failure_stops_the_others_and_is_stored_before_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let job = drive(engine.submit(submission(&["sleep", "false"], folder.path())).await.unwrap()).await;
    assert_eq!(job.status, Status::Failed);
    assert!(job.failure_reason.as_deref().unwrap().ends_with("exit code: 1 (algo-2)"));
    let stored = engine.store().job("conformance").unwrap().unwrap();
    let plan = job_plan(&["sleep", "false"], folder.path());
    assert_eq!(stored.outline, plan.outline());
    let replayed = stored.replayed();
    assert_eq!(replayed, job);
}

#[tokio::test]
async fn a_supervisor_that_vanishes_fails_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let job =
        drive(engine(folder.path()).submit(submission(&["vanish"], folder.path())).await.unwrap()).await;
    assert!(job.failure_reason.as_deref().unwrap().contains("lost"), "{:?}", job.failure_reason);
}

#[tokio::test]
async fn a_stop_ends_a_job_that_would_run_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let driver = engine(folder.path()).submit(submission(&["sleep", "sleep"], folder.path())).await.unwrap();
    let (commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, _shown) = mpsc::unbounded_channel();
    commands.send(Command::Stop).unwrap();
    let job = driver.drive(&mut obeyed, notices).await.unwrap();
    assert_eq!(job.status, Status::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_time_is_up_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let driver = engine(folder.path()).submit(submission(&["sleep"], folder.path())).await.unwrap();
    let job = drive(driver).await;
    assert_eq!(job.secondary_status(), crate::job::SecondaryStatus::MaxRuntimeExceeded);
}

#[tokio::test]
async fn a_job_that_is_driven_can_not_be_submitted_or_resumed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let _driver = engine.submit(submission(&["true"], folder.path())).await.unwrap();
    let again = engine.submit(submission(&["true"], folder.path())).await;
    assert!(matches!(again, Err(EngineError::Running { .. })));
    assert!(matches!(engine.resume("conformance", "{}").await, Err(EngineError::Running { .. })));
}

#[tokio::test]
async fn resume_starts_what_had_not_ended_well_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let job = drive(engine.submit(submission(&["true", "false"], folder.path())).await.unwrap()).await;
    assert_eq!(job.status, Status::Failed);
    let first = job.instances[0].has_completed();
    let job = drive(engine.resume("conformance", "{}").await.unwrap().unwrap()).await;
    let attempts: Vec<_> = job.instances.iter().map(|instance| instance.attempt).collect();
    assert_eq!((job.attempt, attempts), (2, vec![if first { 1 } else { 2 }, 2]));
}

#[tokio::test]
async fn resume_of_what_is_not_there_or_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    assert!(matches!(engine.resume("conformance", "{}").await, Err(EngineError::Unknown { .. })));
    drive(engine.submit(submission(&["false"], folder.path())).await.unwrap()).await;
    let changed = engine.resume("conformance", "{\"other\":1}").await;
    assert!(matches!(changed, Err(EngineError::Changed { .. })));
}

/// A driver that was killed while it launched has supervisors and no placement.
async fn launch_unseen(engine: &Engine, submission: Submission) -> Placement {
    let driver = engine.submit(submission).await.unwrap();
    let launch = Launch { run: driver.run().clone(), hosts: vec!["algo-1".into()] };
    engine.backend.launch(&launch).await.unwrap()
}

#[tokio::test]
async fn supervisors_whose_placement_was_never_stored_are_ended_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    for resumed in [false, true] {
        let placement = launch_unseen(&engine, submission(&["sleep"], folder.path())).await;
        let next = match resumed {
            true => engine.resume("conformance", "{}").await.unwrap(),
            false => Some(engine.submit(submission(&["true"], folder.path())).await.unwrap()),
        };
        let presence = engine.backend.observe(&placement, &[Presence::Alive]).await.unwrap();
        assert_eq!((presence, next.is_some()), (vec![Presence::Gone], true), "resumed: {resumed}");
    }
}

#[tokio::test]
async fn a_job_whose_placement_can_not_be_stored_leaves_no_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let driver = engine.submit(submission(&["sleep"], folder.path())).await.unwrap();
    // The row that placements refer to is gone, so they are refused.
    engine.store().remove("conformance").unwrap();
    let run = driver.run().clone();
    let (_commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, _shown) = mpsc::unbounded_channel();
    driver.drive(&mut obeyed, notices).await.unwrap_err();
    let supervisor = run.instance("algo-1").supervisor().unwrap().unwrap();
    let placement = Placement { supervisors: vec![supervisor], networks: Vec::new() };
    let presence = engine.backend.observe(&placement, &[Presence::Alive]).await.unwrap();
    assert_eq!(presence, [Presence::Gone]);
}

#[tokio::test]
async fn a_stop_is_obeyed_though_whoever_asked_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let driver = engine(folder.path()).submit(submission(&["sleep"], folder.path())).await.unwrap();
    let (commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, _shown) = mpsc::unbounded_channel();
    commands.send(Command::Stop).unwrap();
    drop(commands);
    assert_eq!(driver.drive(&mut obeyed, notices).await.unwrap().status, Status::Stopped);
}

#[tokio::test]
async fn a_kill_before_the_instances_are_placed_gives_them_no_grace() {
    let folder = tempfile::tempdir().unwrap();
    let driver = engine(folder.path()).submit(submission(&["sleep"], folder.path())).await.unwrap();
    let run = driver.run().clone();
    let (commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, _shown) = mpsc::unbounded_channel();
    commands.send(Command::Kill).unwrap();
    driver.drive(&mut obeyed, notices).await.unwrap();
    assert_eq!(run.instance("algo-1").stop_request().unwrap().unwrap().grace, Duration::ZERO);
}

#[tokio::test]
async fn reports_that_were_stored_already_are_not_taken_in_again_by_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let driver = engine.submit(submission(&["sleep"], folder.path())).await.unwrap();
    let warning = |text: &str| Stamped { at: Timestamp(1), report: Report::Warning { text: text.into() } };
    let mut reports = Appender::open(&driver.run().instance("algo-1").reports()).unwrap();
    reports.append_all(&[warning("stored"), warning("late")]).unwrap();
    let stored = Event::Reported { host: "algo-1".into(), report: warning("stored") };
    let mut job = driver.job().clone();
    job.apply(Timestamp(1), stored.clone());
    engine.store().append(&job, Timestamp(1), &stored, &[]).unwrap();
    drop(driver);
    let resumed = engine.resume("conformance", "{}").await.unwrap().unwrap();
    assert_eq!(resumed.job().warnings, ["algo-1: stored", "algo-1: late"]);
}

#[tokio::test]
async fn a_job_that_was_killed_before_its_run_directory_was_written_is_none_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let outline = job_plan(&["true"], folder.path()).outline();
    let job = Job::submit(&outline, Timestamp(1));
    engine.store().add(&job, &outline, "{}").unwrap();
    let resumed = engine.resume("conformance", "{}").await;
    assert!(matches!(resumed, Err(EngineError::Unknown { .. })));
}

/// A driver that is gone before its job has ended, at the latest when an event fits.
async fn abandoned(engine: &Engine, words: &[&str], folder: &Path, until: impl Fn(&Job) -> bool) {
    let driver = engine.submit(submission(words, folder)).await.unwrap();
    let (_commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, mut shown) = mpsc::unbounded_channel();
    let driving = tokio::spawn(async move { driver.drive(&mut obeyed, notices).await });
    while let Some(notice) = shown.recv().await {
        if matches!(&notice, Notice::Job(job) if until(job)) {
            break;
        }
    }
    driving.abort();
    let _ = driving.await;
}

async fn taken_over(engine: &Engine) -> Driver {
    match engine.take_over("conformance").await.unwrap() {
        TakenOver::Driver(driver) => *driver,
        TakenOver::Waiting(_) | TakenOver::Ended => panic!("it was planned and has not ended"),
    }
}

#[tokio::test]
async fn a_job_that_is_taken_over_goes_on_with_the_instances_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    abandoned(&engine, &["sleep", "true"], folder.path(), |job| job.running_hosts().len() == 1).await;
    let driver = taken_over(&engine).await;
    assert_eq!(driver.job().attempt, 1);
    let (commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, _shown) = mpsc::unbounded_channel();
    commands.send(Command::Stop).unwrap();
    let job = driver.drive(&mut obeyed, notices).await.unwrap();
    assert_eq!(job.status, Status::Stopped);
    let events = engine.store().job("conformance").unwrap().unwrap().events;
    let launches = events.iter().filter(|(_, event)| *event == Event::Launched).count();
    let ends = |host: &str| events.iter().filter(|(_, event)| is_end(event, host)).count();
    assert_eq!((launches, ends("algo-1"), ends("algo-2")), (1, 1, 1), "nothing was started or told twice");
}

#[tokio::test]
async fn a_job_that_was_never_launched_is_launched_by_who_takes_it_over() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    drop(engine.submit(submission(&["true", "true"], folder.path())).await.unwrap());
    assert_eq!(drive(taken_over(&engine).await).await.status, Status::Completed);
}

/// Takes the store back to the first events of a job, while everything else stays as it is: as when its driver was
/// killed right then and the supervisors went on to their ends.
fn forget_all_after(engine: &Engine, kept: usize) {
    let stored = engine.store().job("conformance").unwrap().unwrap();
    engine.store().remove("conformance").unwrap();
    let mut job = Job::submit(&stored.outline, stored.created);
    engine.store().add(&job, &stored.outline, &stored.request).unwrap();
    for (attempt, placement) in &stored.placements {
        engine.store().add_placement("conformance", *attempt, placement).unwrap();
    }
    for (at, event) in &stored.events[..kept] {
        job.apply(*at, event.clone());
        engine.store().append(&job, *at, event, &[]).unwrap();
    }
}

#[tokio::test]
async fn a_job_whose_driver_was_gone_after_any_event_since_its_plan_ends_as_it_would_have() {
    for words in [&["true", "true"][..], &["true", "false"]] {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(folder.path());
        let whole = drive(engine.submit(submission(words, folder.path())).await.unwrap()).await;
        let events = engine.store().job("conformance").unwrap().unwrap().events;
        let planned = events.iter().position(|(_, event)| matches!(event, Event::Planned { .. })).unwrap();
        assert!(events.len() > planned + 6, "the job has all its points: {events:?}");
        for kept in (planned + 1..events.len()).rev() {
            forget_all_after(&engine, kept);
            let point = format!("after {kept} of {events:?}");
            let job = match engine.take_over("conformance").await.unwrap() {
                TakenOver::Driver(driver) => {
                    let ended = tokio::time::timeout(Duration::from_secs(20), drive(*driver)).await;
                    ended.unwrap_or_else(|_| panic!("did not end {point}"))
                }
                // What was reported meanwhile has ended it.
                TakenOver::Ended => engine.store().job("conformance").unwrap().unwrap().replayed(),
                TakenOver::Waiting(_) => panic!("it was planned {point}"),
            };
            assert_eq!((job.status, &job.failure_reason), (whole.status, &whole.failure_reason), "{point}");
            assert_eq!(engine.store().unfinished().unwrap(), Vec::<String>::new(), "{point}");
            let stored = engine.store().job("conformance").unwrap().unwrap();
            assert_eq!(stored.replayed(), job, "{point}");
            let ends = stored.events.iter().filter(|(_, event)| is_end(event, "algo-1")).count();
            assert_eq!(ends, 1, "an end was told twice {point}");
        }
    }
}

fn is_end(event: &Event, host: &str) -> bool {
    matches!(event, Event::Reported { host: of, report } if of == host && matches!(report.report, Report::Ended { .. }))
}

#[tokio::test]
async fn a_job_whose_driver_was_gone_while_it_published_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    drive(engine.submit(submission(&["true"], folder.path())).await.unwrap()).await;
    let events = engine.store().job("conformance").unwrap().unwrap().events;
    let published = events.iter().position(|(_, event)| matches!(event, Event::Published(_))).unwrap();
    forget_all_after(&engine, published);
    let driver = taken_over(&engine).await;
    assert_eq!(driver.job().status, Status::InProgress);
    assert!(driver.job().running_hosts().is_empty(), "only publishing is left");
    let job = drive(driver).await;
    assert_eq!(job.status, Status::Completed);
    let launches = engine.store().job("conformance").unwrap().unwrap().events;
    assert_eq!(
        launches.iter().filter(|(_, event)| *event == Event::Launched).count(),
        1,
        "nothing was started again"
    );
}

#[tokio::test]
async fn a_name_that_is_taken_is_taken_in_any_case_and_free_again_when_it_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let outline =
        |name: &str| crate::job::Outline { job: name.into(), hosts: vec!["algo-1".into()], merges: false };
    let mut waiting = engine.accept(&outline("Job"), "{}", &[("k".into(), "v".into())]).unwrap();
    let again = engine.accept(&outline("jOB"), "{}", &[]);
    assert!(matches!(again, Err(EngineError::Store(StoreError::Exists { job })) if job == "Job"));
    waiting.happen(Event::StopRequested).await.unwrap();
    assert_eq!(waiting.job().status, Status::Stopped);
    drop(waiting);
    engine.forget("job").await.unwrap();
    engine.accept(&outline("JOB"), "{}", &[]).unwrap();
    assert_eq!(engine.store().tags("Job").unwrap(), []);
}

#[tokio::test]
async fn a_notice_is_stored_with_the_end_and_stays_until_it_is_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let subscribers = vec![crate::notice::Subscriber { name: "team".into(), of: vec![Status::Failed] }];
    let announcing = engine(folder.path()).announcing(subscribers);
    let mut stored = announcing.notices_stored();
    let job = drive(announcing.submit(submission(&["false"], folder.path())).await.unwrap()).await;
    assert!(stored.has_changed().unwrap());
    stored.mark_unchanged();
    // Another process finds it.
    let next = engine(folder.path());
    let id = crate::notice::notice_id(&job);
    let due = next.due_notices().unwrap();
    assert_eq!((due.len(), due[0].notice.subscriber.as_str(), &due[0].notice.id), (1, "team", &id));
    assert!(due[0].notice.body.contains("exit code: 1"));
    next.postpone_notice(due[0].number, Timestamp(u64::MAX >> 1)).unwrap();
    assert_eq!(next.due_notices().unwrap(), []);
    assert_eq!(next.next_notice(Some(&id)).unwrap(), Some(Timestamp(u64::MAX >> 1)));
    assert_eq!(next.next_notice(Some("other")).unwrap(), None);
    next.remove_notice(due[0].number).unwrap();
    assert_eq!(next.next_notice(None).unwrap(), None);
    // Nobody wants to know of this one.
    drive(announcing.submit(submission(&["true"], folder.path())).await.unwrap()).await;
    assert!(!stored.has_changed().unwrap());
    assert_eq!(next.next_notice(None).unwrap(), None);
}

#[tokio::test]
async fn one_process_at_a_time_has_the_outbox() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (engine(folder.path()), engine(folder.path()));
    let outbox = first.outbox().unwrap().unwrap();
    assert!(second.outbox().unwrap().is_none());
    drop(outbox);
    assert!(second.outbox().unwrap().is_some());
}
