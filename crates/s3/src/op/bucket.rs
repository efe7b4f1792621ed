//! Buckets themselves.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::Endpoint;
use crate::error::cut;

pub(super) async fn list_buckets(
    endpoint: &Endpoint,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let all = std::sync::Arc::clone(&endpoint.buckets);
    let all = tokio::task::spawn_blocking(move || all.list()).await.map_err(cut)??;
    let ListBucketsInput { prefix, continuation_token, max_buckets, .. } = request.input;
    let (start, after) = (prefix.clone().unwrap_or_default(), continuation_token.unwrap_or_default());
    let wanted = all.into_iter().filter(|(name, _)| name.starts_with(&start) && *name > after);
    let limit = max_buckets.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut buckets: Vec<_> = wanted
        .map(|(name, made)| Bucket {
            name: Some(name),
            creation_date: Some(made.into()),
            bucket_region: None,
        })
        .collect();
    let more = buckets.len() > limit;
    buckets.truncate(limit);
    let last = buckets.last().and_then(|bucket| bucket.name.clone());
    Ok(S3Response::new(ListBucketsOutput {
        continuation_token: last.filter(|_| more),
        buckets: Some(buckets),
        owner: Some(owner()),
        prefix,
    }))
}

/// Everything belongs to whoever runs the endpoint.
pub(super) fn owner() -> Owner {
    Owner { display_name: Some("trainyard".to_owned()), id: Some("trainyard".to_owned()) }
}

pub(super) async fn create_bucket(
    endpoint: &Endpoint,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let name = request.input.bucket;
    // A second time is no error, as in us-east-1.
    endpoint.buckets.create(&name)?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) }))
}

pub(super) async fn delete_bucket(
    endpoint: &Endpoint,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let buckets = std::sync::Arc::clone(&endpoint.buckets);
    let name = request.input.bucket;
    tokio::task::spawn_blocking(move || buckets.remove(&name)).await.map_err(cut)??;
    Ok(S3Response::new(DeleteBucketOutput {}))
}

pub(super) async fn head_bucket(
    endpoint: &Endpoint,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    endpoint.bucket(&request.input.bucket)?;
    Ok(S3Response::new(HeadBucketOutput::default()))
}

pub(super) async fn get_bucket_location(
    endpoint: &Endpoint,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    endpoint.bucket(&request.input.bucket)?;
    Ok(S3Response::new(GetBucketLocationOutput::default()))
}

/// There are no versions, which clients ask before they delete a bucket.
pub(super) async fn get_bucket_versioning(
    endpoint: &Endpoint,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    endpoint.bucket(&request.input.bucket)?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

/// Versions are refused by name, but for the one that all objects have.
pub(super) fn no_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(version) => {
            Err(s3_error!(NoSuchVersion, "objects have no versions here, so none is {version:?}"))
        }
    }
}
