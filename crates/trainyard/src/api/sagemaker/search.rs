//! Search over training jobs: filters, nested filters and sub-expressions, sorted and in pages.
//!
//! A record is what DescribeTrainingJob shows, with the job's tags. Filters are pure functions of it.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trainyard_engine::engine::{Jobs, StopError, TagChange};
use trainyard_engine::run::Timestamp;
use trainyard_engine::store::{Compared, JobQuery, SortBy, Wanted};

use super::describe::shown;
use super::{arn, refused, status};
use crate::api::answer::{ApiError, ApiResult};
use crate::exit::one_line;

/// In one expression with all that is in it.
const MOST_CONDITIONS: usize = 50;
/// Jobs read from the store at once.
const AT_ONCE: usize = 1000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Search {
    resource: String,
    search_expression: Option<Expression>,
    sort_by: Option<String>,
    sort_order: Option<String>,
    next_token: Option<String>,
    max_results: Option<usize>,
    #[serde(rename = "CrossAccountFilterOption")]
    _cross_account: Option<String>,
    #[serde(rename = "VisibilityConditions")]
    _visibility: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct Expression {
    filters: Vec<Filter>,
    nested_filters: Vec<NestedFilters>,
    sub_expressions: Vec<Expression>,
    operator: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Filter {
    name: String,
    operator: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct NestedFilters {
    nested_property_name: String,
    filters: Vec<Filter>,
}

pub(super) fn search(jobs: &Jobs, input: &Search) -> ApiResult {
    if input.resource != "TrainingJob" {
        return Err(ApiError::validation(format!(
            "there is nothing to search for but TrainingJob, not {}",
            input.resource
        )));
    }
    let limit = input.max_results.unwrap_or(100);
    if !(1..=100).contains(&limit) {
        return Err(ApiError::validation(format!("MaxResults is {limit}; it is 1 to 100")));
    }
    let all = Expression::default();
    let expression = input.search_expression.as_ref().unwrap_or(&all);
    expression.check()?;
    let by = input.sort_by.as_deref().unwrap_or("LastModifiedTime");
    let descending = input.sort_order.as_deref() != Some("Ascending");
    let query = JobQuery { descending, limit: AT_ONCE, ..narrowed(expression) };
    let search = Searching { jobs, expression, limit, token: input.next_token.as_deref() };
    match column(by) {
        Some(sort_by) => search.along(JobQuery { sort_by, ..query }),
        None => search.sorted(query, by),
    }
}

/// What a list can be ordered by without looking at the records.
fn column(by: &str) -> Option<SortBy> {
    match by {
        "LastModifiedTime" => Some(SortBy::Modified),
        "CreationTime" => Some(SortBy::Created),
        "TrainingJobName" => Some(SortBy::Name),
        "TrainingJobStatus" => Some(SortBy::Status),
        _ => None,
    }
}

/// A search that is under way.
struct Searching<'a> {
    jobs: &'a Jobs,
    expression: &'a Expression,
    limit: usize,
    token: Option<&'a str>,
}

/// Where a page ends in a list of its order, and how many were found up to there.
type End = ((String, String), usize);

impl Searching<'_> {
    /// Goes along a list until a page is full; how many there are in all is known only at the list's end.
    fn along(&self, mut query: JobQuery) -> ApiResult {
        let end: Option<End> = self.token.map(of_token).transpose()?;
        let mut found = end.as_ref().map_or(0, |(_, found)| *found);
        query.after = end.map(|(cursor, _)| cursor);
        let (mut page, mut last) = (Vec::new(), None);
        loop {
            // A page of few is not worth many.
            query.limit = (2 * (self.limit + 1 - page.len())).clamp(16, AT_ONCE);
            let listed =
                self.jobs.list(&query).map_err(|error| ApiError::internal(one_line(&error.into())))?;
            for listed in &listed {
                let Some(record) = record(self.jobs, &listed.name)? else { continue };
                if !self.expression.fits(&record) {
                    continue;
                }
                if page.len() == self.limit {
                    let token = token(&json!((last, found)));
                    return Ok(answer(page, (found + 1, "GreaterThanOrEqualTo"), Some(token)));
                }
                found += 1;
                last = Some(listed.cursor(query.sort_by));
                page.push(record);
            }
            match listed.last() {
                Some(last) if listed.len() == query.limit => query.after = Some(last.cursor(query.sort_by)),
                _ => return Ok(answer(page, (found, "EqualTo"), None)),
            }
        }
    }

    /// Looks at all records, for only they know the order. What is kept of each is what it is ordered by, for there may
    /// be as many as jobs.
    fn sorted(&self, mut query: JobQuery, by: &str) -> ApiResult {
        query.sort_by = SortBy::Name;
        let descending = std::mem::take(&mut query.descending);
        let mut found = Vec::new();
        loop {
            let listed =
                self.jobs.list(&query).map_err(|error| ApiError::internal(one_line(&error.into())))?;
            for listed in &listed {
                let record = record(self.jobs, &listed.name)?.filter(|record| self.expression.fits(record));
                found.extend(record.map(|record| (first(&record, by).cloned(), listed.name.clone())));
            }
            match listed.last() {
                Some(last) if listed.len() == query.limit => query.after = Some(last.cursor(SortBy::Name)),
                _ => break,
            }
        }
        found.sort_by(|(a, first), (b, second)| {
            compared(a.as_ref(), b.as_ref()).then_with(|| first.cmp(second))
        });
        if descending {
            found.reverse();
        }
        let total = found.len();
        let start = match self.token.map(of_token::<String>).transpose()? {
            None => 0,
            Some(last) => found.iter().position(|(_, name)| *name == last).map_or(total, |at| at + 1),
        };
        let end = total.min(start + self.limit);
        let token = found[start..end].last().filter(|_| end < total).map(|(_, name)| token(&json!(name)));
        let page = found[start..end].iter().map(|(_, name)| record(self.jobs, name));
        let page = page.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(answer(page, (total, "EqualTo"), token))
    }
}

fn answer(page: Vec<Value>, (total, relation): (usize, &str), token: Option<String>) -> Value {
    let results: Vec<_> = page.into_iter().map(|record| json!({ "TrainingJob": record })).collect();
    let mut answer = json!({ "Results": results, "TotalHits": {"Value": total, "Relation": relation} });
    if let Some(token) = token {
        answer["NextToken"] = json!(token);
    }
    answer
}

/// What the store can leave out at once: jobs without what every one must have. The rest is seen in the records.
fn narrowed(expression: &Expression) -> JobQuery {
    let mut query = JobQuery::default();
    // One filter is the same with Or.
    let all = expression.operator.as_deref() != Some("Or") || expression.filters.len() == 1;
    let alone = expression.operator.as_deref() != Some("Or")
        || (expression.nested_filters.is_empty() && expression.sub_expressions.is_empty());
    if all && alone {
        expression.filters.iter().for_each(|filter| filter.narrow(&mut query));
    }
    query
}

/// Members that Describe has and a record of Search has not.
const NOT_IN_RECORDS: [&str; 5] = [
    "RemoteDebugConfig",
    "InfraCheckConfig",
    "ProfilerRuleConfigurations",
    "ProfilerRuleEvaluationStatuses",
    "ProfilingStatus",
];

/// The record of a job; none if it was deleted just now.
fn record(jobs: &Jobs, name: &str) -> Result<Option<Value>, ApiError> {
    let described = jobs.described(name).map_err(|error| ApiError::internal(one_line(&error.into())))?;
    let Some(described) = described else { return Ok(None) };
    let mut record = shown(&described, &arn(jobs, name))?;
    let tags = match jobs.tags(name, TagChange::None) {
        Ok(tags) => tags,
        Err(StopError::Unknown(_)) => return Ok(None),
        Err(error) => return Err(refused(error)),
    };
    let tags: Vec<_> = tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
    record["Tags"] = json!(tags);
    if let Some(members) = record.as_object_mut() {
        NOT_IN_RECORDS.iter().for_each(|member| drop(members.shift_remove(*member)));
    }
    Ok(Some(record))
}

fn token(place: &Value) -> String {
    URL_SAFE_NO_PAD.encode(place.to_string())
}

fn of_token<T: DeserializeOwned>(token: &str) -> Result<T, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let place = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    place.ok_or_else(|| ApiError::validation("NextToken is none that was given out"))
}

impl Expression {
    /// Whether it can be understood, in all its parts.
    fn check(&self) -> Result<(), ApiError> {
        let filters = self.all_filters();
        if filters.len() > MOST_CONDITIONS {
            let message =
                format!("a search has at most {MOST_CONDITIONS} conditions, this one {}", filters.len());
            return Err(ApiError::validation(message));
        }
        if filters.iter().filter(|filter| filter.operator.as_deref() == Some("Contains")).count() > 1 {
            return Err(ApiError::validation("'CONTAINS' operator usage limit of 1 exceeded."));
        }
        self.check_operators()?;
        filters.into_iter().try_for_each(Filter::check)
    }

    fn check_operators(&self) -> Result<(), ApiError> {
        match self.operator.as_deref() {
            None | Some("And" | "Or") => self.sub_expressions.iter().try_for_each(Self::check_operators),
            Some(other) => Err(ApiError::validation(format!("Operator is {other}; it is And or Or"))),
        }
    }

    fn all_filters(&self) -> Vec<&Filter> {
        let nested = self.nested_filters.iter().flat_map(|nested| &nested.filters);
        let below = self.sub_expressions.iter().flat_map(Self::all_filters);
        self.filters.iter().chain(nested).chain(below).collect()
    }

    fn fits(&self, record: &Value) -> bool {
        let filters = self.filters.iter().map(|filter| filter.fits(record, &filter.name));
        let nested = self.nested_filters.iter().map(|nested| nested.fits(record));
        let below = self.sub_expressions.iter().map(|expression| expression.fits(record));
        let mut parts = filters.chain(nested).chain(below).peekable();
        if parts.peek().is_none() {
            return true;
        }
        if self.operator.as_deref() == Some("Or") { parts.any(|fits| fits) } else { parts.all(|fits| fits) }
    }
}

impl NestedFilters {
    /// Whether one and the same element of the list fits all filters.
    fn fits(&self, record: &Value) -> bool {
        let prefix = format!("{}.", self.nested_property_name);
        let elements = record[&self.nested_property_name].as_array();
        elements.into_iter().flatten().any(|element| {
            self.filters.iter().all(|filter| {
                let name = filter.name.strip_prefix(&prefix).unwrap_or(&filter.name);
                filter.fits(element, name)
            })
        })
    }
}

impl Filter {
    fn check(&self) -> Result<(), ApiError> {
        let operator = self.operator();
        let known = [
            "Equals",
            "NotEquals",
            "GreaterThan",
            "GreaterThanOrEqualTo",
            "LessThan",
            "LessThanOrEqualTo",
            "Contains",
            "Exists",
            "NotExists",
            "In",
        ];
        if !known.contains(&operator) {
            let message = format!(
                "the filter {} has the operator {operator}; it is one of {}",
                self.name,
                known.join(", ")
            );
            return Err(ApiError::validation(message));
        }
        match (operator, &self.value) {
            ("Exists" | "NotExists", Some(_)) => Err(ApiError::validation(format!(
                "the filter {} has the operator {operator} and so no Value",
                self.name
            ))),
            ("Exists" | "NotExists", None) | (_, Some(_)) => Ok(()),
            (_, None) => Err(ApiError::validation(format!("the filter {} has no Value", self.name))),
        }
    }

    fn operator(&self) -> &str {
        self.operator.as_deref().unwrap_or(if self.value.is_some() { "Equals" } else { "Exists" })
    }

    /// Leaves out what can't fit, as far as the store can tell.
    fn narrow(&self, query: &mut JobQuery) {
        let (operator, Some(value)) = (self.operator(), &self.value) else { return };
        let fact = self.name.starts_with("HyperParameters.") || self.name.starts_with("Metrics.");
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
        let compared = match operator {
            "Equals" => Some(Compared::Equal),
            "LessThan" => Some(Compared::Less),
            "LessThanOrEqualTo" => Some(Compared::LessOrEqual),
            "GreaterThan" => Some(Compared::Greater),
            "GreaterThanOrEqualTo" => Some(Compared::GreaterOrEqual),
            _ => None,
        };
        match (self.name.as_str(), operator) {
            ("TrainingJobName", "Equals") => query.wanted.push(Wanted::Name(value.clone())),
            ("TrainingJobName", "Contains") => query.name_contains = Some(value.clone()),
            ("TrainingJobStatus", "Equals") => query.status = status(value).ok(),
            (name, "Equals") if let Some(key) = name.strip_prefix("Tags.") => {
                query.wanted.push(Wanted::Tag { key: key.to_owned(), value: value.clone() });
            }
            (name, _) if fact => {
                let name = name.to_owned();
                match (compared, number) {
                    (Some(compared), Some(number)) => {
                        query.wanted.push(Wanted::Number { name, compared, number });
                    }
                    (Some(Compared::Equal), None) => {
                        query.wanted.push(Wanted::Text { name, value: value.clone() });
                    }
                    _ => {}
                }
            }
            ("CreationTime" | "LastModifiedTime", _) => self.narrow_times(query, compared, value),
            _ => {}
        }
    }

    fn narrow_times(&self, query: &mut JobQuery, compared: Option<Compared>, value: &str) {
        let Some(seconds) = value.parse().ok().or_else(|| seconds(value)) else { return };
        // A millisecond more on either side does no harm, for the records are looked at.
        let at = (seconds * 1000.0).max(0.0) as u64;
        let (after, before) = (Timestamp(at.saturating_sub(1)), Timestamp(at.saturating_add(2)));
        let (from, until) = match self.name.as_str() {
            "CreationTime" => (&mut query.created_after, &mut query.created_before),
            _ => (&mut query.modified_after, &mut query.modified_before),
        };
        match compared {
            Some(Compared::Greater | Compared::GreaterOrEqual) => *from = Some(after),
            Some(Compared::Less | Compared::LessOrEqual) => *until = Some(before),
            _ => {}
        }
    }

    fn fits(&self, record: &Value, name: &str) -> bool {
        let found = values(record, name);
        let value = self.value.as_deref().unwrap_or_default();
        let any = |wanted: &[Ordering]| {
            found.iter().any(|found| against(found, value).is_some_and(|order| wanted.contains(&order)))
        };
        match self.operator() {
            "Equals" => any(&[Ordering::Equal]),
            // What is not there is not equal either.
            "NotEquals" => !any(&[Ordering::Equal]),
            "GreaterThan" => any(&[Ordering::Greater]),
            "GreaterThanOrEqualTo" => any(&[Ordering::Greater, Ordering::Equal]),
            "LessThan" => any(&[Ordering::Less]),
            "LessThanOrEqualTo" => any(&[Ordering::Less, Ordering::Equal]),
            "Contains" => found.iter().any(|found| found.as_str().is_some_and(|text| text.contains(value))),
            "Exists" => !found.is_empty(),
            "NotExists" => found.is_empty(),
            "In" => value
                .split(',')
                .any(|one| found.iter().any(|found| against(found, one.trim()) == Some(Ordering::Equal))),
            _ => false,
        }
    }
}

/// What a name means in a record: a member, a member of a member, or of each element of a list.
fn values<'a>(record: &'a Value, name: &str) -> Vec<&'a Value> {
    // Names of these may have dots of their own.
    if let Some(metric) = name.strip_prefix("Metrics.") {
        return of_list(&record["FinalMetricDataList"], ("MetricName", metric), "Value");
    }
    if let Some(tag) = name.strip_prefix("Tags.") {
        return of_list(&record["Tags"], ("Key", tag), "Value");
    }
    for map in ["HyperParameters", "Environment"] {
        if let Some(key) = name.strip_prefix(map).and_then(|rest| rest.strip_prefix('.')) {
            return record[map].get(key).into_iter().collect();
        }
    }
    name.split('.')
        .fold(vec![record], |at, member| at.into_iter().flat_map(|value| below(value, member)).collect())
}

/// A member of those elements of a list whose `key` is as wanted.
fn of_list<'a>(list: &'a Value, (key, wanted): (&str, &str), member: &str) -> Vec<&'a Value> {
    let elements = list.as_array().into_iter().flatten();
    elements.filter(|element| element[key] == wanted).filter_map(|element| element.get(member)).collect()
}

fn below<'a>(value: &'a Value, member: &str) -> Vec<&'a Value> {
    match value {
        Value::Array(elements) => elements.iter().flat_map(|element| below(element, member)).collect(),
        other => other.get(member).into_iter().collect(),
    }
}

fn first<'a>(record: &'a Value, name: &str) -> Option<&'a Value> {
    values(record, name).into_iter().next()
}

/// What is not there comes first, then numbers, then texts.
fn compared(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (None, None) => text(a).cmp(&text(b)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        },
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// A member against the text of a filter: as numbers if both are, as times if the text is one, else as texts.
fn against(found: &Value, value: &str) -> Option<Ordering> {
    if let Some(found) = number(found) {
        let value = value.parse().ok().or_else(|| seconds(value))?;
        return found.partial_cmp(&value);
    }
    Some(text(found).as_str().cmp(value))
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// Of `YYYY-mm-ddTHH:MM:SS`, in UTC unless it says otherwise.
fn seconds(text: &str) -> Option<f64> {
    let zoned = text.parse::<jiff::Timestamp>().ok();
    let plain = || jiff::tz::Offset::UTC.to_timestamp(text.parse::<jiff::civil::DateTime>().ok()?).ok();
    Some(zoned.or_else(plain)?.as_millisecond() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Value {
        json!({
            "TrainingJobName": "a", "TrainingJobStatus": "Completed", "CreationTime": 1_700_000_000.5,
            "HyperParameters": {"k": "10", "with.dot": "x"},
            "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.25}],
            "Tags": [{"Key": "team", "Value": "blue"}],
            "InputDataConfig": [
                {"ChannelName": "in", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/one"}}},
                {"ChannelName": "other", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/two"}}},
            ],
        })
    }

    fn fits(expression: Value) -> bool {
        let expression: Expression = serde_json::from_value(expression).unwrap();
        expression.check().unwrap();
        expression.fits(&record())
    }

    fn filter(name: &str, operator: &str, value: Option<&str>) -> Value {
        let mut filter = json!({"Name": name, "Operator": operator});
        if let Some(value) = value {
            filter["Value"] = json!(value);
        }
        filter
    }

    #[test]
    fn numbers_come_before_texts_so_that_there_is_one_order_of_all() {
        let values = [None, Some(json!("9")), Some(json!(10)), Some(json!("1a")), Some(json!("b"))];
        for (at, a) in values.iter().enumerate() {
            for (other, b) in values.iter().enumerate() {
                assert_eq!(compared(a.as_ref(), b.as_ref()), at.cmp(&other), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn every_operator_is_what_its_name_says() {
        let table = [
            ("TrainingJobStatus", "Equals", Some("Completed"), true),
            ("TrainingJobStatus", "NotEquals", Some("Completed"), false),
            ("TrainingJobStatus", "In", Some("Failed, Completed"), true),
            ("TrainingJobStatus", "Contains", Some("omple"), true),
            ("FailureReason", "Exists", None, false),
            ("FailureReason", "NotExists", None, true),
            ("FailureReason", "NotEquals", Some("x"), true),
            ("HyperParameters.k", "GreaterThan", Some("9"), true),
            ("HyperParameters.k", "LessThan", Some("9"), false),
            ("HyperParameters.with.dot", "Equals", Some("x"), true),
            ("Metrics.loss", "LessThanOrEqualTo", Some("0.25"), true),
            ("Metrics.loss", "GreaterThan", Some("1e-1"), true),
            ("Tags.team", "Equals", Some("blue"), true),
            ("CreationTime", "GreaterThan", Some("2023-11-14T22:13:20"), true),
            ("CreationTime", "GreaterThanOrEqualTo", Some("2023-11-14T22:13:21"), false),
            ("CreationTime", "LessThan", Some("no time"), false),
            ("InputDataConfig.ChannelName", "Equals", Some("other"), true),
        ];
        for (name, operator, value, expected) in table {
            assert_eq!(
                fits(json!({"Filters": [filter(name, operator, value)]})),
                expected,
                "{name} {operator} {value:?}"
            );
        }
    }

    #[test]
    fn expressions_are_joined_and_nested_filters_mean_one_element() {
        let (yes, no) =
            (filter("TrainingJobName", "Equals", Some("a")), filter("TrainingJobName", "Equals", Some("b")));
        assert!(!fits(json!({"Filters": [yes, no]})));
        assert!(fits(json!({"Filters": [yes, no], "Operator": "Or"})));
        assert!(fits(json!({"SubExpressions": [{"Filters": [no]}, {"Filters": [yes]}], "Operator": "Or"})));
        assert!(fits(json!({})));
        let nested = |uri: &str| {
            let filters = [
                filter("InputDataConfig.ChannelName", "Equals", Some("in")),
                filter("InputDataConfig.DataSource.S3DataSource.S3Uri", "Equals", Some(uri)),
            ];
            fits(json!({"NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": filters}]}))
        };
        assert!(nested("s3://b/one"));
        assert!(!nested("s3://b/two"), "that is the uri of another channel");
    }

    #[test]
    fn what_can_not_be_understood_is_refused_with_its_name() {
        let refused = |expression: Value| {
            let expression: Expression = serde_json::from_value(expression).unwrap();
            expression.check().unwrap_err().message
        };
        assert!(refused(json!({"Filters": [filter("X", "Like", Some("a"))]})).contains("Like"));
        assert!(refused(json!({"Filters": [filter("X", "Equals", None)]})).contains("no Value"));
        assert!(refused(json!({"Filters": [filter("X", "Exists", Some("a"))]})).contains("no Value"));
        assert!(refused(json!({"SubExpressions": [{"Operator": "Xor"}]})).contains("Xor"));
        let contains = filter("X", "Contains", Some("a"));
        assert_eq!(
            refused(json!({"Filters": [contains, contains]})),
            "'CONTAINS' operator usage limit of 1 exceeded."
        );
        let many = vec![filter("X", "Exists", None); 51];
        assert!(refused(json!({"Filters": many})).contains("50"));
    }
}
