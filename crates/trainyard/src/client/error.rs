//! Why a call has no answer.

use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::credentials::ProgramError;
use super::is_passing;
use crate::signature::SignatureError;

/// Codes of answers that say "not so fast" with a status of 400.
const THROTTLED: [&str; 4] =
    ["ThrottlingException", "Throttling", "TooManyRequestsException", "LimitExceededException"];
/// Of an answer that is none, in characters.
const SHOWN: usize = 200;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nobody is there.
    #[error(
        "nothing listens at {url}: start it with `trainyard serve`, or name another endpoint with --endpoint URL"
    )]
    NobodyThere { url: String, source: reqwest::Error },
    /// The way there is not found or not trusted.
    #[error("{url} can't be reached")]
    Unreachable { url: String, source: reqwest::Error },
    /// The answer did not come, or not to its end.
    #[error("the connection to {url} broke")]
    Broken { url: String, source: reqwest::Error },
    /// The service says no.
    #[error("{operation}: {message} ({code})")]
    Refused { operation: &'static str, status: StatusCode, code: String, message: String },
    /// What answers is no such service.
    #[error("{url} answers {status} with what is none of the API's answers: {text}")]
    Strange { url: String, status: StatusCode, text: String },
    /// An answer without what it should have.
    #[error("the answer to {operation} can't be read")]
    Unreadable { operation: &'static str, source: serde_json::Error },
    /// It changed while it was read.
    #[error("{uri} changed while it was read: read it again")]
    Changed { uri: String },
    /// A name that no request can carry.
    #[error("{0:?} can't be sent in a request")]
    Unsendable(String),
    /// The request can't be signed.
    #[error(transparent)]
    Unsigned(#[from] SignatureError),
    /// There are no keys to sign with.
    #[error(transparent)]
    NoKeys(#[from] ProgramError),
}

impl CallError {
    /// A request that has got no answer.
    pub(super) fn unsent(url: &Url, source: reqwest::Error) -> Self {
        let url = plain(url);
        if !source.is_connect() {
            return Self::Broken { url, source };
        }
        if is_refused(&source) {
            Self::NobodyThere { url, source }
        } else {
            Self::Unreachable { url, source }
        }
    }

    pub(super) fn broken(url: &Url, source: reqwest::Error) -> Self {
        Self::Broken { url: plain(url), source }
    }

    pub(super) fn strange(url: &Url, status: StatusCode, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Strange { url: plain(url), status, text: text.chars().take(SHOWN).collect() }
    }

    /// The refusal of a JSON service.
    pub(super) fn of_json(operation: &'static str, url: &Url, status: StatusCode, body: &[u8]) -> Self {
        let Ok(answer) = serde_json::from_slice::<Value>(body) else {
            return Self::strange(url, status, body);
        };
        let Some(code) = answer["__type"].as_str() else { return Self::strange(url, status, body) };
        // Some services put a namespace before it.
        let code = code.rsplit('#').next().unwrap_or(code).to_owned();
        let message = answer["message"].as_str().or_else(|| answer["Message"].as_str());
        Self::Refused { operation, status, code, message: message.unwrap_or("no reason is given").to_owned() }
    }

    /// The refusal of S3, which is XML.
    pub(super) fn of_xml(operation: &'static str, url: &Url, status: StatusCode, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        match (element(&text, "Code"), element(&text, "Message")) {
            (Some(code), message) => Self::Refused {
                operation,
                status,
                code: code.to_owned(),
                message: format!("{}: {}", plain(url), message.unwrap_or("no reason is given")),
            },
            (None, _) => Self::strange(url, status, body),
        }
    }

    /// Whether the same may work in a moment. `again` if it may also have been done already.
    pub(super) fn may_pass(&self, again: bool) -> bool {
        match self {
            Self::NobodyThere { .. } => true,
            Self::Broken { .. } => again,
            Self::Refused { status, code, .. } => {
                THROTTLED.contains(&code.as_str()) || *status == 503 || (again && is_passing(*status))
            }
            Self::Strange { status, .. } => *status == 503 || (again && is_passing(*status)),
            Self::Unreachable { .. }
            | Self::Unreadable { .. }
            | Self::Changed { .. }
            | Self::Unsendable(_)
            | Self::Unsigned(_)
            | Self::NoKeys(_) => false,
        }
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether the service knows no job of the name.
    pub(crate) fn is_unknown_job(&self) -> bool {
        // The live service answers ValidationException where its model has ResourceNotFound.
        match self {
            Self::Refused { code, message, .. } => {
                code == "ResourceNotFound" || message.contains("Requested resource not found")
            }
            _ => false,
        }
    }
}

/// Without a query, in which a signature could be.
fn plain(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// Whether the kernel of the other side has said that nobody listens.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The text of the first element of a name.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let rest = xml.split_once(&format!("<{name}>"))?.1;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::parse("http://yard:1/?X-Amz-Signature=hidden").unwrap()
    }

    fn json(status: u16, body: &str) -> CallError {
        CallError::of_json("StopTrainingJob", &url(), StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn a_refusal_has_its_code_without_a_namespace_and_its_message() {
        let error = json(400, r#"{"__type":"com.amazonaws#ResourceInUse","Message":"taken"}"#);
        assert_eq!(error.to_string(), "StopTrainingJob: taken (ResourceInUse)");
        assert!(!error.may_pass(true));
        let xml = b"<Error><Code>NoSuchKey</Code><Message>not there</Message></Error>";
        let error = CallError::of_xml("GetObject", &url(), StatusCode::NOT_FOUND, xml);
        assert_eq!(error.to_string(), "GetObject: http://yard:1/: not there (NoSuchKey)");
    }

    #[test]
    fn what_is_no_answer_of_a_service_is_shown_in_part() {
        let error = json(502, &format!("<html>\n  bad   gateway {}", "x".repeat(999)));
        let text = error.to_string();
        assert!(
            text.contains("502") && text.contains("<html> bad gateway xxx") && text.len() < 400,
            "{text}"
        );
        assert!(!text.contains("hidden"));
    }

    #[test]
    fn what_may_have_been_done_is_only_asked_for_again_where_that_does_no_harm() {
        let table = [
            (json(400, r#"{"__type":"ThrottlingException"}"#), true, true),
            (json(503, r#"{"__type":"ServiceUnavailable"}"#), true, true),
            (json(500, r#"{"__type":"InternalFailure"}"#), true, false),
            (json(502, "<html>"), true, false),
            (json(400, r#"{"__type":"ValidationException"}"#), false, false),
        ];
        for (error, again, once) in table {
            assert_eq!((error.may_pass(true), error.may_pass(false)), (again, once), "{error}");
        }
    }
}
