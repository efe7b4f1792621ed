//! `.npy` parts into one array: the values of all parts behind one new header.
//!
//! The format is NumPy's own, described in `numpy/lib/format.py`: magic, version, length of the header, the header
//! as a Python dict, the values. Arrays in Fortran order are refused: their rows do not lie in one piece, and
//! turning them around would need the whole array in memory.

pub(super) mod header;

use std::io::{BufReader, Read};

use fs_err as fs;

use self::header::Header;
use super::{Joining, Tally};
use crate::error::{MergeError, NpyFault, PartError};
use crate::part::Part;
use crate::scratch::Writing;

const COPY_BUFFER: usize = 128 << 10;

pub(super) fn join(joining: &Joining<'_>) -> Result<u64, MergeError> {
    let mut writing = joining.scratch.result()?;
    let mut tally = Tally::new(joining);
    if let Some((first, rest)) = joining.parts.split_first() {
        let mut whole = open(first)?.0;
        for part in rest {
            let header = open(part)?.0;
            if !whole.same_rows(&header) {
                return Err(part.fault(PartError::NpyRows {
                    first: first.name.clone(),
                    expected: whole.rows_text(),
                    found: header.rows_text(),
                }));
            }
            whole.rows =
                whole.rows.checked_add(header.rows).ok_or_else(|| part.fault(NpyFault::TooManyRows))?;
        }
        writing.put(&whole.encode())?;
    }
    for part in joining.parts {
        let (header, mut values) = open(part)?;
        copy(part, &mut values, &mut writing)?;
        tally.add_rows(header.rows);
        tally.finish_part();
    }
    writing.finish()?;
    Ok(tally.rows)
}

/// Reads a part's header, checks that the values are all there, and stands before the first.
fn open(part: &Part) -> Result<(Header, BufReader<fs::File>), MergeError> {
    let file = fs::File::open(&part.file).map_err(|source| part.fault(source))?;
    let length = file.metadata().map_err(|source| part.fault(source))?.len();
    let mut reader = BufReader::with_capacity(COPY_BUFFER, file);
    let (header, header_length) = Header::read(&mut reader).map_err(|source| part.fault(source))?;
    let found = length.saturating_sub(header_length);
    match header.bytes() {
        promised if promised == u128::from(found) => Ok((header, reader)),
        promised => Err(part.fault(PartError::NpyLength { promised, found })),
    }
}

fn copy(part: &Part, values: &mut impl Read, writing: &mut Writing) -> Result<(), MergeError> {
    let mut buffer = vec![0; COPY_BUFFER];
    loop {
        let count = values.read(&mut buffer).map_err(|source| part.fault(source))?;
        if count == 0 {
            return Ok(());
        }
        writing.put(&buffer[..count])?;
    }
}
