//! Which service a request is for, and the way through it: read, verify, carry out, answer.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use serde_json::Value;
use trainyard_engine::engine::Jobs;

use super::answer::{ApiError, ApiResult, Form, Manner, write};
use super::codec::{cbor, query};
use super::pace::Pace;
use super::{cloudwatch, ecr, logs, sagemaker, sts};
use crate::signature::{Signed, verify};

/// Of a request that is not S3's, in bytes; the largest that the API allows has less.
const LARGEST_BODY: usize = 4 << 20;

/// From the head of such a request to its end.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Everything that requests need.
pub(crate) struct Services {
    /// The jobs.
    pub(crate) jobs: Jobs,
    /// Access keys and their secrets.
    pub(crate) secrets: trainyard_s3::Secrets,
    /// How often they may be used.
    pub(crate) pace: Arc<Pace>,
}

/// What a request asks for, by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// An operation of a service, which is named as its model names it.
    Operation {
        /// How the input is written, and the answer is read.
        form: Form,
        /// Such as `Logs_20140328`.
        service: String,
        /// Such as `GetLogEvents`.
        operation: String,
    },
    /// A form of the query protocol; body and query say which.
    Query {
        /// The query of the URL.
        query: String,
    },
    /// All the rest.
    S3,
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        if header("smithy-protocol") == Some("rpc-v2-cbor")
            && let Some((service, operation)) = rpc(request.uri().path())
        {
            return Self::operation(Form::Cbor, service, operation);
        }
        if let Some((service, operation)) = header("x-amz-target").and_then(|target| target.rsplit_once('.'))
        {
            let old = kind.starts_with("application/x-amz-json-1.0");
            return Self::operation(if old { Form::JSON_1_0 } else { Form::JSON_1_1 }, service, operation);
        }
        // Clients send forms to the root only; S3 has nothing to post there, and nothing that is called an action.
        let query = request.uri().query().unwrap_or_default();
        let in_body =
            kind.starts_with("application/x-www-form-urlencoded") && request.method() == hyper::Method::POST;
        let in_query = || query.split('&').any(|field| field.starts_with("Action="));
        if request.uri().path() == "/" && (in_body || in_query()) {
            return Self::Query { query: query.to_owned() };
        }
        Self::S3
    }

    fn operation(form: Form, service: &str, operation: &str) -> Self {
        Self::Operation { form, service: service.to_owned(), operation: operation.to_owned() }
    }

    fn form(&self) -> Form {
        match self {
            Self::Operation { form, .. } => *form,
            Self::Query { .. } | Self::S3 => Form::Xml,
        }
    }
}

/// Service and operation of `/service/<service>/operation/<operation>`.
fn rpc(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/service/")?.split_once("/operation/")
}

/// The services that there are beside S3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    SageMaker,
    Logs,
    CloudWatch,
    Ecr,
    Sts,
    Iam,
}

impl Service {
    /// By what its model calls it.
    fn named(name: &str) -> Option<Self> {
        match name {
            "SageMaker" => Some(Self::SageMaker),
            "Logs_20140328" => Some(Self::Logs),
            "GraniteServiceVersion20100801" => Some(Self::CloudWatch),
            "AmazonEC2ContainerRegistry_V20150921" => Some(Self::Ecr),
            _ => None,
        }
    }

    /// By the date of its interface, with which every form of the query protocol comes.
    fn of_version(version: &str) -> Option<Self> {
        match version {
            "2010-08-01" => Some(Self::CloudWatch),
            "2011-06-15" => Some(Self::Sts),
            "2010-05-08" => Some(Self::Iam),
            _ => None,
        }
    }

    /// Members of its answers that JSON does not tell from others; only of services that speak something else too.
    const fn names(self) -> query::Names {
        match self {
            Self::CloudWatch => {
                query::Names { times: &["Timestamp", "Timestamps"], maps: &["ExtendedStatistics"] }
            }
            Self::SageMaker | Self::Logs | Self::Ecr | Self::Sts | Self::Iam => {
                query::Names { times: &[], maps: &[] }
            }
        }
    }

    const fn namespace(self) -> &'static str {
        match self {
            Self::CloudWatch => "http://monitoring.amazonaws.com/doc/2010-08-01/",
            Self::Sts => "https://sts.amazonaws.com/doc/2011-06-15/",
            Self::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
            Self::SageMaker | Self::Logs | Self::Ecr => "",
        }
    }
}

/// A request that can be carried out.
struct Call {
    service: Service,
    operation: String,
    input: Value,
}

impl Call {
    fn read(asked: &Asked, body: &[u8]) -> Result<Self, ApiError> {
        let (form, service, operation) = match asked {
            Asked::Operation { form, service, operation } => (form, service, operation),
            Asked::Query { query } => return Self::of_form(query, body),
            Asked::S3 => return Self::of_form("", body),
        };
        let service = Service::named(service).ok_or_else(|| {
            ApiError::new("UnknownOperationException", format!("there is no service {service} here"))
        })?;
        let input = match form {
            _ if body.is_empty() => Value::Object(serde_json::Map::new()),
            Form::Cbor => cbor::read(body).map_err(|error| ApiError::new("SerializationException", error))?,
            Form::Json(_) | Form::Xml => serde_json::from_slice(body)
                .map_err(|error| ApiError::new("SerializationException", error.to_string()))?,
        };
        Ok(Self { service, operation: operation.clone(), input })
    }

    fn of_form(query: &str, body: &[u8]) -> Result<Self, ApiError> {
        let mut form = query::form(query.as_bytes());
        // Those of a presigned URL are no input.
        form.retain(|(name, _)| !name.starts_with("X-Amz-"));
        form.extend(query::form(body));
        let mut take = |wanted: &str| {
            let at = form.iter().position(|(name, _)| name == wanted)?;
            Some(form.remove(at).1)
        };
        let (operation, version) = (take("Action").unwrap_or_default(), take("Version").unwrap_or_default());
        let service = Service::of_version(&version).ok_or_else(|| {
            let message = format!("there is no operation {operation:?} of an interface {version:?} here");
            ApiError::new("InvalidAction", message)
        })?;
        let input = query::value(&form).map_err(|error| ApiError::new("MalformedQueryString", error))?;
        Ok(Self { service, operation, input })
    }

    fn manner(&self) -> Manner {
        let Self { service, operation, .. } = self;
        Manner { names: service.names(), namespace: service.namespace(), operation: operation.clone() }
    }
}

impl Services {
    /// Answers a request that is not S3's.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        asked: Asked,
    ) -> Response<s3s::Body> {
        let form = asked.form();
        let (manner, result) = match self.verified(request).await {
            // SQLite and files are waited for.
            Ok(body) => tokio::task::spawn_blocking(move || self.carry_out(&asked, &body))
                .await
                .unwrap_or_else(|error| (Manner::default(), Err(ApiError::internal(error.to_string())))),
            Err(error) => (Manner::default(), Err(error)),
        };
        write(form, &manner, &result)
    }

    async fn verified(&self, request: Request<Incoming>) -> Result<Bytes, ApiError> {
        let (head, body) = request.into_parts();
        let collected = tokio::time::timeout(BODY_TIME, Limited::new(body, LARGEST_BODY).collect()).await;
        let collected = collected.map_err(|_| ApiError {
            status: StatusCode::REQUEST_TIMEOUT,
            ..ApiError::new("RequestTimeout", "the request was not there in time")
        })?;
        let body = collected.map_err(|error| {
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
            Ok(signer) if self.pace.allows(&signer.access_key, Instant::now()) => Ok(body),
            Ok(_) => Err(ApiError::new("ThrottlingException", "Rate exceeded")),
            Err(error) => Err(ApiError {
                status: StatusCode::FORBIDDEN,
                ..ApiError::new(error.code(), error.to_string())
            }),
        }
    }

    fn carry_out(&self, asked: &Asked, body: &[u8]) -> (Manner, ApiResult) {
        let call = match Call::read(asked, body) {
            Ok(call) => call,
            Err(error) => return (Manner::default(), Err(error)),
        };
        let manner = call.manner();
        let Call { service, operation, input } = call;
        let result = match service {
            Service::SageMaker => sagemaker::carry_out(&self.jobs, &operation, input),
            Service::Logs => logs::carry_out(&self.jobs, &operation, &input),
            Service::CloudWatch => cloudwatch::carry_out(&self.jobs, &operation, input),
            Service::Ecr => ecr::carry_out(&self.jobs.machine().region, &operation, &input),
            Service::Sts | Service::Iam => sts::carry_out(&operation, &input),
        };
        (manner, result)
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
        let target = |a: &str, b: &str| Asked::operation(Form::JSON_1_1, a, b);
        assert_eq!(
            asked("POST", "/", &[("x-amz-target", "SageMaker.Search")]),
            target("SageMaker", "Search")
        );
        assert_eq!(
            asked("POST", "/", &[("x-amz-target", "Logs_20140328.GetLogEvents")]),
            target("Logs_20140328", "GetLogEvents")
        );
        let old = [("x-amz-target", "G.ListMetrics"), ("content-type", "application/x-amz-json-1.0")];
        assert_eq!(asked("POST", "/", &old), Asked::operation(Form::JSON_1_0, "G", "ListMetrics"));
        let rpc = "/service/G/operation/ListMetrics";
        let protocol = ("smithy-protocol", "rpc-v2-cbor");
        assert_eq!(asked("POST", rpc, &[protocol]), Asked::operation(Form::Cbor, "G", "ListMetrics"));
        assert_eq!(asked("POST", rpc, &[]), Asked::S3, "a bucket may be called service");
        let query = |query: &str| Asked::Query { query: query.to_owned() };
        assert_eq!(asked("POST", "/", &[form]), query(""));
        let presigned = "Action=GetCallerIdentity&X-Amz-Expires=60";
        assert_eq!(asked("GET", &format!("/?{presigned}"), &[]), query(presigned));
        assert_eq!(asked("GET", &format!("/key?{presigned}"), &[]), Asked::S3);
        assert_eq!(asked("GET", "/?max-buckets=1&prefix=Action", &[]), Asked::S3);
        assert_eq!(asked("POST", "/bucket/key?uploads", &[form]), Asked::S3);
        assert_eq!(asked("GET", "/", &[]), Asked::S3);
        assert_eq!(
            asked("POST", "/bucket", &[("content-type", "multipart/form-data; boundary=x")]),
            Asked::S3
        );
    }
}
