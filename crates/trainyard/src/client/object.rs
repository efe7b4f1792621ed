//! An object of S3, read from front to back; where the connection breaks, it goes on with the next byte.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_LENGTH, ETAG};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::runtime::Handle;

use super::{CallError, Client, Outgoing, Service};

/// All but what RFC 3986 leaves unreserved, and slashes.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Connections that may break without a byte between them.
const MOST_BREAKS: u32 = 5;

/// An object that is being read. Reading blocks: it is for threads that may.
pub(crate) struct ObjectReader {
    client: Arc<Client>,
    runtime: Handle,
    uri: String,
    url: Url,
    etag: Option<String>,
    /// In bytes, as it was said first.
    pub(crate) size: Option<u64>,
    response: Option<Response>,
    piece: Bytes,
    at: u64,
    breaks: u32,
}

impl ObjectReader {
    /// Opens the object `s3://bucket/key`.
    ///
    /// # Errors
    /// It is not there, or S3 can't be reached.
    pub(crate) async fn open(client: Arc<Client>, bucket: &str, key: &str) -> Result<Self, CallError> {
        let uri = format!("s3://{bucket}/{key}");
        let path = utf8_percent_encode(key, KEY).to_string();
        let url = client.place().object(bucket, &path).ok_or_else(|| CallError::Unsendable(uri.clone()))?;
        let response = client.get(&url, 0, None).await?;
        let header = |name| response.headers().get(name)?.to_str().ok();
        let etag = header(ETAG).map(ToOwned::to_owned);
        let size = header(CONTENT_LENGTH).and_then(|text| text.parse().ok());
        Ok(Self {
            client,
            runtime: Handle::current(),
            uri,
            url,
            etag,
            size,
            response: Some(response),
            piece: Bytes::new(),
            at: 0,
            breaks: 0,
        })
    }

    /// The next bytes; none at the end.
    async fn next(&mut self) -> Result<Bytes, CallError> {
        loop {
            if self.size.is_some_and(|size| self.at >= size) {
                return Ok(Bytes::new());
            }
            let response = match self.response.as_mut() {
                Some(response) => response,
                None => {
                    let opened = self.client.get(&self.url, self.at, self.etag.as_deref()).await;
                    self.response.insert(opened.map_err(|error| self.changed(error))?)
                }
            };
            match response.chunk().await {
                Ok(Some(piece)) => {
                    (self.at, self.breaks) = (self.at + piece.len() as u64, 0);
                    return Ok(piece);
                }
                Ok(None) if self.size.is_none() => return Ok(Bytes::new()),
                ended => {
                    self.response = None;
                    self.breaks += 1;
                    let error = ended.err();
                    if self.breaks > MOST_BREAKS
                        && let Some(error) = error
                    {
                        return Err(CallError::broken(&self.url, error));
                    }
                    if self.breaks > 2 * MOST_BREAKS {
                        return Err(CallError::Changed { uri: self.uri.clone() });
                    }
                }
            }
        }
    }

    fn changed(&self, error: CallError) -> CallError {
        match &error {
            CallError::Refused { status, .. } | CallError::Strange { status, .. }
                if matches!(*status, StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE) =>
            {
                CallError::Changed { uri: self.uri.clone() }
            }
            _ => error,
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let runtime = self.runtime.clone();
            self.piece = runtime.block_on(self.next()).map_err(io::Error::other)?;
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece[..count]);
        self.piece.advance(count);
        Ok(count)
    }
}

impl Client {
    /// The bytes of an object from one on; of the version with this ETag, if there is one.
    async fn get(&self, url: &Url, from: u64, etag: Option<&str>) -> Result<Response, CallError> {
        let range = format!("bytes={from}-");
        let mut headers = Vec::new();
        if from > 0 {
            headers.push(("range", range.as_str()));
        }
        headers.extend(etag.map(|etag| ("if-match", etag)));
        self.persist(true, || async {
            let (service, headers) = (Service::S3, headers.as_slice());
            let response =
                self.send(&Outgoing { method: Method::GET, service, url, headers, body: "" }).await?;
            let status = response.status();
            if !status.is_success() {
                let body = response.bytes().await.map_err(|source| CallError::broken(url, source))?;
                return Err(CallError::of_xml("GetObject", url, status, &body));
            }
            if from > 0 && status != StatusCode::PARTIAL_CONTENT {
                return Err(CallError::strange(url, status, b"the whole object in the place of a part"));
            }
            Ok(response)
        })
        .await
    }
}
