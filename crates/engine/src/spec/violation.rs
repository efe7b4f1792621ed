//! What is wrong with a request, in Amazon's words.

use std::fmt;

use super::Conflict;

/// All that is wrong with a request; never empty.
///
/// Shown, it is the one text that Amazon answers with; the violations themselves, one a line for a
/// person, are in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl std::error::Error for Violations {}

impl fmt::Display for Violations {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self.0.as_slice() {
            // Amazon counts broken constraints only; a conflict between members is a sentence of its own.
            [Violation::Conflict(conflict)] => return write!(formatter, "{conflict}"),
            [_] => formatter.write_str("1 validation error detected: ")?,
            several => write!(formatter, "{} validation errors detected: ", several.len())?,
        }
        for (i, violation) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(formatter, "{separator}{violation}")?;
        }
        Ok(())
    }
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = std::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Violations {
    type Item = Violation;
    type IntoIter = std::vec::IntoIter<Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// One value breaks a rule of its own member.
    #[error("Value {} at '{member}' failed to satisfy constraint: {rule}", Quoted(value.as_deref()))]
    Constraint {
        /// Path of the member as Amazon writes it, such as `inputDataConfig.1.member.channelName`.
        member: String,
        /// The value as it is shown: shortened if it is long, absent if there is none.
        value: Option<String>,
        /// The rule.
        rule: Rule,
    },
    /// Members do not go together.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

impl Violation {
    /// A required member is missing.
    pub(super) fn missing(member: impl Into<String>) -> Self {
        Self::Constraint { member: member.into(), value: None, rule: Rule::NotNull }
    }

    /// A value breaks a rule.
    pub(super) fn broken(member: impl Into<String>, value: &str, rule: Rule) -> Self {
        Self::Constraint { member: member.into(), value: Some(shown(value)), rule }
    }
}

/// A value between quotes; without them where there is none.
struct Quoted<'a>(Option<&'a str>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Some(value) => write!(formatter, "'{value}'"),
            None => formatter.write_str("null"),
        }
    }
}

/// Most characters of a value that a message repeats.
const SHOWN: usize = 300;

/// A value as a message repeats it: on one line, without control characters, and not without end.
fn shown(value: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let mut text: String = value.chars().take(SHOWN).map(plain).collect();
    if value.chars().nth(SHOWN).is_some() {
        text.push('…');
    }
    text
}

/// A rule of one member, in Amazon's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// It has to be there.
    #[error("Member must not be null")]
    NotNull,
    /// Most characters of a text, or entries of a list or map.
    #[error("Member must have length less than or equal to {0}")]
    MaxLength(usize),
    /// Fewest characters of a text, or entries of a list or map.
    #[error("Member must have length greater than or equal to {0}")]
    MinLength(usize),
    /// Highest number.
    #[error("Member must have value less than or equal to {0}")]
    MaxValue(i64),
    /// Lowest number.
    #[error("Member must have value greater than or equal to {0}")]
    MinValue(i64),
    /// Pattern of the whole text.
    #[error("Member must satisfy regular expression pattern: {0}")]
    Pattern(&'static str),
    /// The only words, or numbers, allowed.
    #[error("Member must satisfy enum value set: [{}]", .0.join(", "))]
    OneOf(&'static [&'static str]),
    /// All rules of the keys of a map, at least one of them broken.
    #[error("Map keys must satisfy constraint: [{}]", listed(.0))]
    MapKeys(Vec<Rule>),
    /// All rules of the values of a map, at least one of them broken.
    #[error("Map value must satisfy constraint: [{}]", listed(.0))]
    MapValues(Vec<Rule>),
}

fn listed(rules: &[Rule]) -> String {
    rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(", ")
}
