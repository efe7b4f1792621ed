//! One layer on its way into the store.

use std::fs::Permissions;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;

use fs_err as fs;

use super::{ImageStore, StoreError, at};
use crate::artifact::remove_tree;
use crate::image::compression::decompress;
use crate::image::digest::{Digest, Digesting};
use crate::image::layer::{LayerError, Limits, unpack};
use crate::image::tar::TarError;

/// A layer as it comes from an archive or a registry.
pub(in crate::image) struct PackedLayer {
    pub(in crate::image) content: Box<dyn Read + Send>,
    /// Of the content as it is, if that is known.
    pub(in crate::image) blob: Option<Digest>,
    /// Of the tar archive in the content.
    pub(in crate::image) diff_id: Digest,
}

/// A layer that could not be unpacked into the store.
#[derive(Debug)]
pub(in crate::image) enum UnpackError {
    Layer(LayerError),
    Digest { expected: Digest, actual: Digest },
    Store(StoreError),
}

impl ImageStore {
    /// Unpacks a layer whose lock the caller has. Nothing is left if it fails or has another digest.
    pub(in crate::image) fn unpack_layer(
        &self,
        packed: PackedLayer,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), UnpackError> {
        let folder = self.layer(&packed.diff_id).with_extension("unpacking");
        let result = self.unpack_aside(packed, &folder, go_on);
        if result.is_err() {
            // The first error matters; who comes next tries again to remove it.
            let _ = remove_tree(&folder);
        }
        result
    }

    fn unpack_aside(
        &self,
        packed: PackedLayer,
        folder: &std::path::Path,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), UnpackError> {
        let store = |step| move |source: io::Error| UnpackError::Store(at(step, folder, source));
        let tree = folder.join("tree");
        remove_tree(folder).map_err(|error| store("remove")(error.source))?;
        fs::create_dir_all(&tree).map_err(store("make"))?;
        fs::set_permissions(&tree, Permissions::from_mode(0o755)).map_err(store("make"))?;

        let mut content = Digesting::new(packed.content);
        let unpacked = unpack_content(&mut content, &tree, go_on);
        // What is damaged has another digest too, which says more than where it does not fit.
        let is_damaged = matches!(unpacked, Err(LayerError::Tar(_)));
        let expected = packed.blob.unwrap_or(packed.diff_id);
        if is_damaged || packed.blob.is_some() && unpacked.is_ok() {
            check(expected, content.finish().map_err(store("read a layer for"))?)?;
        }
        let (bytes, diff_id) = unpacked.map_err(UnpackError::Layer)?;
        check(packed.diff_id, diff_id)?;
        fs::write(folder.join("size"), bytes.to_string()).map_err(store("write"))?;
        fs::rename(folder, self.layer(&packed.diff_id)).map_err(store("rename"))
    }
}

fn check(expected: Digest, actual: Digest) -> Result<(), UnpackError> {
    if expected == actual { Ok(()) } else { Err(UnpackError::Digest { expected, actual }) }
}

/// Returns the bytes of all files and the digest of the tar archive.
fn unpack_content(
    content: &mut impl Read,
    tree: &std::path::Path,
    go_on: &dyn Fn() -> bool,
) -> Result<(u64, Digest), LayerError> {
    let broken = |source| LayerError::Tar(TarError::Io { offset: 0, source });
    let plain = decompress(BufReader::with_capacity(128 << 10, content)).map_err(broken)?;
    let mut archive = Digesting::new(plain);
    let bytes = unpack(&mut archive, tree, Limits::default(), go_on)?;
    Ok((bytes, archive.finish().map_err(broken)?))
}
