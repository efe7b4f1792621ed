//! What clients get, each in the form in which it has asked.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::codec::{cbor, query};

/// A request that is not fulfilled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    /// As the client's model names it.
    pub(super) code: &'static str,
    /// As the query protocol names it, where that is something else.
    pub(super) query_code: Option<&'static str>,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, query_code: None, message: message.into() }
    }

    pub(super) fn validation(message: impl Into<String>) -> Self {
        Self::new("ValidationException", message)
    }

    /// What the endpoint is asked for is none of its operations.
    pub(super) fn unknown_operation(operation: &str) -> Self {
        Self::new("UnknownOperationException", format!("{operation} is not an operation of this endpoint"))
    }

    /// The machine refuses what the endpoint needs.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, ..Self::new("InternalFailure", message) }
    }
}

pub(super) type ApiResult = Result<Value, ApiError>;

/// In which form a client reads answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON, with the name of its version.
    Json(&'static str),
    /// The query protocol's XML.
    Xml,
    /// Smithy's `rpcv2Cbor`.
    Cbor,
}

impl Form {
    pub(super) const JSON_1_0: Self = Self::Json("application/x-amz-json-1.0");
    pub(super) const JSON_1_1: Self = Self::Json("application/x-amz-json-1.1");

    const fn content_type(self) -> &'static str {
        match self {
            Self::Json(version) => version,
            Self::Xml => "text/xml",
            Self::Cbor => "application/cbor",
        }
    }
}

/// What an answer is written by, beside its form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manner {
    /// Which members are more than their values show.
    pub(super) names: query::Names,
    /// Of XML.
    pub(super) namespace: &'static str,
    /// The operation, by which XML names its elements.
    pub(super) operation: String,
}

/// Writes an answer with its request id.
pub(super) fn write(form: Form, manner: &Manner, result: &ApiResult) -> Response<s3s::Body> {
    let id = request_id();
    let body = match (form, result) {
        (Form::Json(_), Ok(value)) => value.to_string().into(),
        (Form::Json(_), Err(error)) => error_value(error).to_string().into(),
        (Form::Cbor, Ok(value)) => cbor::write(value, manner.names.times),
        (Form::Cbor, Err(error)) => cbor::write(&error_value(error), &[]),
        (Form::Xml, Ok(value)) => xml_answer(manner, value, &id).into(),
        (Form::Xml, Err(error)) => xml_error(error, &id).into(),
    };
    let mut response = Response::new(s3s::Body::from(Bytes::from(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    if form == Form::Cbor {
        headers.insert("smithy-protocol", HeaderValue::from_static("rpc-v2-cbor"));
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-amzn-requestid", id);
    }
    if let Err(error) = result {
        headers.insert("x-amzn-errortype", HeaderValue::from_static(error.code));
        let query = error.query_code.map(|code| HeaderValue::try_from(format!("{code};Sender")));
        if let Some(Ok(query)) = query {
            headers.insert("x-amzn-query-error", query);
        }
        *response.status_mut() = error.status;
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

fn error_value(error: &ApiError) -> Value {
    json!({"__type": error.code, "message": error.message, "Message": error.message})
}

fn xml_answer(manner: &Manner, value: &Value, id: &str) -> String {
    let Manner { names, namespace, operation } = manner;
    let content = query::xml(value, *names);
    format!(
        "<{operation}Response xmlns=\"{namespace}\"><{operation}Result>{content}</{operation}Result>\
         <ResponseMetadata><RequestId>{id}</RequestId></ResponseMetadata></{operation}Response>"
    )
}

fn xml_error(error: &ApiError, id: &str) -> String {
    let at_fault = if error.status.is_server_error() { "Receiver" } else { "Sender" };
    format!(
        "<ErrorResponse><Error><Type>{at_fault}</Type><Code>{}</Code><Message>{}</Message></Error>\
         <RequestId>{id}</RequestId></ErrorResponse>",
        error.query_code.unwrap_or(error.code),
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
