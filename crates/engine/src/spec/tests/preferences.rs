//! The promises of `InstancePreferences`.

use serde_json::{Value, json};

use super::{merge, patched, request, spec, wrong};

/// What is wrong with preferred types, and with what else a patch gives.
fn found(preferences: &Value, patch: &Value) -> Vec<String> {
    wrong(&preferring(preferences, patch))
}

fn preferring(preferences: &Value, patch: &Value) -> Value {
    let resources = json!({"InstanceType": null, "InstanceCount": null, "InstancePreferences": preferences});
    let mut whole = json!({"ResourceConfig": resources});
    merge_keeping_null(&mut whole["ResourceConfig"], &patch["ResourceConfig"]);
    if let Some(spot) = patch.get("EnableManagedSpotTraining") {
        whole["EnableManagedSpotTraining"] = spot.clone();
        whole["StoppingCondition"] = json!({"MaxWaitTimeInSeconds": 86_400});
    }
    whole
}

fn merge_keeping_null(into: &mut Value, patch: &Value) {
    for (name, value) in patch.as_object().into_iter().flatten() {
        into[name] = value.clone();
    }
}

fn one(instance_type: &str, count: u32) -> Value {
    json!({"InstanceType": instance_type, "InstanceCount": count})
}

#[test]
fn the_first_of_the_preferred_types_is_taken() {
    let taken = |preferences: Value, patch: Value| {
        let mut group = spec(&patched(&preferring(&preferences, &patch))).unwrap().resources.groups;
        assert_eq!(group.len(), 1);
        let group = group.remove(0);
        (group.instance_type, group.count)
    };
    let each = json!([one("ml.m8i.large", 3), one("local", 2)]);
    assert_eq!(taken(each, json!({})), ("ml.m8i.large".to_owned(), 3));
    let for_all = json!([{"InstanceType": "local"}, {"InstanceType": "ml.m8i.large"}]);
    let count = json!({"ResourceConfig": {"InstanceCount": 5}});
    assert_eq!(taken(for_all, count), ("local".to_owned(), 5));
}

#[test]
fn each_preferred_type_has_a_count_or_the_job_one_for_all() {
    let counts = "ResourceConfig.InstancePreferences: give InstanceCount either in each of them, or once in ResourceConfig";
    let each = json!([one("local", 1), one("ml.m5.large", 2)]);
    let none = json!([{"InstanceType": "local"}, {"InstanceType": "ml.m5.large"}]);
    let some = json!([{"InstanceType": "local"}, one("ml.m5.large", 2)]);
    let for_all = json!({"ResourceConfig": {"InstanceCount": 3}});
    assert_eq!(found(&each, &json!({})), [""; 0]);
    assert_eq!(found(&none, &for_all), [""; 0]);
    for (preferences, patch) in
        [(&each, &for_all), (&none, &json!({})), (&some, &json!({})), (&some, &for_all)]
    {
        assert_eq!(found(preferences, patch), [counts], "{preferences} {patch}");
    }
}

#[test]
fn preferred_types_are_different_and_few_enough() {
    assert_eq!(
        found(&json!([one("local", 1), one("local", 2)]), &json!({})),
        [
            "InstanceType 'local' is given more than once in ResourceConfig.InstancePreferences: each must be unique"
        ]
    );
    let many = found(&json!([one("local", 10_001), one("ml.m5.large", 1)]), &json!({}));
    assert_eq!(many, ["ResourceConfig asks for 10001 instances: a job has at most 10000"]);
}

#[test]
fn preferred_types_exclude_what_says_the_same_in_another_way() {
    let two = json!([one("local", 1), one("ml.m5.large", 2)]);
    let group = json!({"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": "g"});
    for (beside, patch) in [
        ("InstanceType", json!({"ResourceConfig": {"InstanceType": "local"}})),
        ("InstanceGroups", json!({"ResourceConfig": {"InstanceGroups": [group]}})),
        ("InstancePlacementConfig", json!({"ResourceConfig": {"InstancePlacementConfig": {}}})),
        ("EnableManagedSpotTraining", json!({"EnableManagedSpotTraining": true})),
    ] {
        let text = format!(
            "ResourceConfig has InstancePreferences, which do not go together with {beside}: leave out one of them"
        );
        assert_eq!(found(&two, &patch), [text]);
    }
    let plan = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/plan";
    let planned = json!([{"InstanceType": "local", "InstanceCount": 1, "TrainingPlanArns": [plan]}]);
    assert_eq!(
        found(&planned, &json!({"ResourceConfig": {"TrainingPlanArn": plan}})),
        [
            "ResourceConfig has TrainingPlanArn, and InstancePreferences with TrainingPlanArns: leave out one of them"
        ]
    );
}

#[test]
fn a_disk_of_any_preferred_type_takes_no_key() {
    let patch = json!({"ResourceConfig": {"VolumeKmsKeyId": "key"}});
    let found = found(&json!([one("ml.m5.large", 1), one("ml.g7.2xlarge", 1)]), &patch);
    assert!(found[0].contains("ml.g7.2xlarge"), "{found:?}");
}

#[test]
fn what_amazon_tells_of_its_choice_is_no_part_of_a_request() {
    let mut sent = request();
    merge(
        &mut sent,
        &json!({"ResourceConfig": {"SelectedInstanceType": "local", "SelectedInstanceCount": 1}}),
    );
    let refused = crate::spec::unsupported(&spec(&sent).unwrap(), &crate::spec::Capabilities::none());
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let why = "not supported in a request: DescribeTrainingJob tells it";
    let member = |name: &str| format!("ResourceConfig.{name}: {why}");
    assert_eq!(refused, [member("SelectedInstanceType"), member("SelectedInstanceCount")]);
}
