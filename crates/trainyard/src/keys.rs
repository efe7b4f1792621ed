//! The keys with which clients sign what they send to this program's own endpoint.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
    fn a_damaged_file_of_keys_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("keys.json"), "{").unwrap();
        assert!(Keys::read_or_make(folder.path()).unwrap_err().to_string().contains("keys.json"));
        assert_eq!(fs::read_to_string(folder.path().join("keys.json")).unwrap(), "{");
    }
}
