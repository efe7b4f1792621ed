//! One instance's own world: namespaces, file tree and privileges, and the process that starts them.
//!
//! A supervisor [`start`]s the jail. Three processes are involved besides it:
//!
//! ```text
//! supervisor ── instance-init (outer)   unshares the namespaces, forks, waits
//!                 └─ instance-init (PID 1)  mounts, pivots, drops privileges, reaps
//!                      └─ train
//! ```
//!
//! They talk over the socket that `instance-init` has as standard input: the supervisor sends the
//! [`Jail`] and then single-byte [commands](Command), the other side sends [`Message`]s. When the
//! socket ends, PID 1 ends, and the kernel kills all that is left in its namespace.

use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::plan::Identity;
use crate::run::Exit;

pub(crate) mod ids;
pub(crate) mod init;
mod layers;
mod machine;
mod mounts;
mod namespaces;
mod privileges;
mod program;
pub(crate) mod refusal;
mod root;
mod run_as;
mod seccomp;
pub(crate) mod start;
pub(crate) mod take_back;

pub(crate) use namespaces::{NamespaceError, unshare};

/// The hidden subcommand that runs [`init::instance_init`].
pub(crate) const INIT_COMMAND: &str = "instance-init";

/// What the supervisor wants of `instance-init`.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// To start an instance.
    Start(Box<Jail>),
    /// To give everything in a folder of the machine back to the user.
    TakeBack(PathBuf),
    /// To make the namespaces and nothing else.
    Try,
}

/// All that is needed to start one `train` in its own world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Jail {
    /// What lies below everything else.
    pub(crate) root: Root,
    /// The name that `hostname` shows.
    pub(crate) hostname: String,
    /// Whether the namespaces of a place in its job's network come with the order. Otherwise the
    /// instance has a network for itself.
    pub(crate) in_network_of_job: bool,
    /// What is put into the root, in this order.
    pub(crate) mounts: Vec<Mount>,
    /// Of `/dev/shm`, in bytes.
    pub(crate) shm_size: u64,
    /// Links to make where nothing is yet: where, and what they point to.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// What the instance sees of its control group: the controllers of each hierarchy of version 1, none of
    /// version 2. Empty without a group of its own.
    pub(crate) groups: Vec<Vec<String>>,
    /// Most processes of the jail, where no control group counts them. Root is never held to it.
    pub(crate) most_processes: Option<u32>,
    /// The signal by which [`Command::Terminate`] asks every process to end.
    pub(crate) stop_signal: i32,
    /// What is started.
    pub(crate) program: Program,
}

/// What lies below everything else in a jail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Root {
    /// The file system of the machine, which can't be changed from inside.
    Machine {
        /// Whether changes seem to succeed and are forgotten; otherwise they are refused.
        overlay: bool,
    },
    /// The layers of an image, over which changes are collected.
    Layers {
        /// On the machine, the uppermost first; never changed.
        lower: Vec<PathBuf>,
        /// Where the changes go.
        changes: Changes,
    },
}

/// Folders of the machine for what an overlay collects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// Where the changes are.
    pub(crate) upper: PathBuf,
    /// An empty folder on the same file system, for the kernel.
    pub(crate) work: PathBuf,
}

/// A place in the jail that does not come from its root. Targets are made if they do not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mount {
    /// A file or folder of the machine that can only be read.
    ReadOnly {
        /// On the machine.
        source: PathBuf,
        /// In the jail.
        target: PathBuf,
    },
    /// A file or folder of the machine that the jail may change.
    Writable {
        /// On the machine.
        source: PathBuf,
        /// In the jail.
        target: PathBuf,
    },
    /// Folders of the machine, laid over each other, that can be changed without changing them.
    Overlay {
        /// On the machine, the uppermost first; never changed.
        lower: Vec<PathBuf>,
        /// Where the changes go.
        upper: PathBuf,
        /// An empty folder on the file system of `upper`, for the kernel.
        work: PathBuf,
        /// In the jail.
        target: PathBuf,
    },
    /// A file system whose files the supervisor sends when they are read. Its device goes through the door that comes
    /// with the order.
    WhenRead {
        /// In the jail.
        target: PathBuf,
    },
}

impl Mount {
    fn target(&self) -> &PathBuf {
        match self {
            Self::ReadOnly { target, .. }
            | Self::Writable { target, .. }
            | Self::Overlay { target, .. }
            | Self::WhenRead { target } => target,
        }
    }
}

/// A program, its arguments and its surroundings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The program and its arguments; a name without a slash is looked up in `PATH`.
    pub(crate) command: Vec<String>,
    /// All of its environment.
    pub(crate) environment: IndexMap<String, String>,
    /// Where it starts.
    pub(crate) working_directory: PathBuf,
    /// Somebody else than user id 0 with no further groups.
    pub(crate) run_as: Option<RunAs>,
}

/// Who runs a program where a jail has more than one user id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunAs {
    /// The user.
    pub(crate) user: Identity,
    /// A folder of the machine that is given to the user before anything starts.
    pub(crate) owns: PathBuf,
}

/// What `instance-init` tells the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The namespaces are there.
    Unshared {
        /// Why the ids that are set aside for the user were refused, if that is so.
        refusal: Option<String>,
    },
    /// PID 1 is there and begins to make the jail.
    Begun {
        /// Its number on the machine and its start time.
        process: String,
        /// Whether it has other user ids than 0.
        other_ids: bool,
    },
    /// The kernel refuses namespaces.
    NamespacesRefused {
        /// An errno.
        errno: i32,
    },
    /// The kernel refuses an overlay of the jail's mounts.
    OverlayRefused {
        /// In the jail.
        target: PathBuf,
        /// In words.
        reason: String,
    },
    /// The jail could not be made.
    Broken {
        /// What was wrong and where.
        explanation: String,
    },
    /// Everything in the folder is the user's own.
    TakenBack,
    /// `train` could not be started.
    NotStarted {
        /// 126 or 127.
        code: i32,
        /// What was wrong and where.
        explanation: String,
    },
    /// `train` runs.
    Started {
        /// What the image's layers are shown by, where it is no overlay on the instance's disk.
        instead: Option<InsteadOfOverlay>,
    },
    /// `train` has ended.
    Exited(Exit),
    /// The most memory that the instance had, where a daemon has made its control group.
    MemoryPeak {
        /// In bytes.
        bytes: u64,
    },
}

/// What shows the layers of an image where the kernel refuses an overlay whose changes go to the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InsteadOfOverlay {
    /// An overlay whose changes go to memory.
    Memory {
        /// Why the kernel refuses the usual.
        reason: String,
    },
    /// A copy.
    Copy {
        /// Why the kernel refuses the usual.
        reason: String,
    },
}

/// What the supervisor tells PID 1, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The jail's stop signal to every process of the instance.
    Terminate,
    /// SIGKILL to every process of the instance.
    Kill,
}

impl Command {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }
}

/// A step of the recipe that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error("can't {step}")]
    Step { step: &'static str, source: io::Error },
    #[error("can't {step} {}", path.display())]
    At { step: &'static str, path: PathBuf, source: io::Error },
    #[error("the kernel refuses an overlay at {}", target.display())]
    Overlay { target: PathBuf, source: io::Error },
    #[error("the image has something else than a folder at {}", path.display())]
    NoFolder { path: PathBuf },
    #[error(
        "the image's user has the {kind} id {id}, which is not among those that are set aside for the user who \
         submits the job (/etc/subuid and /etc/subgid)"
    )]
    NoSuchId { kind: &'static str, id: u32 },
    #[error("the supervisor's order is damaged")]
    Order(#[from] serde_json::Error),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error("the supervisor has not sent the instance's place in the network of its job")]
    NoNetwork,
    #[error("the supervisor has not sent the door for the files that are fetched when they are read")]
    NoDoor,
    #[error("the supervisor has gone")]
    Gone,
}

/// Names the step of the recipe that a system call belongs to.
pub(super) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> SetupError {
    move |source| SetupError::Step { step, source: source.into() }
}

/// Names the step of the recipe that a system call belongs to, and what it is about.
pub(super) fn at<E: Into<io::Error>>(step: &'static str, path: &Path) -> impl FnOnce(E) -> SetupError {
    move |source| SetupError::At { step, path: path.to_owned(), source: source.into() }
}
