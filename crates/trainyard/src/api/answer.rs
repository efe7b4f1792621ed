//! What clients of the JSON protocol get (AWS JSON 1.1).

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// A request that is not fulfilled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    /// As the client's model names it.
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, message: message.into() }
    }

    pub(super) fn validation(message: impl Into<String>) -> Self {
        Self::new("ValidationException", message)
    }

    /// The machine refuses what the endpoint needs.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, code: "InternalFailure", message: message.into() }
    }
}

pub(super) type ApiResult = Result<Value, ApiError>;

/// In which form a client reads answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `application/x-amz-json-1.1`.
    Json,
    /// The query protocol's XML.
    Xml,
}

/// Writes an answer with its request id.
pub(super) fn write(form: Form, result: ApiResult) -> Response<s3s::Body> {
    let id = request_id();
    let (status, code, text) = match (form, result) {
        (Form::Json, Ok(value)) => (StatusCode::OK, None, value.to_string()),
        (Form::Json, Err(error)) => {
            let body = json!({"__type": error.code, "message": error.message, "Message": error.message});
            (error.status, Some(error.code), body.to_string())
        }
        (Form::Xml, Ok(value)) => (StatusCode::OK, None, value.as_str().unwrap_or_default().to_owned()),
        (Form::Xml, Err(error)) => (error.status, Some(error.code), xml_error(&error, &id)),
    };
    let mut response = Response::new(s3s::Body::from(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let kind = if form == Form::Json { "application/x-amz-json-1.1" } else { "text/xml" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-amzn-requestid", id);
    }
    if let Some(code) = code {
        headers.insert("x-amzn-errortype", HeaderValue::from_static(code));
    }
    response
}

/// An answer of S3 with an id of the request, which clients show when they report trouble.
pub(super) fn numbered(mut response: Response<s3s::Body>) -> Response<s3s::Body> {
    if let Ok(id) = HeaderValue::from_str(&request_id()) {
        response.headers_mut().entry("x-amz-request-id").or_insert(id);
    }
    response
}

fn xml_error(error: &ApiError, id: &str) -> String {
    format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{}</Code><Message>{}</Message></Error>\
         <RequestId>{id}</RequestId></ErrorResponse>",
        error.code,
        escaped(&error.message)
    )
}

/// Text as XML holds it.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A UUID of version 4 (RFC 9562), which clients show when they report trouble.
fn request_id() -> String {
    let mut bytes = [0; 16];
    // One that is not random is still an id.
    let _ = getrandom::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    format!("{a}-{b}-{c}-{d}-{e}")
}
