//! `If-Match` and its kin (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use http::header::{ETAG, LAST_MODIFIED};
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3Result, s3_error};
use trainyard_bucket::Object;

use crate::attributes::http_date;

/// What a reader asks of an object.
pub(crate) struct Reading {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

impl Reading {
    /// Whether the object is to be sent; times only count where no ETag is named (section 13.2.2).
    pub(crate) fn check(&self, object: &Object) -> S3Result<()> {
        let failed = || s3_error!(PreconditionFailed, "the object is not the one that was asked for");
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) if !matches(condition, object) => return Err(failed()),
            (None, Some(time)) if is_newer(object, time) => return Err(failed()),
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) if matches(condition, object) => Err(not_modified(object)),
            (None, Some(time)) if !is_newer(object, time) => Err(not_modified(object)),
            _ => Ok(()),
        }
    }
}

/// Caches learn from it which of their copies is still right (RFC 9110, section 15.4.5).
fn not_modified(object: &Object) -> S3Error {
    let mut error = s3_error!(NotModified);
    let etag = HeaderValue::from_str(&format!("\"{}\"", object.etag)).ok();
    let time = http_date(&object.modified.into()).and_then(|time| HeaderValue::from_str(&time).ok());
    let headers = [(ETAG, etag), (LAST_MODIFIED, time)];
    error.set_headers(headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect());
    error
}

/// What a writer asks of the object that would be replaced.
#[derive(Default)]
pub(crate) struct Writing {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
}

impl Writing {
    /// Whether what is there may be replaced.
    pub(crate) fn allows(&self, object: Option<&Object>) -> bool {
        let met = |condition: &ETagCondition| object.is_some_and(|object| matches(condition, object));
        self.if_match.as_ref().is_none_or(met) && !self.if_none_match.as_ref().is_some_and(met)
    }
}

fn matches(condition: &ETagCondition, object: &Object) -> bool {
    condition.as_etag().is_none_or(|etag| etag.value() == object.etag)
}

/// Whether an object was written after a time, in the whole seconds that HTTP knows.
fn is_newer(object: &Object, time: &Timestamp) -> bool {
    let whole = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
    };
    Timestamp::from(whole(object.modified)) > *time
}
