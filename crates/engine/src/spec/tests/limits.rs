//! Every limit of Amazon's model, at it and beyond it.

use serde_json::{Value, json};

use super::model::{REQUEST, Slot, Step, limit, sample, shape, slots, text};
use super::parsed;
use crate::spec::{LOCAL_INSTANCE_TYPES, Rule, TRAINING_INSTANCE_TYPES, Violation, pattern};

/// What is wrong with the smallest request of the model when a value stands in one place of it.
fn violations(slot: &Slot, value: Value) -> Vec<Violation> {
    let mut request = sample(REQUEST);
    slot.put(&mut request, value);
    crate::spec::shape::violations(&parsed(&request))
}

/// Whether a rule is among those that one place breaks; a map reports all rules of its keys or values.
fn breaks(slot: &Slot, found: &[Violation], wanted: &Rule) -> bool {
    found.iter().any(|violation| match violation {
        Violation::Constraint { member, rule, .. } if *member == slot.in_messages() => match rule {
            Rule::MapKeys(rules) => slot.path.last() == Some(&Step::Key) && rules.contains(wanted),
            Rule::MapValues(rules) => slot.path.last() == Some(&Step::Value) && rules.contains(wanted),
            rule => rule == wanted,
        },
        _ => false,
    })
}

#[test]
fn a_sample_of_every_member_is_valid() {
    for slot in slots() {
        assert_eq!(violations(&slot, sample(slot.shape)), [], "{slot:?}");
    }
}

#[test]
fn every_text_and_list_is_held_to_its_length() {
    let mut checked = 0;
    for slot in slots() {
        let several = |count: i64| many(&slot, usize::try_from(count).unwrap());
        let size = |key| if sized(&slot) { limit(slot.shape, key) } else { None };
        if let Some(max) = size("max") {
            let rule = Rule::MaxLength(usize::try_from(max).unwrap());
            assert!(!breaks(&slot, &violations(&slot, several(max)), &rule), "at {max}: {slot:?}");
            assert!(breaks(&slot, &violations(&slot, several(max + 1)), &rule), "above {max}: {slot:?}");
            checked += 1;
        }
        if let Some(min) = size("min").filter(|min| *min > 0) {
            let rule = Rule::MinLength(usize::try_from(min).unwrap());
            assert!(!breaks(&slot, &violations(&slot, several(min)), &rule), "at {min}: {slot:?}");
            assert!(breaks(&slot, &violations(&slot, several(min - 1)), &rule), "below {min}: {slot:?}");
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} limits were checked");
}

fn sized(slot: &Slot) -> bool {
    matches!(shape(slot.shape)["type"].as_str(), Some("string" | "list" | "map"))
}

/// A text of so many characters, or a list or map of so many entries.
fn many(slot: &Slot, count: usize) -> Value {
    let described = shape(slot.shape);
    match described["type"].as_str() {
        Some("string") => json!(text(slot.shape, count)),
        Some("list") => vec![sample(described["member"].as_str().unwrap()); count].into(),
        _ => Value::Object((0..count).map(|i| (format!("key{i}"), json!("value"))).collect()),
    }
}

#[test]
fn a_length_counts_characters_and_not_bytes() {
    let name = slots().into_iter().find(|slot| slot.members() == "InputDataConfig.ContentType").unwrap();
    assert_eq!(violations(&name, json!("ä".repeat(256))), []);
    assert!(breaks(&name, &violations(&name, json!("ä".repeat(257))), &Rule::MaxLength(256)));
}

#[test]
fn every_number_is_held_to_its_range() {
    let mut checked = 0;
    for slot in slots().into_iter().filter(|slot| shape(slot.shape)["type"] == "integer") {
        // A group of no instances is allowed by the model only.
        let ours = [
            "ResourceConfig.InstanceGroups.InstanceCount",
            "ResourceConfig.InstancePreferences.InstanceCount",
        ];
        let ours = ours.contains(&slot.members().as_str());
        let min = if ours { 1 } else { limit(slot.shape, "min").unwrap() };
        assert!(!breaks(&slot, &violations(&slot, json!(min)), &Rule::MinValue(min)), "{slot:?}");
        assert!(breaks(&slot, &violations(&slot, json!(min - 1)), &Rule::MinValue(min)), "{slot:?}");
        // The model's integers have 32 bits; the developer guide ends a run after 28 days.
        let run = slot.members() == "StoppingCondition.MaxRuntimeInSeconds";
        let open = if run { 28 * 86_400 } else { i64::from(i32::MAX) };
        let max = limit(slot.shape, "max").unwrap_or(open);
        assert!(!breaks(&slot, &violations(&slot, json!(max)), &Rule::MaxValue(max)), "{slot:?}");
        assert!(breaks(&slot, &violations(&slot, json!(max + 1)), &Rule::MaxValue(max)), "{slot:?}");
        checked += 1;
    }
    assert!(checked > 10, "only {checked} numbers were checked");
}

#[test]
fn every_word_of_the_model_is_allowed_and_no_other() {
    let mut checked = 0;
    for slot in slots() {
        let Some(words) = shape(slot.shape)["enum"].as_array() else { continue };
        for word in words {
            assert_eq!(violations(&slot, word.clone()), [], "{slot:?}");
        }
        let found = violations(&slot, json!("nonsense"));
        let [Violation::Constraint { member, rule: Rule::OneOf(set), .. }] = found.as_slice() else {
            panic!("{slot:?}: {found:?}");
        };
        assert_eq!(*member, slot.in_messages());
        let ours = if slot.shape == "TrainingInstanceType" { LOCAL_INSTANCE_TYPES } else { &[] };
        let expected: Vec<&str> =
            words.iter().map(|word| word.as_str().unwrap()).chain(ours.to_vec()).collect();
        assert_eq!(set.to_vec(), expected, "{slot:?}");
        checked += 1;
    }
    assert!(checked > 15, "only {checked} sets were checked");
}

#[test]
fn every_required_member_is_missed() {
    let mut checked = 0;
    for slot in slots() {
        let Some(Step::Member(name, true)) = slot.path.last() else { continue };
        // Nothing here assumes a role.
        let expected = (*name != "RoleArn").then(|| Violation::missing(slot.in_messages()));
        assert_eq!(violations(&slot, Value::Null), Vec::from_iter(expected), "{slot:?}");
        checked += 1;
    }
    assert!(checked > 40, "only {checked} members were checked");
}

#[test]
fn every_pattern_holds_for_the_whole_text() {
    let mut checked = 0;
    for slot in slots() {
        let Some(pattern) = shape(slot.shape)["pattern"].as_str() else { continue };
        if pattern == r"[\S\s]*" {
            continue;
        }
        let shown = match slot.shape {
            "TrainingJobName" => pattern::JOB_NAME.shown,
            "S3Uri" => pattern::OBJECT_URI.shown,
            _ => pattern,
        };
        let longer = format!("{}\n", sample(slot.shape).as_str().unwrap());
        let found = violations(&slot, json!(longer));
        let patterns = found.iter().flat_map(patterns_of).collect::<Vec<_>>();
        assert_eq!(patterns, [shown], "{slot:?}");
        checked += 1;
    }
    assert!(checked > 60, "only {checked} patterns were checked");
}

fn patterns_of(violation: &Violation) -> Vec<&'static str> {
    let shown = |rule: &Rule| if let Rule::Pattern(shown) = rule { Some(*shown) } else { None };
    match violation {
        Violation::Constraint { rule: Rule::MapKeys(rules) | Rule::MapValues(rules), .. } => {
            rules.iter().filter_map(shown).collect()
        }
        Violation::Constraint { rule, .. } => shown(rule).into_iter().collect(),
        Violation::Conflict(_) => Vec::new(),
    }
}

#[test]
fn patterns_tell_right_from_wrong() {
    let table = [
        (&pattern::JOB_NAME, vec!["a", "A-1", "a--b"], vec!["", "-a", "a-", "a_b", "ä"]),
        (
            &pattern::ROLE_ARN,
            vec!["arn:aws:iam::123456789012:role/x", "arn:aws-cn:iam::123456789012:role/service-role/x"],
            vec!["arn:aws:iam::12345678901:role/x", "arn:aws:iam::123456789012:user/x", "role"],
        ),
        (
            &pattern::ALGORITHM_NAME,
            vec!["a", "a-b", "arn:aws:sagemaker:x:123456789012:algorithm/a"],
            vec!["a-"],
        ),
        (&pattern::CHANNEL_NAME, vec!["train", "a.b-c_d"], vec!["", "a b", "a/b"]),
        (
            &pattern::OBJECT_URI,
            vec!["s3://b", "s3://b/", "s3://b/k//z", "https://h/x", "file:///", "file:///a b"],
            vec![
                "",
                "s3://",
                "s3:///k",
                "S3://b/k",
                "http://h/x",
                "file://a/b",
                "/a",
                "xs3://b",
                "s3://b/\u{2028}",
            ],
        ),
        (&pattern::TAG, vec!["", "Ä 1_.:/=+-@"], vec!["a#b", "a\tb"]),
        (&pattern::VARIABLE_NAME, vec!["A", "_a1"], vec!["", "1A", "A-B"]),
        (&pattern::FILE_SYSTEM_ID, vec!["fs-01234567"], vec!["fs-0123456", "fs-0123456g", "fs-ABCDEF01"]),
        (&pattern::NETWORK_ID, vec!["sg-1"], vec!["", "sg_1"]),
        (
            &pattern::MODEL_ARN,
            vec!["arn:aws:sagemaker:eu-west-1:aws:hub-content/h/Model/m/1.2.3"],
            vec!["arn:aws:sagemaker:eu-west-1:aws:hub-content/h/DataSet/m", "arn:aws:sagemaker:x:aws:y"],
        ),
        (&pattern::ANYTHING, vec!["", "a\nb"], vec![]),
        (&pattern::SOME_LINE, vec!["a"], vec!["", "a\n", "\r"]),
    ];
    for (pattern, right, wrong) in table {
        for text in right {
            assert!(pattern.holds(text), "{} should hold for {text:?}", pattern.shown);
        }
        for text in wrong {
            assert!(!pattern.holds(text), "{} should not hold for {text:?}", pattern.shown);
        }
    }
}

#[test]
fn every_pattern_can_be_read() {
    for pattern in pattern::ALL {
        pattern.holds("");
    }
}

#[test]
fn this_machine_is_a_type_of_instance() {
    let types: Vec<&str> = TRAINING_INSTANCE_TYPES.iter().rev().take(2).copied().collect();
    assert_eq!(types, ["local_gpu", "local"]);
    for instance_type in LOCAL_INSTANCE_TYPES {
        let patch = json!({"ResourceConfig": {"InstanceType": instance_type}});
        assert_eq!(super::wrong(&patch), [""; 0]);
    }
}
