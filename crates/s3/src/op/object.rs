//! Objects one by one.

use std::fs::File;
use std::ops::Range;

use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error,
    GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, GetObjectInput,
    GetObjectOutput, HeadObjectInput, HeadObjectOutput, ObjectAttributes, ObjectIdentifier, ObjectPart,
    PutObjectInput, PutObjectOutput, Timestamp,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use trainyard_bucket::Object;

use super::bucket::no_version;
use super::{Endpoint, blocking, etag, key};
use crate::attributes::{attributes, give_back, http_date};
use crate::checksum::{Announced, checksums};
use crate::condition::{Reading, Writing};
use crate::receive::receive;
use crate::send::content;

pub(super) async fn put_object(
    endpoint: &Endpoint,
    request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let announced = Announced::of(&request);
    let mut input = request.input;
    if input.write_offset_bytes.is_some() {
        return Err(s3_error!(NotImplemented, "x-amz-write-offset-bytes: objects can't be appended to"));
    }
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let mut attributes = attributes!(input);
    let writing = Writing { if_match: input.if_match, if_none_match: input.if_none_match };
    let body = receive(bucket.clone(), input.body, input.content_length, &announced);
    let (draft, checksums) = body.await?;
    attributes.checksums = checksums;
    let object =
        blocking(move || bucket.put(&key, draft, attributes, |before| writing.allows(before))).await?;
    let mut output = PutObjectOutput { e_tag: Some(etag(&object.etag)), ..PutObjectOutput::default() };
    checksums!(output, &object.attributes.checksums, kind);
    Ok(S3Response::new(output))
}

/// What of an object is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    bytes: Range<u64>,
    /// `Content-Range`, if it is not all of it.
    range: Option<String>,
    /// How many parts there are, if one was asked for.
    parts: Option<i32>,
}

impl Section {
    fn of(object: &Object, range: Option<s3s::dto::Range>, part: Option<i32>) -> S3Result<Self> {
        let size = object.size;
        let cut = |bytes: Range<u64>| {
            let range = format!("bytes {}-{}/{size}", bytes.start, bytes.end.saturating_sub(1));
            Self { bytes, range: Some(range), parts: None }
        };
        match (range, part) {
            (None, None) => Ok(Self { bytes: 0..size, range: None, parts: None }),
            (Some(_), Some(_)) => {
                Err(s3_error!(InvalidRequest, "a range and a part number can't be asked for together"))
            }
            (Some(range), None) => {
                let bytes = range.check(size).map_err(|_| {
                    s3_error!(InvalidRange, "the object has {size} bytes, none of them in the range")
                })?;
                Ok(cut(bytes))
            }
            (None, Some(number)) => {
                let (bytes, parts) = part_of(object, number)?;
                let whole = bytes == (0..size);
                let section = cut(bytes);
                let range = section.range.filter(|_| !whole || !object.attributes.parts.is_empty());
                Ok(Self { range, parts, ..section })
            }
        }
    }
}

/// The bytes of a part, and the number of parts if it was uploaded in parts. Any object is its own first part.
fn part_of(object: &Object, number: i32) -> S3Result<(Range<u64>, Option<i32>)> {
    let parts = &object.attributes.parts;
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let wrong = || s3_error!(InvalidRange, "the object has no part {number}");
    let place = place.ok_or_else(wrong)?;
    if parts.is_empty() && place == 0 {
        return Ok((0..object.size, None));
    }
    let size = parts.get(place).ok_or_else(wrong)?;
    let start: u64 = parts.iter().take(place).sum();
    Ok((start..start + size, Some(parts.len() as i32)))
}

/// What a reader asks for, with or without the content.
struct Asked {
    bucket: String,
    key: String,
    version: Option<String>,
    reading: Reading,
    range: Option<s3s::dto::Range>,
    part: Option<i32>,
    checksums: bool,
}

/// Takes it from the input of either operation.
macro_rules! asked {
    ($input:expr) => {
        Asked {
            bucket: $input.bucket,
            key: $input.key,
            version: $input.version_id,
            reading: Reading {
                if_match: $input.if_match,
                if_none_match: $input.if_none_match,
                if_modified_since: $input.if_modified_since,
                if_unmodified_since: $input.if_unmodified_since,
            },
            range: $input.range,
            part: $input.part_number,
            checksums: $input.checksum_mode.is_some(),
        }
    };
}

/// An object that may be sent, and what of it.
struct Found {
    file: File,
    object: Object,
    section: Section,
    /// Those of the whole object say nothing of a section.
    checksums: bool,
}

async fn find(endpoint: &Endpoint, asked: Asked) -> S3Result<Found> {
    no_version(asked.version.as_deref())?;
    let (bucket, key) = (endpoint.bucket(&asked.bucket)?, key(&asked.key)?);
    let (file, object) = blocking(move || bucket.get(&key)).await?;
    asked.reading.check(&object)?;
    let section = Section::of(&object, asked.range, asked.part)?;
    let checksums = asked.checksums && section.bytes == (0..object.size);
    Ok(Found { file, object, section, checksums })
}

/// What both operations tell of it.
macro_rules! told {
    ($output:ident, $found:expr) => {{
        let Found { object, section, checksums, .. } = $found;
        let mut output = $output {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some((section.bytes.end - section.bytes.start).cast_signed()),
            content_range: section.range.clone(),
            e_tag: Some(etag(&object.etag)),
            last_modified: Some(object.modified.into()),
            parts_count: section.parts,
            ..$output::default()
        };
        give_back!(output, &object.attributes);
        if *checksums {
            checksums!(output, &object.attributes.checksums, kind);
        }
        output
    }};
}

pub(super) async fn get_object(
    endpoint: &Endpoint,
    request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let input = request.input;
    let found = find(endpoint, asked!(input)).await?;
    let mut output = told!(GetObjectOutput, &found);
    output.tag_count = Some(found.object.attributes.tags.len() as i32).filter(|&count| count > 0);
    output.cache_control = input.response_cache_control.or(output.cache_control);
    output.content_disposition = input.response_content_disposition.or(output.content_disposition);
    output.content_encoding = input.response_content_encoding.or(output.content_encoding);
    output.content_language = input.response_content_language.or(output.content_language);
    output.content_type = input.response_content_type.or(output.content_type);
    output.expires = input.response_expires.or(output.expires);
    output.body = Some(content(found.file, found.section.bytes));
    Ok(S3Response::new(output))
}

pub(super) async fn head_object(
    endpoint: &Endpoint,
    request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let input = request.input;
    let found = find(endpoint, asked!(input)).await?;
    let mut response = S3Response::new(told!(HeadObjectOutput, &found));
    let tags = found.object.attributes.tags.len();
    if tags > 0 {
        response.headers.insert("x-amz-tagging-count", tags.into());
    }
    Ok(response)
}

pub(super) async fn get_object_attributes(
    endpoint: &Endpoint,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let input = request.input;
    no_version(input.version_id.as_deref())?;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let (_, object) = blocking(move || bucket.get(&key)).await?;
    // Some clients send a header for each, some one with commas in it.
    let names: Vec<_> = input.object_attributes.iter().flat_map(|names| names.as_str().split(',')).collect();
    let asked = |name: &str| names.iter().any(|asked| asked.trim() == name);
    let mut output = GetObjectAttributesOutput {
        e_tag: asked(ObjectAttributes::ETAG).then(|| etag(&object.etag)),
        last_modified: Some(object.modified.into()),
        object_size: asked(ObjectAttributes::OBJECT_SIZE).then_some(object.size.cast_signed()),
        ..GetObjectAttributesOutput::default()
    };
    if asked(ObjectAttributes::STORAGE_CLASS) {
        let class = object.attributes.headers.get("x-amz-storage-class").cloned();
        output.storage_class = Some(class.unwrap_or_else(|| "STANDARD".to_owned()).into());
    }
    if asked(ObjectAttributes::CHECKSUM) && !object.attributes.checksums.is_empty() {
        let mut checksum = s3s::dto::Checksum::default();
        checksums!(checksum, &object.attributes.checksums, kind);
        output.checksum = Some(checksum);
    }
    if asked(ObjectAttributes::OBJECT_PARTS) && !object.attributes.parts.is_empty() {
        output.object_parts = Some(parts(&object, input.part_number_marker, input.max_parts));
    }
    Ok(S3Response::new(output))
}

fn parts(object: &Object, after: Option<i32>, limit: Option<i32>) -> GetObjectAttributesParts {
    let (after, limit) = (after.unwrap_or(0).max(0), limit.unwrap_or(1000).clamp(0, 1000));
    let numbered = (1..).zip(&object.attributes.parts).filter(|(number, _)| *number > after);
    let page: Vec<_> = numbered
        .take(limit as usize)
        .map(|(number, size)| ObjectPart {
            part_number: Some(number),
            size: Some(size.cast_signed()),
            ..ObjectPart::default()
        })
        .collect();
    let last = page.last().and_then(|part| part.part_number).unwrap_or(after);
    let total = object.attributes.parts.len() as i32;
    GetObjectAttributesParts {
        is_truncated: Some(last < total),
        max_parts: Some(limit),
        next_part_number_marker: Some(last),
        part_number_marker: Some(after),
        parts: Some(page),
        total_parts_count: Some(total),
    }
}

pub(super) async fn delete_object(
    endpoint: &Endpoint,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let input = request.input;
    no_version(input.version_id.as_deref())?;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let writing = Writing { if_match: input.if_match, if_none_match: None };
    let (size, time) = (input.if_match_size, input.if_match_last_modified_time);
    blocking(move || {
        bucket.delete(&key, |object| writing.allows(Some(object)) && is_of(object, size, time.as_ref()))
    })
    .await?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

/// Whether an object has the size and the time of last change, in whole seconds, that a request names.
fn is_of(object: &Object, size: Option<i64>, time: Option<&Timestamp>) -> bool {
    let dated = |time: &Timestamp| http_date(time) == http_date(&object.modified.into());
    size.is_none_or(|size| object.size.cast_signed() == size) && time.is_none_or(dated)
}

/// S3 API reference, DeleteObjects.
const MOST_AT_ONCE: usize = 1000;

pub(super) async fn delete_objects(
    endpoint: &Endpoint,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let input = request.input;
    let asked = input.delete.objects;
    if asked.is_empty() || asked.len() > MOST_AT_ONCE {
        return Err(s3_error!(MalformedXML, "1 to {MOST_AT_ONCE} objects can be deleted at once"));
    }
    let bucket = endpoint.bucket(&input.bucket)?;
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for ObjectIdentifier { key: name, version_id, e_tag, size, last_modified_time: time } in asked {
        let bucket = bucket.clone();
        let wanted = e_tag.map(|tag| tag.value().to_owned());
        let result = match (no_version(version_id.as_deref()), key(&name)) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(()), Ok(key)) => {
                let allowed = move |object: &Object| {
                    let same = wanted.is_none_or(|tag| tag == "*" || object.etag == tag);
                    same && is_of(object, size, time.as_ref())
                };
                blocking(move || bucket.delete(&key, allowed)).await
            }
        };
        match result {
            Ok(_) => deleted.push(DeletedObject { key: Some(name), ..DeletedObject::default() }),
            Err(error) => errors.push(failure(name, &error)),
        }
    }
    let quiet = input.delete.quiet == Some(true);
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: Some(deleted).filter(|_| !quiet),
        errors: Some(errors),
        ..DeleteObjectsOutput::default()
    }))
}

fn failure(key: String, error: &S3Error) -> Error {
    let message = error.message().map(ToOwned::to_owned);
    Error { code: Some(error.code().as_str().to_owned()), key: Some(key), message, version_id: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_bucket::{Attributes, Key};

    fn object(size: u64, parts: Vec<u64>) -> Object {
        let attributes = Attributes { parts, ..Attributes::default() };
        let modified = std::time::SystemTime::UNIX_EPOCH;
        Object { key: Key::new("k").unwrap(), size, modified, etag: "e".into(), attributes }
    }

    #[test]
    fn parts_and_ranges_are_cut_out_of_the_object() {
        let whole = object(10, vec![]);
        let parted = object(10, vec![7, 3]);
        let section = |object, range: Option<&str>, part| {
            let range = range.map(|range| s3s::dto::Range::parse(range).unwrap());
            Section::of(object, range, part).map(|it| (it.bytes, it.range.unwrap_or_default(), it.parts)).ok()
        };
        assert_eq!(section(&whole, None, None), Some((0..10, String::new(), None)));
        assert_eq!(section(&whole, Some("bytes=2-3"), None), Some((2..4, "bytes 2-3/10".into(), None)));
        assert_eq!(section(&whole, Some("bytes=-3"), None), Some((7..10, "bytes 7-9/10".into(), None)));
        assert_eq!(section(&whole, Some("bytes=5-99"), None), Some((5..10, "bytes 5-9/10".into(), None)));
        assert_eq!(section(&whole, Some("bytes=10-"), None), None);
        assert_eq!(section(&whole, None, Some(1)), Some((0..10, String::new(), None)));
        assert_eq!(section(&parted, None, Some(2)), Some((7..10, "bytes 7-9/10".into(), Some(2))));
        for none in [0, -1, 3] {
            assert_eq!(section(&parted, None, Some(none)), None);
        }
        assert_eq!(section(&object(0, vec![]), None, Some(1)), Some((0..0, String::new(), None)));
    }
}
