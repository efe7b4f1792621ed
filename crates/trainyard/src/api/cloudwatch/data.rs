//! GetMetricData: one statistic each of many metrics, in pages.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_engine::engine::Jobs;

use super::series::{Metric, Series};
use super::statistic::Statistic;
use super::{ApiError, Dimension, Span, missing, number, switch, time, wrong_token, wrong_value};
use crate::api::answer::ApiResult;

/// Of one request and of one page (CloudWatch API reference, GetMetricData).
const MOST_QUERIES: usize = 500;
const MOST_POINTS: u64 = 100_800;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct GetMetricData {
    metric_data_queries: Option<Vec<Query>>,
    #[serde(default, deserialize_with = "time")]
    start_time: Option<f64>,
    #[serde(default, deserialize_with = "time")]
    end_time: Option<f64>,
    next_token: Option<String>,
    scan_by: Option<String>,
    #[serde(default, deserialize_with = "number")]
    max_datapoints: Option<u64>,
    /// Only labels that are computed depend on it.
    #[serde(rename = "LabelOptions")]
    _label_options: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Query {
    id: String,
    metric_stat: Option<MetricStat>,
    expression: Option<String>,
    label: Option<String>,
    #[serde(default, deserialize_with = "switch")]
    return_data: Option<bool>,
    #[serde(default, deserialize_with = "number")]
    period: Option<u64>,
    #[serde(rename = "AccountId")]
    _account: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct MetricStat {
    metric: MetricName,
    #[serde(default, deserialize_with = "number")]
    period: Option<u64>,
    stat: String,
    unit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct MetricName {
    namespace: Option<String>,
    metric_name: Option<String>,
    #[serde(default)]
    dimensions: Vec<Dimension>,
}

/// The last point of the page before: its query's place and its time in milliseconds.
type Last = (usize, u64);

pub(super) fn get(jobs: &Jobs, input: GetMetricData) -> ApiResult {
    let absent = |name: &str| missing(format!("The parameter {name} is required."));
    let queries = input.metric_data_queries.ok_or_else(|| absent("MetricDataQueries"))?;
    let start = input.start_time.ok_or_else(|| absent("StartTime"))?;
    let end = input.end_time.ok_or_else(|| absent("EndTime"))?;
    let descending = match input.scan_by.as_deref() {
        None | Some("TimestampDescending") => true,
        Some("TimestampAscending") => false,
        Some(other) => {
            let message = format!("ScanBy is {other}; it is TimestampDescending or TimestampAscending");
            return Err(wrong_value(message));
        }
    };
    let room = input.max_datapoints.unwrap_or(MOST_POINTS);
    if !(1..=MOST_POINTS).contains(&room) {
        return Err(wrong_value(format!("MaxDatapoints is {room}; it is 1 to {MOST_POINTS}")));
    }
    check(&queries)?;
    let last = input.next_token.as_deref().map(of_token).transpose()?;
    let spans: Vec<_> = queries.iter().map(|query| query.span(start, end)).collect::<Result<_, _>>()?;
    let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
    let series = Series::new(jobs, (first, spans.iter().map(|span| span.end).max().unwrap_or_default()));
    let page = Page { room: room as usize, last, descending, results: Vec::new(), next: None };
    let page = page.filled(&queries, &spans, series)?;
    let mut answer = json!({ "MetricDataResults": page.results, "Messages": [] });
    if let Some(next) = page.next {
        answer["NextToken"] = json!(URL_SAFE_NO_PAD.encode(json!(next).to_string()));
    }
    Ok(answer)
}

fn of_token(token: &str) -> Result<Last, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(wrong_token)
}

fn invalid(message: String) -> ApiError {
    ApiError { query_code: Some("ValidationError"), ..ApiError::validation(message) }
}

fn check(queries: &[Query]) -> Result<(), ApiError> {
    if !(1..=MOST_QUERIES).contains(&queries.len()) {
        return Err(invalid(format!(
            "there are 1 to {MOST_QUERIES} MetricDataQueries, not {}",
            queries.len()
        )));
    }
    let mut seen = HashSet::new();
    for Query { id, metric_stat, expression, .. } in queries {
        let named = id.starts_with(|first: char| first.is_ascii_lowercase())
            && id.chars().all(|other| other.is_ascii_alphanumeric() || other == '_');
        if !named {
            return Err(invalid(format!(
                "Id {id:?} begins with a lowercase letter and has letters, digits and _"
            )));
        }
        if !seen.insert(id) {
            return Err(invalid(format!("Id {id} is given twice")));
        }
        match (metric_stat, expression) {
            (Some(_), None) => {}
            (None, Some(expression)) => {
                return Err(invalid(format!(
                    "Expression of {id}: not supported; metrics can be read here, but not computed ({expression:?})"
                )));
            }
            _ => return Err(invalid(format!("{id} has either MetricStat or Expression"))),
        }
    }
    Ok(())
}

impl Query {
    fn span(&self, start: f64, end: f64) -> Result<Span, ApiError> {
        let period = self.metric_stat.as_ref().and_then(|stat| stat.period).or(self.period);
        Span::new(start, end, period.ok_or_else(|| missing("The parameter Period is required."))?)
    }
}

/// A page that is being filled.
struct Page {
    /// For so many points more.
    room: usize,
    last: Option<Last>,
    descending: bool,
    results: Vec<Value>,
    next: Option<Last>,
}

impl Page {
    fn filled(mut self, queries: &[Query], spans: &[Span], mut series: Series<'_>) -> Result<Self, ApiError> {
        for (place, (query, span)) in queries.iter().zip(spans).enumerate() {
            if self.last.is_some_and(|(last, _)| place < last) || query.return_data == Some(false) {
                continue;
            }
            let Some(stat) = &query.metric_stat else { continue };
            let points = points(stat, *span, &mut series)?;
            self.take(place, query, stat, points);
            if self.next.is_some() {
                break;
            }
        }
        Ok(self)
    }

    /// Takes what there is room for, in the order of the page.
    fn take(&mut self, place: usize, query: &Query, stat: &MetricStat, mut points: Vec<(u64, f64)>) {
        if self.descending {
            points.reverse();
        }
        if let Some((_, at)) = self.last.filter(|(last, _)| *last == place) {
            points.retain(|(time, _)| if self.descending { *time < at } else { *time > at });
            if points.is_empty() {
                return;
            }
        }
        let cut = points.len() > self.room;
        if cut && self.room == 0 {
            // All its points belong to the next page.
            self.next = Some((place, if self.descending { u64::MAX } else { 0 }));
            return;
        }
        points.truncate(self.room);
        self.room -= points.len();
        if cut {
            self.next = points.last().map(|(time, _)| (place, *time));
        }
        let name = stat.metric.metric_name.as_deref().unwrap_or_default();
        self.results.push(json!({
            "Id": query.id,
            "Label": query.label.as_deref().unwrap_or(name),
            "Timestamps": points.iter().map(|(time, _)| *time as f64 / 1000.0).collect::<Vec<_>>(),
            "Values": points.iter().map(|(_, value)| *value).collect::<Vec<_>>(),
            "StatusCode": if cut { "PartialData" } else { "Complete" },
        }));
    }
}

/// The points of a metric in order of time.
fn points(stat: &MetricStat, span: Span, series: &mut Series<'_>) -> Result<Vec<(u64, f64)>, ApiError> {
    let absent = |name: &str| missing(format!("The parameter MetricStat.Metric.{name} is required."));
    let MetricName { namespace, metric_name, dimensions } = &stat.metric;
    let namespace = namespace.as_deref().ok_or_else(|| absent("Namespace"))?;
    let name = metric_name.as_deref().ok_or_else(|| absent("MetricName"))?;
    let statistic = Statistic::parse(&stat.stat)?;
    let metric = Metric { namespace, name, dimensions };
    if stat.unit.as_deref().is_some_and(|unit| unit != metric.unit()) {
        return Ok(Vec::new());
    }
    let periods = series.periods(metric, span)?;
    Ok(periods.iter().map(|(start, values)| (*start, statistic.of(values))).collect())
}
