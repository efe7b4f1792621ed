//! What goes wrong in a bucket, in the words of S3.

use s3s::{S3Error, s3_error};
use tokio::task::JoinError;
use trainyard_bucket::{BucketError, KeyError};

/// The answer to a request that a bucket can't fulfil.
pub(crate) fn of_bucket(error: BucketError) -> S3Error {
    let said = error.to_string();
    match error {
        BucketError::Key(KeyError::TooLong(_)) => s3_error!(KeyTooLongError, "{said}"),
        BucketError::Key(KeyError::Empty) => s3_error!(InvalidArgument, "{said}"),
        BucketError::NoObject { .. } => s3_error!(NoSuchKey, "{said}"),
        BucketError::Condition { .. } => s3_error!(PreconditionFailed, "{said}"),
        BucketError::NoUpload { .. } => s3_error!(NoSuchUpload, "{said}"),
        BucketError::NoPart { .. } => s3_error!(InvalidPart, "{said}"),
        BucketError::PartOrder { .. } => s3_error!(InvalidPartOrder, "{said}"),
        BucketError::PartSize { .. } => s3_error!(EntityTooSmall, "{said}"),
        BucketError::Outside { .. } => s3_error!(AccessDenied, "{said}"),
        BucketError::Io(source) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            s3_error!(AccessDenied, "{said}")
        }
        // What else can be missing has errors of its own: somebody has removed the bucket meanwhile.
        BucketError::Io(source) if source.kind() == std::io::ErrorKind::NotFound => {
            s3_error!(NoSuchBucket, "the bucket was removed meanwhile")
        }
        BucketError::Io(source) => internal(source),
        BucketError::Index { .. } => s3_error!(InternalError, "{said}"),
    }
}

/// The machine refuses what the endpoint needs.
pub(crate) fn internal(error: std::io::Error) -> S3Error {
    s3_error!(InternalError, "{error}")
}

/// A blocking step that did not come back.
pub(crate) fn cut(error: JoinError) -> S3Error {
    s3_error!(InternalError, "{error}")
}
