//! One object by its key.

use http::Method;
use http::header::{CONTENT_LENGTH, ETAG};

use super::super::s3::{Call, header};
use super::super::{Object, ObjectSource, StorageError};
use super::{Bytes, Stores};

impl Stores {
    /// An object of a bucket; none if there is none of this key.
    pub(in super::super) async fn head(
        &self,
        bucket: &str,
        key: &str,
    ) -> Result<Option<Object>, StorageError> {
        if let Some(foreign) = self.foreign(bucket)? {
            return foreign.head(key).await;
        }
        let bucket = self.bucket(bucket)?;
        let call = Call {
            method: Method::HEAD,
            key: Some(key),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        };
        let response = match bucket.call(&call).await {
            Ok(response) => response,
            Err(error) if error.status() == Some(404) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = header(response.headers(), &CONTENT_LENGTH).parse();
        let size =
            size.map_err(|_| bucket.malformed(&bucket.uri(Some(key)), "it does not tell its length"))?;
        let etag = header(response.headers(), &ETAG).to_owned();
        let source = ObjectSource::Store { bucket: bucket.name.clone(), key: key.to_owned(), etag };
        Ok(Some(Object { key: key.to_owned(), source, size }))
    }
}
