//! Who is told when a job has ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use trainyard_engine::job::Status;

use super::file::File;
use super::{Setting, plain};

/// Unless the file says so.
const WEBHOOK_TIME: u64 = 10;
const COMMAND_TIME: u64 = 30;
/// More would keep the outbox from the next process for long.
const LONGEST_TIME: u64 = 600;

/// One table of `[notify.NAME]`, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    url: Option<String>,
    secret: Option<String>,
    secret_file: Option<PathBuf>,
    command: Option<Vec<String>>,
    on: Option<Vec<End>>,
    timeout: Option<u64>,
}

/// The API's words for the ends of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum End {
    Completed,
    Failed,
    Stopped,
}

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Of which ends; none stands for all of them.
    pub(crate) of: Vec<Status>,
    pub(crate) way: Way,
    /// For one try.
    pub(crate) timeout: Duration,
}

/// How somebody is told.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// A signed request to this URL.
    Webhook { url: String, secret: Secret },
    /// This program with its arguments.
    Command(Vec<String>),
}

/// What a webhook's requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    Written(String),
    File(PathBuf),
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Webhook { url, .. } => f.debug_struct("Webhook").field("url", url).finish_non_exhaustive(),
            Self::Command(words) => f.debug_tuple("Command").field(words).finish(),
        }
    }
}

/// All of them by their names.
pub(crate) type Subscriptions = BTreeMap<String, Setting<Subscription>>;

pub(super) fn read(file: &File) -> anyhow::Result<Subscriptions> {
    let mut read = BTreeMap::new();
    for (name, written) in &file.settings.notify {
        let subscription = subscription(written, file).with_context(|| format!("{file}: notify.{name}"))?;
        read.insert(name.clone(), file.setting(subscription));
    }
    Ok(read)
}

fn subscription(written: &Written, file: &File) -> anyhow::Result<Subscription> {
    let Written { url, secret, secret_file, command, on, timeout } = written;
    let (way, usual) = match (url, command) {
        (Some(url), None) => {
            let parsed = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            if parsed.is_none() {
                bail!("url: {url:?} is no URL of http or https");
            }
            let secret = match (secret, secret_file) {
                (Some(secret), None) if !secret.is_empty() => Secret::Written(secret.clone()),
                (None, Some(path)) => Secret::File(plain(&file.folder(), path)),
                _ => bail!("a webhook is signed: give either secret or secret_file"),
            };
            (Way::Webhook { url: url.clone(), secret }, WEBHOOK_TIME)
        }
        (None, Some(words)) => {
            if words.first().is_none_or(String::is_empty) {
                bail!("command: give a program and its arguments, such as [\"notify-send\", \"job\"]");
            }
            if secret.is_some() || secret_file.is_some() {
                bail!("only a webhook has a secret");
            }
            (Way::Command(of_folder(words, file)), COMMAND_TIME)
        }
        _ => bail!("give either url or command"),
    };
    let seconds = timeout.unwrap_or(usual);
    if !(1..=LONGEST_TIME).contains(&seconds) {
        bail!("timeout: {seconds} s; it is 1 to {LONGEST_TIME}");
    }
    let of = on.iter().flatten().map(|end| match end {
        End::Completed => Status::Completed,
        End::Failed => Status::Failed,
        End::Stopped => Status::Stopped,
    });
    let of: Vec<_> = of.collect();
    if on.is_some() && of.is_empty() {
        bail!("on: an empty list tells nobody anything; leave it out to be told of every end");
    }
    Ok(Subscription { of, way, timeout: Duration::from_secs(seconds) })
}

/// A program that is given by its path is meant from the file's folder.
fn of_folder(words: &[String], file: &File) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut().filter(|program| program.contains('/')) {
        *program = plain(&file.folder(), program.as_ref()).to_string_lossy().into_owned();
    }
    words
}

impl Subscription {
    /// Lines of a configuration file; a secret is not among them.
    pub(crate) fn as_text(&self) -> Vec<String> {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut lines = match &self.way {
            Way::Webhook { url, secret: Secret::File(path) } => {
                let path = path.to_string_lossy();
                vec![format!("url = {}", quoted(url)), format!("secret_file = {}", quoted(&path))]
            }
            Way::Webhook { url, secret: Secret::Written(_) } => {
                vec![format!("url = {}", quoted(url)), "# secret is set and not shown".to_owned()]
            }
            Way::Command(words) => vec![format!("command = {}", serde_json::Value::from(words.as_slice()))],
        };
        if !self.of.is_empty() {
            let of: Vec<_> = self.of.iter().map(ToString::to_string).collect();
            lines.push(format!("on = {}", serde_json::Value::from(of)));
        }
        lines.push(format!("timeout = {}", self.timeout.as_secs()));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> anyhow::Result<Subscriptions> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("config.toml");
        fs_err::write(&path, text)?;
        read(&File::read(&path)?)
    }

    #[test]
    fn several_are_told_each_in_its_own_way() {
        let text = "[notify.team]\nurl = 'https://example.org/hook'\nsecret_file = 'key'\non = ['Failed', 'Stopped']\n\
                    [notify.desk]\ncommand = ['./tell', 'x']\ntimeout = 5\n[notify.pager]\ncommand = ['page']\n";
        let read = read_text(text).unwrap();
        let team = &read["team"].value;
        assert_eq!(
            (team.of.as_slice(), team.timeout.as_secs()),
            (&[Status::Failed, Status::Stopped][..], 10)
        );
        let lines = team.as_text();
        assert_eq!(lines[0], "url = \"https://example.org/hook\"");
        assert!(lines[1].ends_with("/key\"") && lines[1].starts_with("secret_file = \"/"), "{lines:?}");
        let Way::Command(words) = &read["desk"].value.way else { panic!("no command") };
        assert!(words[0].starts_with('/') && words[0].ends_with("/tell") && words[1] == "x", "{words:?}");
        assert_eq!(read["pager"].value.way, Way::Command(vec!["page".into()]));
        assert_eq!((read["desk"].value.timeout.as_secs(), read["pager"].value.timeout.as_secs()), (5, 30));
    }

    #[test]
    fn a_secret_is_never_shown() {
        let read = read_text("[notify.team]\nurl = 'http://x'\nsecret = 'hidden'\n").unwrap();
        let shown = format!("{read:?} {:?}", read["team"].value.as_text());
        assert!(!shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn what_is_wrong_is_told_with_the_name_of_its_table() {
        for (text, told) in [
            ("url = 'http://x'", "secret or secret_file"),
            ("url = 'http://x'\nsecret = ''", "secret or secret_file"),
            ("url = 'ftp://x'\nsecret = 's'", "no URL"),
            ("url = 'http://x'\nsecret = 's'\ncommand = ['x']", "either url or command"),
            ("on = ['Failed']", "either url or command"),
            ("command = []", "a program and its arguments"),
            ("command = ['x']\nsecret = 's'", "only a webhook"),
            ("command = ['x']\non = []", "leave it out"),
            ("command = ['x']\non = ['InProgress']", "Completed"),
            ("command = ['x']\ntimeout = 0", "1 to 600"),
            ("commands = ['x']", "commands"),
        ] {
            let error = format!("{:#}", read_text(&format!("[notify.team]\n{text}")).unwrap_err());
            assert!(error.contains(told) && error.contains("config.toml"), "{text}: {error}");
        }
    }
}
