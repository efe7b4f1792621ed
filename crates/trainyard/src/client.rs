//! A client of SageMaker, CloudWatch Logs and S3: of our own endpoint, of any other, or of Amazon.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use reqwest::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;

mod credentials;
mod error;
pub(crate) mod jobs;
pub(crate) mod logs;
pub(crate) mod object;
pub(crate) mod place;
mod profile;
pub(crate) mod usage;

pub(crate) use credentials::Credentials;
pub(crate) use error::CallError;
pub(crate) use place::{Own, Place, PlaceError, Service, Wish};
pub(crate) use profile::Profiles;

use credentials::Lent;

use crate::signature::{Paths, Signed, Signer, hex, sign};

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Without a byte of an answer.
const SILENT_TIME: Duration = Duration::from_secs(60);
/// How long an endpoint that has not answered yet is tried.
const FIRST_PATIENCE: Duration = Duration::from_millis(1500);
/// The same of one that has answered before: it may be on its way back.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) service: Service,
    pub(crate) name: &'static str,
    /// Whether it may be asked for again when nobody knows whether it was done.
    pub(crate) again: bool,
}

impl Operation {
    /// Of SageMaker, one that changes nothing or may be done twice.
    pub(crate) const fn sagemaker(name: &'static str) -> Self {
        Self { service: Service::SageMaker, name, again: true }
    }

    /// Of CloudWatch Logs.
    pub(crate) const fn logs(name: &'static str) -> Self {
        Self { service: Service::Logs, name, again: true }
    }
}

/// The client.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    place: Place,
    /// Whether an answer has come.
    reached: AtomicBool,
    /// Keys that somebody has lent.
    lent: Mutex<Option<Lent>>,
}

impl Client {
    /// A client; `bundle` are certificates (PEM) that are trusted beside those of the system.
    pub(crate) fn new(place: Place, bundle: Option<&Path>) -> anyhow::Result<Self> {
        // Only the first call in a process has an effect; any provider serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("trainyard/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIME)
            .read_timeout(SILENT_TIME)
            .redirect(reqwest::redirect::Policy::none());
        if place.is_loopback() {
            builder = builder.no_proxy();
        }
        if let Some(path) = bundle {
            let pem = fs_err::read(path).context("AWS_CA_BUNDLE")?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .with_context(|| format!("AWS_CA_BUNDLE {}", path.display()))?;
            builder = builder.tls_certs_merge(certificates);
        }
        Ok(Self { http: builder.build()?, place, reached: AtomicBool::new(false), lent: Mutex::default() })
    }

    /// Where it goes.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Has an operation of a JSON service carried out, and again where that can help.
    ///
    /// # Errors
    /// The service refuses, or can't be reached.
    pub(crate) async fn call(&self, operation: Operation, input: &Value) -> Result<Value, CallError> {
        let body = input.to_string();
        let target = format!("{}.{}", operation.service.target(), operation.name);
        let url = self.place.url(operation.service);
        self.persist(operation.again, || async {
            let headers =
                [("x-amz-target", target.as_str()), ("content-type", operation.service.content_type())];
            let (service, headers, body) = (operation.service, &headers[..], body.as_str());
            let response = self.send(&Outgoing { method: Method::POST, service, url, headers, body }).await?;
            let status = response.status();
            let bytes = response.bytes().await.map_err(|source| CallError::broken(url, source))?;
            if !status.is_success() {
                return Err(CallError::of_json(operation.name, url, status, &bytes));
            }
            // Some operations answer nothing at all.
            let answer = if bytes.is_empty() { b"{}" } else { &bytes[..] };
            serde_json::from_slice(answer).map_err(|_| CallError::strange(url, status, &bytes))
        })
        .await
    }

    /// The same, with the answer read as what it should be.
    async fn read<T: DeserializeOwned>(&self, operation: Operation, input: &Value) -> Result<T, CallError> {
        let answer = self.call(operation, input).await?;
        serde_json::from_value(answer)
            .map_err(|source| CallError::Unreadable { operation: operation.name, source })
    }

    /// Tries until it works, or can't work, or has taken too long.
    async fn persist<T, F: Future<Output = Result<T, CallError>>>(
        &self,
        again: bool,
        attempt: impl Fn() -> F,
    ) -> Result<T, CallError> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match attempt().await {
                Ok(answer) => {
                    self.reached.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let patience = if self.reached.load(Ordering::Relaxed) { PATIENCE } else { FIRST_PATIENCE };
            if !error.may_pass(again) || started.elapsed() + pause > patience {
                return Err(error);
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Sends one signed request.
    async fn send(&self, outgoing: &Outgoing<'_>) -> Result<Response, CallError> {
        self.send_as(outgoing, &self.credentials().await?).await
    }

    /// Sends one request that these keys sign.
    async fn send_as(
        &self,
        outgoing: &Outgoing<'_>,
        credentials: &Credentials,
    ) -> Result<Response, CallError> {
        let headers = self.signed(outgoing, credentials)?;
        let Outgoing { method, url, body, .. } = outgoing;
        let request = self.http.request(method.clone(), (*url).clone()).headers(headers);
        let sent = request.body((*body).to_owned()).send().await;
        sent.map_err(|source| CallError::unsent(url, source))
    }

    /// All headers of a request, its signature among them.
    fn signed(&self, outgoing: &Outgoing<'_>, credentials: &Credentials) -> Result<HeaderMap, CallError> {
        let Outgoing { method, service, url, headers: given, body } = outgoing;
        let value =
            |text: &str| HeaderValue::from_str(text).map_err(|_| CallError::Unsendable(text.to_owned()));
        let mut headers = HeaderMap::new();
        for (name, text) in *given {
            headers.insert(*name, value(text)?);
        }
        let date = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        headers.insert(HOST, value(&authority(url))?);
        headers.insert("x-amz-date", value(&date)?);
        headers.insert("x-amz-content-sha256", value(&hex(&Sha256::digest(body)))?);
        if let Some(token) = &credentials.token {
            let mut token = value(token)?;
            token.set_sensitive(true);
            headers.insert("x-amz-security-token", token);
        }
        let signer = Signer {
            access_key: credentials.access_key.clone(),
            region: self.place.region.clone(),
            service: service.signing_name().to_owned(),
        };
        let paths = if *service == Service::S3 { Paths::AsSent } else { Paths::EncodedTwice };
        let query = url.query().unwrap_or_default();
        let (method, path, body) = (method.as_str(), url.path(), body.as_bytes());
        let request = Signed { method, path, query, headers: &headers, body };
        let signature = sign(&request, &signer, &credentials.secret, paths)?;
        let mut authorization = value(&signature)?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        Ok(headers)
    }
}

/// A request that is about to be signed and sent.
struct Outgoing<'a> {
    method: Method,
    service: Service,
    url: &'a Url,
    headers: &'a [(&'static str, &'a str)],
    body: &'a str,
}

/// Host and, where it is not the scheme's own, port: what the `Host` header has.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Between half of it and all of it, so that many clients don't come back at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [u8::MAX];
    // Without random numbers it is all of it.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause.mul_f64(f64::from(byte[0]) / 510.0)
}

/// Whether an answer says that the same may work in a moment.
const fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504)
}
