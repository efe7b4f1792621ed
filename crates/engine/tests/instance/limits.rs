//! An instance takes no more than it may, and what it took is told.

use std::path::{Path, PathBuf};

use fs_err as fs;
use trainyard_engine::cgroup;
use trainyard_engine::run::{Exit, Outcome, Report};

use super::case::{Case, User, users};

/// A job name that no other test and no other run of this one has.
fn own_name(case: &mut Case, name: &str) -> String {
    case.plan.job = format!("{name}-{}", std::process::id());
    case.plan.job.clone()
}

/// The control groups of a job, wherever they are.
fn groups(job: &str) -> Vec<PathBuf> {
    fn search(folder: &Path, job: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(job) {
                    found.push(entry.path());
                }
                search(&entry.path(), job, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), job, &mut found);
    found
}

/// Whether this user can have control groups; says why a test is left out if not.
fn has_groups() -> bool {
    match cgroup::probe() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

const MEBIBYTE: u64 = 1 << 20;
/// Takes twice as much memory as these tests allow.
const HOG: &str = "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null";

#[test]
fn out_of_memory_is_told_with_used_and_allowed_bytes() {
    if !has_groups() {
        return;
    }
    let mut case = Case::sh(User::Own, &format!("echo before; exec sh -c '{HOG}; exit $?'"));
    let job = own_name(&mut case, "hog");
    case.plan.limits.memory = Some(100 * MEBIBYTE);
    let told = case.run();
    let Outcome::Failed { exit, explanation } = told.outcome() else { panic!("{told:?}") };
    assert_eq!(*exit, Exit::OutOfMemory, "{told:?}");
    assert!(explanation.starts_with("used "), "{explanation}");
    assert!(explanation.ends_with("of 100.0 MiB (104857600 bytes) allowed"), "{explanation}");
    assert!(told.reports.contains(&Report::Exited(Exit::OutOfMemory)));
    assert_eq!(groups(&job), Vec::<PathBuf>::new());
}

#[test]
fn a_child_that_is_killed_for_want_of_memory_while_the_program_goes_on_is_a_warning() {
    if !has_groups() {
        return;
    }
    let mut case = Case::sh(User::Own, &format!("{HOG}; echo on"));
    case.plan.limits.memory = Some(100 * MEBIBYTE);
    let told = case.run();
    assert_eq!(told.completed(), ["on"]);
    let warned = told.warnings().iter().any(|text| {
        text.starts_with("the kernel has killed programs") && text.ends_with("(104857600 bytes) allowed")
    });
    assert!(warned, "{:?}", told.warnings());
}

#[test]
fn shared_memory_counts_as_memory_and_is_half_of_it() {
    if !has_groups() {
        return;
    }
    let mut case = Case::sh(User::Own, "df -k /dev/shm | tail -n 1 | awk '{print $2}'");
    case.plan.limits.memory = Some(100 * MEBIBYTE);
    assert_eq!(case.run().completed(), [(50 * 1024).to_string()]);
}

/// Starts processes until one is refused or there are 200, and says how many there were.
const BOMB: &str = "
    i=0
    while [ $i -lt 200 ] && ( sleep 60 & ) 2>/dev/null; do i=$((i+1)); done
    # Only builtins: there is no process left for another program.
    echo started $i";

#[test]
fn a_fork_bomb_stays_within_the_limit_of_processes() {
    for user in users() {
        if user == User::Own && !has_groups() {
            continue;
        }
        let mut case = Case::sh(user, BOMB);
        let job = own_name(&mut case, "bomb");
        case.plan.limits.pids = 40;
        let told = case.run();
        let started: u32 = match told.stdout().first() {
            Some(line) => line.strip_prefix("started ").unwrap().parse().unwrap(),
            // A shell that can't start a process may give up.
            None => 0,
        };
        assert!(started < 40, "{user:?}: {started} of 200 were started");
        assert!(!told.log.is_empty() || matches!(told.outcome(), Outcome::Failed { .. }), "{told:?}");
        assert_eq!(groups(&job), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_user_who_may_have_fewer_processes_than_the_default_can_run_an_instance() {
    let case = Case::sh(*users().last().unwrap(), "echo on");
    let directory = case.prepare();
    let mut command = std::process::Command::new("prlimit");
    command.args(["--nproc=500:500", "--"]).arg(case.program()).arg("instance").arg(directory.root());
    assert_eq!(case.start_as(command, directory).wait().completed(), ["on"]);
}

#[test]
fn a_limit_of_processes_that_was_reached_is_a_warning_where_they_are_counted() {
    if !has_groups() {
        return;
    }
    let mut case = Case::sh(User::Own, BOMB);
    case.plan.limits.pids = 40;
    let told = case.run();
    assert!(told.warnings().iter().any(|text| text.contains("PidsLimit")), "{:?}", told.warnings());
}

#[test]
fn an_instance_sees_its_own_limits_and_can_not_change_them() {
    if !has_groups() {
        return;
    }
    let script = "
        cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
        cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null
        find /sys/fs/cgroup -name 'pids.max' -exec sh -c 'echo 1000 > $0 || echo refused' {} \\; 2>/dev/null
        grep -c trainyard /proc/self/cgroup";
    let mut case = Case::sh(User::Own, script);
    case.plan.limits.memory = Some(100 * MEBIBYTE);
    case.plan.limits.pids = 77;
    let told = case.run();
    assert_eq!(told.stdout(), ["104857600", "77", "refused", "0"]);
}

#[test]
fn processor_time_is_limited_to_the_processors_of_the_type() {
    if !has_groups() {
        return;
    }
    // Whether there is more to be had than one processor depends on what else the machine does; that the kernel counts
    // periods means that it watches the quota.
    let script = "
        cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null
        while ! grep -qs '^nr_periods [1-9]' /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpu/cpu.stat; do :; done
        echo counted";
    let mut case = Case::sh(User::Own, script);
    case.plan.limits.cpus = Some(1);
    let told = case.run();
    let [quota, "counted"] = told.completed()[..] else { panic!("{told:?}") };
    assert!(["100000", "100000 100000"].contains(&quota), "{quota}");
}

#[test]
fn who_may_not_have_control_groups_is_told_what_is_not_enforced() {
    if !users().contains(&User::Ordinary) {
        eprintln!("skipped: only root can be sure that somebody may not");
        return;
    }
    let mut case = Case::sh(User::Ordinary, "echo on");
    case.plan.limits.cpus = Some(2);
    case.plan.limits.memory = Some(8 << 30);
    let told = case.run();
    assert_eq!(told.completed(), ["on"]);
    let [warning] = told.warnings()[..] else { panic!("{:?}", told.warnings()) };
    let start =
        "the limits of the instance (2 CPUs, 8.0 GiB (8589934592 bytes) of memory) can't be enforced: ";
    assert!(warning.starts_with(start), "{warning}");
    // Nothing is said of what nobody asked for.
    assert_eq!(Case::sh(User::Ordinary, "true").run().warnings(), Vec::<&str>::new());
}

#[test]
fn the_group_of_a_supervisor_that_was_killed_is_removed_by_the_next() {
    if !has_groups() {
        return;
    }
    let mut case = Case::sh(User::Own, "echo ready; sleep 1000");
    let job = own_name(&mut case, "killed");
    let mut supervised = case.start();
    supervised.until_line("ready");
    assert!(!groups(&job).is_empty());
    supervised.child.kill().unwrap();
    supervised.child.wait().unwrap();
    // Its processes end with it, but nobody waits for that.
    while groups(&job).iter().any(|group| !fs::read(group.join("cgroup.procs")).unwrap().is_empty()) {
        std::thread::yield_now();
    }
    assert!(!groups(&job).is_empty());
    Case::sh(User::Own, "true").run().completed();
    assert_eq!(groups(&job), Vec::<PathBuf>::new());
}

#[test]
fn more_than_the_volume_holds_fails_the_instance_with_the_numbers() {
    for user in users() {
        // At its end at the latest.
        for after in ["", "; while :; do sleep 1; done"] {
            let script = format!("head -c 3000000 /dev/zero > /tmp/large; echo written{after}");
            let mut case = Case::sh(user, &script);
            case.channel("train", &[("a", &"x".repeat(1_000_000))]);
            case.plan.limits.volume = Some(3_500_000);
            let told = case.run();
            assert_eq!(told.stdout(), ["written"]);
            let start = "the volume is full: inputs and what was written have ";
            assert!(told.explanation().starts_with(start), "{}", told.explanation());
            assert!(told.explanation().ends_with("VolumeSizeInGB allows 3.3 MiB (3500000 bytes)"));
        }
        let mut case = Case::sh(user, "head -c 3000000 /dev/zero > /opt/ml/model/large");
        case.plan.limits.volume = Some(3_500_000);
        case.run().completed();
    }
}

#[test]
fn devices_files_and_links_of_a_gpu_are_there() {
    use trainyard_engine::plan::{DeviceEdits, Exposed};
    for user in users() {
        let mut case = Case::sh(user, "head -c 3 /dev/made/up | od -An -tx1; cat /opt/driver/library");
        let library = case.folder.path().join("library");
        fs::write(&library, "of the driver\n").unwrap();
        case.plan.gpus.names = vec!["nvidia.com/gpu=0".to_owned()];
        case.plan.gpus.edits = DeviceEdits {
            nodes: vec![Exposed { source: "/dev/zero".into(), target: "/dev/made/up".into() }],
            files: vec![Exposed { source: library, target: "/opt/driver/library".into() }],
            ..DeviceEdits::default()
        };
        assert_eq!(case.run().completed(), [" 00 00 00", "of the driver"]);
    }
}
