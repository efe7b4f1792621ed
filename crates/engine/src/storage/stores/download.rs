//! Reading a range of an object, over as many connections as it takes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{CONTENT_RANGE, ETAG, IF_MATCH, RANGE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use object_store::client::{HttpError, HttpResponse};

use super::super::StoreError;
use super::super::s3::{Bucket, Call, Patience, header};

const ENCRYPTION: HeaderName = HeaderName::from_static("x-amz-server-side-encryption");
const CUSTOMER_KEY: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-customer-algorithm");

/// A range that is being read.
pub(super) struct Download {
    bucket: Arc<Bucket>,
    key: String,
    /// Empty if the store gives none.
    etag: String,
    /// What has not come yet.
    range: Range<u64>,
    body: Option<BoxStream<'static, Result<Bytes, HttpError>>>,
    /// Whether the store has said that it encrypts in a way that makes the ETag no MD5.
    etag_is_foreign: bool,
    patience: Patience,
}

impl Download {
    pub(super) fn new(bucket: Arc<Bucket>, key: String, etag: String, range: Range<u64>) -> Self {
        let patience = Patience::new(bucket.tries);
        Self { bucket, key, etag, range, body: None, etag_is_foreign: false, patience }
    }

    /// Whether the answers so far allow that the ETag is the MD5 of the content.
    pub(super) fn etag_may_be_md5(&self) -> bool {
        !self.etag_is_foreign
    }

    /// The next piece; none at the end of the range.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while !self.range.is_empty() {
            let mut body = match self.body.take() {
                Some(body) => body,
                None => self.request().await?,
            };
            let why = match body.next().await {
                Some(Ok(chunk)) => {
                    self.body = Some(body);
                    if chunk.is_empty() {
                        continue;
                    }
                    return self.taken(chunk).map(Some);
                }
                Some(Err(error)) => chain(&error),
                None => "it ends too early".to_owned(),
            };
            if !self.patience.wait().await {
                return Err(StoreError::Broken { what: self.uri(), store: self.bucket.store.clone(), why });
            }
        }
        Ok(None)
    }

    /// Counts a piece; whoever makes progress has patience anew.
    fn taken(&mut self, chunk: Bytes) -> Result<Bytes, StoreError> {
        self.patience = Patience::new(self.bucket.tries);
        self.range.start += chunk.len() as u64;
        if self.range.start > self.range.end {
            return Err(self.bucket.malformed(&self.uri(), "more bytes than were asked for"));
        }
        Ok(chunk)
    }

    fn uri(&self) -> String {
        self.bucket.uri(Some(&self.key))
    }

    async fn request(&mut self) -> Result<BoxStream<'static, Result<Bytes, HttpError>>, StoreError> {
        let Range { start, end } = self.range;
        let mut headers = vec![(RANGE, format!("bytes={start}-{}", end - 1))];
        if !self.etag.is_empty() {
            headers.push((IF_MATCH, self.etag.clone()));
        }
        let call = self.call(Method::GET, headers);
        let response = match self.bucket.call(&call).await {
            Ok(response) => response,
            Err(error) => {
                return Err(match error.status() {
                    Some(404) => StoreError::Gone { object: self.uri() },
                    // 416: it is shorter by now.
                    Some(412 | 416) => self.changed().await?,
                    _ => error,
                });
            }
        };
        self.check(&response)?;
        self.etag_is_foreign |= makes_etag_foreign(response.headers());
        Ok(response.into_body().bytes_stream())
    }

    fn call(&self, method: Method, headers: Vec<(HeaderName, String)>) -> Call<'_> {
        Call { method, key: Some(&self.key), query: Vec::new(), headers, body: Bytes::new() }
    }

    /// The error that names what the object is now.
    async fn changed(&mut self) -> Result<StoreError, StoreError> {
        let response = match self.bucket.call(&self.call(Method::HEAD, Vec::new())).await {
            Err(error) if error.status() == Some(404) => return Ok(StoreError::Gone { object: self.uri() }),
            response => response?,
        };
        let found = header(response.headers(), &ETAG).to_owned();
        Ok(StoreError::Changed { object: self.uri(), listed: self.etag.clone(), found })
    }

    /// Whether an answer is the range that was asked for, of the object that was listed.
    fn check(&self, response: &HttpResponse) -> Result<(), StoreError> {
        let found = header(response.headers(), &ETAG);
        // Some stores quote in listings and not elsewhere.
        if !self.etag.is_empty() && found.trim_matches('"') != self.etag.trim_matches('"') {
            let (listed, found) = (self.etag.clone(), found.to_owned());
            return Err(StoreError::Changed { object: self.uri(), listed, found });
        }
        let Range { start, end } = self.range;
        let range = header(response.headers(), &CONTENT_RANGE);
        if response.status() == StatusCode::PARTIAL_CONTENT
            && range.starts_with(&format!("bytes {start}-{}/", end - 1))
        {
            return Ok(());
        }
        let why = format!("asked for bytes {start}-{}, it gives {} {range:?}", end - 1, response.status());
        Err(self.bucket.malformed(&self.uri(), why))
    }
}

/// Whether an object is encrypted in a way that makes its ETag no MD5 of its content (S3 API reference, Object).
fn makes_etag_foreign(headers: &HeaderMap) -> bool {
    matches!(header(headers, &ENCRYPTION), "aws:kms" | "aws:kms:dsse") || headers.contains_key(CUSTOMER_KEY)
}

/// An error with its causes: those of HTTP say nothing by themselves.
fn chain(error: &dyn std::error::Error) -> String {
    crate::explain::chain(error)
}
