//! ListMetrics: which metrics there are.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_engine::engine::Jobs;
use trainyard_engine::job::Job;
use trainyard_engine::run::{InstanceDirectory, Tail, Timestamp, UsageSample};
use trainyard_engine::store::{JobQuery, SortBy};

use super::series::{INSTANCE_METRICS, directories};
use super::{ApiError, NAMESPACE, internal, switch, wrong_token, wrong_value};
use crate::api::answer::ApiResult;

/// On a page (CloudWatch API reference, ListMetrics); one job more may be on it, for jobs are told whole.
const LONGEST_PAGE: usize = 500;
/// Looked at for a page.
const MOST_JOBS: usize = 200;
/// Of metrics that count as active, in milliseconds.
const RECENT: u64 = 3 * 3600 * 1000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct ListMetrics {
    namespace: Option<String>,
    metric_name: Option<String>,
    #[serde(default)]
    dimensions: Vec<Filter>,
    next_token: Option<String>,
    recently_active: Option<String>,
    #[serde(rename = "IncludeLinkedAccounts", default, deserialize_with = "switch")]
    _linked: Option<bool>,
    #[serde(rename = "OwningAccount")]
    _account: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Filter {
    name: String,
    value: Option<String>,
}

impl ListMetrics {
    fn fits(&self, metric: &str, dimension: (&str, &str)) -> bool {
        let has = |filter: &Filter| {
            filter.name == dimension.0 && filter.value.as_ref().is_none_or(|value| value == dimension.1)
        };
        self.metric_name.as_ref().is_none_or(|name| name == metric) && self.dimensions.iter().all(has)
    }

    /// The only job whose metrics can fit.
    fn job(&self) -> Option<&str> {
        self.dimensions.iter().find_map(|filter| match (filter.name.as_str(), &filter.value) {
            ("TrainingJobName", Some(job)) => Some(job.as_str()),
            ("Host", Some(host)) => host.split('/').next(),
            _ => None,
        })
    }
}

pub(super) fn list(jobs: &Jobs, input: &ListMetrics) -> ApiResult {
    let recent = match input.recently_active.as_deref() {
        None => None,
        Some("PT3H") => Some(Timestamp(Timestamp::now().0.saturating_sub(RECENT))),
        Some(other) => return Err(wrong_value(format!("RecentlyActive is {other}; it is PT3H"))),
    };
    if input.namespace.as_deref().is_some_and(|namespace| namespace != NAMESPACE) {
        return Ok(json!({ "Metrics": [] }));
    }
    let mut query =
        JobQuery { sort_by: SortBy::Name, modified_after: recent, limit: MOST_JOBS, ..JobQuery::default() };
    query.after = input.next_token.as_deref().map(of_token).transpose()?;
    if let Some(job) = input.job() {
        let found = named(jobs, job)?;
        let found = found.filter(|job| recent.is_none_or(|recent| job.modified > recent));
        let metrics: Vec<_> = found.iter().flat_map(|job| of_job(jobs, job, input)).collect();
        return Ok(json!({ "Metrics": metrics }));
    }
    let listed = jobs.list(&query).map_err(internal)?;
    let mut metrics = Vec::new();
    for (number, listed) in (1..).zip(&listed) {
        metrics.extend(named(jobs, &listed.name)?.iter().flat_map(|job| of_job(jobs, job, input)));
        if metrics.len() >= LONGEST_PAGE || number == MOST_JOBS {
            let token = URL_SAFE_NO_PAD.encode(json!(listed.cursor(SortBy::Name)).to_string());
            return Ok(json!({ "Metrics": metrics, "NextToken": token }));
        }
    }
    Ok(json!({ "Metrics": metrics }))
}

fn of_token(token: &str) -> Result<(String, String), ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(wrong_token)
}

fn named(jobs: &Jobs, name: &str) -> Result<Option<Job>, ApiError> {
    let described = jobs.described(name).map_err(internal)?;
    Ok(described.map(|described| described.job).filter(|job| job.name == name))
}

fn of_job(jobs: &Jobs, job: &Job, input: &ListMetrics) -> Vec<Value> {
    let mut found: Vec<_> =
        job.metrics.keys().map(|metric| (metric.clone(), "TrainingJobName", job.name.clone())).collect();
    let instances = directories(jobs, job, None);
    let mut hosts: Vec<&str> = job.instances.iter().map(|instance| instance.host.as_str()).collect();
    hosts.sort_unstable();
    for host in hosts {
        let own = instances.iter().filter(|instance| instance.root().ends_with(host));
        // The last attempt tells what is measured.
        let Some(sample) = own.rev().find_map(last_sample) else { continue };
        let there = INSTANCE_METRICS.iter().filter(|(_, value)| value(&sample).is_some());
        found.extend(there.map(|(metric, _)| ((*metric).to_owned(), "Host", format!("{}/{host}", job.name))));
    }
    found.retain(|(metric, name, value)| input.fits(metric, (name, value)));
    let shown = found.into_iter().map(|(metric, name, value)| {
        json!({
            "Namespace": NAMESPACE, "MetricName": metric, "Dimensions": [{"Name": name, "Value": value}],
        })
    });
    shown.collect()
}

fn last_sample(instance: &InstanceDirectory) -> Option<UsageSample> {
    // A file that can't be read has nothing to show; short ones are the usual.
    Tail::new(instance.usage()).read::<UsageSample>().ok()?.last().copied()
}
