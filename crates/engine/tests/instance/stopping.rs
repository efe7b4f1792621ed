//! A stop reaches every process, keeps what was written, and takes no longer than its grace.

use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use trainyard_engine::run::{Outcome, Report};

use super::case::{Case, DEADLINE, users};

#[test]
fn a_stop_before_the_start_ends_the_instance_without_parts() {
    for user in users() {
        let case = Case::sh(user, "echo never");
        case.prepare().request_stop(Duration::from_secs(30)).unwrap();
        let told = case.run();
        assert_eq!(told.outcome(), &Outcome::Stopped);
        assert!(told.log.is_empty() && told.parts().model.is_none());
        assert!(!told.reports.contains(&Report::Training));
    }
}

#[test]
fn a_stop_while_inputs_are_awaited_ends_the_instance() {
    let mut case = Case::sh(users()[0], "echo never");
    case.channel("train", &[("a", "a")]);
    let directory = case.prepare();
    let locks = directory.run().unwrap().bases().join("all/locks");
    fs::create_dir_all(&locks).unwrap();
    let lock = fs::File::create(locks.join("train")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let supervised = case.start();
    supervised.until(|told| !told.reports.is_empty());
    directory.request_stop(Duration::from_secs(30)).unwrap();
    let told = supervised.wait();
    assert_eq!(told.outcome(), &Outcome::Stopped);
    assert!(told.log.is_empty());
}

#[test]
fn every_process_gets_sigterm_and_what_it_writes_then_is_kept() {
    for user in users() {
        // Neither shell passes the signal on to the other.
        let script = "
            (trap 'echo child >> /opt/ml/model/who; exit' TERM; echo ready; while :; do sleep 0.1; done) &
            setsid sh -c 'trap \"echo other >> /opt/ml/output/data/who; exit\" TERM; echo ready; while :; do sleep 0.1; done' &
            trap '' TERM; wait; wait";
        let supervised = Case::sh(user, script).start();
        supervised.until(|told| told.stdout().len() == 2);
        supervised.directory.request_stop(DEADLINE).unwrap();
        let told = supervised.wait();
        assert_eq!(told.outcome(), &Outcome::Stopped);
        assert_eq!(told.parts().model.as_ref().map(|part| part.entries), Some(1));
        assert_eq!(told.parts().output.as_ref().map(|part| part.entries), Some(1));
    }
}

#[test]
fn who_ignores_sigterm_is_killed_when_the_grace_has_ended() {
    for user in users() {
        let script =
            "trap 'echo asked' TERM; echo kept > /opt/ml/model/x; echo ready; while :; do sleep 0.1; done";
        let supervised = Case::sh(user, script).start();
        supervised.until_line("ready");
        let asked = Instant::now();
        supervised.directory.request_stop(Duration::from_millis(700)).unwrap();
        let told = supervised.wait();
        assert!(asked.elapsed() >= Duration::from_millis(700));
        assert_eq!(told.stdout(), ["ready", "asked"]);
        assert_eq!(told.outcome(), &Outcome::Stopped);
        assert!(told.parts().model.is_some());
    }
}

#[test]
fn a_later_request_makes_the_grace_shorter_but_never_longer() {
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done";
    let supervised = Case::sh(users()[0], script).start();
    supervised.until_line("ready");
    supervised.directory.request_stop(Duration::from_secs(3600)).unwrap();
    supervised.until_line("asked");
    supervised.directory.request_stop(Duration::ZERO).unwrap();
    supervised.directory.request_stop(Duration::from_secs(3600)).unwrap();
    // Either request may be the one that is seen, so the short one is made again.
    supervised.directory.request_stop(Duration::ZERO).unwrap();
    assert_eq!(supervised.wait().outcome(), &Outcome::Stopped);
}

#[test]
fn sigterm_to_the_supervisor_is_a_request_with_the_grace_of_the_plan() {
    for user in users() {
        let mut case =
            Case::sh(user, "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.1; done");
        case.plan.grace = DEADLINE;
        let supervised = case.start();
        supervised.until_line("ready");
        let pid = Pid::from_child(&supervised.child);
        // A terminal sends it to all that runs in it.
        kill_process(pid, Signal::INT).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let told = supervised.wait();
        assert_eq!(told.stdout(), ["ready", "asked"]);
        assert_eq!(told.outcome(), &Outcome::Stopped);
    }
}
