//! A notice as a request that its receiver can verify: the headers and the signature of Standard Webhooks 1.0.0
//! (standardwebhooks.com), for which there are libraries in many languages.

use std::time::Duration;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use trainyard_engine::notice::Notice;

use crate::signature::mac;

/// Before a secret that is written in base64.
const PREFIX: &str = "whsec_";

/// Where requests go and what they are signed with.
#[derive(Clone)]
pub(super) struct Webhook {
    http: reqwest::Client,
    url: Url,
    key: Vec<u8>,
}

impl Webhook {
    pub(super) fn new(url: &str, secret: &str, timeout: Duration) -> anyhow::Result<Self> {
        // Only the first call in a process has an effect; any provider serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .user_agent(concat!("trainyard/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let url = Url::parse(url).context("url")?;
        Ok(Self { http, url, key: key(secret)? })
    }

    /// Sends a notice; any status of 2xx says that it has arrived.
    pub(super) async fn send(&self, notice: &Notice) -> Result<(), String> {
        let timestamp = jiff::Timestamp::now().as_second();
        let request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &notice.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature(&self.key, notice, timestamp))
            .body(notice.body.clone());
        // A URL may have a password or a token in it.
        let response = request
            .send()
            .await
            .map_err(|error| format!("{:#}", anyhow::Error::from(error.without_url())))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("{} answers {status}", self.url.host_str().unwrap_or_default())),
        }
    }
}

/// HMAC-SHA-256 over id, time (seconds since 1970) and body.
fn signature(key: &[u8], notice: &Notice, timestamp: i64) -> String {
    let signed = format!("{}.{timestamp}.{}", notice.id, notice.body);
    format!("v1,{}", STANDARD.encode(mac(key, signed.as_bytes())))
}

/// The bytes that a secret stands for.
fn key(secret: &str) -> anyhow::Result<Vec<u8>> {
    anyhow::ensure!(!secret.is_empty(), "the secret is empty");
    match secret.strip_prefix(PREFIX) {
        Some(encoded) => STANDARD.decode(encoded).context("the secret after whsec_ is no base64"),
        None => Ok(secret.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_as_in_the_example_of_the_specification() {
        let notice = Notice {
            subscriber: "team".into(),
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            body: r#"{"test": 2432232314}"#.into(),
        };
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(
            signature(&key, &notice, 1_614_265_330),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_secret_without_the_prefix_is_taken_as_it_is() {
        assert_eq!(key("plain").unwrap(), b"plain");
        assert!(key("whsec_?").is_err() && key("").is_err());
    }
}
