//! An S3 endpoint over folders: the protocol and the signatures are those of `s3s`, the objects those of
//! [`trainyard_bucket`].
//!
//! There are no versions, no access lists and no encryption here, and what asks for them is refused by name.

use std::sync::Arc;

use s3s::auth::{S3Auth, SecretKey};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Result, s3_error};

mod attributes;
mod buckets;
mod checksum;
mod condition;
mod error;
mod op;
mod receive;
mod send;

pub use buckets::Buckets;

/// Looks up the secret that belongs to an access key.
pub type Secrets = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The endpoint. Requests without the right signature of a known key are refused.
pub fn service(buckets: Buckets, secrets: Secrets) -> S3Service {
    let mut builder = S3ServiceBuilder::new(op::Endpoint { buckets: Arc::new(buckets) });
    builder.set_auth(Auth { secrets });
    builder.build()
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
