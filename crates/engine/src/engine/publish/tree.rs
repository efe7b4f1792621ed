//! Models that are published as plain files (`CompressionType: NONE`).

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::{JoinError, spawn_blocking};

use crate::artifact::{Combined, PartFile, RemoveError, Tree, UnpackError, remove_tree, unpack};
use crate::plan::StoreOutput;
use crate::run::RunDirectory;
use crate::storage::{StorageError, Stores};

/// The folder of the files below `<job>/output`.
pub(super) const FILES: &str = "model";
/// The folder beside it: versions that another host's file of the same path has replaced, below their hosts' names.
pub(super) const REPLACED: &str = "model-clashes";
/// Both until they are whole.
const UNFINISHED: &str = ".model.partial";
/// Requests under way; each holds up to 16 MiB.
const REQUESTS: usize = 8;

/// Why a model is not there as plain files.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum TreeError {
    #[error("cannot make room for the files of the model")]
    Room(#[from] RemoveError),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error("cannot put the files of the model into their place")]
    Place(#[from] io::Error),
    #[error("Artifact upload failed")]
    Storage(#[from] StorageError),
    #[error("the unpacking broke off")]
    Broken(#[from] JoinError),
}

/// Unpacks the parts into the folder, where the files appear at once.
pub(super) fn in_folder(parts: &[PartFile], folder: &Path) -> Result<Combined, TreeError> {
    let unfinished = folder.join(UNFINISHED);
    let combined = placed(parts, folder, &unfinished);
    let removed = remove_tree(&unfinished);
    let combined = combined?;
    removed?;
    Ok(combined)
}

fn placed(parts: &[PartFile], folder: &Path, unfinished: &Path) -> Result<Combined, TreeError> {
    let combined = unpacked(parts, unfinished)?;
    remove_from(folder)?;
    if combined.bytes.is_none() {
        return Ok(combined);
    }
    sync(unfinished)?;
    // What stands under the plain names comes last.
    for name in [REPLACED, FILES] {
        let tree = unfinished.join(name);
        if name == FILES || fs::read_dir(&tree)?.next().is_some() {
            fs::rename(&tree, folder.join(name))?;
        }
    }
    Ok(combined)
}

/// Removes what an earlier job has published as plain files.
pub(super) fn remove_from(folder: &Path) -> Result<(), RemoveError> {
    [FILES, REPLACED].iter().try_for_each(|name| remove_tree(&folder.join(name)))
}

/// Unpacks the parts on this machine and puts each file into the store.
pub(super) async fn in_store(
    stores: &Stores,
    parts: Vec<PartFile>,
    place: &StoreOutput,
    run: &RunDirectory,
) -> Result<Combined, TreeError> {
    let unfinished = run.root().join(UNFINISHED);
    let combined = uploaded(stores, parts, place, unfinished.clone()).await;
    let removed = spawn_blocking(move || remove_tree(&unfinished)).await?;
    let combined = combined?;
    removed?;
    Ok(combined)
}

async fn uploaded(
    stores: &Stores,
    parts: Vec<PartFile>,
    place: &StoreOutput,
    folder: PathBuf,
) -> Result<Combined, TreeError> {
    let unpacking = spawn_blocking(move || -> Result<_, TreeError> {
        let combined = unpacked(&parts, &folder)?;
        Ok((combined, files_below(&folder)?))
    });
    let (combined, files) = unpacking.await??;
    remove_from_store(stores, place).await?;
    // A store has no empty folders.
    let bytes = combined.bytes.filter(|_| !files.is_empty());
    let put = put_all(stores, place, files).await;
    if put.is_err() {
        // The first error is the one to tell.
        let _ = remove_from_store(stores, place).await;
    }
    put.map(|()| Combined { bytes, ..combined })
}

/// Removes from the store what an earlier job has published as plain files.
pub(super) async fn remove_from_store(stores: &Stores, place: &StoreOutput) -> Result<(), StorageError> {
    for name in [FILES, REPLACED] {
        stores.delete_below(&place.bucket, &format!("{}/", place.key(name))).await?;
    }
    Ok(())
}

async fn put_all(
    stores: &Stores,
    place: &StoreOutput,
    files: Vec<(PathBuf, String)>,
) -> Result<(), TreeError> {
    let put = |(path, name): (PathBuf, String)| {
        let (stores, place) = (stores.clone(), place.clone());
        async move { stores.put_file(&place.bucket, &place.key(&name), &path, place.kms_key.as_deref()).await }
    };
    let mut left = files.into_iter().map(put);
    let mut putting: FuturesUnordered<_> = left.by_ref().take(REQUESTS).collect();
    let mut all = Ok(());
    // What is under way when one is refused is waited for: the store might show it after all has been removed.
    while let Some(done) = putting.next().await {
        if all.is_ok() {
            all = done;
        }
        if all.is_ok() {
            putting.extend(left.next());
        }
    }
    Ok(all?)
}

/// The parts as files, in a folder that is made anew.
fn unpacked(parts: &[PartFile], folder: &Path) -> Result<Combined, TreeError> {
    remove_tree(folder)?;
    let (files, replaced) = (folder.join(FILES), folder.join(REPLACED));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&replaced)?;
    Ok(unpack(parts, Tree { files: &files, replaced: &replaced })?)
}

/// All files below a folder with their paths in it, which become keys: those of the model last.
fn files_below(folder: &Path) -> Result<Vec<(PathBuf, String)>, StorageError> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path);
            let name = std::str::from_utf8(name.as_os_str().as_bytes())
                .map_err(|_| StorageError::NotUtf8 { path: name.to_owned() })?
                .to_owned();
            files.push((path, name));
        }
    }
    files.sort_by_key(|(_, name)| !name.starts_with(REPLACED));
    Ok(files)
}

/// Brings all that was written below a folder to the disk.
fn sync(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(folder)?)?)
}
