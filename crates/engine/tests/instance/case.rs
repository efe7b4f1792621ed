//! Makes a run directory for one instance, lets a supervisor carry it out, and reads what it told.

use std::fs::Permissions;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fs_err as fs;
use indexmap::IndexMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};
use tempfile::TempDir;
use trainyard_engine::plan::{
    ChannelPlan, Delivery, GpuPlan, HostAddress, InstancePlan, JobPlan, Limits, NetworkPlan, ObjectPlan,
    OutputPlace, OutputPlan, Role, RuntimePlan, StoragePlan,
};
use trainyard_engine::run::{
    InstanceDirectory, LogLine, Manifests, Outcome, Parts, Report, RunDirectory, Stamped, Stream, Tail,
};
use trainyard_engine::runtime::Shield;
use trainyard_engine::spec::OutputCompression;

/// Nothing here takes that long unless something is wrong.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// `nobody` on most systems.
const ORDINARY: u32 = 65534;

/// Who runs the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Own,
    Ordinary,
}

/// Everybody as whom a supervisor can be started here.
pub(crate) fn users() -> Vec<User> {
    if getuid().is_root() { vec![User::Own, User::Ordinary] } else { vec![User::Own] }
}

/// One instance that is to be run.
pub(crate) struct Case {
    pub(crate) folder: Rc<TempDir>,
    pub(crate) plan: InstancePlan,
    pub(crate) user: User,
    pub(crate) shield: Shield,
    pub(crate) manifests: Manifests,
}

impl Case {
    /// An instance that runs a shell script.
    pub(crate) fn sh(user: User, script: &str) -> Self {
        Self::new(user, &["sh", "-c", script])
    }

    pub(crate) fn new(user: User, command: &[&str]) -> Self {
        let folder = Rc::new(tempfile::tempdir().unwrap());
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let host = |name: &str, address: &str| HostAddress { name: name.into(), address: address.into() };
        let plan = InstancePlan {
            job: "job".to_owned(),
            attempt: 1,
            host: "algo-1".to_owned(),
            hosts: vec![host("algo-1", "127.0.0.1"), host("algo-2", "127.0.0.2")],
            network: NetworkPlan::Alone,
            role: Role::Train,
            runtime: RuntimePlan::Host { exposed: Vec::new(), working_directory: "/".into() },
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            environment: IndexMap::from([("PATH".to_owned(), path)]),
            config: IndexMap::new(),
            channels: Vec::new(),
            metrics: Vec::new(),
            grace: Duration::from_secs(30),
            shm_size: None,
            limits: Limits::of_pids(None),
            gpus: GpuPlan::default(),
            compression_level: 1,
            model: OutputCompression::Gzip,
            ignore: Vec::new(),
            warn_above: u64::MAX,
            storage: StoragePlan::default(),
        };
        Self { folder, plan, user, shield: Shield::Overlay, manifests: Manifests::new() }
    }

    /// Adds a channel with these files and returns the folder of their sources.
    pub(crate) fn channel(&mut self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.folder.path().join("sources").join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut objects = Vec::new();
        for (relative, content) in files {
            let source = folder.join(relative);
            fs::create_dir_all(source.parent().unwrap()).unwrap();
            fs::write(&source, content).unwrap();
            objects.push(ObjectPlan {
                source: source.into(),
                relative: (*relative).to_owned(),
                size: content.len() as u64,
            });
        }
        let name = name.to_owned();
        let delivery = Delivery::Files;
        self.plan.channels.push(ChannelPlan { name, objects, replicated: true, manifest: false, delivery });
        folder
    }

    /// Writes the run directory, unless another instance has.
    pub(crate) fn prepare(&self) -> InstanceDirectory {
        let root = self.folder.path().join("run");
        let run = if root.exists() {
            RunDirectory::open(&root).unwrap()
        } else {
            RunDirectory::create(&root, &self.job(), &self.manifests).unwrap()
        };
        let directory = run.add_instance(&self.plan).unwrap();
        if self.user == User::Ordinary {
            give(self.folder.path());
        }
        directory
    }

    fn job(&self) -> JobPlan {
        JobPlan {
            job: self.plan.job.clone(),
            attempt: 1,
            instances: Vec::new(),
            merge: None,
            output: OutputPlan {
                place: OutputPlace::Folder("/nowhere".into()),
                uri: "s3://nowhere".into(),
                model: OutputCompression::Gzip,
            },
            max_runtime: DEADLINE,
            warnings: Vec::new(),
        }
    }

    /// Starts a supervisor.
    pub(crate) fn start(&self) -> Supervised {
        let directory = self.prepare();
        let mut command = Command::new(self.program());
        command.arg("instance").arg(directory.root());
        if self.shield == Shield::ReadOnly {
            command.arg("read-only");
        }
        self.start_as(command, directory)
    }

    /// The example that supervises, where the case's user finds it.
    pub(crate) fn program(&self) -> PathBuf {
        program(self.folder.path())
    }

    /// Starts what becomes a supervisor.
    pub(crate) fn start_as(&self, mut command: Command, directory: InstanceDirectory) -> Supervised {
        if self.user == User::Ordinary {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        command.stdin(Stdio::null()).env("SECRET", "of the machine");
        Supervised { child: command.spawn().unwrap(), directory, _folder: Rc::clone(&self.folder) }
    }

    /// Runs a supervisor with its run directory on another file system, which `mount` mounts at the
    /// folder `other` with what is in `run`.
    pub(crate) fn run_on(&self, mount: &str) -> Told {
        let directory = self.prepare();
        let script = format!(
            "set -e; mkdir other; {mount}
            ./supervise instance other/instances/algo-1
            cp other/instances/algo-1/*.jsonl run/instances/algo-1/"
        );
        program(self.folder.path());
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        command.current_dir(self.folder.path());
        if self.user == User::Ordinary {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        Supervised { child: command.spawn().unwrap(), directory, _folder: Rc::clone(&self.folder) }.wait()
    }

    /// Runs a supervisor to its end.
    pub(crate) fn run(&self) -> Told {
        self.start().wait()
    }
}

/// Gives everything in a folder to the ordinary user.
fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap().path();
            // A link to the program that cargo has built.
            if !entry.ends_with("supervise") {
                give(&entry);
            }
        }
    }
}

/// The example as it was built.
pub(crate) fn supervisor() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.ancestors().nth(2).unwrap().join("examples/supervise");
    assert!(built.exists(), "build the examples first: cargo build --examples");
    built
}

/// The example, at a place where every user finds it.
fn program(folder: &Path) -> PathBuf {
    let built = supervisor();
    let copy = folder.join("supervise");
    if !copy.exists() && fs::hard_link(&built, &copy).is_err() {
        fs::copy(&built, &copy).unwrap();
    }
    copy
}

/// A running supervisor.
pub(crate) struct Supervised {
    pub(crate) child: Child,
    pub(crate) directory: InstanceDirectory,
    _folder: Rc<TempDir>,
}

impl Supervised {
    /// Waits for the end of the supervisor.
    pub(crate) fn wait(mut self) -> Told {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).unwrap();
        wait_readable(&pidfd);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let told = Told::read(&self.directory);
        assert!(matches!(told.reports.last(), Some(Report::Ended { .. })), "{:?}", told.reports);
        assert!(!self.directory.scratch().exists(), "the scratch folder is still there");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.directory.root().to_str().unwrap()), "{mounts}");
        told
    }

    /// Waits until something that the supervisor has told holds.
    pub(crate) fn until(&self, holds: impl Fn(&Told) -> bool) {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, self.directory.root(), WatchFlags::MODIFY | WatchFlags::CREATE).unwrap();
        while !holds(&Told::read(&self.directory)) {
            wait_readable(&watch);
            let mut buffer = [MaybeUninit::uninit(); 4096];
            while rustix::io::read(&watch, &mut buffer).is_ok() {}
        }
    }

    /// Waits until the program has written a line.
    pub(crate) fn until_line(&self, line: &str) {
        self.until(|told| told.log.iter().any(|logged| logged.line == line));
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Of a test that failed nothing must be left either.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a descriptor is readable.
pub(crate) fn wait_readable(descriptor: &OwnedFd) {
    let started = Instant::now();
    let timeout = Timespec { tv_sec: DEADLINE.as_secs().try_into().unwrap(), tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)).unwrap();
    assert!(ready > 0, "nothing happened for {:?}", started.elapsed());
}

/// What a supervisor told and logged.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) reports: Vec<Report>,
    pub(crate) log: Vec<LogLine>,
}

impl Told {
    pub(crate) fn read(directory: &InstanceDirectory) -> Self {
        let reports = Tail::new(directory.reports()).read::<Stamped>().unwrap();
        let log = Tail::new(directory.log()).read().unwrap();
        Self { reports: reports.into_iter().map(|stamped| stamped.report).collect(), log }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        self.end().0
    }

    pub(crate) fn parts(&self) -> &Parts {
        self.end().1
    }

    fn end(&self) -> (&Outcome, &Parts) {
        let Some(Report::Ended { outcome, parts }) = self.reports.last() else {
            panic!("no end: {:?}", self.reports);
        };
        (outcome, parts)
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        fn text(report: &Report) -> Option<&str> {
            if let Report::Warning { text } = report { Some(text) } else { None }
        }
        self.reports.iter().filter_map(text).collect()
    }

    pub(crate) fn lines(&self, stream: Stream) -> Vec<&str> {
        let lines = self.log.iter().filter(|line| line.stream == stream);
        lines.map(|line| line.line.as_str()).collect()
    }

    pub(crate) fn stdout(&self) -> Vec<&str> {
        self.lines(Stream::Stdout)
    }

    /// The standard output of a program that was to end well.
    pub(crate) fn completed(&self) -> Vec<&str> {
        assert_eq!(self.outcome(), &Outcome::Completed, "{self:#?}");
        self.stdout()
    }

    pub(crate) fn explanation(&self) -> &str {
        match self.outcome() {
            Outcome::Failed { explanation, .. }
            | Outcome::StagingFailed { explanation }
            | Outcome::CollectingFailed { explanation }
            | Outcome::Broken { explanation } => explanation,
            other => panic!("{other:?}"),
        }
    }
}

/// Processes of the machine whose command line holds a text.
pub(crate) fn processes(marker: &str) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(command) = fs::read(entry.path().join("cmdline")) else { continue };
        if command.split(|&byte| byte == 0).any(|word| word == marker.as_bytes()) {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}
