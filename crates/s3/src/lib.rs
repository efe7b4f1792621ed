//! An S3 endpoint over folders: the protocol and the signatures are those of `s3s`, the objects those of
//! [`trainyard_bucket`].
//!
//! There are no versions, no access lists and no encryption here, and what asks for them is refused by name.

use std::sync::Arc;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Result, s3_error};

mod answer;
mod attributes;
mod buckets;
mod checksum;
mod condition;
mod error;
mod op;
mod receive;
mod send;

pub use answer::answer;
pub use buckets::Buckets;

/// Looks up the secret that belongs to an access key.
pub type Secrets = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Whether another request of an access key may come in now; asked of requests whose signature is right.
pub type Pace = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The endpoint. Requests without the right signature of a known key are refused.
pub fn service(buckets: Buckets, secrets: Secrets, pace: Pace) -> S3Service {
    let mut builder = S3ServiceBuilder::new(op::Endpoint { buckets: Arc::new(buckets) });
    builder.set_auth(Auth { secrets });
    builder.set_access(Door { pace });
    builder.build()
}

/// A presigned URL is good for a week at most (S3 API reference, "Authenticating requests: query parameters").
const LONGEST_VALIDITY: u32 = 7 * 24 * 60 * 60;

/// Who is let in: whoever has signed, and does not come too often.
struct Door {
    pace: Pace,
}

#[async_trait::async_trait]
impl S3Access for Door {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = request.credentials() else {
            return Err(s3_error!(AccessDenied, "the request is not signed"));
        };
        if !(self.pace)(&credentials.access_key) {
            return Err(s3_error!(SlowDown, "Please reduce your request rate."));
        }
        // s3s takes it for a copy and then finds no key.
        if request.headers().contains_key("x-amz-copy-source") && request.s3_path().as_object().is_none() {
            return Err(s3_error!(InvalidRequest, "x-amz-copy-source: the path has no key to copy to"));
        }
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let expires =
            pairs.filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == "X-Amz-Expires");
        match expires {
            Some((_, text)) if text.parse().is_ok_and(|seconds: u32| seconds <= LONGEST_VALIDITY) => Ok(()),
            None => Ok(()),
            Some((_, text)) => Err(s3_error!(
                AuthorizationQueryParametersError,
                "X-Amz-Expires is {text}; it must be 1 to {LONGEST_VALIDITY} seconds"
            )),
        }
    }
}

struct Auth {
    secrets: Secrets,
}

#[async_trait::async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        (self.secrets)(access_key)
            .map(SecretKey::from)
            .ok_or_else(|| s3_error!(InvalidAccessKeyId, "the access key is not one of this endpoint"))
    }
}
