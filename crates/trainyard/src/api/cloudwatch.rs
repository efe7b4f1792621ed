//! CloudWatch: the metrics of jobs, as `TrainingJobAnalytics` and consoles read them.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use trainyard_engine::engine::Jobs;

use super::answer::{ApiError, ApiResult};
use crate::exit::one_line;

mod data;
mod list;
mod points;
mod series;
mod statistic;

/// The one namespace that there is.
const NAMESPACE: &str = "/aws/sagemaker/TrainingJobs";

/// Carries out an operation by its name.
pub(super) fn carry_out(jobs: &Jobs, operation: &str, input: Value) -> ApiResult {
    match operation {
        "GetMetricStatistics" => points::get(jobs, &read(input)?),
        "GetMetricData" => data::get(jobs, read(input)?),
        "ListMetrics" => list::list(jobs, &read(input)?),
        other => Err(ApiError { query_code: Some("InvalidAction"), ..ApiError::unknown_operation(other) }),
    }
}

fn read<T: DeserializeOwned>(input: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(input).map_err(|error| {
        let text = format!("{}: {}", error.path(), error.inner());
        ApiError { query_code: Some("MalformedInput"), ..ApiError::new("SerializationException", text) }
    })
}

fn wrong_value(message: impl Into<String>) -> ApiError {
    let error = ApiError::new("InvalidParameterValueException", message);
    ApiError { query_code: Some("InvalidParameterValue"), ..error }
}

fn wrong_combination(message: impl Into<String>) -> ApiError {
    let error = ApiError::new("InvalidParameterCombinationException", message);
    ApiError { query_code: Some("InvalidParameterCombination"), ..error }
}

fn missing(message: impl Into<String>) -> ApiError {
    let error = ApiError::new("MissingRequiredParameterException", message);
    ApiError { query_code: Some("MissingParameter"), ..error }
}

fn wrong_token() -> ApiError {
    let error = ApiError::new("InvalidNextToken", "NextToken is none that was given out");
    ApiError { query_code: Some("InvalidNextToken"), ..error }
}

fn internal(error: impl Into<anyhow::Error>) -> ApiError {
    ApiError::internal(one_line(&error.into()))
}

/// A name and value by which metrics of one name are told apart.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Dimension {
    name: String,
    value: String,
}

/// What metrics are meant for a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// Milliseconds since 1970, at the beginning of a period.
    start: u64,
    /// The same, and no part of it.
    end: u64,
    /// In milliseconds.
    period: u64,
}

impl Span {
    /// Of times and a period in seconds, which begins earlier if it has to.
    fn new(start: f64, end: f64, period: u64) -> Result<Self, ApiError> {
        if !matches!(period, 1 | 5 | 10 | 30) && (period == 0 || !period.is_multiple_of(60)) {
            let message = format!("Period is {period}; it is 1, 5, 10, 30 or any multiple of 60, in seconds");
            return Err(wrong_value(message));
        }
        if start >= end {
            return Err(wrong_value("The parameter StartTime must be less than the parameter EndTime."));
        }
        let milliseconds = |seconds: f64| (seconds * 1000.0).max(0.0) as u64;
        let period = period.saturating_mul(1000);
        Ok(Self { start: milliseconds(start) / period * period, end: milliseconds(end), period })
    }

    /// How many periods there are in it.
    fn periods(&self) -> u64 {
        self.end.saturating_sub(self.start).div_ceil(self.period)
    }
}

/// A number, or the text of one, which is all that the query protocol has.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let whole =
        value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0).map(|number| number as u64);
    let found = whole.or_else(|| value.as_str()?.parse().ok());
    found.map(Some).ok_or_else(|| D::Error::custom(format!("{value} is no whole number")))
}

/// Seconds since 1970, or a time as ISO 8601 writes it.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let written = |text: &str| {
        let at = text.parse::<jiff::Timestamp>().ok();
        at.map(|at| at.as_millisecond() as f64 / 1000.0).or_else(|| text.parse().ok())
    };
    let found = value.as_f64().or_else(|| written(value.as_str()?)).filter(|seconds| seconds.is_finite());
    found.map(Some).ok_or_else(|| D::Error::custom(format!("{value} is no time")))
}

/// True or false, or the word for it.
fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let found = value.as_bool().or_else(|| value.as_str()?.parse().ok());
    found.map(Some).ok_or_else(|| D::Error::custom(format!("{value} is neither true nor false")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_begins_with_a_period() {
        let span = Span::new(125.5, 300.0, 60).unwrap();
        assert_eq!(span, Span { start: 120_000, end: 300_000, period: 60_000 });
        assert_eq!(span.periods(), 3);
        assert_eq!(Span::new(125.5, 126.0, 1).unwrap().start, 125_000);
        for (start, end, period) in
            [(0.0, 1.0, 0), (0.0, 1.0, 7), (0.0, 1.0, 61), (1.0, 1.0, 60), (2.0, 1.0, 60)]
        {
            assert!(Span::new(start, end, period).is_err(), "{start} {end} {period}");
        }
    }

    #[test]
    fn numbers_and_times_may_be_texts() {
        #[derive(Deserialize)]
        struct Read {
            #[serde(default, deserialize_with = "number")]
            n: Option<u64>,
            #[serde(default, deserialize_with = "time")]
            t: Option<f64>,
            #[serde(default, deserialize_with = "switch")]
            s: Option<bool>,
        }
        let read = |text: &str| serde_json::from_str::<Read>(text).map(|it| (it.n, it.t, it.s));
        assert_eq!(read(r#"{"n":60,"t":1.5,"s":true}"#).unwrap(), (Some(60), Some(1.5), Some(true)));
        let texts = r#"{"n":"60","t":"1970-01-01T00:00:01.5Z","s":"false"}"#;
        assert_eq!(read(texts).unwrap(), (Some(60), Some(1.5), Some(false)));
        assert_eq!(read("{}").unwrap(), (None, None, None));
        for wrong in [r#"{"n":-1}"#, r#"{"n":1.5}"#, r#"{"t":"now"}"#, r#"{"s":1}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
