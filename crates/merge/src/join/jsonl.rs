//! JSONL parts into a JSONL file: every line is checked to be an object and kept as it is.

use super::{Joining, Tally};
use crate::error::MergeError;
use crate::json_lines::{JsonLines, key_of};
use crate::options::Order;
use crate::order::{Rows, Want, in_order};
use crate::part::Part;
use crate::report::NAMES_SHOWN;
use crate::scratch::Writing;

pub(super) fn join(joining: &Joining<'_>, order: &Order) -> Result<u64, MergeError> {
    let mut writing = joining.scratch.result()?;
    let mut tally = Tally::new(joining);
    match order {
        Order::Host => by_host(joining, &mut writing, &mut tally)?,
        Order::Column(column) => {
            check_column(joining.parts, column)?;
            in_order(joining, &|part, want| rows(part, column, want), &mut |line| {
                tally.add_rows(1);
                writing.put(line)
            })?;
        }
    }
    writing.finish()?;
    Ok(tally.finish(joining.parts.len()))
}

fn by_host(joining: &Joining<'_>, writing: &mut Writing, tally: &mut Tally<'_>) -> Result<(), MergeError> {
    for part in joining.parts {
        let mut lines = JsonLines::open(part)?;
        while lines.next()? {
            lines.value_at(None)?;
            writing.put(lines.text().as_bytes())?;
            writing.put(b"\n")?;
            tally.add_rows(1);
        }
        tally.finish_part();
    }
    Ok(())
}

/// A part's lines with their keys.
fn rows<'a>(part: &'a Part, column: &'a str, want: Want) -> Result<Rows<'a>, MergeError> {
    let mut lines = JsonLines::open(part)?;
    let mut body = Vec::new();
    Ok(Box::new(move |block| {
        while !block.is_full() && lines.next()? {
            let value = lines.value_at(Some(column))?;
            let key = key_of(value.as_ref()).ok_or_else(|| MergeError::NoOrder {
                column: column.to_owned(),
                column_type: if value.is_some_and(|value| value.is_array()) { "array" } else { "object" }
                    .to_owned(),
            })?;
            body.clear();
            if want == Want::Rows {
                body.extend_from_slice(lines.text().as_bytes());
                body.push(b'\n');
            }
            block.push(&key, &body);
        }
        Ok(())
    }))
}

/// Looks for the first line that has the column: in a sound file that is the first of all.
fn check_column(parts: &[Part], column: &str) -> Result<(), MergeError> {
    let mut columns: Option<Vec<String>> = None;
    for part in parts {
        let mut lines = JsonLines::open(part)?;
        while lines.next()? {
            if lines.value_at(Some(column))?.is_some() {
                return Ok(());
            }
            if columns.is_none() {
                columns = Some(lines.object()?.into_iter().map(|(name, _)| name).take(NAMES_SHOWN).collect());
            }
        }
    }
    match columns {
        Some(columns) => Err(MergeError::NoColumn { column: column.to_owned(), columns }),
        None => Ok(()),
    }
}
