//! Parts whose lists are to be combined: instances that shared out pairs instead of rows have some of the
//! neighbours of a row each.
//!
//! Such a part says so in the metadata of its Parquet file. Its rows are in order, so all parts are read side by
//! side, and what they have of one row is put together: sorted by score and row number, and cut to the length that
//! was asked for. Where each pair is there once, its other half is made here, and brought into order on disk.

mod pair;
mod stream;

use self::pair::{Pair, batch, check_columns};
use self::stream::Streams;
use super::{BATCH_ROWS, Table, parquet};
use crate::error::{MergeError, PartError};
use crate::join::Joining;
use crate::options::Order;
use crate::part::Part;
use arrow::array::RecordBatch;
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Key of the metadata. The all-pairs workload writes the same.
const KEY: &str = "trainyard.partial";

/// Versions that are understood. They differ only in which pairs an instance has, so parts of two do not go together.
const VERSIONS: RangeInclusive<u32> = 1..=2;

/// What a part says of its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Partial {
    version: u32,
    /// Pairs that a combined list has at most.
    top_k: Option<usize>,
    /// Whether each pair is there for one of its rows only.
    once: bool,
    /// Number of the instance, from 0.
    host: usize,
    hosts: usize,
}

impl Partial {
    /// What the parts say, if they say anything; they must agree and be complete.
    pub(super) fn of_parts(parts: &[Part]) -> Result<Option<Self>, MergeError> {
        let mut first: Option<(Self, &Part)> = None;
        let mut seen = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let found = parquet::metadata(part, KEY)?.map(|text| parse(part, &text)).transpose()?;
            match (found, first) {
                (None, None) => {}
                (Some(found), None) if at == 0 => first = Some((found, part)),
                (Some(found), Some((expected, _))) if found.goes_with(&expected) => {}
                (_, known) => {
                    let first = known.map_or(&parts[0], |(_, part)| part).name.clone();
                    return Err(part.fault(PartError::OtherLists { first }));
                }
            }
            if let Some(found) = found {
                if seen.contains(&found.host) {
                    return Err(part.fault(PartError::SameLists { host: found.host + 1 }));
                }
                seen.push(found.host);
            }
        }
        let Some((partial, _)) = first else { return Ok(None) };
        match (0..partial.hosts).find(|host| !seen.contains(host)) {
            Some(host) => Err(MergeError::MissingLists { host: host + 1, hosts: partial.hosts }),
            None => Ok(Some(partial)),
        }
    }

    fn goes_with(&self, other: &Self) -> bool {
        Self { host: other.host, ..*self } == *other && self.host < self.hosts
    }
}

fn parse(part: &Part, text: &str) -> Result<Partial, MergeError> {
    let unreadable = || part.fault(PartError::UnknownLists { text: text.chars().take(200).collect() });
    let partial: Partial = serde_json::from_str(text).map_err(|_| unreadable())?;
    let sound = VERSIONS.contains(&partial.version) && partial.host < partial.hosts;
    if sound { Ok(partial) } else { Err(unreadable()) }
}

/// Hands the combined lists to `write` as batches, in order of their rows.
pub(super) fn combine<'a>(
    joining: &Joining<'a>,
    table: &Table<'a>,
    (partial, order): (Partial, &Order),
    write: &mut dyn FnMut(RecordBatch) -> Result<(), MergeError>,
) -> Result<(), MergeError> {
    check_columns(&joining.parts[0], &table.schema)?;
    if let Order::Column(column) = order
        && column != table.schema.field(0).name()
    {
        return Err(MergeError::ListOrder { column: column.clone() });
    }
    let mut streams = Streams::open(joining, table, partial.once)?;
    let (mut list, mut gathered) = (Vec::new(), Vec::with_capacity(BATCH_ROWS));
    let encode = |source| joining.parts[0].fault(PartError::Arrow(source));
    while streams.next_row(&mut list)? {
        list.sort_unstable_by(Pair::rank);
        list.truncate(partial.top_k.unwrap_or(usize::MAX));
        for pair in list.drain(..) {
            gathered.push(pair);
            if gathered.len() == BATCH_ROWS {
                write(batch(&gathered, &table.schema).map_err(encode)?)?;
                gathered.clear();
            }
        }
    }
    write(batch(&gathered, &table.schema).map_err(encode)?)
}
