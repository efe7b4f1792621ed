//! Objects that arrive in parts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use fs_err as fs;

use crate::bucket::{now, time};
use crate::draft::{etag, etag_of_parts, md5_of};
use crate::index::{Part, Upload};
use crate::{Attributes, Bucket, BucketError, Draft, Key, Object};

/// All parts but the last need so many bytes (S3 user guide, "Amazon S3 multipart upload limits").
const LEAST_PART: u64 = 5 << 20;

/// An upload that was begun and neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadUnderWay {
    /// The object that it will be.
    pub key: String,
    /// Names the upload in all further requests.
    pub id: String,
    /// When it was begun.
    pub begun: SystemTime,
    /// What the object will have.
    pub attributes: Attributes,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPart {
    /// From 1.
    pub number: u32,
    /// In bytes.
    pub size: u64,
    /// When it arrived.
    pub modified: SystemTime,
    /// The MD5 of its content.
    pub etag: String,
    /// Base64, by algorithm.
    pub checksums: BTreeMap<String, String>,
}

/// All parts of an upload in one.
#[derive(Debug)]
pub struct Received {
    draft: Draft,
    /// What the upload was begun with.
    pub attributes: Attributes,
    /// In order.
    pub parts: Vec<UploadPart>,
    id: String,
}

impl Received {
    /// The content from its beginning.
    ///
    /// # Errors
    /// The file can't be opened again.
    pub fn content(&self) -> Result<std::fs::File, BucketError> {
        Ok(self.draft.file.reopen()?)
    }
}

impl Bucket {
    /// Begins an upload and tells its id.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn begin_upload(&self, key: &Key, attributes: Attributes) -> Result<String, BucketError> {
        let folder = self.folder.hidden("uploads");
        fs::create_dir_all(&folder)?;
        let own = tempfile::Builder::new().prefix("").rand_bytes(32).tempdir_in(&folder)?;
        let id = own.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let upload = Upload { key: key.to_string(), id: id.clone(), begun: now(), attributes };
        self.open().made()?.begin(&upload)?;
        let _path = own.keep();
        Ok(id)
    }

    /// Takes a part in place of an earlier one of this number.
    ///
    /// # Errors
    /// There is no such upload, or the file system refuses it.
    pub fn put_part(
        &self,
        key: &Key,
        id: &str,
        (number, draft): (u32, Draft),
        checksums: BTreeMap<String, String>,
    ) -> Result<UploadPart, BucketError> {
        let mut open = self.open();
        found(open.made()?.upload(key.as_str(), id)?, key, id)?;
        let part = Part { number, size: draft.size(), modified: now(), etag: etag(&draft.md5()), checksums };
        draft.file.persist(self.part(id, number)).map_err(|error| error.error)?;
        open.made()?.store_part(id, &part)?;
        Ok(part.into())
    }

    /// An upload and its parts.
    ///
    /// # Errors
    /// There is no such upload.
    pub fn upload(&self, key: &Key, id: &str) -> Result<(UploadUnderWay, Vec<UploadPart>), BucketError> {
        let mut open = self.open();
        let Some(index) = open.known()? else {
            return Err(BucketError::NoUpload { id: id.to_owned(), key: key.to_string() });
        };
        let upload = found(index.upload(key.as_str(), id)?, key, id)?;
        let parts = index.parts(id)?.into_iter().map(UploadPart::from).collect();
        Ok((upload.into(), parts))
    }

    /// All uploads of keys with a prefix, in order of key and id.
    ///
    /// # Errors
    /// The index can't be read.
    pub fn uploads(&self, prefix: &str) -> Result<Vec<UploadUnderWay>, BucketError> {
        let mut open = self.open();
        let uploads = open.known()?.map(|index| index.uploads(prefix)).transpose()?.unwrap_or_default();
        Ok(uploads.into_iter().map(UploadUnderWay::from).collect())
    }

    /// Puts the wanted parts, by number and ETag, into one.
    ///
    /// # Errors
    /// There is no such upload, a part is not there or too small, or they do not rise.
    pub fn receive(&self, key: &Key, id: &str, wanted: &[(u32, String)]) -> Result<Received, BucketError> {
        let (upload, parts) = self.upload(key, id)?;
        let parts = chosen(&parts, wanted)?;
        let mut draft = self.draft()?;
        for part in &parts {
            let mut file = match fs::File::open(self.part(id, part.number)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(BucketError::NoUpload { id: id.to_owned(), key: key.to_string() });
                }
                file => file?.into_file(),
            };
            // Within the kernel where it can.
            io::copy(&mut file, draft.file.as_file_mut())?;
        }
        Ok(Received { draft, attributes: upload.attributes, parts, id: id.to_owned() })
    }

    /// Makes an object of an upload's parts and ends the upload.
    ///
    /// # Errors
    /// It is not allowed, or the file system refuses it.
    pub fn complete_upload(
        &self,
        key: &Key,
        received: Received,
        allowed: impl FnOnce(Option<&Object>) -> bool,
    ) -> Result<Object, BucketError> {
        let Received { draft, mut attributes, parts, id } = received;
        let sums: Vec<_> = parts.iter().filter_map(|part| md5_of(&part.etag)).collect();
        attributes.parts = parts.iter().map(|part| part.size).collect();
        let object = self.put_as(key, draft, (etag_of_parts(&sums), attributes), allowed)?;
        self.end_upload(key, &id)?;
        Ok(object)
    }

    /// Forgets an upload and its parts.
    ///
    /// # Errors
    /// There is no such upload.
    pub fn abort_upload(&self, key: &Key, id: &str) -> Result<(), BucketError> {
        self.upload(key, id)?;
        self.end_upload(key, id)
    }

    fn end_upload(&self, key: &Key, id: &str) -> Result<(), BucketError> {
        self.open().made()?.end(key.as_str(), id)?;
        match fs::remove_dir_all(self.folder.hidden("uploads").join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn part(&self, id: &str, number: u32) -> PathBuf {
        self.folder.hidden("uploads").join(id).join(number.to_string())
    }
}

fn found(upload: Option<Upload>, key: &Key, id: &str) -> Result<Upload, BucketError> {
    upload.ok_or_else(|| BucketError::NoUpload { id: id.to_owned(), key: key.to_string() })
}

fn chosen(parts: &[UploadPart], wanted: &[(u32, String)]) -> Result<Vec<UploadPart>, BucketError> {
    let mut chosen: Vec<UploadPart> = Vec::with_capacity(wanted.len());
    for (place, (number, etag)) in wanted.iter().enumerate() {
        let part = parts.iter().find(|part| part.number == *number && part.etag == *etag);
        let Some(part) = part else {
            return Err(BucketError::NoPart { number: *number, etag: etag.clone() });
        };
        if chosen.last().is_some_and(|last| last.number >= *number) {
            return Err(BucketError::PartOrder { number: *number });
        }
        if part.size < LEAST_PART && place + 1 < wanted.len() {
            return Err(BucketError::PartSize { number: *number, size: part.size, least: LEAST_PART });
        }
        chosen.push(part.clone());
    }
    Ok(chosen)
}

impl From<Part> for UploadPart {
    fn from(part: Part) -> Self {
        let Part { number, size, modified, etag, checksums } = part;
        Self { number, size, modified: time(modified), etag, checksums }
    }
}

impl From<Upload> for UploadUnderWay {
    fn from(upload: Upload) -> Self {
        let Upload { key, id, begun, attributes } = upload;
        Self { key, id, begun: time(begun), attributes }
    }
}
