//! An instance has a world of its own.

use std::path::Path;

use fs_err as fs;
use rustix::process::{PidfdFlags, Signal, kill_process, pidfd_open};
use trainyard_engine::plan::{Exposed, RuntimePlan};
use trainyard_engine::run::Outcome;
use trainyard_engine::runtime::Shield;

use super::case::{Case, User, processes, users, wait_readable};

#[test]
fn the_host_name_is_the_host_and_every_host_has_its_address() {
    for user in users() {
        let told = Case::sh(user, "hostname; cat /etc/hostname; getent hosts algo-2").run();
        let lines = told.completed();
        assert_eq!(lines[..2], ["algo-1", "algo-1"]);
        assert!(lines[2].starts_with("127.0.0.2"), "{lines:?}");
    }
}

#[test]
fn temporary_files_of_the_machine_and_of_an_instance_are_strangers() {
    for user in users() {
        let case = Case::sh(user, "ls -A /tmp | wc -l; stat -c %a /tmp; touch /tmp/of-the-instance; ls /tmp");
        let told = case.run();
        assert_eq!(told.completed(), ["0", "1777", "of-the-instance"]);
        assert!(!Path::new("/tmp/of-the-instance").exists());
    }
}

#[test]
fn the_environment_is_what_the_plan_says_and_nothing_else() {
    for user in users() {
        let mut case = Case::new(user, &["env"]);
        case.plan.environment.insert("KEY".to_owned(), "a value\twith = signs".to_owned());
        let told = case.run();
        let mut lines = told.completed();
        lines.sort_unstable();
        let path = format!("PATH={}", case.plan.environment["PATH"]);
        assert_eq!(lines, ["KEY=a value\twith = signs", path.as_str()]);
    }
}

#[test]
fn nothing_of_the_supervisor_is_open_or_readable_to_the_program() {
    for user in users() {
        let script = "ls /proc/self/fd | wc -l
            cat /proc/1/environ || echo no environment; readlink /proc/1/fd/0 || echo no socket";
        let told = Case::sh(user, script).run();
        // Standard input, output and error, and the folder that ls reads.
        assert_eq!(told.completed(), ["4", "no environment", "no socket"]);
    }
}

#[test]
fn what_is_written_elsewhere_is_forgotten() {
    for user in users() {
        let name = format!("trainyard-test-{}", std::process::id());
        let write = format!("echo x > $f/{name} && cat $f/{name} || echo refused");
        let script = format!("for f in /usr /etc /var /root; do {write}; done 2>/dev/null");
        let told = Case::sh(user, &script).run();
        // Folders of others are read-only for an ordinary user; a home of its own stands for root's.
        let others = if user == User::Own && rustix::process::getuid().is_root() { "x" } else { "refused" };
        assert_eq!(told.completed(), [others, others, others, "x"]);
        for folder in ["/usr", "/etc", "/var", "/root"] {
            assert!(!Path::new(folder).join(&name).exists(), "{folder}");
        }
    }
}

#[test]
fn what_is_removed_elsewhere_is_still_there_afterwards() {
    // Only root may remove the file that this test makes.
    if !rustix::process::getuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir_in("/usr/local").unwrap();
    fs::write(folder.path().join("file"), "content").unwrap();
    let path = folder.path().display();
    let told = Case::sh(users()[0], &format!("rm -r {path} && ls {path} || echo gone")).run();
    assert_eq!(told.completed(), ["gone"]);
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "content");
}

#[test]
fn without_overlays_what_is_written_elsewhere_is_refused() {
    for user in users() {
        let script = "for f in /usr /etc /var; do touch $f/trainyard-test || echo refused; done
            echo x > /opt/ml/model/x && echo y > /tmp/y && cat /opt/ml/model/x /tmp/y && hostname && cat /etc/hostname";
        let mut case = Case::sh(user, script);
        case.shield = Shield::ReadOnly;
        case.channel("train", &[("a", "a")]);
        let told = case.run();
        assert_eq!(told.completed(), ["refused", "refused", "refused", "x", "y", "algo-1", "algo-1"]);
        assert!(told.parts().model.is_some());
    }
}

#[test]
fn settings_of_the_machine_and_mounts_can_not_be_changed() {
    for user in users() {
        let script = "
            (echo 1 > /proc/sys/vm/overcommit_memory) 2>/dev/null || echo settings
            (echo h > /proc/sysrq-trigger) 2>/dev/null || echo sysrq
            mount -o remount,rw,bind /proc/sys 2>/dev/null || echo remount
            mount -t tmpfs none /mnt 2>/dev/null || echo mount
            umount /opt/ml 2>/dev/null || echo umount
            touch /sys/x 2>/dev/null || echo sys
            mknod /dev/disk b 254 0 2>/dev/null && cat /dev/disk > /dev/null 2>&1 || echo device
            unshare -Urm sh -c 'mount -o remount,rw,bind /proc/sys' 2>/dev/null || echo nested";
        let told = Case::sh(user, script).run();
        let expected = ["settings", "sysrq", "remount", "mount", "umount", "sys", "device", "nested"];
        assert_eq!(told.completed(), expected);
    }
}

#[test]
fn shared_memory_has_the_size_of_the_plan() {
    for user in users() {
        let mut case = Case::sh(user, "df --output=size -B1 /dev/shm | tail -1; echo x > /dev/shm/x");
        case.plan.shm_size = Some(64 << 20);
        assert_eq!(case.run().completed()[0].trim(), "67108864");
    }
}

#[test]
fn shared_memory_is_half_of_the_memory_by_default() {
    let told =
        Case::sh(users()[0], "df --output=size -B1024 /dev/shm | tail -1; head -1 /proc/meminfo").run();
    let lines = told.completed();
    let size: u64 = lines[0].trim().parse().unwrap();
    let memory: u64 = lines[1].split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(size.abs_diff(memory / 2) <= 8, "{lines:?}");
}

#[test]
fn what_is_exposed_lies_at_its_target_and_can_not_be_changed() {
    for user in users() {
        for shield in [Shield::Overlay, Shield::ReadOnly] {
            let script = "cat /tmp/deep/file /made/up/file /usr/local/made-up/one
                echo x >> /tmp/deep/file || echo refused; rm /made/up/file || echo refused";
            let mut case = Case::sh(user, script);
            case.shield = shield;
            let folder = case.folder.path().join("shown");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("file"), "content\n").unwrap();
            let exposed =
                |source: &Path, target: &str| Exposed { source: source.into(), target: target.into() };
            case.plan.runtime = RuntimePlan::Host {
                exposed: vec![
                    exposed(&folder, "/tmp/deep"),
                    exposed(&folder, "/made/up"),
                    exposed(&folder.join("file"), "/usr/local/made-up/one"),
                ],
                working_directory: "/".into(),
            };
            let told = case.run();
            assert_eq!(told.completed(), ["content", "content", "content", "refused", "refused"]);
            assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "content\n");
        }
    }
}

#[test]
fn the_program_starts_in_its_working_directory() {
    for user in users() {
        let mut case = Case::new(user, &["pwd"]);
        case.plan.runtime =
            RuntimePlan::Host { exposed: Vec::new(), working_directory: "/opt/ml/model".into() };
        assert_eq!(case.run().completed(), ["/opt/ml/model"]);
    }
}

#[test]
fn every_process_dies_with_the_program_also_one_that_left_its_session() {
    for user in users() {
        let marker = format!("98765.{}", std::process::id());
        let told = Case::sh(user, &format!("setsid sleep {marker} & sleep {marker} & echo started")).run();
        assert_eq!(told.completed(), ["started"]);
        assert_eq!(processes(&marker), []);
    }
}

#[test]
fn nothing_survives_a_supervisor_that_is_killed() {
    for user in users() {
        let marker = format!("87654.{}", std::process::id());
        let case =
            Case::sh(user, &format!("trap '' TERM; setsid sleep {marker} & echo started; sleep {marker}"));
        let mut supervised = case.start();
        supervised.until_line("started");
        let running = processes(&marker);
        assert!(!running.is_empty());
        let ends: Vec<_> =
            running.iter().filter_map(|pid| pidfd_open(*pid, PidfdFlags::empty()).ok()).collect();
        supervised.child.kill().unwrap();
        supervised.child.wait().unwrap();
        ends.iter().for_each(wait_readable);
        assert_eq!(processes(&marker), []);
    }
}

#[test]
fn an_instance_whose_first_process_is_killed_ends_with_sigkill() {
    for user in users() {
        let marker = format!("76543.{}", std::process::id());
        let supervised = Case::sh(user, &format!("echo started; sleep {marker}")).start();
        supervised.until_line("started");
        let inits = processes("instance-init");
        let program = processes(&marker)[0];
        let parent = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let stat = parent(program.as_raw_nonzero());
        let shell = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().to_owned();
        let first = inits.into_iter().find(|pid| {
            let children = format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero());
            let children = fs::read_to_string(children).unwrap_or_default();
            children
                .split_whitespace()
                .any(|child| child == shell || child == program.as_raw_nonzero().to_string())
        });
        kill_process(first.unwrap(), Signal::KILL).unwrap();
        let told = supervised.wait();
        assert!(matches!(told.outcome(), Outcome::Failed { exit, .. } if exit.code() == 137), "{told:?}");
    }
}

#[test]
fn a_kernel_that_refuses_namespaces_is_explained_with_the_setting_that_does_it() {
    for user in users() {
        let told =
            Case::sh(user, "true").run_on("echo 0 > /proc/sys/user/max_user_namespaces; cp -a run/. other/");
        assert!(matches!(told.outcome(), Outcome::Broken { .. }), "{told:?}");
        assert!(told.explanation().contains("user.max_user_namespaces is 0"), "{}", told.explanation());
    }
}
