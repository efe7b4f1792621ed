//! Manifests of channels: which objects there are, and which attributes of which lines.

use std::io::{self, BufRead};

use serde_json::{Map, Value};

use crate::spec::{ObjectUri, UriError};

/// Most bytes of a manifest: it is held in memory, and its entries once for each host.
pub(crate) const LIMIT: u64 = 256 << 20;

/// How the name of an attribute ends whose value is the URI of an object that is sent.
const REFERENCE: &str = "-ref";

/// A manifest that can't be used. Lines and elements are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It can't be read.
    #[error("can't be read")]
    Read(#[source] io::Error),
    /// It is no JSON.
    #[error("line {line}, column {column}: {what}")]
    Json {
        /// Of the file.
        line: usize,
        /// In bytes.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// It is something else than a list with a prefix.
    #[error(
        "the manifest must be a list whose first element is {{\"prefix\": \"s3://BUCKET/…\"}}, but {found} stands there"
    )]
    NoPrefix {
        /// What there is instead.
        found: String,
    },
    /// The prefix is no URI.
    #[error("the prefix: {0}")]
    Prefix(#[source] UriError),
    /// An element is no string.
    #[error("element {number}: {found} is not a string")]
    NotAString {
        /// Of the list.
        number: usize,
        /// As JSON.
        found: String,
    },
    /// An element leads out of the bucket of the prefix.
    #[error("element {number}: {uri} is not in the bucket of the prefix {prefix}")]
    OtherBucket {
        /// Of the list.
        number: usize,
        /// Prefix and element.
        uri: String,
        /// The prefix.
        prefix: String,
    },
    /// It names nothing.
    #[error("the manifest names no object")]
    Empty,
    /// A line is no object.
    #[error("line {line}: {found} is not a JSON object")]
    NotAnObject {
        /// Of the file.
        line: usize,
        /// As JSON.
        found: String,
    },
    /// A line lacks an attribute.
    #[error("line {line}: there is no attribute {name:?}, which AttributeNames asks for; there are {there}")]
    NoAttribute {
        /// Of the file.
        line: usize,
        /// The attribute.
        name: String,
        /// Those that are there.
        there: String,
    },
    /// A reference is no URI.
    #[error("line {line}: the value of {name:?} must be the S3 URI of an object, but it is {found}")]
    Reference {
        /// Of the file.
        line: usize,
        /// The attribute.
        name: String,
        /// As JSON.
        found: String,
    },
}

/// The objects that a manifest file names.
#[derive(Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What all of them begin with.
    pub prefix: ObjectUri,
    /// In the order of the file.
    pub objects: Vec<ObjectUri>,
}

/// Reads a manifest file: `[{"prefix": "s3://bucket/some/"}, "a", "b/c"]`. Prefix and name are joined as they are.
///
/// # Errors
///
/// It is no such list, names nothing, or leads out of the bucket of its prefix.
pub fn objects(text: &[u8]) -> Result<Manifest, ManifestError> {
    let value: Value = serde_json::from_slice(text).map_err(|error| json(&error, error.line()))?;
    let Value::Array(elements) = value else {
        return Err(ManifestError::NoPrefix { found: shown(&value) });
    };
    let prefix = match elements.first() {
        Some(Value::Object(first)) if first.len() == 1 => first.get("prefix").and_then(Value::as_str),
        _ => None,
    };
    let Some(text) = prefix.filter(|prefix| !prefix.is_empty()) else {
        let found = elements.first().map_or_else(|| "nothing".to_owned(), shown);
        return Err(ManifestError::NoPrefix { found });
    };
    let prefix = ObjectUri::parse(text).map_err(ManifestError::Prefix)?;
    let objects = elements.iter().enumerate().skip(1);
    let objects = objects.map(|(index, element)| {
        let number = index + 1;
        let name = element.as_str();
        let name = name.ok_or_else(|| ManifestError::NotAString { number, found: shown(element) })?;
        let uri = [text, name].concat();
        match ObjectUri::parse(&uri) {
            Ok(object) if object.bucket() == prefix.bucket() => Ok(object),
            _ => Err(ManifestError::OtherBucket { number, uri, prefix: text.to_owned() }),
        }
    });
    let objects = objects.collect::<Result<Vec<_>, _>>()?;
    if objects.is_empty() { Err(ManifestError::Empty) } else { Ok(Manifest { prefix, objects }) }
}

/// The value of an attribute.
#[derive(Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text, or another value as JSON.
    Text(String),
    /// Of an object that is sent in its place.
    Reference(ObjectUri),
}

/// One line of an augmented manifest: where it stands, and the attributes that were asked for, in that order.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Of the file, from 1.
    pub number: usize,
    /// In the order of the names.
    pub attributes: Vec<Attribute>,
}

/// Reads an augmented manifest: JSON objects, one a line. Empty lines are passed over.
///
/// # Errors
///
/// It can't be read, or a line is no object, lacks one of the attributes, or refers to what is no URI.
pub fn lines(text: impl BufRead, names: &[String]) -> Result<Vec<Line>, ManifestError> {
    let mut found = Vec::new();
    for (index, bytes) in text.split(b'\n').enumerate() {
        let (bytes, number) = (bytes.map_err(ManifestError::Read)?, index + 1);
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| json(&error, number))?;
        let Value::Object(members) = value else {
            return Err(ManifestError::NotAnObject { line: number, found: shown(&value) });
        };
        let attributes = names.iter().map(|name| attribute(&members, name, number));
        found.push(Line { number, attributes: attributes.collect::<Result<_, _>>()? });
    }
    if found.is_empty() { Err(ManifestError::Empty) } else { Ok(found) }
}

fn attribute(members: &Map<String, Value>, name: &str, line: usize) -> Result<Attribute, ManifestError> {
    let Some(value) = members.get(name) else {
        let there = members.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(ManifestError::NoAttribute { line, name: name.to_owned(), there });
    };
    if !name.ends_with(REFERENCE) {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        return Ok(Attribute::Text(text));
    }
    let uri = value.as_str().and_then(|text| ObjectUri::parse(text).ok());
    let wrong = || ManifestError::Reference { line, name: name.to_owned(), found: shown(value) };
    uri.map(Attribute::Reference).ok_or_else(wrong)
}

fn json(error: &serde_json::Error, line: usize) -> ManifestError {
    let text = error.to_string();
    // It is repeated in words of our own.
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    ManifestError::Json { line, column: error.column(), what }
}

/// A value as messages repeat it: not without end.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn prefix_and_name_are_joined_as_they_are() {
        let text = br#"[{"prefix": "s3://b/some/pre"}, "fix.csv", "a/b", "/c"]"#;
        let found: Vec<_> = objects(text).unwrap().objects.iter().map(ObjectUri::to_string).collect();
        assert_eq!(found, ["s3://b/some/prefix.csv", "s3://b/some/prea/b", "s3://b/some/pre/c"]);
    }

    #[test]
    fn what_is_wrong_with_a_manifest_is_told_with_its_place() {
        for (text, expected) in [
            ("{\n\"a\": }", "line 2, column 6: expected value"),
            ("{}", "{} stands there"),
            ("[]", "nothing stands there"),
            (r#"["a"]"#, r#""a" stands there"#),
            (r#"[{"prefix": ""}, "a"]"#, r#"{"prefix":""} stands there"#),
            (r#"[{"prefix": "s3://b/", "more": 1}, "a"]"#, "stands there"),
            (r#"[{"prefix": "b/"}, "a"]"#, "the prefix: 'b/' begins neither with s3://"),
            (r#"[{"prefix": "s3://b/"}, "a", 7]"#, "element 3: 7 is not a string"),
            (
                r#"[{"prefix": "s3://b"}, "c/d"]"#,
                "element 2: s3://bc/d is not in the bucket of the prefix s3://b",
            ),
            (r#"[{"prefix": "s3://b/"}]"#, "the manifest names no object"),
        ] {
            let error = objects(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn attributes_come_in_the_order_of_their_names_and_as_their_text() {
        let text = "{\"a\": 1, \"b\": \"x y\", \"c\": {\"d\": [1, null]}, \"e-ref\": \"s3://b/k\", \"f\": 1.5}\n\n{\"f\": true, \
                    \"b\": \"\", \"e-ref\": \"file:///x\"}";
        let found = lines(text.as_bytes(), &names(&["f", "e-ref", "b"])).unwrap();
        let text = |text: &str| Attribute::Text(text.to_owned());
        let reference = |uri: &str| Attribute::Reference(ObjectUri::parse(uri).unwrap());
        let first = Line { number: 1, attributes: vec![text("1.5"), reference("s3://b/k"), text("x y")] };
        let second = Line { number: 3, attributes: vec![text("true"), reference("file:///x"), text("")] };
        assert_eq!(found, [first, second]);
        let found = lines(br#"{"c": {"d": [1, null]}}"#.as_slice(), &names(&["c"])).unwrap();
        assert_eq!(found[0].attributes, [text(r#"{"d":[1,null]}"#)]);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_told_with_its_number() {
        for (text, expected) in [
            ("{\"a-ref\":\"s3://b/k\"}\n{\"a-ref\":}", "line 2, column 10: expected value"),
            ("\n[1]", "line 2: [1] is not a JSON object"),
            (
                "{\"A-ref\":1,\"b\":2}",
                "line 1: there is no attribute \"a-ref\", which AttributeNames asks for; there are A-ref, b",
            ),
            ("{\"a-ref\":5}", "line 1: the value of \"a-ref\" must be the S3 URI of an object, but it is 5"),
            ("{\"a-ref\":\"k\"}", "must be the S3 URI of an object, but it is \"k\""),
            (" \n", "the manifest names no object"),
        ] {
            let error = lines(text.as_bytes(), &names(&["a-ref"])).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_names_are_read_back(keys in prop::collection::vec("[^/\\x00]{1,20}", 1..20)) {
            let mut list = vec![json!({"prefix": "s3://bucket/some/"})];
            list.extend(keys.iter().map(|key| json!(key)));
            let found = objects(Value::Array(list).to_string().as_bytes()).unwrap().objects;
            let found: Vec<_> = found.iter().map(|uri| uri.key().unwrap().to_owned()).collect();
            prop_assert_eq!(found, keys.iter().map(|key| format!("some/{key}")).collect::<Vec<_>>());
        }

        #[test]
        fn any_texts_and_numbers_are_read_back(values in prop::collection::vec((".*", any::<i64>()), 1..20)) {
            let rows = values.iter().map(|(text, number)| json!({"n": number, "t": text}).to_string());
            let text = rows.collect::<Vec<_>>().join("\n");
            let found = lines(text.as_bytes(), &names(&["t", "n"])).unwrap();
            let found: Vec<_> = found.into_iter().map(|line| line.attributes).collect();
            let text = |text: String| Attribute::Text(text);
            let expected: Vec<_> =
                values.into_iter().map(|(words, number)| vec![text(words), text(number.to_string())]).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = objects(&bytes);
            let _ = lines(bytes.as_slice(), &names(&["a-ref"]));
        }
    }
}
