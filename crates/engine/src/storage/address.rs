//! Where a store is and how it is spoken to.

use serde::{Deserialize, Serialize};

/// What a store speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// What most of them speak.
    #[default]
    S3,
    /// Google Cloud Storage, in its own protocol.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl StoreKind {
    /// The word of configuration files, and the feature that a build needs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
        }
    }
}

/// A store: where it is, but nothing that is secret. Plans hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreAddress {
    /// What it speaks.
    pub kind: StoreKind,
    /// `http://` or `https://`, host, port and perhaps a path; Amazon's own, by the region, when absent.
    pub endpoint: Option<String>,
    /// When absent it is what the credentials' source says, else `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket is in the path of URLs rather than in the host's name. When absent: with an endpoint.
    pub path_style: Option<bool>,
    /// The profile of the AWS configuration whose credentials are used; the usual chain when absent.
    pub profile: Option<String>,
    /// Whether requests are not signed, as public buckets allow.
    pub anonymous: bool,
    /// Azure's storage account; what the environment says when absent. Buckets are its containers.
    pub account: Option<String>,
}

/// An address that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The endpoint is no URL.
    #[error("the endpoint {endpoint:?} is no address: write http://HOST:PORT or https://HOST")]
    Endpoint {
        /// As given.
        endpoint: String,
    },
    /// A setting that means nothing there.
    #[error("{setting} is not known of a store of kind {kind:?}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What the store speaks.
        kind: &'static str,
    },
}

impl StoreAddress {
    /// The URL of a bucket, without a slash at the end.
    ///
    /// # Errors
    ///
    /// The endpoint is no URL.
    pub fn bucket_url(&self, bucket: &str, region: &str) -> Result<String, AddressError> {
        let Some(endpoint) = &self.endpoint else {
            // Certificates are for one level below the service's name only.
            let path_style = self.path_style.unwrap_or(bucket.contains('.'));
            return Ok(match path_style {
                true => format!("https://s3.{region}.amazonaws.com/{bucket}"),
                false => format!("https://{bucket}.s3.{region}.amazonaws.com"),
            });
        };
        let wrong = || AddressError::Endpoint { endpoint: endpoint.clone() };
        let trimmed = endpoint.trim_end_matches('/');
        let (scheme, rest) = trimmed.split_once("://").ok_or_else(wrong)?;
        let uri: http::Uri = trimmed.parse().map_err(|_| wrong())?;
        if !matches!(scheme, "http" | "https")
            || uri.host().is_none_or(str::is_empty)
            || uri.query().is_some()
        {
            return Err(wrong());
        }
        Ok(match self.path_style.unwrap_or(true) {
            true => format!("{trimmed}/{bucket}"),
            false => format!("{scheme}://{bucket}.{rest}"),
        })
    }

    /// Whether all settings mean something for a store of this kind.
    ///
    /// # Errors
    ///
    /// One does not, or the endpoint is no URL.
    pub fn check(&self) -> Result<(), AddressError> {
        self.bucket_url("bucket", "region")?;
        let speaks_s3 = self.kind == StoreKind::S3;
        let settings = [
            ("region", !speaks_s3 && self.region.is_some()),
            ("path_style", !speaks_s3 && self.path_style.is_some()),
            ("profile", !speaks_s3 && self.profile.is_some()),
            ("account", self.kind != StoreKind::Azure && self.account.is_some()),
        ];
        match settings.into_iter().find(|(_, is_odd)| *is_odd) {
            Some((setting, _)) => Err(AddressError::Setting { setting, kind: self.kind.as_str() }),
            None => Ok(()),
        }
    }

    /// What people call the store.
    pub fn name(&self) -> &str {
        self.endpoint.as_deref().unwrap_or(match self.kind {
            StoreKind::S3 => "Amazon S3",
            StoreKind::Gcs => "Google Cloud Storage",
            StoreKind::Azure => "Azure Blob Storage",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_in_the_path_of_an_endpoint_and_in_the_name_at_amazon() {
        let url = |endpoint: Option<&str>, path_style, bucket| {
            let address =
                StoreAddress { endpoint: endpoint.map(str::to_owned), path_style, ..StoreAddress::default() };
            address.bucket_url(bucket, "eu-west-1")
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(url(None, None, "b"), ok("https://b.s3.eu-west-1.amazonaws.com"));
        assert_eq!(url(None, None, "my.b"), ok("https://s3.eu-west-1.amazonaws.com/my.b"));
        assert_eq!(url(Some("http://127.0.0.1:90/"), None, "b"), ok("http://127.0.0.1:90/b"));
        assert_eq!(url(Some("https://s3.me:90"), Some(false), "b"), ok("https://b.s3.me:90"));
        for wrong in ["127.0.0.1:90", "ftp://x", "http://", "http://h?x=1", ""] {
            assert!(url(Some(wrong), None, "b").is_err(), "{wrong}");
        }
    }
}
