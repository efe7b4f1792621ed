//! The keys with which clients sign what they send to this program's own endpoint.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fs_err as fs;

/// What an access key starts with, to be told from Amazon's.
const PREFIX: &str = "TRAINYARD";
/// Of an access key besides its prefix.
const ID_LENGTH: usize = 11;
/// Base32 (RFC 4648): what an access key is made of.
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Access keys and their secrets, kept in one file that only its owner can read.
#[derive(Debug)]
pub(crate) struct Keys {
    path: PathBuf,
    secrets: BTreeMap<String, String>,
}

impl Keys {
    /// The keys of a data folder; none if there is no file yet.
    pub(crate) fn read(data: &Path) -> anyhow::Result<Self> {
        let path = data.join("keys.json");
        let secrets = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            read => serde_json::from_slice(&read?).with_context(|| {
                format!("{}: not a file of keys; remove it to get new ones", path.display())
            })?,
        };
        Ok(Self { path, secrets })
    }

    /// The same, with a first pair if there is none.
    pub(crate) fn read_or_make(data: &Path) -> anyhow::Result<Self> {
        let mut keys = Self::read(data)?;
        if keys.secrets.is_empty() {
            keys.add()?;
        }
        Ok(keys)
    }

    /// The secret of an access key.
    pub(crate) fn secret(&self, access: &str) -> Option<&str> {
        self.secrets.get(access).map(String::as_str)
    }

    /// All access keys.
    pub(crate) fn access_keys(&self) -> impl Iterator<Item = &str> {
        self.secrets.keys().map(String::as_str)
    }

    /// Makes a pair and keeps it; returns the access key.
    pub(crate) fn add(&mut self) -> anyhow::Result<String> {
        let mut random = [0; ID_LENGTH + 30];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        let (id, secret) = random.split_at(ID_LENGTH);
        let id: String = id.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
        let access = format!("{PREFIX}{id}");
        self.secrets.insert(access.clone(), STANDARD.encode(secret));
        self.write()?;
        Ok(access)
    }

    /// Forgets a pair; tells whether it was there.
    pub(crate) fn remove(&mut self, access: &str) -> anyhow::Result<bool> {
        let there = self.secrets.remove(access).is_some();
        if there {
            self.write()?;
        }
        Ok(there)
    }

    fn write(&self) -> anyhow::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // A temporary file is its owner's only from the beginning.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.as_file().set_permissions(PermissionsExt::from_mode(0o600))?;
        file.write_all(&serde_json::to_vec_pretty(&self.secrets)?)?;
        file.persist(&self.path).with_context(|| format!("writing {}", self.path.display()))?;
        Ok(())
    }
}

/// The keys of a data folder as they are now: a change by another process counts at once.
#[derive(Debug)]
pub(crate) struct LiveKeys {
    data: PathBuf,
    known: Mutex<(Option<Stamp>, Keys)>,
}

/// What tells one version of the file from the next, which is another file.
type Stamp = (u64, i64, i64, u64);

impl LiveKeys {
    /// Those of a data folder, with a first pair if there is none.
    pub(crate) fn read_or_make(data: &Path) -> anyhow::Result<Self> {
        let keys = Keys::read_or_make(data)?;
        Ok(Self { data: data.to_owned(), known: Mutex::new((stamp(&keys.path), keys)) })
    }

    /// The secret of an access key. A file that has become unreadable opens to nobody.
    pub(crate) fn secret(&self, access: &str) -> Option<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&known.1.path);
        if now != known.0 {
            let keys = Keys::read(&self.data).inspect_err(|error| eprintln!("{error:#}"));
            let none = || Keys { path: known.1.path.clone(), secrets: BTreeMap::new() };
            *known = (now, keys.unwrap_or_else(|_| none()));
        }
        known.1.secret(access).map(ToOwned::to_owned)
    }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_for_their_owner_only_and_are_all_different() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Keys::read_or_make(&folder.path().join("data")).unwrap();
        let first = keys.access_keys().next().unwrap().to_owned();
        let second = keys.add().unwrap();
        assert_ne!(first, second);
        assert_ne!(keys.secret(&first), keys.secret(&second));
        assert_eq!((first.len(), keys.secret(&first).unwrap().len()), (20, 40));
        let mode = fs::metadata(folder.path().join("data/keys.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut again = Keys::read_or_make(&folder.path().join("data")).unwrap();
        assert_eq!(again.secret(&first), keys.secret(&first));
        assert!(again.remove(&first).unwrap() && !again.remove(&first).unwrap());
        assert_eq!(Keys::read(&folder.path().join("data")).unwrap().secret(&first), None);
    }

    #[test]
    fn what_another_process_does_to_the_keys_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let live = LiveKeys::read_or_make(folder.path()).unwrap();
        let mut others = Keys::read(folder.path()).unwrap();
        let first = others.access_keys().next().unwrap().to_owned();
        let second = others.add().unwrap();
        assert_eq!(live.secret(&second).as_deref(), others.secret(&second));
        others.remove(&first).unwrap();
        assert_eq!((live.secret(&first), live.secret(&second).is_some()), (None, true));
        fs::write(folder.path().join("keys.json"), "{").unwrap();
        assert_eq!(live.secret(&second), None, "who can't tell who is allowed allows nobody");
    }

    #[test]
    fn a_damaged_file_of_keys_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("keys.json"), "{").unwrap();
        assert!(Keys::read_or_make(folder.path()).unwrap_err().to_string().contains("keys.json"));
        assert_eq!(fs::read_to_string(folder.path().join("keys.json")).unwrap(), "{");
    }
}
