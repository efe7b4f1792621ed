//! Objects that arrive in parts.

use std::io::Read;

use s3s::checksum::ChecksumHasher;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use trainyard_bucket::{Bucket, BucketError, Key, Object, Received, UploadPart};

use super::bucket::owner;
use super::list::{is_encoded, shown};
use super::{Endpoint, blocking, etag, key};
use crate::attributes::attributes;
use crate::checksum::{Announced, Checksums, checksums, composite, found, hasher};
use crate::condition::Writing;
use crate::error::of_bucket;
use crate::receive::receive;

/// Where the wish for one checksum over the whole object is kept while it arrives.
const WHOLE: &str = "trainyard-whole-checksum";
/// Where an object says which upload it comes from.
pub(super) const MADE_BY: &str = "trainyard-upload";
/// S3 user guide, "Amazon S3 multipart upload limits".
const MOST_PARTS: i32 = 10_000;

pub(super) async fn create_multipart_upload(
    endpoint: &Endpoint,
    request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let mut input = request.input;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let mut attributes = attributes!(input);
    let algorithm = input.checksum_algorithm.clone();
    let whole = input.checksum_type.as_ref().is_some_and(|kind| kind.as_str() == ChecksumType::FULL_OBJECT);
    // CRC64NVME knows no other kind.
    if let Some(algorithm) = algorithm.as_ref().map(ChecksumAlgorithm::as_str)
        && (whole || algorithm == ChecksumAlgorithm::CRC64NVME)
    {
        attributes.headers.insert(WHOLE.to_owned(), algorithm.to_owned());
    }
    let id = blocking(move || bucket.begin_upload(&key, attributes)).await?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(id),
        checksum_algorithm: algorithm,
        checksum_type: input.checksum_type,
        ..CreateMultipartUploadOutput::default()
    }))
}

/// The number of a part, which must be one that can be.
pub(super) fn number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(valid) if (1..=MOST_PARTS).contains(&number) => Ok(valid),
        _ => Err(s3_error!(InvalidArgument, "the part number is {number}; it must be 1 to {MOST_PARTS}")),
    }
}

pub(super) async fn upload_part(
    endpoint: &Endpoint,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let announced = Announced::of(&request);
    let input = request.input;
    let (bucket, key, number) =
        (endpoint.bucket(&input.bucket)?, key(&input.key)?, number(input.part_number)?);
    let (asked, id) = ((bucket.clone(), key.clone()), input.upload_id);
    // Before the content is read.
    let id = blocking(move || asked.0.upload(&asked.1, &id).map(|_| id)).await?;
    let (draft, checksums) = receive(bucket.clone(), input.body, input.content_length, &announced).await?;
    let part = blocking(move || bucket.put_part(&key, &id, (number, draft), checksums)).await?;
    let mut output = UploadPartOutput { e_tag: Some(etag(&part.etag)), ..UploadPartOutput::default() };
    checksums!(output, &part.checksums);
    Ok(S3Response::new(output))
}

pub(super) async fn complete_multipart_upload(
    endpoint: &Endpoint,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let sent = Announced::of(&request).headers();
    let input = request.input;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let wanted = wanted(input.multipart_upload)?;
    let (id, size) = (input.upload_id, input.mpu_object_size);
    let writing = Writing { if_match: input.if_match, if_none_match: input.if_none_match };
    let object = tokio::task::spawn_blocking(move || {
        let mut received = match bucket.receive(&key, &id, &wanted) {
            // A client that did not get the answer asks again.
            Err(BucketError::NoUpload { .. }) if let Some(object) = made_by(&bucket, &key, &id) => {
                return Ok(object);
            }
            received => received.map_err(of_bucket)?,
        };
        let whole = received.parts.iter().map(|part| part.size).sum::<u64>();
        if size.is_some_and(|size| u64::try_from(size).ok() != Some(whole)) {
            return Err(s3_error!(InvalidRequest, "the parts have {whole} bytes, the request says {size:?}"));
        }
        let checksums = checksums_of(&mut received).map_err(of_bucket)?;
        compare(&sent, &checksums)?;
        received.attributes.checksums = checksums;
        received.attributes.headers.insert(MADE_BY.to_owned(), id);
        let allowed = |before: Option<&Object>| writing.allows(before);
        bucket.complete_upload(&key, received, allowed).map_err(of_bucket)
    });
    let object = object.await.map_err(crate::error::cut)??;
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(etag(&object.etag)),
        ..CompleteMultipartUploadOutput::default()
    };
    checksums!(output, &object.attributes.checksums, kind);
    Ok(S3Response::new(output))
}

/// The object of a key, if this upload has made it.
fn made_by(bucket: &Bucket, key: &Key, id: &str) -> Option<Object> {
    let (_, object) = bucket.get(key).ok()?;
    (object.attributes.headers.get(MADE_BY).map(String::as_str) == Some(id)).then_some(object)
}

fn wanted(upload: Option<CompletedMultipartUpload>) -> S3Result<Vec<(u32, String)>> {
    let parts = upload.and_then(|upload| upload.parts).unwrap_or_default();
    if parts.is_empty() {
        return Err(s3_error!(MalformedXML, "an object is made of at least one part"));
    }
    let part = |part: CompletedPart| {
        let tag = part.e_tag.map(ETag::into_value).unwrap_or_default();
        Ok((number(part.part_number.unwrap_or_default())?, tag))
    };
    parts.into_iter().map(part).collect()
}

/// One over all bytes if that was asked for at the beginning, else that of the parts' checksums.
fn checksums_of(received: &mut Received) -> Result<Checksums, BucketError> {
    let Some(algorithm) = received.attributes.headers.remove(WHOLE) else {
        let parts: Vec<_> = received.parts.iter().map(|part| &part.checksums).collect();
        return Ok(composite(&parts));
    };
    let mut hasher: ChecksumHasher = hasher(&[algorithm.as_str()]);
    let mut content = received.content()?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match content.read(&mut piece)? {
            0 => return Ok(found(hasher.finalize())),
            read => hasher.update(&piece[..read]),
        }
    }
}

/// What the request says of the whole object must be so.
fn compare(sent: &Checksums, own: &Checksums) -> S3Result<()> {
    for (algorithm, sent) in sent {
        // A composite checksum may come without its count.
        let same = own.get(algorithm).is_none_or(|own| own == sent || own.split('-').next() == Some(sent));
        if !same {
            return Err(s3_error!(BadDigest, "the object has another {algorithm} than the request says"));
        }
    }
    Ok(())
}

pub(super) async fn abort_multipart_upload(
    endpoint: &Endpoint,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let input = request.input;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    blocking(move || bucket.abort_upload(&key, &input.upload_id)).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

pub(super) async fn list_parts(
    endpoint: &Endpoint,
    request: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let input = request.input;
    let (bucket, key, id) = (endpoint.bucket(&input.bucket)?, key(&input.key)?, input.upload_id.clone());
    let (_, parts) = blocking(move || bucket.upload(&key, &id)).await?;
    let after = input.part_number_marker.unwrap_or(0).max(0);
    let limit = input.max_parts.unwrap_or(1000).clamp(0, 1000);
    let mut page: Vec<Part> =
        parts.into_iter().map(part).filter(|part| part.part_number > Some(after)).collect();
    let more = page.len() > limit as usize;
    page.truncate(limit as usize);
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(after),
        next_part_number_marker: page.last().and_then(|part| part.part_number).filter(|_| more),
        max_parts: Some(limit),
        is_truncated: Some(more),
        owner: Some(owner()),
        parts: Some(page),
        ..ListPartsOutput::default()
    }))
}

fn part(part: UploadPart) -> Part {
    let mut shown = Part {
        part_number: i32::try_from(part.number).ok(),
        size: Some(part.size.cast_signed()),
        last_modified: Some(part.modified.into()),
        e_tag: Some(etag(&part.etag)),
        ..Part::default()
    };
    checksums!(shown, &part.checksums);
    shown
}

pub(super) async fn list_multipart_uploads(
    endpoint: &Endpoint,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let input = request.input;
    let (bucket, prefix) = (endpoint.bucket(&input.bucket)?, input.prefix.clone().unwrap_or_default());
    if input.delimiter.as_ref().is_some_and(|delimiter| !delimiter.is_empty()) {
        return Err(s3_error!(NotImplemented, "uploads are not listed by a delimiter"));
    }
    let uploads = blocking(move || bucket.uploads(&prefix)).await?;
    let marker = input.key_marker.clone().unwrap_or_default();
    let id = input.upload_id_marker.clone();
    let after = uploads.into_iter().filter(|upload| match &id {
        Some(id) => (&upload.key, &upload.id) > (&marker, id),
        None => upload.key > marker,
    });
    let limit = input.max_uploads.unwrap_or(1000).clamp(0, 1000);
    let encoded = is_encoded(input.encoding_type.as_ref());
    let mut page: Vec<_> = after.take(limit as usize + 1).collect();
    let more = page.len() > limit as usize;
    page.truncate(limit as usize);
    let last = page.last().filter(|_| more).cloned();
    let shown_upload = |upload: trainyard_bucket::UploadUnderWay| MultipartUpload {
        key: Some(shown(&upload.key, encoded)),
        upload_id: Some(upload.id),
        initiated: Some(upload.begun.into()),
        owner: Some(owner()),
        ..MultipartUpload::default()
    };
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: input.prefix.map(|prefix| shown(&prefix, encoded)),
        key_marker: Some(shown(&marker, encoded)),
        upload_id_marker: input.upload_id_marker,
        next_key_marker: last.as_ref().map(|upload| shown(&upload.key, encoded)),
        next_upload_id_marker: last.map(|upload| upload.id),
        max_uploads: Some(limit),
        is_truncated: Some(more),
        uploads: Some(page.into_iter().map(shown_upload).collect()),
        encoding_type: input.encoding_type,
        ..ListMultipartUploadsOutput::default()
    }))
}
