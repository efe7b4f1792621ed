//! Which service a request is for, and the way through it: read, verify, carry out, answer.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use serde_json::Value;
use trainyard_engine::engine::Jobs;

use super::answer::{ApiError, ApiResult, Form, write};
use super::{logs, sagemaker, sts};
use crate::signature::{Signed, verify};

/// Of a request that is not S3's, in bytes; the largest that the API allows has less.
const LARGEST_BODY: usize = 4 << 20;

/// Everything that requests need.
pub(crate) struct Services {
    /// The jobs.
    pub(crate) jobs: Jobs,
    /// Access keys and their secrets.
    pub(crate) secrets: trainyard_s3::Secrets,
}

/// What a request asks for, by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// `X-Amz-Target`: service prefix and operation.
    Target(String, String),
    /// A form of the query protocol; the body says which.
    Query,
    /// All the rest.
    S3,
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some((service, operation)) = header("x-amz-target").and_then(|target| target.rsplit_once('.'))
        {
            return Self::Target(service.to_owned(), operation.to_owned());
        }
        let form = header(CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
        // Clients send forms to the root only; S3 has nothing to post there.
        let root = request.uri().path() == "/" && request.method() == hyper::Method::POST;
        if form && root { Self::Query } else { Self::S3 }
    }
}

impl Services {
    /// Answers a request that is not S3's.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        asked: Asked,
    ) -> Response<s3s::Body> {
        let form = if asked == Asked::Query { Form::Xml } else { Form::Json };
        let result = match self.verified(request).await {
            // SQLite and files are waited for.
            Ok(body) => tokio::task::spawn_blocking(move || self.carry_out(&asked, &body))
                .await
                .unwrap_or_else(|error| Err(ApiError::internal(error.to_string()))),
            Err(error) => Err(error),
        };
        write(form, result)
    }

    async fn verified(&self, request: Request<Incoming>) -> Result<Bytes, ApiError> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                let message = format!("a request has at most {LARGEST_BODY} bytes");
                return ApiError {
                    status: StatusCode::PAYLOAD_TOO_LARGE,
                    ..ApiError::new("RequestEntityTooLargeException", message)
                };
            }
            ApiError::new("IncompleteBody", format!("the request breaks off: {error}"))
        })?;
        let body = body.to_bytes();
        let signed = Signed {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            headers: &head.headers,
            body: &body,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let secret = |access: &str| (self.secrets)(access);
        match verify(&signed, secret, now.cast_signed()) {
            Ok(_) => Ok(body),
            Err(error) => Err(ApiError {
                status: StatusCode::FORBIDDEN,
                ..ApiError::new(error.code(), error.to_string())
            }),
        }
    }

    fn carry_out(&self, asked: &Asked, body: &[u8]) -> ApiResult {
        let Asked::Target(service, operation) = asked else {
            return sts::carry_out(body);
        };
        let input = |body: &[u8]| -> Result<Value, ApiError> {
            let body = if body.is_empty() { b"{}" } else { body };
            serde_json::from_slice(body)
                .map_err(|error| ApiError::new("SerializationException", error.to_string()))
        };
        match service.as_str() {
            "SageMaker" => sagemaker::carry_out(&self.jobs, operation, input(body)?),
            "Logs_20140328" => logs::carry_out(&self.jobs, operation, &input(body)?),
            other => {
                Err(ApiError::new("UnknownOperationException", format!("there is no service {other} here")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_told_apart_by_the_head_of_a_request() {
        let asked = |method: &str, path: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().method(method).uri(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            Asked::of(&request.body(()).unwrap())
        };
        let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let target = |a: &str, b: &str| Asked::Target(a.into(), b.into());
        assert_eq!(
            asked("POST", "/", &[("x-amz-target", "SageMaker.Search")]),
            target("SageMaker", "Search")
        );
        assert_eq!(
            asked("POST", "/", &[("x-amz-target", "Logs_20140328.GetLogEvents")]),
            target("Logs_20140328", "GetLogEvents")
        );
        assert_eq!(asked("POST", "/", &[form]), Asked::Query);
        assert_eq!(asked("POST", "/bucket/key?uploads", &[form]), Asked::S3);
        assert_eq!(asked("GET", "/", &[]), Asked::S3);
        assert_eq!(
            asked("POST", "/bucket", &[("content-type", "multipart/form-data; boundary=x")]),
            Asked::S3
        );
    }
}
