//! Keys, and who lends them: a program that the profile names (`credential_process`), or STS for a role.
//!
//! Lent keys are kept until shortly before they end. None is ever written anywhere.

use std::fmt;
use std::process::Stdio;

use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::Deserialize;

use super::error::element;
use super::{CallError, Client, Outgoing, Service};

/// Keys that are good for less than this are asked for anew.
const LEAST_LEFT: SignedDuration = SignedDuration::from_mins(5);
/// The only version of what programs answer that there is.
const PROGRAM_VERSION: u32 = 1;

/// A key pair, and the token that belongs to one that is lent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Where keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// They are known.
    Keys(Credentials),
    /// A command line prints them.
    Program { profile: String, command: String },
    /// STS lends those of a role.
    Role(Box<Role>),
}

/// A role that is taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) arn: String,
    pub(crate) session: Option<String>,
    pub(crate) external_id: Option<String>,
    /// In seconds, as the profile has it.
    pub(crate) duration: Option<String>,
    /// Who asks for it.
    pub(crate) lender: Origin,
}

/// A program gives no keys.
#[derive(Debug, thiserror::Error)]
#[error("the profile {profile} gets its keys from credential_process, which {what}")]
pub(crate) struct ProgramError {
    profile: String,
    what: String,
}

/// Keys, and until when they are good.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    credentials: Credentials,
    /// Always, where nobody says when.
    until: Option<Timestamp>,
}

/// What a program prints (AWS SDKs and Tools reference guide, "Process credential provider").
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl Client {
    /// The keys that requests are signed with.
    pub(super) async fn credentials(&self) -> Result<Credentials, CallError> {
        if let Origin::Keys(credentials) = &self.place.credentials {
            return Ok(credentials.clone());
        }
        let mut known = self.lent.lock().await;
        let soon = Timestamp::now() + LEAST_LEFT;
        if let Some(lent) = known.as_ref().filter(|lent| lent.until.is_none_or(|until| until > soon)) {
            return Ok(lent.credentials.clone());
        }
        let lent = self.lend(&self.place.credentials).await?;
        Ok(known.insert(lent).credentials.clone())
    }

    async fn lend(&self, origin: &Origin) -> Result<Lent, CallError> {
        match origin {
            Origin::Keys(credentials) => Ok(Lent { credentials: credentials.clone(), until: None }),
            Origin::Program { profile, command } => Ok(ask_program(profile, command).await?),
            Origin::Role(role) => {
                let lender = Box::pin(self.lend(&role.lender)).await?;
                self.take_on(role, &lender.credentials).await
            }
        }
    }

    /// STS AssumeRole.
    async fn take_on(&self, role: &Role, by: &Credentials) -> Result<Lent, CallError> {
        let url = self.place.url(Service::Sts);
        let headers = [("content-type", Service::Sts.content_type())];
        let body = role.form();
        let outgoing =
            Outgoing { method: Method::POST, service: Service::Sts, url, headers: &headers, body: &body };
        let response = self.send_as(&outgoing, by).await?;
        let status = response.status();
        let answer = response.bytes().await.map_err(|source| CallError::broken(url, source))?;
        if !status.is_success() {
            return Err(CallError::of_xml("AssumeRole", url, status, &answer));
        }
        let text = String::from_utf8_lossy(&answer);
        // What is no such answer may have keys in it all the same, and is not shown.
        let strange = || CallError::strange(url, status, b"(not shown)");
        let part = |name| element(&text, name).map(ToOwned::to_owned).ok_or_else(strange);
        let credentials = Credentials {
            access_key: part("AccessKeyId")?,
            secret: part("SecretAccessKey")?,
            token: Some(part("SessionToken")?),
        };
        Ok(Lent { credentials, until: Some(part("Expiration")?.parse().map_err(|_| strange())?) })
    }
}

impl Role {
    /// The request for its keys, as a form.
    fn form(&self) -> String {
        let session = self.session.clone().unwrap_or_else(|| format!("trainyard-{}", std::process::id()));
        let mut fields = vec![
            ("Action", "AssumeRole"),
            ("Version", "2011-06-15"),
            ("RoleArn", &self.arn),
            ("RoleSessionName", &session),
        ];
        fields.extend(self.external_id.as_deref().map(|id| ("ExternalId", id)));
        fields.extend(self.duration.as_deref().map(|seconds| ("DurationSeconds", seconds)));
        let field = |(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        fields.into_iter().map(field).collect::<Vec<_>>().join("&")
    }
}

/// Runs a program that prints keys. What it says to people goes where our own messages go.
async fn ask_program(profile: &str, command: &str) -> Result<Lent, ProgramError> {
    let wrong = |what: String| ProgramError { profile: profile.to_owned(), what };
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let ended = shell.output().await.map_err(|error| wrong(format!("can't be started: {error}")))?;
    if !ended.status.success() {
        return Err(wrong(format!("has failed ({})", ended.status)));
    }
    // Neither what it prints nor what serde makes of it is shown: it may be a key.
    let printed: Printed = serde_json::from_slice(&ended.stdout).map_err(|_| {
        wrong("must print a JSON object with Version, AccessKeyId and SecretAccessKey".to_owned())
    })?;
    if printed.version != PROGRAM_VERSION {
        return Err(wrong(format!("must print Version {PROGRAM_VERSION}, but it is {}", printed.version)));
    }
    let Printed { access_key_id, secret_access_key, session_token, expiration, .. } = printed;
    let until = expiration.map(|text| text.parse()).transpose();
    let until = until.map_err(|_| wrong("must print Expiration as 2030-01-02T03:04:05Z".to_owned()))?;
    let credentials =
        Credentials { access_key: access_key_id, secret: secret_access_key, token: session_token };
    Ok(Lent { credentials, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown_with_its_key() {
        let keys =
            Credentials { access_key: "A".into(), secret: "hidden".into(), token: Some("hidden".into()) };
        assert!(!format!("{keys:?}").contains("hidden"));
    }

    #[test]
    fn the_form_of_a_role_has_what_its_profile_says() {
        let role = Role {
            arn: "arn:aws:iam::000000000000:role/a b".into(),
            session: Some("me@x".into()),
            external_id: Some("i&d".into()),
            duration: Some("900".into()),
            lender: Origin::Program { profile: "p".into(), command: "c".into() },
        };
        assert_eq!(
            role.form(),
            "Action=AssumeRole&Version=2011%2D06%2D15&RoleArn=arn%3Aaws%3Aiam%3A%3A000000000000%3Arole%2Fa%20b\
             &RoleSessionName=me%40x&ExternalId=i%26d&DurationSeconds=900"
        );
    }

    #[tokio::test]
    async fn a_program_prints_keys_or_is_told_what_it_should_have_printed() {
        let ask = async |command: &str| ask_program("ci", command).await.map_err(|error| error.to_string());
        let lent = ask("echo '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"s\", \"SessionToken\": \"t\", \
                        \"Expiration\": \"2030-01-02T03:04:05Z\"}'")
            .await
            .unwrap();
        assert_eq!(
            (lent.credentials.access_key.as_str(), lent.credentials.token.as_deref()),
            ("A", Some("t"))
        );
        assert_eq!(lent.until.unwrap().to_string(), "2030-01-02T03:04:05Z");
        let wrong = [
            (
                "echo '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"hidden\", \"Expiration\": \"soon\"}'",
                "must print Expiration",
            ),
            ("exit 3", "has failed (exit status: 3)"),
            ("echo hidden", "Version, AccessKeyId and SecretAccessKey"),
            ("echo '{\"Version\": 1, \"AccessKeyId\": \"hidden\"}'", "SecretAccessKey"),
            (
                "echo '{\"Version\": 2, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"hidden\"}'",
                "Version 1, but it is 2",
            ),
        ];
        for (command, text) in wrong {
            let error = ask(command).await.unwrap_err();
            assert!(error.contains("profile ci") && error.contains(text), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
