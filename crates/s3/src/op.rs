//! The operations of S3, one file per kind of thing they are about.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use trainyard_bucket::{Bucket, BucketError, Key};

use crate::Buckets;
use crate::error::{cut, of_bucket};

mod bucket;
mod copy;
mod list;
mod object;
mod tags;
mod upload;

/// The endpoint's buckets, as `s3s` asks for them.
pub(crate) struct Endpoint {
    pub(crate) buckets: Arc<Buckets>,
}

impl Endpoint {
    fn bucket(&self, name: &str) -> S3Result<Arc<Bucket>> {
        self.buckets.find(name)
    }
}

fn key(text: &str) -> S3Result<Key> {
    Key::new(text).map_err(|error| of_bucket(error.into()))
}

/// Carries out what waits for the disk.
async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, BucketError> + Send + 'static,
) -> S3Result<T> {
    tokio::task::spawn_blocking(step).await.map_err(cut)?.map_err(of_bucket)
}

fn etag(text: &str) -> ETag {
    ETag::Strong(text.to_owned())
}

macro_rules! operations {
    ($($name:ident($input:ident) -> $output:ident = $file:ident),* $(,)?) => {
        #[async_trait::async_trait]
        impl S3 for Endpoint {
            $(
                async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    $file::$name(self, request).await
                }
            )*
        }
    };
}

operations! {
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput = upload,
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput = upload,
    copy_object(CopyObjectInput) -> CopyObjectOutput = copy,
    create_bucket(CreateBucketInput) -> CreateBucketOutput = bucket,
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput = upload,
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput = bucket,
    delete_object(DeleteObjectInput) -> DeleteObjectOutput = object,
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput = tags,
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput = object,
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput = bucket,
    get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput = bucket,
    get_object(GetObjectInput) -> GetObjectOutput = object,
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput = object,
    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput = tags,
    head_bucket(HeadBucketInput) -> HeadBucketOutput = bucket,
    head_object(HeadObjectInput) -> HeadObjectOutput = object,
    list_buckets(ListBucketsInput) -> ListBucketsOutput = bucket,
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput = upload,
    list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput = list,
    list_objects(ListObjectsInput) -> ListObjectsOutput = list,
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output = list,
    list_parts(ListPartsInput) -> ListPartsOutput = upload,
    put_object(PutObjectInput) -> PutObjectOutput = object,
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput = tags,
    upload_part(UploadPartInput) -> UploadPartOutput = upload,
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput = copy,
}
