//! GetMetricStatistics: several statistics of one metric.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use trainyard_engine::engine::Jobs;

use super::series::{Metric, Series};
use super::statistic::Statistic;
use super::{ApiError, Dimension, Span, missing, number, time, wrong_combination, wrong_value};
use crate::api::answer::ApiResult;

/// Of one answer (CloudWatch API reference, GetMetricStatistics).
const MOST_POINTS: u64 = 1440;
/// The statistics that have a member of their own.
const PLAIN: [&str; 5] = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct GetMetricStatistics {
    namespace: Option<String>,
    metric_name: Option<String>,
    #[serde(default)]
    dimensions: Vec<Dimension>,
    #[serde(default, deserialize_with = "time")]
    start_time: Option<f64>,
    #[serde(default, deserialize_with = "time")]
    end_time: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    period: Option<u64>,
    #[serde(default)]
    statistics: Vec<String>,
    #[serde(default)]
    extended_statistics: Vec<String>,
    unit: Option<String>,
}

pub(super) fn get(jobs: &Jobs, input: &GetMetricStatistics) -> ApiResult {
    let absent = |name: &str| missing(format!("The parameter {name} is required."));
    let namespace = input.namespace.as_deref().ok_or_else(|| absent("Namespace"))?;
    let name = input.metric_name.as_deref().ok_or_else(|| absent("MetricName"))?;
    let start = input.start_time.ok_or_else(|| absent("StartTime"))?;
    let end = input.end_time.ok_or_else(|| absent("EndTime"))?;
    let span = Span::new(start, end, input.period.ok_or_else(|| absent("Period"))?)?;
    let statistics = statistics(input)?;
    if span.periods() > MOST_POINTS {
        let message = format!(
            "You have requested up to {} datapoints, which exceeds the limit of 1,440. You may reduce the datapoints \
             requested by increasing Period, or decreasing the time range.",
            span.periods()
        );
        return Err(wrong_combination(message));
    }
    let metric = Metric { namespace, name, dimensions: &input.dimensions };
    let unit = metric.unit();
    let wanted = input.unit.as_deref().is_none_or(|wanted| wanted == unit);
    let periods = if wanted {
        Series::new(jobs, (span.start, span.end)).periods(metric, span)?
    } else {
        Default::default()
    };
    let points: Vec<_> =
        periods.iter().map(|(start, values)| point(*start, values, &statistics, unit)).collect();
    Ok(json!({ "Label": name, "Datapoints": points }))
}

/// Names and meanings.
fn statistics(input: &GetMetricStatistics) -> Result<Vec<(&str, Statistic)>, ApiError> {
    let (plain, extended) = (&input.statistics, &input.extended_statistics);
    match (plain.is_empty(), extended.is_empty()) {
        (true, true) => return Err(missing("Must specify either Statistics or ExtendedStatistics")),
        (false, false) => {
            return Err(wrong_combination("Statistics and ExtendedStatistics exclude each other"));
        }
        _ => {}
    }
    let all = plain.iter().chain(extended).map(|name| {
        if plain.is_empty() == PLAIN.contains(&name.as_str()) {
            return Err(wrong_value(format!(
                "{name} belongs to the other of Statistics and ExtendedStatistics"
            )));
        }
        Ok((name.as_str(), Statistic::parse(name)?))
    });
    all.collect()
}

fn point(start: u64, values: &[f64], statistics: &[(&str, Statistic)], unit: &str) -> Value {
    let mut point = Map::new();
    point.insert("Timestamp".into(), json!(start as f64 / 1000.0));
    let mut extended = Map::new();
    for (name, statistic) in statistics {
        let place = if PLAIN.contains(name) { &mut point } else { &mut extended };
        place.insert((*name).to_owned(), json!(statistic.of(values)));
    }
    if !extended.is_empty() {
        point.insert("ExtendedStatistics".into(), extended.into());
    }
    point.insert("Unit".into(), json!(unit));
    point.into()
}
