//! Objects and parts that are made of other objects.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use trainyard_bucket::{Bucket, Draft, Object};

use super::bucket::no_version;
use super::upload::{MADE_BY, number};
use super::{Endpoint, blocking, etag, key};
use crate::attributes::attributes;
use crate::checksum::{Checksums, checksums};
use crate::condition::Reading;

/// What is copied.
struct Source {
    file: std::fs::File,
    object: Object,
    bucket: String,
}

async fn source(endpoint: &Endpoint, from: &CopySource, reading: Reading) -> S3Result<Source> {
    let CopySource::Bucket { bucket: name, key: text, version_id } = from else {
        return Err(s3_error!(NotImplemented, "x-amz-copy-source: access points do not exist here"));
    };
    no_version(version_id.as_deref())?;
    let (bucket, key) = (endpoint.bucket(name)?, key(text)?);
    let (file, object) = blocking(move || bucket.get(&key)).await?;
    // A copy has no "not modified".
    reading.check(&object).map_err(|_| {
        s3_error!(PreconditionFailed, "the object to be copied is not the one that was asked for")
    })?;
    Ok(Source { file, object, bucket: name.to_string() })
}

macro_rules! reading {
    ($input:expr) => {
        Reading {
            if_match: $input.copy_source_if_match.take(),
            if_none_match: $input.copy_source_if_none_match.take(),
            if_modified_since: $input.copy_source_if_modified_since.take(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}

pub(super) async fn copy_object(
    endpoint: &Endpoint,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let mut input = request.input;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let source = source(endpoint, &input.copy_source, reading!(input)).await?;
    let replace = |directive: Option<&str>| directive == Some("REPLACE");
    let others = replace(input.metadata_directive.as_ref().map(MetadataDirective::as_str));
    let other_tags = replace(input.tagging_directive.as_ref().map(TaggingDirective::as_str));
    let itself = source.bucket == input.bucket && source.object.key == key;
    if itself && !others && !other_tags && input.storage_class.is_none() {
        return Err(s3_error!(InvalidRequest, "an object can be copied to itself only with other metadata"));
    }
    let given = attributes!(input);
    let mut attributes = source.object.attributes.clone();
    if others {
        (attributes.headers, attributes.metadata) = (given.headers, given.metadata);
    }
    if other_tags {
        attributes.tags = given.tags;
    }
    // It is in one piece now.
    attributes.parts.clear();
    attributes.headers.remove(MADE_BY);
    attributes.checksums.retain(|_, sum| !sum.contains('-'));
    let object = blocking(move || {
        let draft = copied(&bucket, source.file, 0..source.object.size)?;
        bucket.put(&key, draft, attributes, |_| true)
    })
    .await?;
    let mut result = CopyObjectResult {
        e_tag: Some(etag(&object.etag)),
        last_modified: Some(object.modified.into()),
        ..CopyObjectResult::default()
    };
    checksums!(result, &object.attributes.checksums, kind);
    Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() }))
}

fn copied(bucket: &Arc<Bucket>, mut file: std::fs::File, range: std::ops::Range<u64>) -> io::Result<Draft> {
    let mut draft = bucket.draft().map_err(io::Error::other)?;
    file.seek(SeekFrom::Start(range.start))?;
    let wanted = range.end - range.start;
    let copied = io::copy(&mut file.take(wanted), &mut draft)?;
    if copied < wanted { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(draft) }
}

pub(super) async fn upload_part_copy(
    endpoint: &Endpoint,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let mut input = request.input;
    let (bucket, key, number) =
        (endpoint.bucket(&input.bucket)?, key(&input.key)?, number(input.part_number)?);
    let source = source(endpoint, &input.copy_source, reading!(input)).await?;
    let size = source.object.size;
    let range = match &input.copy_source_range {
        None => 0..size,
        Some(text) => {
            let Some(range @ Range::Int { last: Some(last), .. }) = Range::parse(text).ok() else {
                return Err(s3_error!(
                    InvalidArgument,
                    "x-amz-copy-source-range is {text:?}; it must be bytes=FIRST-LAST"
                ));
            };
            let inside = Some(range).filter(|_| last < size).and_then(|range| range.check(size).ok());
            inside.ok_or_else(|| s3_error!(InvalidRange, "{text}: the object has {size} bytes"))?
        }
    };
    let part = blocking(move || {
        let draft = copied(&bucket, source.file, range)?;
        bucket.put_part(&key, &input.upload_id, (number, draft), Checksums::new())
    })
    .await?;
    let result = CopyPartResult {
        e_tag: Some(etag(&part.etag)),
        last_modified: Some(part.modified.into()),
        ..CopyPartResult::default()
    };
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        ..UploadPartCopyOutput::default()
    }))
}
