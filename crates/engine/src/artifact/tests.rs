//! Packing, joining and reading together, against other programs and against hostile input.

mod clashes;
mod joining;
mod links;
mod modes;
mod programs;
mod reading;
mod removing;
mod round_trip;
mod tree;
mod zstd;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

use super::{Codec, Combined, PackOptions, PartFile, combine, index_path, pack};

pub(super) const MODEL: &str = "/opt/ml/model";

pub(super) fn options() -> PackOptions {
    PackOptions { container_path: MODEL.into(), codec: Codec::Gzip, level: 6, ignore: Vec::new(), threads: 2 }
}

/// Packs `folder` as the part of `host` into `scratch`.
pub(super) fn part_of(folder: &Path, host: &str, scratch: &Path) -> PartFile {
    let path = scratch.join(format!("{host}.part"));
    let packed = pack(folder, host, &path, &options(), &|_| {}).unwrap();
    assert_eq!(packed.compressed_bytes, fs_err::metadata(&path).unwrap().len());
    assert!(index_path(&path).is_file());
    PartFile { host: host.into(), path, packed }
}

/// The archive of one folder, and what packing it warned of.
pub(super) fn archive_of(folder: &Path) -> (Vec<u8>, Vec<String>) {
    let scratch = TempDir::new().unwrap();
    let part = part_of(folder, "algo-1", scratch.path());
    let warnings = part.packed.warnings.clone();
    (archive_from(&[part], scratch.path()).0, warnings)
}

pub(super) fn archive_from(parts: &[PartFile], scratch: &Path) -> (Vec<u8>, Combined) {
    let destination = scratch.join("model.tar.gz");
    let combined = combine(parts, &destination).unwrap();
    let bytes = fs_err::read(&destination).unwrap();
    assert_eq!(combined.bytes, Some(bytes.len() as u64));
    (bytes, combined)
}

/// What a file or folder is, as far as an archive keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) mode: u32,
    pub(super) modified: i64,
    /// None for a folder.
    pub(super) content: Option<Vec<u8>>,
}

pub(super) type Nodes = BTreeMap<Vec<u8>, Node>;

/// Everything below `folder`, as the file system has it.
pub(super) fn nodes_on_disk(folder: &Path) -> Nodes {
    let mut nodes = Nodes::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs_err::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs_err::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(folder).unwrap().as_os_str().as_bytes().to_vec();
            let content = metadata.is_file().then(|| fs_err::read(&path).unwrap());
            if metadata.is_dir() {
                folders.push(path);
            }
            let node = Node { mode: metadata.mode() & 0o7777, modified: metadata.mtime(), content };
            nodes.insert(name, node);
        }
    }
    nodes
}

/// Entries of an archive in their order, as an unrelated reader sees them.
pub(super) fn entries_in(archive: &[u8]) -> Vec<(Vec<u8>, Node)> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header().clone();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let is_file = header.entry_type().is_file();
        assert!(is_file || header.entry_type().is_dir());
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        let node = Node {
            mode: header.mode().unwrap(),
            modified: header.mtime().unwrap().try_into().unwrap(),
            content: is_file.then_some(content),
        };
        (entry.path_bytes().into_owned(), node)
    });
    entries.collect()
}

/// The same as a map, names without the slash at the end.
pub(super) fn nodes_in(archive: &[u8]) -> Nodes {
    let bare = |path: Vec<u8>| path.strip_suffix(b"/").map(<[u8]>::to_vec).unwrap_or(path);
    entries_in(archive).into_iter().map(|(path, node)| (bare(path), node)).collect()
}

pub(super) fn names_in(archive: &[u8]) -> Vec<String> {
    entries_in(archive).into_iter().map(|(path, _)| String::from_utf8(path).unwrap()).collect()
}

pub(super) fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, content).unwrap();
}

pub(super) fn set_mode(path: impl AsRef<Path>, mode: u32) {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs_err::set_permissions(path.as_ref(), permissions).unwrap();
}

pub(super) fn os(bytes: &[u8]) -> std::ffi::OsString {
    std::ffi::OsString::from_vec(bytes.to_vec())
}

/// Runs `body` as an ordinary user: in this process, or, when that is root's, in a child of its own that
/// runs the test `name` again as nobody.
pub(super) fn as_ordinary_user(name: &str, body: impl FnOnce()) {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return body();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", name]).uid(65534).gid(65534).current_dir("/");
    match command.output() {
        Err(error) => eprintln!("skipped: cannot run as an ordinary user: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains("1 passed"), "no test is called {name}: {text}");
        }
    }
}
