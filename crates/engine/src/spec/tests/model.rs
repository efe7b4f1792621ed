//! Amazon's model of the request, and values made from it.
//!
//! `model.json` is an extract of botocore's service model, made by `extract_model.py` beside it.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

static MODEL: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(include_str!("model.json")).unwrap());

/// The root of the model.
pub(super) const REQUEST: &str = "CreateTrainingJobRequest";

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A member of a structure, and whether it has to be there.
    Member(&'static str, bool),
    /// The first element of a list.
    Element,
    /// The first key of a map.
    Key,
    /// The first value of a map.
    Value,
}

/// A place in a request, and the shape of what may stand there.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// The way from the root.
    pub(super) path: Vec<Step>,
    /// Name of the shape.
    pub(super) shape: &'static str,
}

/// A shape of the model by its name.
pub(super) fn shape(name: &str) -> &'static Value {
    &MODEL["shapes"][name]
}

/// A limit of a shape, or another number of it.
pub(super) fn limit(name: &str, key: &str) -> Option<i64> {
    shape(name)[key].as_i64()
}

fn name(value: &'static Value) -> &'static str {
    value.as_str().unwrap()
}

fn members(structure: &str) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    let members = shape(structure)["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| (name(&member["name"]), name(&member["shape"]), member["required"].as_bool().unwrap()))
}

/// Every place of the request, at any depth.
pub(super) fn slots() -> Vec<Slot> {
    let mut found = Vec::new();
    add_slots(&Slot { path: Vec::new(), shape: REQUEST }, &mut found);
    found
}

fn add_slots(parent: &Slot, found: &mut Vec<Slot>) {
    let described = shape(parent.shape);
    let parts: Vec<(Step, &'static str)> = match name(&described["type"]) {
        "structure" => {
            let step = |(member, shape, required)| (Step::Member(member, required), shape);
            members(parent.shape).map(step).collect()
        }
        "list" => vec![(Step::Element, name(&described["member"]))],
        "map" => vec![(Step::Key, name(&described["key"])), (Step::Value, name(&described["value"]))],
        _ => Vec::new(),
    };
    for (step, shape) in parts {
        let slot = Slot { path: [parent.path.clone(), vec![step]].concat(), shape };
        found.push(slot.clone());
        add_slots(&slot, found);
    }
}

impl Slot {
    /// The path as Amazon's messages have it; a map stands for its keys and values.
    pub(super) fn in_messages(&self) -> String {
        let parts = self.path.iter().filter_map(|step| match step {
            Step::Member(name, _) => Some(format!("{}{}", name[..1].to_lowercase(), &name[1..])),
            Step::Element => Some("1.member".to_owned()),
            Step::Key | Step::Value => None,
        });
        parts.collect::<Vec<_>>().join(".")
    }

    /// The path by its members alone, such as `InputDataConfig.ChannelName`.
    pub(super) fn members(&self) -> String {
        let name = |step: &Step| if let Step::Member(name, _) = step { Some(*name) } else { None };
        self.path.iter().filter_map(name).collect::<Vec<_>>().join(".")
    }

    /// Puts a value in this place of a request, and what has to be around it.
    pub(super) fn put(&self, request: &mut Value, value: Value) {
        put(request, REQUEST, &self.path, value);
    }
}

fn put(into: &mut Value, shape_name: &str, path: &[Step], value: Value) {
    let Some((step, rest)) = path.split_first() else {
        *into = value;
        return;
    };
    if into.is_null() {
        *into = sample(shape_name);
    }
    match step {
        Step::Member(name, _) => {
            let (_, member_shape, _) = members(shape_name).find(|(member, ..)| member == name).unwrap();
            let member = into.as_object_mut().unwrap().entry(*name).or_insert(Value::Null);
            put(member, member_shape, rest, value);
        }
        Step::Element => put(&mut into[0], name(&shape(shape_name)["member"]), rest, value),
        Step::Key => *into = json!({ value.as_str().unwrap(): "value" }),
        Step::Value => *into = json!({ "key": value }),
    }
}

/// The smallest valid value of a shape that is not empty.
pub(super) fn sample(name_of_shape: &str) -> Value {
    let described = shape(name_of_shape);
    match name(&described["type"]) {
        "structure" => {
            let required = members(name_of_shape).filter(|(_, _, required)| *required);
            Value::Object(required.map(|(member, shape, _)| (member.to_owned(), sample(shape))).collect())
        }
        "list" => json!([sample(name(&described["member"]))]),
        "map" => Value::Object(Map::from_iter([("key".to_owned(), json!("value"))])),
        "string" => match described["enum"].get(0) {
            Some(word) => word.clone(),
            None => json!(text(name_of_shape, beginning(name_of_shape).len() + 4)),
        },
        "boolean" => json!(true),
        _ => json!(described["min"].as_i64().unwrap_or(1).max(1)),
    }
}

/// A text of a shape with so many characters; it has the shape's pattern if it is long enough.
pub(super) fn text(shape: &str, length: usize) -> String {
    if shape == "SequenceLength" && length > 0 {
        return format!("{}K", "1".repeat(length - 1));
    }
    beginning(shape).chars().chain(std::iter::repeat('a')).take(length).collect()
}

/// How a text of a shape begins, so that any number of the letter a may follow.
fn beginning(shape: &str) -> &'static str {
    match shape {
        "RoleArn" => "arn:aws:iam::123456789012:role/",
        "ArnOrName" => "arn:aws:sagemaker:eu-west-1:123456789012:algorithm/",
        "TrainingRepositoryCredentialsProviderArn" => "arn:aws:lambda:eu-west-1:123456789012:function:",
        "S3Uri" => "s3://bucket/",
        "FileSystemId" => "fs-0000000",
        "HubDataSetArn" => "arn:aws:sagemaker:eu-west-1:123456789012:hub-content/hub/DataSet/",
        "ServerlessJobBaseModelArn" => "arn:aws:sagemaker:eu-west-1:aws:hub-content/hub/Model/",
        "TrainingPlanArn" => "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/",
        "MlFlowResourceArn" => "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/",
        "ModelPackageGroupArn" => "arn:aws:sagemaker:eu-west-1:123456789012:model-package-group/",
        "ModelPackageArn" => "arn:aws:sagemaker:eu-west-1:123456789012:model-package/",
        _ => "",
    }
}
