//! CSV parts into a CSV file: one header, the records as they are, quoted where they must be.

use csv::ByteRecord;

use super::{Joining, Tally};
use crate::csv_part::{CsvPart, names, shared_header};
use crate::error::MergeError;
use crate::number::Number;
use crate::options::Order;
use crate::order::{Rows, Want, in_order};
use crate::part::Part;
use crate::report::NAMES_SHOWN;
use crate::scratch::Writing;

pub(super) fn join(joining: &Joining<'_>, order: &Order) -> Result<u64, MergeError> {
    let mut writing = joining.scratch.result()?;
    let mut tally = Tally::new(joining);
    // Without any header there are no rows either.
    if let Some((header, _)) = shared_header(joining.parts)? {
        let mut encoder = Encoder::default();
        writing.put(encoder.encode(&header))?;
        match order {
            Order::Host => by_host(joining, &mut encoder, &mut writing, &mut tally)?,
            Order::Column(column) => {
                let key = KeyColumn::find(joining.parts, &header, column)?;
                by_column(joining, key, &mut writing, &mut tally)?;
            }
        }
    }
    writing.finish()?;
    Ok(tally.finish(joining.parts.len()))
}

fn by_host(
    joining: &Joining<'_>,
    encoder: &mut Encoder,
    writing: &mut Writing,
    tally: &mut Tally<'_>,
) -> Result<(), MergeError> {
    let mut record = ByteRecord::new();
    for part in joining.parts {
        let mut csv = CsvPart::open(part)?;
        while csv.next(&mut record)? {
            writing.put(encoder.encode(&record))?;
            tally.add_rows(1);
        }
        tally.finish_part();
    }
    Ok(())
}

fn by_column(
    joining: &Joining<'_>,
    key: KeyColumn,
    writing: &mut Writing,
    tally: &mut Tally<'_>,
) -> Result<(), MergeError> {
    in_order(joining, &|part, want| rows(part, key, want), &mut |line| {
        tally.add_rows(1);
        writing.put(line)
    })
}

/// A part's records with their keys, as lines ready to be written.
fn rows<'a>(part: &'a Part, key: KeyColumn, want: Want) -> Result<Rows<'a>, MergeError> {
    let mut csv = CsvPart::open(part)?;
    let mut encoder = Encoder::default();
    let (mut record, mut bytes) = (ByteRecord::new(), Vec::new());
    Ok(Box::new(move |block| {
        while !block.is_full() && csv.next(&mut record)? {
            bytes.clear();
            key.push(&record, &mut bytes);
            let body = if want == Want::Rows { encoder.encode(&record) } else { &[] };
            block.push(&bytes, body);
        }
        Ok(())
    }))
}

/// The column that orders the records, and how its fields compare.
#[derive(Debug, Clone, Copy)]
struct KeyColumn {
    at: usize,
    /// Every field that is not empty is a number.
    numeric: bool,
}

impl KeyColumn {
    fn find(parts: &[Part], header: &ByteRecord, column: &str) -> Result<Self, MergeError> {
        let at = header.iter().position(|name| name == column.as_bytes()).ok_or_else(|| {
            let columns = names(header).into_iter().take(NAMES_SHOWN).collect();
            MergeError::NoColumn { column: column.to_owned(), columns }
        })?;
        for part in parts {
            let mut csv = CsvPart::open(part)?;
            let mut record = ByteRecord::new();
            while csv.next(&mut record)? {
                let field = record.get(at).unwrap_or_default();
                if !field.is_empty() && Number::parse(field).is_none() {
                    return Ok(Self { at, numeric: false });
                }
            }
        }
        Ok(Self { at, numeric: true })
    }

    fn push(self, record: &ByteRecord, key: &mut Vec<u8>) {
        let field = record.get(self.at).unwrap_or_default();
        key.push(u8::from(field.is_empty()));
        match Number::parse(field).filter(|_| self.numeric) {
            Some(number) => number.push_key(key),
            None => key.extend_from_slice(field),
        }
    }
}

/// Turns records into lines. The writer of the csv crate has no way to hand out one line at a time.
#[derive(Debug, Default)]
struct Encoder {
    line: Vec<u8>,
}

impl Encoder {
    fn encode(&mut self, record: &ByteRecord) -> &[u8] {
        self.line.clear();
        for (i, field) in record.iter().enumerate() {
            if i > 0 {
                self.line.push(b',');
            }
            // A lone empty field would read back as a blank line.
            self.field(field, record.len() == 1 && field.is_empty());
        }
        self.line.push(b'\n');
        &self.line
    }

    fn field(&mut self, field: &[u8], lone: bool) {
        if !lone && !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n')) {
            return self.line.extend_from_slice(field);
        }
        self.line.push(b'"');
        for &byte in field {
            self.line.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
        }
        self.line.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_is_what_the_csv_crate_writes(
            fields in prop::collection::vec(prop::collection::vec(prop::sample::select(b"a,\"\r\n \xff;".to_vec()), 0..6), 1..5)
        ) {
            let record = ByteRecord::from(fields);
            let mut expected = csv::Writer::from_writer(Vec::new());
            expected.write_byte_record(&record).unwrap();
            let mut encoder = Encoder::default();
            prop_assert_eq!(encoder.encode(&record), expected.into_inner().unwrap());
        }
    }
}
