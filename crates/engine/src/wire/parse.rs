//! From the text of a request to the request, with the place of whatever is wrong.

use std::fmt;

use serde_json::Deserializer;
use serde_json::error::Category;

use super::request::CreateTrainingJobRequest;

/// Why a text is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not JSON.
    #[error("line {line}, column {column}: not JSON: {what}")]
    Syntax {
        /// Line of the mistake, from 1.
        line: usize,
        /// Column of the mistake in bytes, from 1.
        column: usize,
        /// What was found, and what belongs there.
        what: String,
    },
    /// The text is JSON, but not this request: a member that does not exist, or a value of another type.
    #[error("line {line}, column {column}: {}{what}", Named(member))]
    Member {
        /// Line of the mistake, from 1.
        line: usize,
        /// Column of the mistake in bytes, from 1.
        column: usize,
        /// Path of the member, such as `InputDataConfig[0].ChannelName`; `.` is the request itself.
        member: String,
        /// What was found, and what belongs there.
        what: String,
    },
}

/// A path before its message; the request as a whole needs none.
struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        if self.0 == "." { Ok(()) } else { write!(formatter, "{}: ", self.0) }
    }
}

/// Reads a request out of JSON text.
///
/// # Errors
///
/// Fails where the text is not JSON, or has a member that the request does not know, or a value of a
/// type that the member does not have; limits and rules are not looked at here.
pub fn parse_json(text: &str) -> Result<CreateTrainingJobRequest, ParseError> {
    // Editors of some systems put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut source = Deserializer::from_str(text);
    let request = serde_path_to_error::deserialize(&mut source)
        .map_err(|error| describe(error.inner(), &error.path().to_string()))?;
    source.end().map_err(|error| describe(&error, "."))?;
    Ok(request)
}

fn describe(error: &serde_json::Error, member: &str) -> ParseError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let what = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    // An empty text, or one that ends with a line, has its mistake before the first column.
    let column = column.max(1);
    match error.classify() {
        Category::Data => ParseError::Member { line, column, member: member.to_owned(), what: explain(what) },
        Category::Syntax | Category::Eof | Category::Io => {
            ParseError::Syntax { line, column, what: explain(what) }
        }
    }
}

/// Puts the words of a Rust reader into those of a person who wrote a JSON file.
fn explain(what: &str) -> String {
    what.replace("expected i64", "expected a whole number")
        .replace("a sequence", "a list")
        .replace("type: sequence", "type: list")
        .replace("type: map", "type: object")
        .replace("unit value", "null")
        .replace("EOF while parsing", "the text ends within")
}
