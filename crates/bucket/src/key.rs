//! What an object is called, and where a file of that name may lie.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The folder inside of a bucket in which everything lies that is no object; no key leads into one of this
/// name.
pub const HIDDEN: &str = ".trainyard";

/// S3's own limit, in bytes of UTF-8.
const LONGEST_KEY: usize = 1024;

/// What Linux file systems take as the name of one file, in bytes.
const LONGEST_NAME: usize = 255;

/// The name of an object in its bucket: 1 to 1,024 bytes of UTF-8, any characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// A text that is no key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// Nothing.
    #[error("a key has at least one character")]
    Empty,
    /// Too much.
    #[error("a key has at most {LONGEST_KEY} bytes, this one has {0}")]
    TooLong(usize),
}

impl Key {
    /// Takes a text as a key.
    ///
    /// # Errors
    /// It is empty or longer than 1,024 bytes.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        match text.len() {
            0 => Err(KeyError::Empty),
            1..=LONGEST_KEY => Ok(Self(text)),
            longer => Err(KeyError::TooLong(longer)),
        }
    }

    /// The key as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the object's file lies below the bucket's folder, if a file can have the key as its path.
    ///
    /// It can't if some part of it is empty, `.` or `..`, too long for a file name, or not allowed in one.
    pub(crate) fn path(&self) -> Option<&Path> {
        let fits = |name: &str| {
            // A link may lead to the bucket itself, so what is hidden is so everywhere.
            let reserved = matches!(name, "" | "." | ".." | HIDDEN);
            !reserved && name.len() <= LONGEST_NAME && !name.contains('\0')
        };
        self.0.split('/').all(fits).then(|| Path::new(&self.0))
    }

    /// Where the object's file lies below the bucket's folder if its key can't be a path.
    pub(crate) fn odd_path(&self) -> PathBuf {
        let mut name = String::with_capacity(64);
        for byte in Sha256::digest(self.0.as_bytes()) {
            // A String takes everything.
            let _ = write!(name, "{byte:02x}");
        }
        [HIDDEN, "odd", &name].iter().collect()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_that_are_paths_are_told_from_those_that_are_not() {
        let long = "x".repeat(256);
        for odd in
            ["/a", "a/", "a//b", ".", "..", "a/..", "a/./b", ".trainyard", "a/.trainyard/x", "a\0b", &long]
        {
            assert_eq!(Key::new(odd).unwrap().path(), None, "{odd:?}");
        }
        for plain in ["a", "a/b", "...", " ", "\u{e4}/\u{1f600}", ".trainyards", "a\\b"] {
            assert_eq!(Key::new(plain).unwrap().path(), Some(Path::new(plain)));
        }
    }

    #[test]
    fn a_key_has_one_to_1024_bytes() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert!(Key::new("x".repeat(1024)).is_ok());
        assert_eq!(Key::new("\u{e4}".repeat(513)), Err(KeyError::TooLong(1026)));
    }

    proptest! {
        #[test]
        fn no_key_leads_out_of_the_bucket(text in "[./a\0]{1,40}|\\PC{1,40}") {
            let key = Key::new(text).unwrap();
            for path in [Some(key.odd_path()), key.path().map(Path::to_owned)].into_iter().flatten() {
                let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(plain && !path.as_os_str().is_empty());
            }
        }
    }
}
