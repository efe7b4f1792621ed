//! The way of a request through `s3s`, and what that takes for its own failure though it is the client's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use s3s::service::S3Service;
use s3s::{Body, HttpError, StdError};

const BROKEN_OFF: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>IncompleteBody</Code>\
    <Message>the content of the request breaks off</Message></Error>";

/// Answers a request. Content that breaks off is the client's error, which `s3s` takes for one of the server where it
/// reads the whole of it.
///
/// # Errors
/// No answer can be made at all; the connection is to be closed.
pub async fn answer<B>(service: &S3Service, request: Request<B>) -> Result<Response<Body>, HttpError>
where
    B: http_body::Body<Data = Bytes, Error: Into<StdError>> + Send + Sync + 'static,
{
    let broken = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&broken);
    let request = request.map(|body| {
        Body::http_body(body.map_err(move |error| {
            seen.store(true, Ordering::Relaxed);
            error.into()
        }))
    });
    let response = service.call(request).await?;
    let is_internal = response.status() == StatusCode::INTERNAL_SERVER_ERROR;
    Ok(if is_internal && broken.load(Ordering::Relaxed) { broken_off() } else { response })
}

fn broken_off() -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(BROKEN_OFF.as_bytes())));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
