//! What the instances of jobs take of their machines, from CloudWatch, and what they wrote last.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::logs::{GROUP, host_of};
use super::{CallError, Client, Operation, Service};

/// Of all training jobs' instances (SageMaker developer guide, "Monitor SageMaker AI with CloudWatch").
const NAMESPACE: &str = "/aws/sagemaker/TrainingJobs";
/// What is asked for, in this order.
const METRICS: [&str; 2] = ["CPUUtilization", "MemoryUtilization"];
/// Of one GetMetricData request.
const MOST_QUERIES: usize = 500;
/// The newest values are looked for in so many seconds.
const SPAN: f64 = 900.0;

/// What an instance takes, in percent; of the processors 100 is one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) processors: Option<f64>,
    pub(crate) memory: Option<f64>,
}

impl Client {
    /// What instances (`<job>/<host>`) take now, as far as it was measured; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) async fn usage(
        &self,
        instances: &[String],
        now: f64,
    ) -> Result<BTreeMap<String, Usage>, CallError> {
        let operation = Operation { service: Service::CloudWatch, name: "GetMetricData", again: true };
        let period = if self.place().is_amazon { 60 } else { 5 };
        let mut found: BTreeMap<String, Usage> = BTreeMap::new();
        for some in instances.chunks(MOST_QUERIES / METRICS.len()) {
            let queries: Vec<_> =
                some.iter().enumerate().flat_map(|(at, host)| queries(at, host, period)).collect();
            let input = json!({"MetricDataQueries": queries, "StartTime": now - SPAN, "EndTime": now + 1.0});
            let answer = self.call(operation, &input).await?;
            for result in answer["MetricDataResults"].as_array().into_iter().flatten() {
                // The newest comes first.
                let (Some((metric, at)), Some(value)) = (place_of(result), result["Values"][0].as_f64())
                else {
                    continue;
                };
                let Some(instance) = some.get(at) else { continue };
                let usage = found.entry(instance.clone()).or_default();
                match metric {
                    0 => usage.processors = Some(value),
                    _ => usage.memory = Some(value),
                }
            }
        }
        Ok(found)
    }

    /// The last line of each instance of a job, by its host.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) async fn last_lines(
        self: &Arc<Self>,
        job: &str,
    ) -> Result<BTreeMap<String, String>, CallError> {
        let input = json!({"logGroupName": GROUP, "logStreamNamePrefix": format!("{job}/")});
        let answer = match self.call(Operation::logs("DescribeLogStreams"), &input).await {
            Err(error) if error.code() == Some("ResourceNotFoundException") => return Ok(BTreeMap::new()),
            answer => answer?,
        };
        // In order of their names, so of each host the stream of its last attempt stays.
        let names = answer["logStreams"].as_array().into_iter().flatten();
        let names = names.filter_map(|stream| stream["logStreamName"].as_str());
        let newest: BTreeMap<_, _> = names.map(|name| (host_of(name).to_owned(), name.to_owned())).collect();
        let mut reading = JoinSet::new();
        for (host, stream) in newest {
            let client = Arc::clone(self);
            reading.spawn(async move {
                let input = json!({"logGroupName": GROUP, "logStreamName": stream, "limit": 1});
                let answer = client.call(Operation::logs("GetLogEvents"), &input).await?;
                Ok::<_, CallError>(
                    answer["events"][0]["message"].as_str().map(|line| (host, line.to_owned())),
                )
            });
        }
        let lines: Result<Vec<_>, _> = reading.join_all().await.into_iter().collect();
        Ok(lines?.into_iter().flatten().collect())
    }
}

fn queries(at: usize, host: &str, period: u32) -> impl Iterator<Item = Value> {
    METRICS.iter().enumerate().map(move |(number, metric)| {
        let dimensions = json!([{"Name": "Host", "Value": host}]);
        let metric = json!({"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": dimensions});
        json!({"Id": format!("m{number}_{at}"), "MetricStat": {"Metric": metric, "Period": period, "Stat": "Average"}})
    })
}

/// Which metric and which instance a result is of.
fn place_of(result: &Value) -> Option<(usize, usize)> {
    let (metric, at) = result["Id"].as_str()?.strip_prefix('m')?.split_once('_')?;
    Some((metric.parse().ok()?, at.parse().ok()?))
}
