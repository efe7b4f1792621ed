//! Promises of the state machine.

use std::time::Duration;

use indexmap::IndexMap;
use proptest::prelude::*;

use super::*;
use crate::artifact::Codec;
use crate::plan::{
    GpuPlan, HostAddress, InstancePlan, JobPlan, Limits, MergePlan, OutputPlace, OutputPlan, Role,
    RuntimePlan, StoragePlan,
};
use crate::run::Exit;
use crate::spec::OutputCompression;

fn instance_plan(host: &str) -> InstancePlan {
    InstancePlan {
        job: "job".into(),
        attempt: 1,
        host: host.into(),
        hosts: vec![HostAddress { name: host.into(), address: "127.0.0.1".into() }],
        network: crate::plan::NetworkPlan::Alone,
        role: Role::Train,
        runtime: RuntimePlan::Host { exposed: Vec::new(), working_directory: "/".into() },
        command: vec!["train".into()],
        environment: IndexMap::new(),
        config: IndexMap::new(),
        channels: Vec::new(),
        metrics: Vec::new(),
        grace: Duration::from_secs(120),
        shm_size: None,
        limits: Limits::of_pids(None),
        gpus: GpuPlan::default(),
        compression_level: 6,
        model: OutputCompression::Gzip,
        ignore: Vec::new(),
        warn_above: u64::MAX,
        storage: StoragePlan::default(),
    }
}

fn job_plan(hosts: usize, merge: bool) -> JobPlan {
    let instances = (1..=hosts).map(|number| instance_plan(&format!("algo-{number}"))).collect();
    let merge = merge.then(|| MergePlan { instance: instance_plan(MERGE_HOST), output: "all.csv".into() });
    let place = OutputPlace::Folder("/out".into());
    let output = OutputPlan { place, uri: "s3://b/out".into(), model: OutputCompression::Gzip };
    JobPlan {
        job: "job".into(),
        attempt: 1,
        instances,
        merge,
        output,
        max_runtime: Duration::from_secs(60),
        warnings: Vec::new(),
    }
}

fn report(host: &str, report: Report) -> Event {
    Event::Reported { host: host.into(), report: Stamped { at: Timestamp(0), report } }
}

fn ended(host: &str, outcome: Outcome) -> Event {
    let part = Part {
        entries: 1,
        tar_bytes: 512,
        compressed_bytes: 20,
        crc32: 1,
        codec: Codec::Gzip,
        uploaded: Vec::new(),
    };
    report(host, Report::Ended { outcome, parts: Parts { model: Some(part), output: None } })
}

fn failed(code: i32) -> Outcome {
    Outcome::Failed { exit: Exit::Code(code), explanation: "no rows".into() }
}

/// A job that is planned and waits for its launch.
fn submitted(plan: &JobPlan) -> Job {
    let mut job = Job::submit(&plan.outline(), Timestamp(1_000));
    let effects = job.apply(Timestamp(1_000), Event::Planned { warnings: plan.warnings.clone() });
    let hosts = plan.outline().hosts;
    assert_eq!(effects, [Effect::Launch { hosts }]);
    job
}

/// Applies events one second apart and returns the job with all effects after the first launch.
fn run(plan: &JobPlan, events: Vec<Event>) -> (Job, Vec<Effect>) {
    let mut job = submitted(plan);
    let mut effects = Vec::new();
    for (second, event) in events.into_iter().enumerate() {
        effects.extend(job.apply(Timestamp(2_000 + 1_000 * second as u64), event));
    }
    (job, effects)
}

fn secondary(job: &Job) -> Vec<SecondaryStatus> {
    job.transitions.iter().map(|transition| transition.status).collect()
}

#[test]
fn a_job_goes_through_the_statuses_of_the_api_and_completes_with_the_last_instance() {
    let events = vec![
        Event::Launched,
        report("algo-1", Report::Staging { objects: 0, bytes: 0, of_objects: 0, of_bytes: 0, millis: 0 }),
        report("algo-2", Report::Staging { objects: 0, bytes: 0, of_objects: 0, of_bytes: 0, millis: 0 }),
        report("algo-1", Report::Training),
        ended("algo-1", Outcome::Completed),
        report("algo-2", Report::Training),
        ended("algo-2", Outcome::Completed),
        Event::Published(Published::default()),
    ];
    let (job, effects) = run(&job_plan(2, false), events);
    use SecondaryStatus::{Completed, Downloading, Starting, Training, Uploading};
    assert_eq!(secondary(&job), [Starting, Downloading, Training, Uploading, Completed]);
    assert_eq!(effects, [Effect::StartRuntimeTimer, Effect::Publish, Effect::Release, Effect::Notify]);
    assert_eq!(job.status, Status::Completed);
    assert_eq!(job.started, Some(Timestamp(3_000)));
    let last = job.transitions.last().unwrap();
    assert_eq!((last.end, job.ended), (Some(last.start), Some(last.start)));
}

#[test]
fn an_instance_that_ends_with_0_does_not_end_the_others() {
    let events = vec![Event::Launched, ended("algo-1", Outcome::Completed)];
    let (job, effects) = run(&job_plan(2, false), events);
    assert_eq!(effects, []);
    assert_eq!(job.running_hosts(), ["algo-2"]);
}

#[test]
fn the_first_failure_stops_the_others_and_is_the_reason_while_what_was_written_is_archived() {
    let events = vec![
        Event::Launched,
        ended("algo-1", Outcome::Completed),
        ended("algo-3", failed(3)),
        ended("algo-2", failed(143)),
        Event::Published(Published::default()),
    ];
    let (job, effects) = run(&job_plan(3, true), events);
    assert_eq!(
        effects,
        [Effect::Stop { hosts: vec!["algo-2".into()] }, Effect::Publish, Effect::Release, Effect::Notify]
    );
    assert_eq!(job.status, Status::Failed);
    assert_eq!(job.failure_reason.as_deref(), Some("AlgorithmError: no rows, exit code: 3 (algo-3)"));
    assert_eq!(secondary(&job)[1..], [SecondaryStatus::Uploading, SecondaryStatus::Failed]);
}

#[test]
fn a_stop_ends_as_stopped_whatever_the_exit_codes_are() {
    let events = vec![
        Event::Launched,
        report("algo-1", Report::Training),
        Event::StopRequested,
        ended("algo-1", failed(143)),
        Event::Published(Published::default()),
    ];
    let (job, effects) = run(&job_plan(1, true), events);
    assert_eq!(effects[0], Effect::Stop { hosts: vec!["algo-1".into()] });
    assert_eq!((job.status, job.secondary_status()), (Status::Stopped, SecondaryStatus::Stopped));
    assert_eq!(job.failure_reason, None);
}

#[test]
fn a_stop_that_comes_before_the_launch_is_carried_out_after_it() {
    let (job, effects) = run(&job_plan(1, false), vec![Event::StopRequested, Event::Launched]);
    assert_eq!(effects, [Effect::Stop { hosts: vec!["algo-1".into()] }]);
    assert_eq!(job.status, Status::Stopping);
}

#[test]
fn a_job_whose_time_is_up_is_stopped_and_says_so() {
    let events = vec![
        Event::Launched,
        report("algo-1", Report::Staging { objects: 0, bytes: 0, of_objects: 0, of_bytes: 0, millis: 0 }),
        Event::MaxRuntimeReached,
        ended("algo-1", Outcome::Stopped),
        Event::Published(Published::default()),
    ];
    let (job, _) = run(&job_plan(1, false), events);
    assert_eq!((job.status, job.secondary_status()), (Status::Stopped, SecondaryStatus::MaxRuntimeExceeded));
}

#[test]
fn a_lost_instance_fails_the_job_by_name() {
    let (job, _) = run(&job_plan(1, false), vec![Event::Launched, Event::Lost { host: "algo-1".into() }]);
    let reason = job.failure_reason.unwrap();
    assert!(reason.starts_with("InternalServerError: ") && reason.ends_with("(algo-1)"), "{reason}");
}

#[test]
fn clashes_beyond_the_list_are_counted_in_a_warning() {
    let published = Published { clashes_not_listed: 7, ..Published::default() };
    let events = vec![Event::Launched, ended("algo-1", Outcome::Completed), Event::Published(published)];
    let (job, _) = run(&job_plan(1, false), events);
    assert_eq!(job.warnings, ["7 more paths were written by several hosts; every version is kept"]);
}

#[test]
fn the_merge_runs_after_the_artifact_is_published_and_ends_the_job() {
    let published = Published { model: Some("s3://b/out/model.tar.gz".into()), ..Published::default() };
    let events = vec![
        Event::Launched,
        ended("algo-1", Outcome::Completed),
        Event::Published(published),
        Event::Merged { uri: "s3://b/out/all.csv".into() },
    ];
    let (job, effects) = run(&job_plan(1, true), events);
    assert_eq!(effects, [Effect::Publish, Effect::Merge, Effect::Release, Effect::Notify]);
    assert_eq!((job.status, job.merged.as_deref()), (Status::Completed, Some("s3://b/out/all.csv")));
}

#[test]
fn a_resumed_job_starts_only_the_instances_that_had_not_ended_well() {
    let events = vec![
        Event::Launched,
        ended("algo-1", Outcome::Completed),
        ended("algo-2", failed(1)),
        ended("algo-3", Outcome::Stopped),
        Event::Published(Published::default()),
        Event::Resumed,
    ];
    let (job, effects) = run(&job_plan(3, false), events);
    assert_eq!(effects.last(), Some(&Effect::Launch { hosts: vec!["algo-2".into(), "algo-3".into()] }));
    let attempts: Vec<_> = job.instances.iter().map(|instance| instance.attempt).collect();
    assert_eq!((job.status, attempts), (Status::InProgress, vec![1, 2, 2]));
    assert!(job.instances[0].has_completed());
}

#[test]
fn a_status_says_in_which_attempt_it_began_also_if_the_first_was_given_up_before_its_launch() {
    let staging = Report::Staging { objects: 1, bytes: 1, of_objects: 0, of_bytes: 0, millis: 0 };
    let (job, _) = run(&job_plan(1, false), vec![Event::Resumed, Event::Launched, report("algo-1", staging)]);
    let downloads =
        job.transitions.iter().filter(|transition| transition.status == SecondaryStatus::Downloading);
    assert_eq!(downloads.map(|transition| transition.attempt).collect::<Vec<_>>(), [2]);
}

#[test]
fn the_instance_and_the_exit_code_are_never_cut_off_a_long_reason() {
    let outcome = Outcome::Failed { exit: Exit::Signal(11), explanation: "ä".repeat(5_000) };
    let reason = reason::failure_reason("algo-12", &outcome).unwrap();
    assert_eq!(reason.chars().count(), REASON_LIMIT);
    assert!(reason.ends_with("ä, exit code: 139 (algo-12, killed by SIGSEGV)"), "{reason}");
}

fn any_event() -> impl Strategy<Value = Event> {
    let host = prop_oneof![Just("algo-1"), Just("algo-2"), Just("algo-9"), Just(MERGE_HOST)];
    let outcome = prop_oneof![
        Just(Outcome::Completed),
        Just(Outcome::Stopped),
        Just(failed(1)),
        Just(Outcome::StagingFailed { explanation: "gone".into() })
    ];
    let reported = (host.clone(), outcome, 0..5).prop_map(|(host, outcome, kind)| match kind {
        0 => report(host, Report::Staging { objects: 1, bytes: 1, of_objects: 0, of_bytes: 0, millis: 0 }),
        1 => report(host, Report::Training),
        2 => report(host, Report::Exited(Exit::Code(0))),
        3 => report(host, Report::Collecting { bytes: 1 }),
        _ => ended(host, outcome),
    });
    let published = Published { model: Some("s3://b/out/model.tar.gz".into()), ..Published::default() };
    prop_oneof![
        6 => reported,
        1 => Just(Event::Launched),
        1 => Just(Event::LaunchFailed { explanation: "no room".into() }),
        1 => host.prop_map(|host| Event::Lost { host: host.into() }),
        1 => Just(Event::StopRequested),
        1 => Just(Event::MaxRuntimeReached),
        1 => Just(Event::Published(published)),
        1 => Just(Event::PublishFailed { explanation: "full".into() }),
        1 => Just(Event::Merged { uri: "s3://b/out/all.csv".into() }),
        1 => Just(Event::MergeFailed { explanation: "columns".into() }),
        1 => Just(Event::Resumed),
    ]
}

proptest! {
    #[test]
    fn any_order_of_events_leaves_the_job_in_a_legal_state(
        events in prop::collection::vec(any_event(), 0..40),
        merge in any::<bool>(),
    ) {
        let mut job = submitted(&job_plan(2, merge));
        for (second, event) in events.into_iter().enumerate() {
            let before = job.clone();
            let resumed = event == Event::Resumed;
            let effects = job.apply(Timestamp(1_000 * second as u64), event);
            if before.has_ended() && !resumed {
                prop_assert_eq!(&before, &job);
            }
            prop_assert_eq!(job.has_ended(), job.ended.is_some());
            prop_assert_eq!(job.status == Status::Failed, job.failure_reason.is_some());
            prop_assert_eq!(effects.contains(&Effect::Release), job.has_ended() && job != before);
            prop_assert_eq!(effects.contains(&Effect::Notify), effects.contains(&Effect::Release));
            for pair in job.transitions.windows(2) {
                prop_assert_ne!((pair[0].status, pair[0].end), (pair[1].status, None));
                prop_assert!(pair[0].end.is_some_and(|end| end <= pair[1].start));
            }
            prop_assert_eq!(job.transitions.last().unwrap().end.is_some(), job.has_ended());
        }
    }
}

#[test]
fn a_job_that_waits_says_its_place_and_goes_on_when_there_is_room() {
    let mut job = Job::submit(&job_plan(1, false).outline(), Timestamp(1_000));
    for ahead in [2, 1, 0] {
        assert_eq!(job.apply(Timestamp(1_000), Event::Queued { ahead }), []);
    }
    assert!(job.transitions[1].message.ends_with("next in the queue"), "{:?}", job.transitions);
    job.apply(Timestamp(2_000), Event::Admitted);
    assert_eq!(
        secondary(&job),
        [SecondaryStatus::Starting, SecondaryStatus::Pending, SecondaryStatus::Starting]
    );
    let effects = job.apply(Timestamp(3_000), Event::Planned { warnings: vec!["a word".into()] });
    assert_eq!(effects, [Effect::Launch { hosts: vec!["algo-1".into()] }]);
    assert_eq!(job.warnings, ["a word"]);
}

#[test]
fn a_job_that_is_stopped_before_it_was_planned_ends_at_once() {
    let mut job = Job::submit(&job_plan(1, false).outline(), Timestamp(1_000));
    job.apply(Timestamp(2_000), Event::Queued { ahead: 0 });
    assert_eq!(job.apply(Timestamp(3_000), Event::StopRequested), [Effect::Release, Effect::Notify]);
    assert_eq!(job.status, Status::Stopped);
}

#[test]
fn a_job_that_can_not_be_planned_fails_with_the_reason() {
    let mut job = Job::submit(&job_plan(1, false).outline(), Timestamp(1_000));
    job.apply(Timestamp(2_000), Event::NotPlanned { explanation: "no such image".into() });
    assert_eq!(job.status, Status::Failed);
    assert_eq!(job.failure_reason.as_deref(), Some("ClientError: no such image"));
}

proptest! {
    /// Whatever was under way when the engine went away is done again by the next one, and nothing else.
    #[test]
    fn what_is_unfinished_after_a_replay_ends_the_job(cut in 0_usize..8, merge: bool, stopped: bool) {
        let plan = job_plan(2, merge);
        let mut events = vec![
            Event::Planned { warnings: Vec::new() },
            Event::Launched,
            report("algo-1", Report::Staging { objects: 0, bytes: 0, of_objects: 0, of_bytes: 0, millis: 0 }),
            ended("algo-1", Outcome::Completed),
        ];
        if stopped {
            events.push(Event::StopRequested);
        }
        events.push(ended("algo-2", Outcome::Completed));
        events.push(Event::Published(Published { model: Some("m".into()), ..Published::default() }));
        events.truncate(cut);
        let stamped: Vec<_> = events.into_iter().map(|event| (Timestamp(2_000), event)).collect();
        let mut job = Job::replay(&plan.outline(), Timestamp(1_000), &stamped);
        if !job.is_planned() {
            prop_assert_eq!(job.unfinished(), []);
            job.apply(Timestamp(3_000), Event::Planned { warnings: Vec::new() });
        }
        for _ in 0..8 {
            let Some(effect) = job.unfinished().into_iter().next_back() else {
                prop_assert!(job.has_ended() || !job.running_hosts().is_empty());
                for host in job.running_hosts() {
                    job.apply(Timestamp(4_000), ended(&host, Outcome::Completed));
                }
                continue;
            };
            let event = match effect {
                Effect::Launch { .. } => Event::Launched,
                Effect::Publish => Event::Published(Published { model: Some("m".into()), ..Published::default() }),
                Effect::Merge => Event::Merged { uri: "u".into() },
                Effect::Stop { hosts } => ended(&hosts[0], Outcome::Stopped),
                Effect::StartRuntimeTimer | Effect::Release | Effect::Notify => ended(&job.running_hosts()[0], Outcome::Completed),
            };
            job.apply(Timestamp(4_000), event);
        }
        prop_assert!(job.has_ended(), "{job:?}");
    }
}
