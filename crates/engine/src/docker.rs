//! The daemon of Docker or Podman: where its socket is, and what it answers.

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::StatsOptions;
use bollard::{API_DEFAULT_VERSION, BollardRequest, ClientVersion, Docker};
use futures_util::StreamExt;

/// In seconds. Answers come at once but for pulling and waiting, which take as long as they take.
const PATIENCE: u64 = 365 * 24 * 3600;

/// How long a daemon may take to say that it is there, and how much it may say.
const GREETING_TIME: Duration = Duration::from_secs(10);
const GREETING_LENGTH: u64 = 64 * 1024;

/// Credentials go to the daemon in this header.
const CREDENTIALS: &str = "x-registry-auth";

/// Where a daemon may listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// What `DOCKER_HOST` says; then no other is tried.
    pub named: Option<String>,
    /// Where Docker and Podman listen unless told otherwise, the first that answers is taken.
    pub usual: Vec<PathBuf>,
}

/// A daemon that has answered.
#[derive(Clone)]
pub struct Daemon {
    /// Its interface.
    pub(crate) client: Docker,
    /// Where it listens.
    pub socket: PathBuf,
    /// What it is.
    pub kind: Kind,
}

/// What a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Docker, or what can't be told from it.
    Docker,
    /// Podman.
    Podman,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Docker => "Docker",
            Self::Podman => "Podman",
        })
    }
}

/// What a daemon says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonVersion {
    /// What it is.
    pub kind: Kind,
    /// Such as `20.10.24`.
    pub version: String,
}

/// No daemon, or one that does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// An address of another kind.
    #[error(
        "DOCKER_HOST is {given:?}: only unix:///path/to/socket can be used, for folders of this machine are \
         shown to the containers"
    )]
    NotUnix {
        /// What it says.
        given: String,
    },
    /// Nobody listens.
    #[error("no Docker or Podman answers{}", list(tried))]
    None {
        /// Where it was tried, and why it did not work.
        tried: Vec<(PathBuf, io::Error)>,
    },
    /// The daemon refuses.
    #[error("the daemon at {} can't {what}: {}", socket.display(), reason(answer))]
    Call {
        /// Where it listens.
        socket: PathBuf,
        /// What it was asked for.
        what: &'static str,
        /// Its answer, which is part of the message and so no source.
        answer: Box<Error>,
    },
}

fn list(tried: &[(PathBuf, io::Error)]) -> String {
    tried.iter().fold(String::new(), |mut text, (path, error)| {
        let separator = if text.is_empty() { ':' } else { ',' };
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => " (members of the group that owns the socket may use it)",
            _ => "",
        };
        // Writing to a string never fails.
        let _ = write!(text, "{separator} {}: {error}{hint}", path.display());
        text
    })
}

/// What the daemon says, without the words around it.
pub(crate) fn reason(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } => error.trim().to_owned(),
        other => crate::explain::chain(other),
    }
}

/// The HTTP status of an answer that is an error.
pub(crate) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

impl Daemon {
    /// Processor time that a container has had and bytes of memory that it has; none if it is no more.
    pub(crate) async fn usage(&self, container: &str) -> Option<(Duration, u64)> {
        let options = StatsOptions { stream: false, one_shot: true };
        let found = pin!(self.client.stats(container, Some(options))).next().await?.ok()?;
        let memory = found.memory_stats?;
        let files = memory.stats.unwrap_or_default();
        // Files that the kernel can forget at once, of version 1 and of version 2.
        let files = files.get("total_inactive_file").or(files.get("inactive_file")).copied().unwrap_or(0);
        let cpu = Duration::from_nanos(found.cpu_stats?.cpu_usage?.total_usage?);
        Some((cpu, memory.usage?.saturating_sub(files)))
    }

    /// The daemon that is named, else the first that answers.
    ///
    /// # Errors
    /// None answers.
    pub async fn find(sockets: &Sockets) -> Result<Self, DaemonError> {
        if let Some(given) = &sockets.named {
            let path = given.strip_prefix("unix://").filter(|path| path.starts_with('/'));
            let path = path.ok_or_else(|| DaemonError::NotUnix { given: given.clone() })?;
            return Self::connect(Path::new(path)).await;
        }
        let mut tried = Vec::new();
        for socket in &sockets.usual {
            match Self::connect(socket).await {
                Err(DaemonError::None { tried: reason }) => tried.extend(reason),
                found => return found,
            }
        }
        Err(DaemonError::None { tried })
    }

    /// The daemon that listens at a socket.
    ///
    /// # Errors
    /// None answers.
    pub async fn connect(socket: &Path) -> Result<Self, DaemonError> {
        let none = |error| DaemonError::None { tried: vec![(socket.to_owned(), error)] };
        let greeting = greet(socket).map_err(none)?;
        let failed = |source| DaemonError::Call {
            socket: socket.to_owned(),
            what: "be talked to",
            answer: Box::new(source),
        };
        let path = socket.to_string_lossy();
        let version = greeting.version.filter(|version| version < API_DEFAULT_VERSION);
        let version = version.as_ref().unwrap_or(API_DEFAULT_VERSION);
        let client = Docker::connect_with_unix(&path, PATIENCE, version).map_err(failed)?;
        Ok(Self {
            client: client.with_request_modifier(url_safe),
            socket: socket.to_owned(),
            kind: greeting.kind,
        })
    }

    /// What the daemon says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn version(&self) -> Result<DaemonVersion, DaemonError> {
        let version = self.client.version().await.map_err(self.failed("tell its version"))?;
        Ok(DaemonVersion { kind: self.kind, version: version.version.unwrap_or_default() })
    }

    /// Names what the daemon was asked for.
    pub(crate) fn failed(&self, what: &'static str) -> impl FnOnce(Error) -> DaemonError {
        let socket = self.socket.clone();
        move |answer| DaemonError::Call { socket, what, answer: Box::new(answer) }
    }
}

/// What a daemon says of itself at once.
#[derive(Debug, PartialEq)]
struct Greeting {
    kind: Kind,
    /// Of its interface.
    version: Option<ClientVersion>,
}

/// Asks who listens. The library asks for all versions, which takes Podman more than a second.
fn greet(socket: &Path) -> io::Result<Greeting> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(GREETING_TIME))?;
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(GREETING_LENGTH).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.starts_with("HTTP/1.") {
        true => Ok(greeting(&answer)),
        false => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "no daemon of Docker or Podman answers there"))
        }
    }
}

fn greeting(answer: &str) -> Greeting {
    let header = |name: &str| {
        let mut headers = answer.lines().filter_map(|line| line.split_once(':'));
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let podman = header("Libpod-Api-Version").is_some();
    let version = header("Api-Version").and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some(ClientVersion { major_version: major.parse().ok()?, minor_version: minor.parse().ok()? })
    });
    Greeting { kind: if podman { Kind::Podman } else { Kind::Docker }, version }
}

/// Docker reads credentials in the URL-safe alphabet, the library writes them in the other.
fn url_safe(mut request: BollardRequest) -> BollardRequest {
    if let Some(value) = request.headers_mut().get_mut(CREDENTIALS) {
        let text = value.to_str().map(|text| text.replace('+', "-").replace('/', "_"));
        if let Some(Ok(safe)) = text.ok().map(|text| text.parse()) {
            *value = safe;
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_sockets_of_this_machine_are_daemons() {
        for given in ["tcp://127.0.0.1:2375", "ssh://me@far", "unix://relative", "/var/run/docker.sock"] {
            let sockets = Sockets { named: Some(given.to_owned()), usual: Vec::new() };
            assert!(matches!(Daemon::find(&sockets).await, Err(DaemonError::NotUnix { .. })), "{given}");
        }
    }

    #[test]
    fn a_greeting_tells_kind_and_version() {
        let version = |minor_version| Some(ClientVersion { major_version: 1, minor_version });
        let table = [
            ("HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\n\r\nOK", Kind::Docker, version(41)),
            (
                "HTTP/1.0 200 OK\r\napi-version: 1.41\r\nLibpod-API-Version: 4.3.1\r\n\r\n",
                Kind::Podman,
                version(41),
            ),
            ("HTTP/1.0 200 OK\r\nApi-Version: new\r\n\r\n", Kind::Docker, None),
        ];
        for (answer, kind, version) in table {
            assert_eq!(greeting(answer), Greeting { kind, version });
        }
    }

    #[tokio::test]
    async fn every_socket_that_was_tried_is_told() {
        let usual = vec![PathBuf::from("/nowhere/a.sock"), PathBuf::from("/nowhere/b.sock")];
        let text = match Daemon::find(&Sockets { named: None, usual }).await {
            Err(error) => error.to_string(),
            Ok(_) => String::new(),
        };
        assert!(text.contains("/nowhere/a.sock: No such file") && text.contains("/nowhere/b.sock"), "{text}");
    }
}
