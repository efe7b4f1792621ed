//! Tags of objects.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::bucket::no_version;
use super::{Endpoint, blocking, key};
use crate::attributes::{Tags, tags_of_set};

pub(super) async fn get_object_tagging(
    endpoint: &Endpoint,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let input = request.input;
    no_version(input.version_id.as_deref())?;
    let (bucket, key) = (endpoint.bucket(&input.bucket)?, key(&input.key)?);
    let (_, object) = blocking(move || bucket.get(&key)).await?;
    let tag = |(key, value)| Tag { key: Some(key), value: Some(value) };
    let tag_set = object.attributes.tags.into_iter().map(tag).collect();
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id: None }))
}

pub(super) async fn put_object_tagging(
    endpoint: &Endpoint,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let input = request.input;
    no_version(input.version_id.as_deref())?;
    set(endpoint, &input.bucket, &input.key, tags_of_set(input.tagging.tag_set)?).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

pub(super) async fn delete_object_tagging(
    endpoint: &Endpoint,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let input = request.input;
    no_version(input.version_id.as_deref())?;
    set(endpoint, &input.bucket, &input.key, Tags::new()).await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}

async fn set(endpoint: &Endpoint, bucket: &str, name: &str, tags: Tags) -> S3Result<()> {
    let (bucket, key) = (endpoint.bucket(bucket)?, key(name)?);
    blocking(move || bucket.set_tags(&key, tags)).await
}
