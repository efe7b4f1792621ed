//! Checks a request against the limits of each of its members, one at a time.
//!
//! The limits are a table ([`super::model`]) that this walks beside the request, so that every member
//! is checked in the same way and reported with the same words.

use serde_json::{Map, Value};

use super::pattern::Pattern;
use super::{Conflict, Rule, Violation, model};
use crate::wire::CreateTrainingJobRequest;

/// What a member may hold. Its type has been settled by the parser.
pub(super) enum Shape {
    /// A text with limits.
    Text(&'static Text),
    /// One word of a set.
    Word(&'static [&'static str]),
    /// A whole number from the first to the second.
    Number(i64, i64),
    /// True or false, or a number without limits.
    Free,
    /// A list of texts.
    Texts(Size, &'static Text),
    /// A list of structures.
    Structures(Size, &'static [Member]),
    /// A map of texts.
    Map(&'static Entries),
    /// Members of its own.
    Structure(&'static [Member]),
}

/// One member of a structure.
pub(super) struct Member {
    /// Its name in a request.
    pub(super) name: &'static str,
    /// Whether it has to be there.
    pub(super) required: bool,
    /// What it may hold.
    pub(super) shape: Shape,
}

/// Fewest and most characters, or entries.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) min: usize,
    pub(super) max: usize,
}

/// Limits of a text: characters, and the pattern of the whole.
pub(super) struct Text {
    pub(super) size: Size,
    pub(super) pattern: Option<&'static Pattern>,
}

/// Limits of a map of texts.
pub(super) struct Entries {
    pub(super) max: usize,
    pub(super) keys: &'static Text,
    pub(super) values: &'static Text,
    /// Whether the values may be secret, so that no message repeats them.
    pub(super) secret: bool,
}

/// All limits that a request breaks, in the order of the API's members.
pub(super) fn violations(request: &CreateTrainingJobRequest) -> Vec<Violation> {
    let mut walk = Walk::default();
    // A request is maps with text keys, lists and scalars, all of which JSON can write.
    if let Ok(Value::Object(members)) = serde_json::to_value(request) {
        walk.structure("", model::REQUEST, &members);
    }
    walk.violations
}

/// The violations found so far.
#[derive(Default)]
struct Walk {
    violations: Vec<Violation>,
}

impl Walk {
    fn broken(&mut self, path: &str, value: &str, rule: Rule) {
        self.violations.push(Violation::broken(path, value, rule));
    }

    fn structure(&mut self, path: &str, members: &[Member], sent: &Map<String, Value>) {
        for member in members {
            let path = join(path, member.name);
            match sent.get(member.name) {
                Some(value) => self.member(&path, &member.shape, value),
                None if member.required => self.violations.push(Violation::missing(path)),
                None => {}
            }
        }
    }

    fn member(&mut self, path: &str, shape: &Shape, value: &Value) {
        match (shape, value) {
            (Shape::Text(limits), Value::String(text)) => self.text(path, limits, text),
            (Shape::Word(words), Value::String(text)) if !words.contains(&text.as_str()) => {
                self.broken(path, text, Rule::OneOf(words));
            }
            (Shape::Number(min, max), Value::Number(number)) => {
                self.number(path, (*min, *max), number.as_i64());
            }
            (Shape::Texts(size, limits), Value::Array(list)) => {
                self.size(path, *size, list.len());
                for (path, text) in elements(path, list) {
                    self.text(&path, limits, text.as_str().unwrap_or_default());
                }
            }
            (Shape::Structures(size, members), Value::Array(list)) => {
                self.size(path, *size, list.len());
                for (path, element) in elements(path, list) {
                    self.member(&path, &Shape::Structure(members), element);
                }
            }
            (Shape::Map(entries), Value::Object(map)) => self.map(path, entries, map),
            (Shape::Structure(members), Value::Object(sent)) => self.structure(path, members, sent),
            _ => {}
        }
    }

    fn text(&mut self, path: &str, limits: &Text, text: &str) {
        for rule in limits.broken_by(text) {
            self.broken(path, text, rule);
        }
    }

    fn number(&mut self, path: &str, (min, max): (i64, i64), number: Option<i64>) {
        match number {
            Some(number) if number < min => self.broken(path, &number.to_string(), Rule::MinValue(min)),
            Some(number) if number > max => self.broken(path, &number.to_string(), Rule::MaxValue(max)),
            _ => {}
        }
    }

    fn size(&mut self, path: &str, size: Size, entries: usize) {
        if let Some(rule) = size.broken_by(entries) {
            let noun = if entries == 1 { "entry" } else { "entries" };
            self.broken(path, &format!("[{entries} {noun}]"), rule);
        }
    }

    fn map(&mut self, path: &str, limits: &Entries, map: &Map<String, Value>) {
        self.size(path, Size { min: 0, max: limits.max }, map.len());
        for (key, value) in map {
            let Value::String(text) = value else {
                self.violations.push(not_a_string(path, key, value));
                continue;
            };
            let entry = format!("{{{key}={}}}", if limits.secret { "…" } else { text });
            if !limits.keys.broken_by(key).is_empty() {
                self.broken(path, &entry, Rule::MapKeys(limits.keys.rules()));
            }
            if !limits.values.broken_by(text).is_empty() {
                self.broken(path, &entry, Rule::MapValues(limits.values.rules()));
            }
        }
    }
}

impl Size {
    fn broken_by(self, count: usize) -> Option<Rule> {
        if count > self.max {
            return Some(Rule::MaxLength(self.max));
        }
        (count < self.min).then_some(Rule::MinLength(self.min))
    }
}

impl Text {
    /// All rules of the text, in the order of Amazon's messages.
    fn rules(&self) -> Vec<Rule> {
        let size = [Rule::MaxLength(self.size.max), Rule::MinLength(self.size.min)];
        size.into_iter().chain(self.pattern.map(|pattern| Rule::Pattern(pattern.shown))).collect()
    }

    fn broken_by(&self, text: &str) -> Vec<Rule> {
        let pattern = self.pattern.filter(|pattern| !pattern.holds(text));
        let pattern = pattern.map(|pattern| Rule::Pattern(pattern.shown));
        pattern.into_iter().chain(self.size.broken_by(text.chars().count())).collect()
    }
}

fn not_a_string(path: &str, key: &str, value: &Value) -> Violation {
    let found = value.to_string();
    let meant = Value::from(found.as_str()).to_string();
    let (member, key) = (path.to_owned(), key.to_owned());
    Conflict::NotAString { member, key, found, meant }.into()
}

/// The elements of a list with their paths, counted from 1 as Amazon does.
fn elements<'a>(path: &str, list: &'a [Value]) -> impl Iterator<Item = (String, &'a Value)> {
    list.iter().enumerate().map(move |(i, element)| (format!("{path}.{}.member", i + 1), element))
}

/// The path of a member: names begin in lower case there.
fn join(path: &str, name: &str) -> String {
    let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
    let separator = if path.is_empty() { "" } else { "." };
    format!("{path}{separator}{}{rest}", first.to_lowercase())
}
