//! What this machine has for running jobs: each part is tried, not only looked at.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use fs_err as fs;
use rustix::fs::statvfs;
use rustix::process::getuid;
use rustix::system::uname;

use crate::docker::{Daemon, DaemonError, Sockets};
use crate::explain::{bytes, chain};
use crate::image::Credentials;
use crate::runtime::{self, StartError};
use crate::{cgroup, fastfile, gpu};

/// The first kernel that has all system calls of the jail.
const OLDEST_KERNEL: (u32, u32) = (5, 12);
/// Less room than that does not last for long.
const LITTLE_ROOM: u64 = 1 << 30;

/// How a part of the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Good,
    /// It does not work, and something that jobs need does not work without it.
    Bad,
    /// It is not there, and not needed unless a job asks for it.
    Absent,
}

/// What was found of one part of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The part.
    pub what: &'static str,
    /// How it is.
    pub state: State,
    /// What was seen, or why it does not work.
    pub said: String,
    /// How to get it.
    pub help: Option<String>,
}

impl Finding {
    fn good(what: &'static str, said: impl Into<String>) -> Self {
        Self { what, state: State::Good, said: said.into(), help: None }
    }

    fn not(what: &'static str, state: State, said: impl Into<String>, help: &str) -> Self {
        Self { what, state, said: said.into(), help: Some(help.to_owned()).filter(|help| !help.is_empty()) }
    }
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// This program's own file.
    pub program: &'a Path,
    /// The data folder, which need not be there.
    pub data: &'a Path,
    /// Where a daemon may be.
    pub sockets: &'a Sockets,
    /// Docker's `config.json`, which need not be there.
    pub docker_config: Option<&'a Path>,
}

/// Looks at the whole machine.
pub async fn examine(subject: &Subject<'_>) -> Vec<Finding> {
    let daemon = Daemon::find(subject.sockets).await;
    let probed = runtime::probe(subject.program).await;
    let ids = subordinate_ids(probed.as_ref().ok().and_then(Option::as_deref));
    let namespaces = namespaces(probed.map(drop), daemon.is_ok());
    let overlay = match namespaces.state {
        State::Good => overlay(subject).await,
        State::Bad | State::Absent => {
            Finding::not("overlay", State::Absent, "can't be tried without namespaces", "")
        }
    };
    vec![
        kernel(&uname().release().to_string_lossy()),
        namespaces,
        overlay,
        network(),
        ids,
        control_groups(),
        fuse_overlay(),
        fast_file(),
        docker(subject, daemon).await,
        data_folder(subject.data),
        gpus(),
        credentials(subject.docker_config),
    ]
}

fn kernel(release: &str) -> Finding {
    const WHAT: &str = "kernel";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if version < OLDEST_KERNEL {
        let (major, minor) = OLDEST_KERNEL;
        let said = format!("Linux {release}: namespaces as they are needed begin with {major}.{minor}");
        return Finding::not(
            WHAT,
            State::Bad,
            said,
            "install a newer kernel, or use Docker (--runtime docker)",
        );
    }
    Finding::good(WHAT, format!("Linux {release}"))
}

fn namespaces(probed: Result<(), StartError>, daemon: bool) -> Finding {
    const WHAT: &str = "namespaces";
    match probed {
        Ok(()) => Finding::good(WHAT, "this user gets user, mount, PID, host name and IPC namespaces"),
        Err(error) => {
            let help = match daemon {
                true => "images can be run through the daemon; programs of the machine can't be run",
                false => "without them only Docker or Podman can run images, and neither answers",
            };
            Finding::not(WHAT, State::Bad, chain(&error), help)
        }
    }
}

/// Starts this program over an overlay in the data folder.
async fn overlay(subject: &Subject<'_>) -> Finding {
    const WHAT: &str = "overlay";
    let tried = async {
        let folder = scratch(subject.data).map_err(|error| error.to_string())?;
        runtime::try_overlay(subject.program, folder.path()).await.map_err(|error| chain(&error))
    };
    match tried.await {
        Ok(()) => Finding::good(WHAT, "layers and channels lie over each other in the data folder"),
        Err(reason) => Finding::not(
            WHAT,
            State::Bad,
            reason,
            "put the data folder on ext4, XFS, Btrfs or tmpfs (--data-dir)",
        ),
    }
}

/// A folder in the data folder, or beside where it will be.
fn scratch(data: &Path) -> io::Result<tempfile::TempDir> {
    let there = data.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    tempfile::Builder::new().prefix(".trainyard-doctor-").tempdir_in(there)
}

/// Tries it with a program that every distribution has, for it takes a process of its own.
fn network() -> Finding {
    const WHAT: &str = "network namespaces";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "true"]);
    match command.stdin(Stdio::null()).output() {
        Err(error) => {
            let said = format!("not tried: the program unshare can't be started: {error}");
            Finding::not(WHAT, State::Absent, said, "install util-linux to have it tried")
        }
        Ok(output) if output.status.success() => Finding::good(WHAT, "this user gets network namespaces"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let help = "see user.max_net_namespaces and the settings of user namespaces (sysctl)";
            Finding::not(WHAT, State::Bad, said, help)
        }
    }
}

/// `refusal` is what was said when they were tried, if they were refused.
fn subordinate_ids(refusal: Option<&str>) -> Finding {
    const WHAT: &str = "subordinate ids";
    if getuid().is_root() {
        return Finding::good(WHAT, "instances of root have every user id");
    }
    match runtime::subordinate_ids() {
        Ok(count) if refusal.is_some() => {
            let refusal = refusal.unwrap_or_default();
            let said = format!("{count} are set aside for this user, but refused: {refusal}");
            let help = "newuidmap and newgidmap need their setuid bit or capability, also in a container around this \
                        program; until then an image's USER is user id 0";
            Finding::not(WHAT, State::Bad, said, help)
        }
        Ok(count) => Finding::good(WHAT, format!("instances have {count} user ids beside this user's own")),
        Err(error) => {
            let help = "without them an image's USER is user id 0, and all files of an instance are its own";
            Finding::not(WHAT, State::Absent, chain(&error), help)
        }
    }
}

fn control_groups() -> Finding {
    const WHAT: &str = "control groups";
    match cgroup::probe() {
        Ok(controllers) if !controllers.is_empty() => {
            let names: Vec<_> =
                controllers.iter().map(|controller| format!("{controller:?}").to_lowercase()).collect();
            Finding::good(WHAT, format!("this user can limit {}", names.join(", ")))
        }
        Ok(_) => Finding::not(WHAT, State::Absent, "no controller is given to this user", DELEGATION),
        Err(error) => Finding::not(WHAT, State::Absent, chain(&error), DELEGATION),
    }
}

const DELEGATION: &str = "limits are advice only; start with `systemd-run --user --scope -p Delegate=yes trainyard …` to have them kept";

fn fuse_overlay() -> Finding {
    const WHAT: &str = "fuse-overlayfs";
    const HELP: &str = "only needed where the kernel refuses overlays: install the package fuse-overlayfs";
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Finding::not(WHAT, State::Absent, error.to_string(), HELP);
    }
    match Command::new("fuse-overlayfs").arg("--version").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Finding::good(WHAT, text.lines().next().unwrap_or_default())
        }
        Ok(output) => Finding::not(WHAT, State::Absent, format!("ends with {}", output.status), HELP),
        Err(error) => Finding::not(WHAT, State::Absent, format!("can't be started: {error}"), HELP),
    }
}

fn fast_file() -> Finding {
    const WHAT: &str = "FastFile from stores";
    match fastfile::usable() {
        Ok(()) => Finding::good(WHAT, format!("this user can open {}", fastfile::DEVICE)),
        Err(error) => {
            let help = "only needed for InputMode FastFile over objects of a store: load the kernel's module fuse, and \
                        let this user read and write the device";
            Finding::not(WHAT, State::Absent, chain(&error), help)
        }
    }
}

async fn docker(subject: &Subject<'_>, daemon: Result<Daemon, DaemonError>) -> Finding {
    const WHAT: &str = "Docker or Podman";
    let daemon = match daemon {
        Ok(daemon) => daemon,
        Err(error) => {
            let help = "only needed for --runtime docker: install docker.io or podman, start its service, and become \
                        a member of the group that owns its socket";
            // Whoever names one wants it.
            let state = if subject.sockets.named.is_some() { State::Bad } else { State::Absent };
            return Finding::not(WHAT, state, error.to_string(), help);
        }
    };
    let version = match daemon.version().await {
        Ok(version) => format!("{} {} at {}", version.kind, version.version, daemon.socket.display()),
        Err(error) => return Finding::not(WHAT, State::Bad, error.to_string(), ""),
    };
    if !runtime::runs_in_any_image(subject.program) {
        let said = format!("{version} answers, but {} is linked dynamically", subject.program.display());
        return Finding::not(
            WHAT,
            State::Absent,
            said,
            "link trainyard statically, as the default build does",
        );
    }
    Finding::good(WHAT, version)
}

fn data_folder(data: &Path) -> Finding {
    const WHAT: &str = "data folder";
    let shown = data.display();
    let looked = scratch(data).and_then(|folder| Ok(statvfs(folder.path())?));
    match looked {
        Err(error) => {
            let said = format!("{shown} can't be written to: {error}");
            Finding::not(WHAT, State::Bad, said, "name another with --data-dir")
        }
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let said = format!("{shown} has room for {}", bytes(free));
            match free < LITTLE_ROOM {
                true => Finding::not(WHAT, State::Bad, said, "make room, or name another with --data-dir"),
                false => Finding::good(WHAT, said),
            }
        }
    }
}

fn gpus() -> Finding {
    const WHAT: &str = "GPUs";
    const HELP: &str = "for NVIDIA GPUs: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`";
    match gpu::gpus() {
        Ok(gpus) if gpus.is_empty() => {
            Finding::not(WHAT, State::Absent, "no CDI specification names any", HELP)
        }
        Ok(gpus) => Finding::good(WHAT, format!("{} by CDI specifications", gpus.len())),
        Err(error) => Finding::not(WHAT, State::Bad, chain(&error), HELP),
    }
}

fn credentials(config: Option<&Path>) -> Finding {
    const WHAT: &str = "credentials for registries";
    let Some(path) = config.filter(|path| path.exists()) else {
        let said = "there are none";
        return Finding::not(
            WHAT,
            State::Absent,
            said,
            "only needed for private images: `docker login REGISTRY`",
        );
    };
    match Credentials::read(path) {
        Ok(_) => Finding::good(WHAT, path.display().to_string()),
        Err(error) => Finding::not(WHAT, State::Bad, chain(&error), "`docker login REGISTRY` writes it anew"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_judged_by_its_first_two_numbers() {
        for (release, state) in [
            ("6.18.44-cloud", State::Good),
            ("5.12.0", State::Good),
            ("5.4.0-182-generic", State::Bad),
            ("10.0", State::Good),
            ("odd", State::Bad),
        ] {
            assert_eq!(kernel(release).state, state, "{release}");
        }
    }

    #[test]
    fn a_data_folder_that_is_not_there_yet_is_tried_where_it_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let found = data_folder(&folder.path().join("not/yet"));
        assert_ne!(found.said, "");
        assert!(found.said.contains("not/yet has room"), "{found:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn damaged_credentials_are_told_and_absent_ones_are_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        assert_eq!(credentials(Some(&path)).state, State::Absent);
        fs::write(&path, "{").unwrap();
        assert_eq!(credentials(Some(&path)).state, State::Bad);
    }
}
