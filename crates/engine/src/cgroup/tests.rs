use super::*;

/// A folder that looks like a tree of version 2, with the files of the groups that are named.
fn unified(groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (group, controllers, processes) in groups {
        let folder = root.path().join(group);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [
            ("cgroup.controllers", *controllers),
            ("cgroup.procs", processes),
            ("cgroup.subtree_control", ""),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        if !group.is_empty() {
            fs::write(folder.join("cgroup.type"), "domain\n").unwrap();
        }
    }
    root
}

fn hierarchy(root: &Path, own: &str) -> Hierarchy {
    Hierarchy { unified: true, controllers: Vec::new(), mount: root.to_owned(), own: root.join(own) }
}

#[test]
fn of_version_2_the_nearest_group_without_processes_is_divided() {
    let root = unified(&[
        ("", "cpu memory pids", "1\n"),
        ("user", "cpu memory pids", ""),
        ("user/session", "memory pids", "7\n"),
        ("empty", "", ""),
    ]);
    let found = |own: &str| parent(&hierarchy(root.path(), own)).unwrap();
    let all = vec![Controller::Cpu, Controller::Memory, Controller::Pids];
    assert_eq!(found("user/session"), Some((root.path().join("user"), all.clone())));
    assert_eq!(found("empty"), Some((root.path().to_owned(), all)), "the root of all may have both");
}

#[test]
fn a_container_whose_root_has_processes_has_no_group_to_divide() {
    let root = unified(&[("", "cpu memory pids", "1\n")]);
    fs::write(root.path().join("cgroup.type"), "domain\n").unwrap();
    assert_eq!(parent(&hierarchy(root.path(), "")).unwrap(), None);
    let error = Group::create_in(&[hierarchy(root.path(), "")], "job-1-algo-1").unwrap_err();
    assert!(error.to_string().contains("systemd-run --user --scope"), "{error}");
}

#[test]
fn controllers_are_switched_on_from_above_and_the_folder_goes_with_the_last_group() {
    let root = unified(&[("", "memory pids", "1\n")]);
    let group = Group::create_in(&[hierarchy(root.path(), "")], "job-1-algo-1").unwrap();
    assert_eq!(fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap(), "+pids");
    let folders: Vec<_> = fs::read_dir(root.path().join(FOLDER)).unwrap().collect();
    assert_eq!(folders.len(), 1);
    assert!(group.has(Controller::Memory) && !group.has(Controller::Cpu));
    assert_eq!(group.hierarchies(), [Vec::<String>::new()]);
    assert!(group.remove());
    assert!(!root.path().join(FOLDER).exists());
}

fn part(unified: bool, files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        fs::write(folder.path().join(file), text).unwrap();
    }
    let part = Part { unified, controllers: Controller::ALL.to_vec(), folder: folder.path().to_owned() };
    (folder, Group { parts: vec![part] })
}

#[test]
fn limits_are_written_as_each_version_wants_them() {
    let limits = Limits { cpus: Some(2), memory: Some(1 << 30), pids: 100, volume: None };
    let table: [(bool, &[(&str, &str)]); 2] = [
        (
            true,
            &[
                ("cpu.max", "200000 100000"),
                ("memory.max", "1073741824"),
                ("memory.swap.max", "0"),
                ("pids.max", "100"),
            ],
        ),
        (
            false,
            &[
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "200000"),
                ("memory.limit_in_bytes", "1073741824"),
                ("memory.memsw.limit_in_bytes", "1073741824"),
                ("pids.max", "100"),
            ],
        ),
    ];
    for (unified, expected) in table {
        let empty: Vec<_> = expected.iter().map(|(file, _)| (*file, "")).collect();
        let (folder, group) = part(unified, &empty);
        assert_eq!(group.limit(&limits), Vec::<String>::new());
        for (file, text) in expected {
            assert_eq!(fs::read_to_string(folder.path().join(file)).unwrap(), *text, "{file}");
        }
    }
}

#[test]
fn a_limit_that_can_not_be_set_is_named() {
    let (_folder, group) = part(true, &[("pids.max", "")]);
    let limits = Limits { cpus: Some(2), memory: None, pids: 100, volume: None };
    let missing = group.limit(&limits);
    assert!(missing.len() == 1 && missing[0].starts_with("2 CPUs: "), "{missing:?}");
}

#[test]
fn what_happened_to_the_memory_is_read_of_both_versions() {
    let (_folder, group) = part(
        true,
        &[
            ("memory.events", "low 0\nmax 9\noom 7\noom_kill 3\noom_group_kill 1\n"),
            ("memory.peak", "5000\n"),
            ("memory.max", "max\n"),
            ("pids.events", "max 4\n"),
        ],
    );
    assert_eq!(group.memory(), MemoryUse { kills: 3, peak: Some(5000), limit: None });
    assert_eq!(group.refused_processes(), 4);
    let (_folder, group) = part(
        false,
        &[
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("memory.max_usage_in_bytes", "4096\n"),
            ("memory.limit_in_bytes", "8192\n"),
        ],
    );
    assert_eq!(group.memory(), MemoryUse { kills: 2, peak: Some(4096), limit: Some(8192) });
    let (_folder, group) = part(false, &[("memory.limit_in_bytes", "9223372036854771712\n")]);
    assert_eq!(group.memory().limit, None, "the kernel's way to say that there is none");
}

#[test]
fn only_groups_of_supervisors_that_are_no_more_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let own = Process::of(std::process::id()).unwrap();
    let (living, dead) = (format!("job-1-algo-1.{own}"), format!("job-1-algo-2.{}@1", std::process::id()));
    for name in [living.as_str(), dead.as_str(), "somebody-else's"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    remove_leftovers(folder.path());
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [living.as_str(), "somebody-else's"]);
}

#[test]
fn the_capacity_is_what_the_machine_has_or_less() {
    let capacity = capacity();
    assert!(capacity.cpus >= 1 && capacity.memory > 0);
    assert!(capacity.memory <= capacity::machine_memory());
}
