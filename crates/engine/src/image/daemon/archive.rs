//! An image of files as the one form of archive that every daemon loads: that of `docker save`, with
//! layers as they are.

use std::io::{self, Read, Write};
use std::sync::Arc;

use futures_util::Stream;
use serde::Serialize;
use tokio::sync::mpsc::{Sender, channel};

use crate::image::config::ImageConfig;
use crate::image::digest::Digest;
use crate::image::obtain::{Found, LayerSource, ObtainError, Progress, Step};
use crate::image::reference::ImageReference;

/// So many bytes are sent at once, and so many pieces may wait.
const PIECE: usize = 256 * 1024;
const WAITING: usize = 8;

/// The document that lists an archive's images.
const MANIFEST: &str = "manifest.json";

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

/// What is to be sent.
pub(super) struct Archive {
    config: Vec<u8>,
    /// With their digests when they are unpacked, lowest first.
    layers: Vec<(Digest, LayerSource)>,
    tag: String,
    progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

impl Archive {
    pub(super) fn new(
        reference: &ImageReference,
        found: Found,
        tag: String,
        progress: Arc<dyn Fn(Progress) + Send + Sync>,
    ) -> Result<Self, ObtainError> {
        let image = || reference.to_string();
        let config = ImageConfig::parse(&found.config)
            .map_err(|source| ObtainError::Config { image: image(), source })?;
        let (config_layers, manifest) = (config.diff_ids.len(), found.layers.len());
        if config_layers != manifest {
            return Err(ObtainError::Layers { image: image(), config: config_layers, manifest });
        }
        let layers = config.diff_ids.into_iter().zip(found.layers).collect();
        Ok(Self { config: found.config, layers, tag, progress })
    }

    /// The bytes of the archive, written by a thread. An error ends it.
    pub(super) fn stream(self) -> impl Stream<Item = io::Result<bytes::Bytes>> {
        let (sender, mut receiver) = channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let mut pieces = Pieces { sender: sender.clone(), piece: Vec::with_capacity(PIECE) };
            if let Err(error) = self.write(&mut pieces).and_then(|()| pieces.flush()) {
                // Whoever reads may have gone.
                let _ = sender.blocking_send(Err(error));
            }
        });
        futures_util::stream::poll_fn(move |context| receiver.poll_recv(context))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(out);
        let config = format!("{}.json", Digest::of(&self.config).hex());
        let name = |digest: &Digest| format!("{}/layer.tar", digest.hex());
        let listed = Listed {
            config: config.clone(),
            repo_tags: vec![self.tag.clone()],
            layers: self.layers.iter().map(|(digest, _)| name(digest)).collect(),
        };
        append(&mut archive, MANIFEST, &serde_json::to_vec(&[listed])?)?;
        append(&mut archive, &config, &self.config)?;
        for (digest, source) in &self.layers {
            let LayerSource::Member { layout, name: member, .. } = source else { continue };
            let content = layout.open(member).map_err(io::Error::other)?;
            let total = content.size;
            let layer = digest.to_string();
            let counted = Counted { inner: content, done: 0, total, layer, progress: &*self.progress };
            append_sized(&mut archive, &name(digest), total, counted)?;
        }
        archive.finish()
    }
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    append_sized(archive, name, content.len() as u64, content)
}

fn append_sized(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, content)
}

/// Collects what is written into pieces and sends them.
struct Pieces {
    sender: Sender<io::Result<bytes::Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Tells how much was read.
struct Counted<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    layer: String,
    progress: &'a (dyn Fn(Progress) + Send + Sync),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let before = self.done;
        self.done += count as u64;
        // Once a megabyte is often enough to look at.
        if before >> 20 != self.done >> 20 {
            let (layer, done, total) = (self.layer.clone(), self.done, self.total);
            (self.progress)(Progress { layer, step: Step::Unpack, done, total });
        }
        Ok(count)
    }
}
