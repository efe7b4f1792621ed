//! Who the user is to a registry: Docker's `config.json` and the programs that it names.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The registry `docker.io` in Docker's file and to its programs.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// A program that takes longer waits for somebody who is not there.
const DEADLINE: Duration = Duration::from_secs(60);

/// Most that a program may answer, in bytes; tokens have a few thousand.
const ANSWER_LIMIT: u64 = 1 << 20;

/// Where the credentials for registries are to be found. Nothing of it is ever shown.
#[derive(Clone, Default)]
pub struct Credentials {
    entries: BTreeMap<String, Entry>,
    helpers: BTreeMap<String, String>,
    store: Option<String>,
}

/// What a registry is told.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Password { name: String, password: String },
    Token(String),
}

/// Credentials that can't be read or used. No secret is part of it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no JSON of Docker's form.
    #[error("{} is damaged at line {line}", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An entry that is no user name and password.
    #[error("the credentials for {registry} in Docker's config are damaged: log in again")]
    Entry {
        /// Whose.
        registry: String,
    },
    /// A way to log in that is not supported.
    #[error(
        "the credentials for {registry} are an identity token, which is not supported: log in with a \
         user name and a password or an access token"
    )]
    IdentityToken {
        /// Whose.
        registry: String,
    },
    /// The name of a program that leads elsewhere.
    #[error(
        "Docker's config names the credential helper {helper:?}: letters, digits, '.', '-' and '_' are expected"
    )]
    HelperName {
        /// As it stands there.
        helper: String,
    },
    /// The program can't be run.
    #[error(
        "can't run {program}, which Docker's config names for {registry}: install it and put it on the PATH"
    )]
    Helper {
        /// Its name.
        program: String,
        /// For whom.
        registry: String,
        /// Why.
        source: io::Error,
    },
    /// The program does not know.
    #[error("{program} gives no credentials for {registry}: {answer}")]
    Refused {
        /// Its name.
        program: String,
        /// For whom.
        registry: String,
        /// The beginning of its message.
        answer: String,
    },
    /// The program answers something else.
    #[error("the answer of {program} for {registry} is not of the credential helpers' form")]
    Answer {
        /// Its name.
        program: String,
        /// For whom.
        registry: String,
    },
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    auths: Option<BTreeMap<String, Entry>>,
    cred_helpers: Option<BTreeMap<String, String>>,
    creds_store: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

impl Credentials {
    /// Reads Docker's `config.json`; a file that is not there holds no credentials.
    ///
    /// # Errors
    ///
    /// Fails if it can't be read.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let text = match fs_err::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(CredentialsError::Read { path: path.to_owned(), source }),
        };
        // The error itself may quote what stands in the file.
        let file: File = serde_json::from_slice(&text)
            .map_err(|error| CredentialsError::Damaged { path: path.to_owned(), line: error.line() })?;
        Ok(Self {
            entries: file.auths.unwrap_or_default(),
            helpers: file.cred_helpers.unwrap_or_default(),
            store: file.creds_store.filter(|store| !store.is_empty()),
        })
    }

    /// What `registry` is told; none if the user has no account there. As with Docker a program for
    /// this registry comes first, then the one for all, then what stands in the file.
    pub(super) async fn login(&self, registry: &str) -> Result<Option<Login>, CredentialsError> {
        let helper = find(&self.helpers, registry);
        if let Some(helper) = helper.or(self.store.as_ref())
            && let Some(login) = ask(helper, registry).await?
        {
            return Ok(Some(login));
        }
        find(&self.entries, registry).map_or(Ok(None), |entry| entry.login(registry))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("helpers", &self.helpers).finish_non_exhaustive()
    }
}

impl Entry {
    /// An empty entry stands for credentials in a program.
    fn login(&self, registry: &str) -> Result<Option<Login>, CredentialsError> {
        let damaged = || CredentialsError::Entry { registry: registry.to_owned() };
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = given(&self.registrytoken) {
            return Ok(Some(Login::Token(token)));
        }
        if given(&self.identitytoken).is_some() {
            return Err(CredentialsError::IdentityToken { registry: registry.to_owned() });
        }
        if let (Some(name), Some(password)) = (given(&self.username), given(&self.password)) {
            return Ok(Some(Login::Password { name, password }));
        }
        let Some(auth) = given(&self.auth) else { return Ok(None) };
        let decoded = STANDARD.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or_else(damaged)?;
        let (name, password) = decoded.split_once(':').ok_or_else(damaged)?;
        // Some versions of Docker fill up with zeros.
        let password = password.trim_end_matches('\0').to_owned();
        Ok(Some(Login::Password { name: name.to_owned(), password }))
    }
}

/// What is listed for a registry, by its host, or by an address that old versions of Docker wrote.
fn find<'a, T>(listed: &'a BTreeMap<String, T>, registry: &str) -> Option<&'a T> {
    let exact = listed.get(server(registry)).or_else(|| listed.get(registry));
    exact.or_else(|| {
        listed.iter().find(|(key, _)| host(key) == host(server(registry))).map(|(_, found)| found)
    })
}

fn host(address: &str) -> &str {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    address.split('/').next().unwrap_or_default()
}

/// The name under which credentials for a registry are kept.
fn server(registry: &str) -> &str {
    if registry == "docker.io" { DOCKER_HUB } else { registry }
}

/// Asks a program by the protocol of Docker's credential helpers: the registry goes in, JSON comes out.
async fn ask(helper: &str, registry: &str) -> Result<Option<Login>, CredentialsError> {
    if !helper.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
        return Err(CredentialsError::HelperName { helper: helper.to_owned() });
    }
    let program = format!("docker-credential-{helper}");
    let talked = tokio::time::timeout(DEADLINE, talk(&program, server(registry))).await;
    let talked = talked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let (succeeded, answer) = match talked {
        Ok(talked) => talked,
        Err(source) => {
            return Err(CredentialsError::Helper { program, registry: registry.to_owned(), source });
        }
    };
    if !succeeded {
        let answer: String = String::from_utf8_lossy(&answer).trim().chars().take(200).collect();
        if answer.contains("credentials not found") {
            return Ok(None);
        }
        return Err(CredentialsError::Refused { program, registry: registry.to_owned(), answer });
    }
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|_| CredentialsError::Answer { program, registry: registry.to_owned() })?;
    match answer.username.as_str() {
        "<token>" => Err(CredentialsError::IdentityToken { registry: registry.to_owned() }),
        _ if answer.secret.is_empty() => Ok(None),
        _ => Ok(Some(Login::Password { name: answer.username, password: answer.secret })),
    }
}

async fn talk(program: &str, server: &str) -> io::Result<(bool, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that knows its registry need not read.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(ANSWER_LIMIT).read_to_end(&mut answer).await?;
    }
    Ok((child.wait().await?.success(), answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(text: &str) -> Result<Credentials, CredentialsError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), text).unwrap();
        Credentials::read(file.path())
    }

    async fn login(text: &str, registry: &str) -> Option<(String, String)> {
        match credentials(text).unwrap().login(registry).await.unwrap()? {
            Login::Password { name, password } => Some((name, password)),
            Login::Token(token) => Some((String::new(), token)),
        }
    }

    #[tokio::test]
    async fn credentials_are_found_under_every_spelling_of_the_registry() {
        let text = r#"{"auths":{
            "https://index.docker.io/v1/":{"auth":"aHViOnNlY3JldA=="},
            "registry.example":{"username":"me","password":"a:b"},
            "https://old.example/v2/":{"auth":"b2xkOnA6dw=="},
            "token.example":{"registrytoken":"t"},
            "empty.example":{}}}"#;
        let found = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(login(text, "docker.io").await, found("hub", "secret"));
        assert_eq!(login(text, "registry.example").await, found("me", "a:b"));
        assert_eq!(login(text, "old.example").await, found("old", "p:w"));
        assert_eq!(login(text, "token.example").await, found("", "t"));
        assert_eq!(login(text, "empty.example").await, None);
        assert_eq!(login(text, "other.example").await, None);
        assert_eq!(login("{}", "docker.io").await, None);
    }

    #[tokio::test]
    async fn what_can_not_be_used_is_told_without_the_secret() {
        let error = |text: &'static str| async move {
            match credentials(text) {
                Ok(credentials) => credentials.login("a.example").await.map(drop).unwrap_err(),
                Err(error) => error,
            }
        };
        let identity = r#"{"auths":{"a.example":{"identitytoken":"hush"}}}"#;
        assert!(matches!(error(identity).await, CredentialsError::IdentityToken { .. }));
        let odd = r#"{"auths":{"a.example":{"auth":"hush!"}}}"#;
        assert!(matches!(error(odd).await, CredentialsError::Entry { .. }));
        let path = r#"{"credsStore":"../../bin/sh"}"#;
        assert!(matches!(error(path).await, CredentialsError::HelperName { .. }));
        let none = r#"{"credHelpers":{"a.example":"there-is-no-such-helper"}}"#;
        assert!(matches!(error(none).await, CredentialsError::Helper { .. }));
        for text in [identity, odd, r#"{"auths":{"a.example":{"auth":["hush"]}}}"#] {
            let error = error(text).await;
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_holds_no_credentials() {
        assert!(Credentials::read(Path::new("/nowhere/config.json")).unwrap().entries.is_empty());
    }
}
