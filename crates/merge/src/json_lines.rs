//! JSONL parts as lines, each checked to be one JSON object.

use std::io::{BufRead, BufReader, Read};

use fs_err as fs;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::csv_part::RECORD_LIMIT;
use crate::error::{MergeError, PartError};
use crate::number::Number;
use crate::part::Part;

/// An open part.
pub(crate) struct JsonLines<'a> {
    part: &'a Part,
    reader: BufReader<fs::File>,
    line: Vec<u8>,
    /// The line read last, from 1.
    number: u64,
}

impl<'a> JsonLines<'a> {
    pub(crate) fn open(part: &'a Part) -> Result<Self, MergeError> {
        let file = fs::File::open(&part.file).map_err(|source| part.fault(source))?;
        let reader = BufReader::with_capacity(64 << 10, file);
        Ok(Self { part, reader, line: Vec::new(), number: 0 })
    }

    /// Reads the next line that is not blank into [`Self::text`]; `false` at the end.
    pub(crate) fn next(&mut self) -> Result<bool, MergeError> {
        loop {
            self.line.clear();
            self.number += 1;
            let mut bounded = self.reader.by_ref().take(RECORD_LIMIT + 1);
            let count =
                bounded.read_until(b'\n', &mut self.line).map_err(|source| self.part.fault(source))?;
            if count as u64 > RECORD_LIMIT {
                return Err(self.fault(PartError::RecordTooLong { line: self.number, limit: RECORD_LIMIT }));
            }
            if count == 0 {
                return Ok(false);
            }
            if std::str::from_utf8(&self.line).is_err() {
                return Err(self.fault(PartError::NotUtf8 { line: self.number }));
            }
            if !self.text().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line without what surrounds the object: blanks, the newline, a byte order mark.
    pub(crate) fn text(&self) -> &str {
        let line = std::str::from_utf8(&self.line).unwrap_or_default();
        let line = if self.number == 1 { line.trim_start_matches('\u{feff}') } else { line };
        line.trim_matches([' ', '\t', '\r', '\n'])
    }

    /// Checks that the line is an object, and returns its value at `column`.
    pub(crate) fn value_at(&self, column: Option<&str>) -> Result<Option<Value>, MergeError> {
        let mut json = serde_json::Deserializer::from_str(self.text());
        let value = ValueAt(column).deserialize(&mut json).and_then(|value| json.end().map(|()| value));
        value.map_err(|source| self.bad(source))
    }

    /// The whole line as an object.
    pub(crate) fn object(&self) -> Result<serde_json::Map<String, Value>, MergeError> {
        serde_json::from_str(self.text()).map_err(|source| self.bad(source))
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn fault(&self, source: PartError) -> MergeError {
        self.part.fault(source)
    }

    fn bad(&self, source: serde_json::Error) -> MergeError {
        self.fault(PartError::Json { line: self.number, source })
    }
}

/// The key of a JSON value: truth values, then numbers, then text, then null and nothing. `None` if it has no order.
pub(crate) fn key_of(value: Option<&Value>) -> Option<Vec<u8>> {
    Some(match value {
        None | Some(Value::Null) => vec![3],
        Some(Value::Bool(value)) => vec![0, u8::from(*value)],
        Some(Value::Number(number)) => {
            let mut key = vec![1];
            Number::parse(number.to_string().as_bytes())?.push_key(&mut key);
            key
        }
        Some(Value::String(text)) => [&[2], text.as_bytes()].concat(),
        Some(Value::Array(_) | Value::Object(_)) => return None,
    })
}

/// Reads an object for the value of one key, and skips the rest unseen.
struct ValueAt<'a>(Option<&'a str>);

impl<'de> DeserializeSeed<'de> for ValueAt<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ValueAt<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if Some(name.as_str()) == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
