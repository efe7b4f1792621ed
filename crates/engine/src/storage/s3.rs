//! Requests to a bucket of a store that speaks S3: signed, repeated where that may help, and with errors in words.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::credentials::Signer;
use super::{AddressError, CredentialsError};

/// A bucket that can be asked.
pub(super) struct Bucket {
    pub(super) name: String,
    /// Without a slash at the end.
    pub(super) url: String,
    /// What people call the store.
    pub(super) store: String,
    pub(super) signer: Signer,
    pub(super) http: HttpClient,
    /// How often something is tried again that brings no progress.
    pub(super) tries: u32,
}

/// One request.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// Of an object; none for the bucket itself.
    pub(super) key: Option<&'a str>,
    pub(super) query: Vec<(&'a str, String)>,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body: Bytes,
}

/// A store that refuses, can't be reached, or says what nobody understands.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It has no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// There are no credentials for it.
    #[error("no credentials for {store}")]
    Credentials {
        /// The store.
        store: String,
        /// Why not.
        source: CredentialsError,
    },
    /// A source of credentials gives none.
    #[error("no credentials for {store}: asked was {origin}")]
    NoCredentials {
        /// The store.
        store: String,
        /// Where they should come from.
        origin: String,
        /// Why not.
        source: object_store::Error,
    },
    /// The client can't be made.
    #[error("requests to {store} can't be made")]
    Client {
        /// The store.
        store: String,
        /// Why not.
        source: object_store::Error,
    },
    /// Its protocol is not part of this build.
    #[error("this build of Trainyard can't speak to {store}: build it with --features {feature}")]
    NotBuilt {
        /// The store.
        store: String,
        /// Of Cargo.
        feature: &'static str,
    },
    /// Something that only stores have that speak S3.
    #[error("{bucket}: {store} does not speak S3")]
    NotS3 {
        /// The bucket.
        bucket: String,
        /// The store.
        store: String,
    },
    /// A store that speaks another protocol says no, or can't be reached.
    #[error("{what}: {store}")]
    Foreign {
        /// What was wanted.
        what: String,
        /// The store.
        store: String,
        /// What happened.
        source: Box<object_store::Error>,
    },
    /// It does not answer.
    #[error("{what}: {store} does not answer")]
    Unreachable {
        /// What was wanted.
        what: String,
        /// The store.
        store: String,
        /// What happened.
        source: HttpError,
    },
    /// It says no.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// An object is not there any more.
    #[error("{object} was there when the job was planned, but it is gone now")]
    Gone {
        /// Its URI.
        object: String,
    },
    /// An object is another one by now.
    #[error("{object} was changed while it was in use: its ETag was {listed} and is {found} now")]
    Changed {
        /// Its URI.
        object: String,
        /// The ETag as listed.
        listed: String,
        /// As it is now.
        found: String,
    },
    /// Bytes that are not those that were stored.
    #[error(
        "{object}: what has arrived is not what was stored: its checksum is {found} and should be {listed}"
    )]
    Damaged {
        /// Its URI.
        object: String,
        /// The checksum as listed.
        listed: String,
        /// Of what has arrived.
        found: String,
    },
    /// An answer that makes no sense.
    #[error("{what}: {store} gives an answer that can't be used: {why}")]
    Malformed {
        /// What was wanted.
        what: String,
        /// The store.
        store: String,
        /// What is wrong with it.
        why: String,
    },
    /// A connection that breaks again and again.
    #[error("{what}: the connection to {store} breaks again and again: {why}")]
    Broken {
        /// What was wanted.
        what: String,
        /// The store.
        store: String,
        /// How it broke last.
        why: String,
    },
}

/// What a store says when it says no.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {store} answers {status} {code}: {message} (signed with {origin})")]
pub struct Refusal {
    /// What was wanted.
    pub what: String,
    /// The store.
    pub store: String,
    /// Of HTTP.
    pub status: u16,
    /// Of S3.
    pub code: String,
    /// The store's own words.
    pub message: String,
    /// Where the credentials come from.
    pub origin: String,
}

impl StoreError {
    /// The status of HTTP with which the store refuses.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }
}

/// The body of an error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorBody {
    code: String,
    message: String,
}

/// Pauses between tries: each may be twice as long as the one before, and is cut by chance so that many clients do
/// not come back at once.
pub(super) struct Patience {
    left: u32,
    pause: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Patience {
    pub(super) fn new(tries: u32) -> Self {
        Self { left: tries, pause: FIRST_PAUSE }
    }

    /// Waits; false if it has been tried often enough.
    pub(super) async fn wait(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        // A hasher's keys are random for each.
        let chance = RandomState::new().build_hasher().finish() % 512 + 512;
        let pause = self.pause.mul_f64(chance as f64 / 1024.0);
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// All that may stand in a key or value without an escape (RFC 3986, 2.3).
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What the store may need most of a server's error, in bytes.
const ERROR_LIMIT: usize = 64 << 10;

impl Bucket {
    /// The URI of an object, or of the bucket.
    pub(super) fn uri(&self, key: Option<&str>) -> String {
        format!("s3://{}/{}", self.name, key.unwrap_or_default())
    }

    /// Sends a request, again if the store is busy or can't be reached. Answers that are no success are errors.
    pub(super) async fn call(&self, call: &Call<'_>) -> Result<HttpResponse, StoreError> {
        let mut patience = Patience::new(self.tries);
        loop {
            let result = self.call_once(call).await;
            let again = match &result {
                Err(StoreError::Unreachable { .. }) => true,
                Err(StoreError::Refused(refusal)) => is_transient(refusal.status, &refusal.code),
                _ => false,
            };
            if !again || !patience.wait().await {
                return result;
            }
        }
    }

    async fn call_once(&self, call: &Call<'_>) -> Result<HttpResponse, StoreError> {
        let request = self.request(call).await?;
        let what = || format!("{} {}", call.method, self.uri(call.key));
        let answered = self.http.execute(request).await;
        let unreachable =
            |source| StoreError::Unreachable { what: what(), store: self.store.clone(), source };
        let response = answered.map_err(unreachable)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.into_body().bytes().await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text[..text.len().min(ERROR_LIMIT)]);
        Err(self.refused(what(), status, &text))
    }

    fn refused(&self, what: String, status: StatusCode, text: &str) -> StoreError {
        let body: ErrorBody = quick_xml::de::from_str(text).unwrap_or_default();
        let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
        StoreError::Refused(Box::new(Refusal {
            what,
            store: self.store.clone(),
            status: status.as_u16(),
            code: or(body.code, status.canonical_reason().unwrap_or("")),
            message: or(body.message, "without a reason"),
            origin: self.signer.origin.clone(),
        }))
    }

    /// An answer with success in its first line and an error in its body, as S3 may give when it has to keep a
    /// client waiting.
    pub(super) fn error_within(&self, call: &Call<'_>, text: &str) -> Option<StoreError> {
        let what = format!("{} {}", call.method, self.uri(call.key));
        text.contains("<Error>").then(|| self.refused(what, StatusCode::INTERNAL_SERVER_ERROR, text))
    }

    pub(super) fn malformed(&self, what: &str, why: impl ToString) -> StoreError {
        StoreError::Malformed { what: what.to_owned(), store: self.store.clone(), why: why.to_string() }
    }

    async fn request(&self, call: &Call<'_>) -> Result<HttpRequest, StoreError> {
        let url = self.url(call);
        let unfit = |error: http::Error| self.malformed(&url, error);
        let request = http::Request::builder().method(call.method.clone()).uri(&url);
        let mut request = request.body(call.body.clone().into()).map_err(unfit)?;
        for (name, value) in &call.headers {
            let value = HeaderValue::from_str(value).map_err(|error| unfit(error.into()))?;
            request.headers_mut().insert(name, value);
        }
        let Some(provider) = &self.signer.provider else { return Ok(request) };
        let none = |source| StoreError::NoCredentials {
            store: self.store.clone(),
            origin: self.signer.origin.clone(),
            source,
        };
        let credential = provider.get_credential().await.map_err(none)?;
        let authorizer = AwsAuthorizer::new(&credential, "s3", &self.signer.region);
        let unsigned = |source| StoreError::Client { store: self.store.clone(), source };
        authorizer.try_authorize(&mut request, None).map_err(unsigned)?;
        Ok(request)
    }

    fn url(&self, call: &Call<'_>) -> String {
        let mut url = self.url.clone();
        if let Some(key) = call.key {
            for segment in key.split('/') {
                url.push('/');
                url.extend(utf8_percent_encode(segment, &ESCAPED));
            }
        } else {
            url.push('/');
        }
        for (index, (name, value)) in call.query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.extend(utf8_percent_encode(value, &ESCAPED));
        }
        url
    }
}

/// Whether the same request may succeed a little later.
pub(super) fn is_transient(status: u16, code: &str) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504) || code == "RequestTimeout"
}

/// The text of a header; empty if it is not there.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
