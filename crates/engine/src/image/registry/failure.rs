//! What a registry's refusals mean to the user.

use std::error::Error;
use std::io;

use oci_client::errors::{DigestError, OciDistributionError, OciEnvelope, OciErrorCode};

use super::Repository;
use crate::image::obtain::ObtainError;

/// What to do about an error.
enum Meaning {
    NotFound,
    NoAccess,
    Network,
    Answer,
}

impl Repository {
    pub(super) fn failed(&self, error: OciDistributionError) -> ObtainError {
        let known = self.session.get().is_some_and(|session| session.auth != super::RegistryAuth::Anonymous);
        self.failed_with(error, known)
    }

    /// `logged_in`: whether the registry was told who asks.
    pub(super) fn failed_with(&self, error: OciDistributionError, logged_in: bool) -> ObtainError {
        if let OciDistributionError::DigestError(error) = &error
            && let Some(error) = self.other_digest(error)
        {
            return error;
        }
        let (image, registry) = (self.reference.to_string(), self.reference.registry().to_owned());
        let meaning = meaning(&error);
        let source: Box<dyn Error + Send + Sync> = Box::new(error);
        match meaning {
            Meaning::NotFound => ObtainError::NotFound { image, registry, source },
            Meaning::NoAccess => ObtainError::NoAccess { image, registry, logged_in, source },
            Meaning::Network => ObtainError::Network { registry, source },
            Meaning::Answer => ObtainError::Answer { image, registry, source },
        }
    }

    /// An answer that ends before its end. The library compares the digest of whole answers itself.
    pub(super) fn broken(&self, source: io::Error) -> ObtainError {
        let digest = source.get_ref().and_then(|error| error.downcast_ref());
        digest.and_then(|error| self.other_digest(error)).unwrap_or_else(|| ObtainError::Network {
            registry: self.reference.registry().to_owned(),
            source: Box::new(source),
        })
    }

    fn other_digest(&self, error: &DigestError) -> Option<ObtainError> {
        let DigestError::VerificationError { expected, actual } = error else { return None };
        let (expected, actual) = (expected.parse().ok()?, actual.parse().ok()?);
        Some(ObtainError::Digest { image: self.reference.to_string(), expected, actual })
    }
}

fn meaning(error: &OciDistributionError) -> Meaning {
    use OciDistributionError as E;
    match error {
        E::AuthenticationFailure(_) | E::UnauthorizedError { .. } => Meaning::NoAccess,
        E::ServerError { code, .. } => of_status(*code),
        E::RegistryError { envelope, .. } => of_codes(envelope),
        E::ImageManifestNotFoundError(_) => Meaning::NotFound,
        E::RequestError(_) | E::IoError(_) => Meaning::Network,
        _ => Meaning::Answer,
    }
}

fn of_status(code: u16) -> Meaning {
    match code {
        401 | 403 => Meaning::NoAccess,
        404 => Meaning::NotFound,
        408 | 429 | 500.. => Meaning::Network,
        _ => Meaning::Answer,
    }
}

/// The first error says what is wrong.
fn of_codes(envelope: &OciEnvelope) -> Meaning {
    use OciErrorCode as C;
    match envelope.errors.first().map(|error| &error.code) {
        Some(C::Unauthorized | C::Denied) => Meaning::NoAccess,
        Some(C::ManifestUnknown | C::NameUnknown | C::NotFound | C::BlobUnknown | C::ManifestBlobUnknown) => {
            Meaning::NotFound
        }
        Some(C::Toomanyrequests) => Meaning::Network,
        _ => Meaning::Answer,
    }
}
