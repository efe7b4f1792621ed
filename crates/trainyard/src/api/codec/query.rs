//! The query protocol: requests are forms, answers XML.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::api::answer::escaped;

/// The fields of a form, in order.
pub(in crate::api) fn form(body: &[u8]) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let text = String::from_utf8_lossy(body);
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(a, b)| (decode(a), decode(b)))
        .collect()
}

/// No request is nearly as deep.
const DEEPEST: usize = 16;

/// The value that the fields of a form describe: `A.member.1.B=x` is `{"A": [{"B": "x"}]}`. All its leaves are texts.
///
/// # Errors
/// A name makes no sense, or two contradict each other.
pub(in crate::api) fn value(form: &[(String, String)]) -> Result<Value, String> {
    let mut root = Value::Object(Map::new());
    for (name, text) in form {
        let wrong = || format!("the field {name:?} does not fit");
        let steps: Vec<&str> = name.split('.').filter(|step| *step != "member").collect();
        if steps.len() > DEEPEST || steps.iter().any(|step| step.is_empty()) {
            return Err(wrong());
        }
        let at = steps
            .iter()
            .try_fold(&mut root, |at, step| Some(at.as_object_mut()?.entry(*step).or_insert_with(empty)));
        let at = at.ok_or_else(wrong)?;
        if *at != empty() {
            return Err(wrong());
        }
        *at = Value::String(text.clone());
    }
    Ok(lists(root))
}

fn empty() -> Value {
    Value::Object(Map::new())
}

/// Members that are named by numbers are the elements of a list, in their order.
fn lists(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let number = |name: &String| name.parse::<u32>().ok();
    if !members.is_empty() && members.keys().all(|name| number(name).is_some()) {
        let mut elements: Vec<_> = members.into_iter().collect();
        elements.sort_by_key(|(name, _)| number(name));
        return elements.into_iter().map(|(_, element)| lists(element)).collect();
    }
    members.into_iter().map(|(name, member)| (name, lists(member))).collect()
}

/// What the names of members say of their values, which the values themselves don't show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::api) struct Names {
    /// Numbers in them are times, in seconds since 1970.
    pub(in crate::api) times: &'static [&'static str],
    /// They are maps and not structures.
    pub(in crate::api) maps: &'static [&'static str],
}

/// A value as the content of an element.
pub(in crate::api) fn xml(value: &Value, names: Names) -> String {
    let mut text = String::new();
    put(&mut text, "", value, names);
    text
}

/// Puts the value of a member of this name.
fn put(text: &mut String, name: &str, value: &Value, names: Names) {
    match value {
        Value::Null => {}
        Value::Number(number) if names.times.contains(&name) => {
            text.push_str(&time(number.as_f64().unwrap_or_default()));
        }
        Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
        Value::String(content) => text.push_str(&escaped(content)),
        Value::Array(elements) => {
            for element in elements {
                put_in(text, "member", |text| put(text, name, element, names));
            }
        }
        Value::Object(members) if names.maps.contains(&name) => {
            for (key, member) in members {
                put_in(text, "entry", |text| {
                    put_in(text, "key", |text| text.push_str(&escaped(key)));
                    put_in(text, "value", |text| put(text, "", member, names));
                });
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                put_in(text, name, |text| put(text, name, member, names));
            }
        }
    }
}

fn put_in(text: &mut String, element: &str, content: impl FnOnce(&mut String)) {
    text.extend(["<", element, ">"]);
    content(text);
    text.extend(["</", element, ">"]);
}

/// Seconds since 1970 as ISO 8601 has them.
fn time(seconds: f64) -> String {
    let milliseconds = (seconds * 1000.0).round() as i64;
    jiff::Timestamp::from_millisecond(milliseconds).map(|at| at.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_form_is_the_value_that_its_names_describe() {
        let form = form(b"Action=A&D.member.2.Name=b&D.member.1.Name=a%20b&S.member.10=z&S.member.9=y&E.F=1");
        assert_eq!(
            value(&form),
            Ok(
                json!({"Action": "A", "D": [{"Name": "a b"}, {"Name": "b"}], "S": ["y", "z"], "E": {"F": "1"}})
            )
        );
    }

    #[test]
    fn names_that_contradict_each_other_or_make_no_sense_are_told() {
        for wrong in ["A=1&A=2", "A=1&A.B=2", "A..B=1", "=1", &"a.".repeat(40)] {
            assert!(value(&form(wrong.as_bytes())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_has_members_for_lists_and_times_as_text() {
        let value = json!({"L": [{"T": 1_700_000_000.5, "N": 1.5}], "S": "a<b", "T": [60], "M": {"p<": 1}});
        assert_eq!(
            xml(&value, Names { times: &["T"], maps: &["M"] }),
            "<L><member><T>2023-11-14T22:13:20.5Z</T><N>1.5</N></member></L><S>a&lt;b</S>\
             <T><member>1970-01-01T00:01:00Z</member></T>\
             <M><entry><key>p&lt;</key><value>1</value></entry></M>"
        );
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_as_a_form_ends_the_endpoint(
            text in "([A-C]|\\.member|\\.[0-9]{1,12}|[.=&%+])*",
            bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            for body in [text.as_bytes(), &bytes] {
                let _ = value(&form(body)).map(|value| xml(&value, Names { times: &["A"], maps: &["B"] }));
            }
        }
    }
}
