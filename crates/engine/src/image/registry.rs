//! Images in registries: Docker's and the OCI's protocol, by the `oci-client` library.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use oci_client::client::{BlobResponse, ClientConfig, ClientProtocol, SizedStream};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, RegistryOperation};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::sync::OnceCell;

mod failure;

use super::credentials::{Credentials, Login};
use super::digest::Digest;
use super::manifest::{DOCUMENT_LIMIT, Descriptor, Manifest, ManifestError, choose};
use super::obtain::{ObtainError, Progress, Step};
use super::platform::Platform;
use super::reference::RegistryReference;
use super::store::ImageStore;

/// A registry that says nothing for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// As often a broken connection is taken up again without a single byte in between.
const MOST_FAILURES: u32 = 5;

/// Before the first new try; each one after that waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Media types of manifests and indexes.
const MANIFESTS: [&str; 4] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// Indexes in indexes in … end here.
const DEEPEST: u32 = 4;

/// One image's place in a registry. Nothing is sent before something is asked for.
pub(super) struct Repository {
    reference: RegistryReference,
    credentials: Credentials,
    session: OnceCell<Session>,
}

struct Session {
    client: Client,
    auth: RegistryAuth,
}

/// The documents of an image.
pub(super) struct Pulled {
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

impl Repository {
    pub(super) fn new(reference: &RegistryReference, credentials: &Credentials) -> Arc<Self> {
        Arc::new(Self {
            reference: reference.clone(),
            credentials: credentials.clone(),
            session: OnceCell::new(),
        })
    }

    /// Finds the image for a platform. What a digest stands for is not asked for again.
    pub(super) async fn find(&self, store: &ImageStore, platform: &Platform) -> Result<Pulled, ObtainError> {
        let wrong = |source| ObtainError::manifest(&self.reference, source);
        let mut wanted = self.reference.digest();
        for _ in 0..DEEPEST {
            let bytes = match wanted.and_then(|digest| store.manifest(&digest)) {
                Some(bytes) => bytes,
                None => self.manifest(store, wanted).await?,
            };
            match Manifest::parse(&bytes).map_err(wrong)? {
                Manifest::Image { config, layers } => return Ok(Pulled { config, layers }),
                Manifest::Index(manifests) => {
                    wanted = Some(choose(&manifests, platform).map_err(wrong)?.digest);
                }
            }
        }
        Err(wrong(ManifestError::NoImage))
    }

    async fn manifest(&self, store: &ImageStore, digest: Option<Digest>) -> Result<Vec<u8>, ObtainError> {
        let session = self.session().await?;
        let reference = match digest {
            Some(digest) => self.reference.inner().clone_with_digest(digest.to_string()),
            None => self.reference.inner().clone(),
        };
        let pulled = session.client.pull_manifest_raw(&reference, &session.auth, &MANIFESTS).await;
        let (bytes, _) = pulled.map_err(|error| self.failed(error))?;
        let size = bytes.len() as u64;
        if size > DOCUMENT_LIMIT {
            return Err(ObtainError::TooLarge {
                image: self.reference.to_string(),
                size,
                limit: DOCUMENT_LIMIT,
            });
        }
        let actual = Digest::of(&bytes);
        self.check(digest.unwrap_or(actual), actual)?;
        store.add_manifest(&actual, &bytes)?;
        Ok(bytes.to_vec())
    }

    /// The whole of a small blob.
    pub(super) async fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ObtainError> {
        let (size, limit) = (descriptor.size, DOCUMENT_LIMIT);
        if size > limit {
            return Err(ObtainError::TooLarge { image: self.reference.to_string(), size, limit });
        }
        let mut stream = self.blob(descriptor, 0).await?.1.stream;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| self.broken(error))?);
            if bytes.len() as u64 > limit {
                break;
            }
        }
        self.check(descriptor.digest, Digest::of(&bytes))?;
        Ok(bytes)
    }

    /// Brings a blob into the file `path`, going on where it ends. The digest is not checked here.
    pub(super) async fn fetch(
        &self,
        descriptor: &Descriptor,
        path: &Path,
        progress: &(dyn Fn(Progress) + Send + Sync),
        layer: Digest,
    ) -> Result<(), ObtainError> {
        let store = |source| super::store::at("write", path, source);
        let options = std::fs::File::options().create(true).truncate(false).write(true).open(path);
        let mut file = tokio::fs::File::from_std(options.map_err(store)?);
        let mut failures = 0;
        loop {
            let start = file.seek(io::SeekFrom::End(0)).await.map_err(store)?;
            let told = |done| {
                progress(Progress {
                    layer: layer.to_string(),
                    step: Step::Fetch,
                    done,
                    total: descriptor.size,
                });
            };
            let result = self.fetch_rest(descriptor, &mut file, start, &told).await;
            // What was fetched so far is kept also if the rest failed.
            file.flush().await.map_err(store)?;
            let error = match result {
                Ok(()) => return Ok(()),
                Err(Interrupted::Store(source)) => return Err(store(source).into()),
                Err(Interrupted::Registry(error)) => error,
            };
            let grown = file.metadata().await.map_err(store)?.len() > start;
            failures = if grown { 1 } else { failures + 1 };
            if failures >= MOST_FAILURES || !error.is_temporary() {
                return Err(error);
            }
            tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(failures)).await;
        }
    }

    async fn fetch_rest(
        &self,
        descriptor: &Descriptor,
        file: &mut tokio::fs::File,
        start: u64,
        told: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), Interrupted> {
        let mut done = start;
        if done > descriptor.size {
            restart(file, &mut done).await?;
        }
        if done == descriptor.size {
            return Ok(());
        }
        let (partial, mut content) = self.blob(descriptor, done).await?;
        if !partial && done > 0 {
            restart(file, &mut done).await?;
        }
        while done < descriptor.size {
            let Some(chunk) = content.stream.next().await else {
                return Err(self.broken(io::ErrorKind::UnexpectedEof.into()).into());
            };
            let chunk = chunk.map_err(|error| self.broken(error))?;
            let wanted = usize::try_from(descriptor.size - done).unwrap_or(usize::MAX).min(chunk.len());
            file.write_all(&chunk[..wanted]).await?;
            done += wanted as u64;
            told(done);
        }
        Ok(())
    }

    /// Asks for a blob from `offset` on; tells whether the registry keeps to that.
    async fn blob(&self, descriptor: &Descriptor, offset: u64) -> Result<(bool, SizedStream), ObtainError> {
        let session = self.session().await?;
        let reference = self.reference.inner();
        session.client.store_auth_if_needed(reference.resolve_registry(), &session.auth).await;
        let digest = descriptor.digest.to_string();
        let answer = session.client.pull_blob_stream_partial(reference, digest.as_str(), offset, None).await;
        match answer.map_err(|error| self.failed(error))? {
            BlobResponse::Full(stream) => Ok((false, stream)),
            BlobResponse::Partial(stream) => Ok((true, stream)),
        }
    }

    async fn session(&self) -> Result<&Session, ObtainError> {
        self.session.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Session, ObtainError> {
        let login = self.credentials.login(self.reference.registry()).await?;
        let auth = match login {
            None => RegistryAuth::Anonymous,
            Some(Login::Password { name, password }) => RegistryAuth::Basic(name, password),
            Some(Login::Token(token)) => RegistryAuth::Bearer(token),
        };
        // Only the first call in a process has an effect; any provider serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(ClientConfig {
            protocol: match self.reference.is_loopback() {
                true => ClientProtocol::Http,
                false => ClientProtocol::Https,
            },
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(READ_TIMEOUT),
            user_agent: concat!("trainyard/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        });
        let client = client.map_err(|error| self.failed(error))?;
        let logged_in = client.auth(self.reference.inner(), &auth, RegistryOperation::Pull).await;
        logged_in.map_err(|error| self.failed_with(error, auth != RegistryAuth::Anonymous))?;
        Ok(Session { client, auth })
    }

    fn check(&self, expected: Digest, actual: Digest) -> Result<(), ObtainError> {
        if expected == actual {
            return Ok(());
        }
        Err(ObtainError::Digest { image: self.reference.to_string(), expected, actual })
    }
}

/// Why not all of a blob came.
enum Interrupted {
    Store(io::Error),
    Registry(ObtainError),
}

impl From<io::Error> for Interrupted {
    fn from(error: io::Error) -> Self {
        Self::Store(error)
    }
}

impl From<ObtainError> for Interrupted {
    fn from(error: ObtainError) -> Self {
        Self::Registry(error)
    }
}

async fn restart(file: &mut tokio::fs::File, done: &mut u64) -> io::Result<()> {
    file.set_len(0).await?;
    file.rewind().await?;
    *done = 0;
    Ok(())
}
