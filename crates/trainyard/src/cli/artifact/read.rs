//! What is done with an archive while it is read from front to back.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use trainyard_engine::artifact::{ArchiveEntry, ArchiveReader, EntryKind};

use super::write_out;
use crate::show::{moment, out, remark};
use crate::unpack::{Marks, Target};

/// Copied at once.
const PIECE: usize = 128 << 10;

type Archive = Box<dyn Read + Send>;

/// Whether an entry is of the instance that is asked for.
fn is_of(entry: &ArchiveEntry<'_, Archive>, host: Option<&str>) -> bool {
    host.is_none_or(|host| entry.host.as_deref() == Some(host))
}

/// Prints a line for each entry.
pub(super) fn list(archive: Archive, host: Option<&str>, json: bool) -> anyhow::Result<()> {
    let mut reader = ArchiveReader::new(archive);
    let mut none = true;
    while let Some(entry) = reader.next_entry()? {
        if is_of(&entry, host) {
            none = false;
            out(&line(&entry, json))?;
        }
    }
    if none && let Some(host) = host {
        bail!("nothing in the archive is from {host}");
    }
    Ok(())
}

fn line(entry: &ArchiveEntry<'_, Archive>, json: bool) -> String {
    let path = String::from_utf8_lossy(&entry.path);
    if json {
        let kind = match entry.kind {
            EntryKind::File => "File",
            EntryKind::Folder => "Folder",
            EntryKind::Other => "Other",
        };
        let (host, size, modified) = (&entry.host, entry.size, entry.modified);
        let entry = json!({"Host": host, "Size": size, "LastModified": modified, "Kind": kind, "Path": path});
        return entry.to_string();
    }
    let host = entry.host.as_deref().unwrap_or("-");
    let slash = if entry.kind == EntryKind::Folder { "/" } else { "" };
    let modified = entry.modified.map_or(Value::Null, |seconds| json!(seconds));
    // A name must stay in its line.
    let path = path.replace('\n', "\u{240a}");
    format!("{host:<8} {:>14} {:<20} {path}{slash}", entry.size, moment(&modified))
}

/// Prints the file of a path: the last one, as unpacking would leave it.
pub(super) fn print(archive: Archive, host: Option<&str>, file: &OsStr) -> anyhow::Result<()> {
    let wanted = trimmed(file);
    let mut reader = ArchiveReader::new(archive);
    let mut kept = tempfile::tempfile().context("a temporary file")?;
    let mut hosts = Vec::new();
    while let Some(mut entry) = reader.next_entry()? {
        if entry.path != wanted || !is_of(&entry, host) {
            continue;
        }
        if entry.kind != EntryKind::File {
            bail!("{} is no file", file.display());
        }
        hosts.push(entry.host.clone().unwrap_or_else(|| "-".to_owned()));
        kept.set_len(0)?;
        kept.seek(SeekFrom::Start(0))?;
        io::copy(&mut entry, &mut kept)?;
    }
    let Some(last) = hosts.pop() else { return Err(missing(&[file.to_owned()], host)) };
    if !hosts.is_empty() {
        let others = hosts.join(", ");
        remark(&format!("{} of {last}; there is also that of {others} (--host)", file.display()));
    }
    kept.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; PIECE];
    loop {
        let count = kept.read(&mut piece)?;
        if count == 0 || !write_out(&piece[..count])? {
            return Ok(());
        }
    }
}

/// What is taken out, and to where.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Everything if there are none.
    pub(super) files: Vec<OsString>,
    pub(super) folder: PathBuf,
    pub(super) json: bool,
}

/// Puts files into a folder.
pub(super) fn take(archive: Archive, host: Option<&str>, wanted: &Wanted) -> anyhow::Result<()> {
    let target = Target::open(&wanted.folder)?;
    let paths: Vec<_> = wanted.files.iter().map(|file| trimmed(file)).collect();
    let mut reader = ArchiveReader::new(archive);
    let (mut found, mut taken) = (BTreeSet::new(), 0_u64);
    while let Some(mut entry) = reader.next_entry()? {
        let asked = paths.iter().position(|path| is_in(&entry.path, path));
        if !is_of(&entry, host) || (asked.is_none() && !paths.is_empty()) {
            continue;
        }
        found.extend(asked);
        taken += 1;
        let path = entry.path.clone();
        let shown = wanted.folder.join(OsStr::from_bytes(&path));
        let failed = || shown.display().to_string();
        match entry.kind {
            EntryKind::Folder => drop(target.folder(&path).with_context(failed)?),
            EntryKind::File => {
                let marks = Marks { mode: entry.mode, modified: entry.modified };
                let bytes = target.file(&path, marks, &mut entry).with_context(failed)?;
                tell(&entry, &shown, bytes, wanted.json)?;
            }
            EntryKind::Other => remark(&format!("{}: a link or a device, left out", shown.display())),
        }
    }
    let lost: Vec<_> = (0..paths.len()).filter(|index| !found.contains(index)).collect();
    if !lost.is_empty() || (taken == 0 && host.is_some()) {
        let names: Vec<_> = lost.into_iter().map(|index| wanted.files[index].clone()).collect();
        return Err(missing(&names, host));
    }
    Ok(())
}

fn tell(entry: &ArchiveEntry<'_, Archive>, path: &Path, bytes: u64, json: bool) -> io::Result<()> {
    let path = path.to_string_lossy();
    if json { out(&json!({"Host": entry.host, "Size": bytes, "Path": path}).to_string()) } else { out(&path) }
}

/// Whether a path is another one, or lies in it.
fn is_in(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// As the reader gives paths: without `./` in front and a slash at the end.
fn trimmed(file: &OsStr) -> Vec<u8> {
    let mut path = file.as_bytes();
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    path.strip_suffix(b"/").unwrap_or(path).to_vec()
}

fn missing(files: &[OsString], host: Option<&str>) -> anyhow::Error {
    let of = host.map_or(String::new(), |host| format!(" of {host}"));
    let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let what = if names.is_empty() { "nothing".to_owned() } else { format!("no {}", names.join(", ")) };
    anyhow::anyhow!("there is {what}{of} in the archive; `trainyard artifact ls` shows what there is")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_what_is_in_it() {
        assert!(is_in(b"a/b", b"a/b") && is_in(b"a/b/c", b"a/b"));
        assert!(!is_in(b"a/bc", b"a/b") && !is_in(b"a", b"a/b"));
        assert_eq!(trimmed(OsStr::new("././a/b/")), b"a/b");
    }
}
