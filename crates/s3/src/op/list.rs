//! Listings of objects, in both versions of the API.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use trainyard_bucket::{Entry, ListRequest, Listing};

use super::bucket::owner;
use super::{Endpoint, blocking, etag};

/// A page of S3 has no more.
const LONGEST_PAGE: i32 = 1000;

/// Kept as they are where `encoding-type=url` is asked for, as Amazon does.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/').remove(b'*');

/// What both versions ask.
struct Question {
    bucket: String,
    prefix: String,
    delimiter: Option<String>,
    after: String,
    limit: i32,
    encoded: bool,
    owners: bool,
}

/// What both versions answer.
struct Answer {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    truncated: bool,
    /// The last key or prefix.
    last: Option<String>,
}

impl Question {
    async fn ask(self, endpoint: &Endpoint) -> S3Result<Answer> {
        let bucket = endpoint.bucket(&self.bucket)?;
        let limit = usize::try_from(self.limit)
            .map_err(|_| s3_error!(InvalidArgument, "max-keys is {}; it must not be negative", self.limit))?;
        let Self { prefix, delimiter, after, encoded, owners, .. } = self;
        let listing = blocking(move || {
            let delimiter = delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
            bucket.list(&ListRequest { prefix: &prefix, delimiter, after: &after, limit })
        });
        Ok(answer(listing.await?, encoded, owners))
    }
}

fn answer(listing: Listing, encoded: bool, owners: bool) -> Answer {
    let last = listing.entries.last().map(|entry| entry.name().to_owned());
    let (mut contents, mut prefixes) = (Vec::new(), Vec::new());
    for entry in listing.entries {
        match entry {
            Entry::Object(object) => contents.push(Object {
                key: Some(shown(object.key.as_str(), encoded)),
                size: Some(object.size.cast_signed()),
                last_modified: Some(object.modified.into()),
                e_tag: Some(etag(&object.etag)),
                storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                owner: owners.then(owner),
                ..Object::default()
            }),
            Entry::Prefix(prefix) => prefixes.push(CommonPrefix { prefix: Some(shown(&prefix, encoded)) }),
        }
    }
    Answer { contents, prefixes, truncated: listing.truncated, last }
}

/// XML can't hold all characters that keys may have.
pub(super) fn shown(text: &str, encoded: bool) -> String {
    if encoded { utf8_percent_encode(text, KEPT).to_string() } else { text.to_owned() }
}

pub(super) fn is_encoded(kind: Option<&EncodingType>) -> bool {
    kind.is_some_and(|kind| kind.as_str() == EncodingType::URL)
}

pub(super) async fn list_objects(
    endpoint: &Endpoint,
    request: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let input = request.input;
    let encoded = is_encoded(input.encoding_type.as_ref());
    let limit = input.max_keys.unwrap_or(LONGEST_PAGE).min(LONGEST_PAGE);
    let question = Question {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone(),
        after: input.marker.clone().unwrap_or_default(),
        limit,
        encoded,
        owners: true,
    };
    let Answer { contents, prefixes, truncated, last } = question.ask(endpoint).await?;
    let show = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| shown(&text, encoded));
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(shown(&input.prefix.unwrap_or_default(), encoded)),
        marker: Some(shown(&input.marker.unwrap_or_default(), encoded)),
        delimiter: show(input.delimiter),
        max_keys: Some(limit),
        is_truncated: Some(truncated),
        next_marker: show(last.filter(|_| truncated)),
        contents: Some(contents),
        common_prefixes: Some(prefixes),
        encoding_type: input.encoding_type,
        ..ListObjectsOutput::default()
    }))
}

pub(super) async fn list_objects_v2(
    endpoint: &Endpoint,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let input = request.input;
    let encoded = is_encoded(input.encoding_type.as_ref());
    let limit = input.max_keys.unwrap_or(LONGEST_PAGE).min(LONGEST_PAGE);
    let from = input.continuation_token.as_deref().map(of_token).transpose()?;
    let question = Question {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone(),
        after: from.or_else(|| input.start_after.clone()).unwrap_or_default(),
        limit,
        encoded,
        owners: input.fetch_owner == Some(true),
    };
    let Answer { contents, prefixes, truncated, last } = question.ask(endpoint).await?;
    let show = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| shown(&text, encoded));
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(shown(&input.prefix.unwrap_or_default(), encoded)),
        delimiter: show(input.delimiter),
        start_after: show(input.start_after),
        max_keys: Some(limit),
        key_count: Some((contents.len() + prefixes.len()) as i32),
        is_truncated: Some(truncated),
        continuation_token: input.continuation_token,
        next_continuation_token: last.filter(|_| truncated).map(|last| URL_SAFE_NO_PAD.encode(last)),
        contents: Some(contents),
        common_prefixes: Some(prefixes),
        encoding_type: input.encoding_type,
        ..ListObjectsV2Output::default()
    }))
}

/// Every object has one version, the one that is there.
const ONLY_VERSION: &str = "null";

/// Programs that empty a bucket ask for versions even where there can be none.
pub(super) async fn list_object_versions(
    endpoint: &Endpoint,
    request: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let input = request.input;
    let encoded = is_encoded(input.encoding_type.as_ref());
    let limit = input.max_keys.unwrap_or(LONGEST_PAGE).min(LONGEST_PAGE);
    let question = Question {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone(),
        after: input.key_marker.clone().unwrap_or_default(),
        limit,
        encoded,
        owners: true,
    };
    let Answer { contents, prefixes, truncated, last } = question.ask(endpoint).await?;
    let show = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| shown(&text, encoded));
    let version = |object: Object| ObjectVersion {
        version_id: Some(ONLY_VERSION.to_owned()),
        is_latest: Some(true),
        key: object.key,
        size: object.size,
        last_modified: object.last_modified,
        e_tag: object.e_tag,
        storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
        owner: object.owner,
        ..ObjectVersion::default()
    };
    Ok(S3Response::new(ListObjectVersionsOutput {
        name: Some(input.bucket),
        prefix: Some(shown(&input.prefix.unwrap_or_default(), encoded)),
        key_marker: Some(shown(&input.key_marker.unwrap_or_default(), encoded)),
        version_id_marker: input.version_id_marker,
        delimiter: show(input.delimiter),
        max_keys: Some(limit),
        is_truncated: Some(truncated),
        next_version_id_marker: truncated.then(|| ONLY_VERSION.to_owned()),
        next_key_marker: show(last.filter(|_| truncated)),
        versions: Some(contents.into_iter().map(version).collect()),
        common_prefixes: Some(prefixes),
        encoding_type: input.encoding_type,
        ..ListObjectVersionsOutput::default()
    }))
}

fn of_token(token: &str) -> S3Result<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is none that was given out"))
}
