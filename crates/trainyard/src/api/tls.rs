//! Encryption, for endpoints that other machines reach.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Encrypts with a certificate chain and its key, both PEM files.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("--tls-certificate {}", certificate.display()))?;
    anyhow::ensure!(!chain.is_empty(), "--tls-certificate {}: no certificate in it", certificate.display());
    let key_of = || format!("--tls-key {}", key.display());
    let private = PrivateKeyDer::from_pem_file(key).with_context(key_of)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .with_context(key_of)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
