//! Matrices as text: one row a line, fields between commas or tabs, with or without a header and ids.
//!
//! Whether there is a header shows in the first line: its fields are no numbers. Ids lie in the column that is
//! asked for, in one named `id`, in one without a name before all others (as pandas writes its index), or, without
//! a header, in a first field that is no number.

use super::ids::{Ids, id_column};
use super::{Content, Decoding, OpenedFile, Reading};
use crate::dense::{Bytes, DenseFile};
use crate::element::Element;
use crate::problem::FileProblem;
use csv::StringRecord;
use std::path::Path;

/// Rows between two looks at whether to stop.
const BETWEEN_LOOKS: usize = 1024;

/// Characters of a wrong field that a message shows.
const SHOWN: usize = 40;

/// Reads a whole file into memory.
pub(super) fn read(path: &Path, delimiter: u8, decoding: Decoding) -> Result<OpenedFile, FileProblem> {
    let file = fs_err::File::open(path).map_err(FileProblem::Io)?;
    let mut lines =
        csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(file);
    let mut line = StringRecord::new();
    if !lines.read_record(&mut line).map_err(FileProblem::Csv)? {
        return Err(FileProblem::NoColumns);
    }
    // A mark that some programs put before the first field; it is none of the text.
    if let Some(first) = line.get(0).and_then(|field| field.strip_prefix('\u{feff}')) {
        let rest = line.iter().skip(1);
        line = std::iter::once(first).chain(rest).collect();
    }
    let shape = Shape::of(&line, decoding.reading)?;
    let mut rows = Rows { shape, numbers: Vec::new(), ids: Vec::new(), count: 0 };
    if rows.shape.names.is_none() {
        rows.push(&line, 1)?;
    }
    while lines.read_record(&mut line).map_err(FileProblem::Csv)? {
        if rows.count.is_multiple_of(BETWEEN_LOOKS) {
            decoding.go_on()?;
        }
        let number = line.position().map_or(0, csv::Position::line);
        rows.push(&line, number)?;
    }
    rows.finish(path)
}

/// What the first line tells.
struct Shape {
    /// Names of the columns, if there is a header.
    names: Option<Vec<String>>,
    fields: usize,
    id: Option<usize>,
}

impl Shape {
    fn of(first: &StringRecord, reading: &Reading) -> Result<Self, FileProblem> {
        let has_header = match reading.csv_header {
            Some(told) => told,
            None => looks_like_header(first)?,
        };
        let numbers: Vec<String> = (0..first.len()).map(|at| at.to_string()).collect();
        let asked = reading.id_column.as_deref();
        let names: Vec<&str> = if has_header {
            first.iter().map(str::trim).collect()
        } else {
            numbers.iter().map(String::as_str).collect()
        };
        let mut id = id_column(&names, asked)?;
        if id.is_none()
            && first.get(0).is_some_and(|field| if has_header { field.is_empty() } else { !is_number(field) })
        {
            id = Some(0);
        }
        let names = has_header.then(|| names.iter().map(|name| (*name).to_owned()).collect());
        Ok(Self { names, fields: first.len(), id })
    }

    fn name(&self, column: usize) -> String {
        let name = self.names.as_ref().and_then(|names| names.get(column));
        name.filter(|name| !name.is_empty()).map_or_else(|| column.to_string(), |name| format!("`{name}`"))
    }
}

fn looks_like_header(first: &StringRecord) -> Result<bool, FileProblem> {
    let mut others = first.iter().skip(1);
    let nameless_index = first.get(0).is_some_and(str::is_empty) && first.len() > 1;
    let text_first = first.get(0).is_some_and(|field| !is_number(field));
    if nameless_index || (text_first && others.clone().all(|field| !is_number(field))) {
        return Ok(true);
    }
    // Ids before the numbers of a first row, or numbers alone.
    if others.all(is_number) { Ok(false) } else { Err(FileProblem::Header) }
}

fn is_number(field: &str) -> bool {
    field.trim().parse::<f64>().is_ok()
}

struct Rows {
    shape: Shape,
    numbers: Vec<u8>,
    ids: Vec<String>,
    count: usize,
}

impl Rows {
    fn push(&mut self, fields: &StringRecord, line: u64) -> Result<(), FileProblem> {
        if fields.len() != self.shape.fields {
            let (needed, found) = (self.shape.fields as u64, fields.len() as u64);
            return Err(FileProblem::Fields { line, needed, found });
        }
        for (column, field) in fields.iter().enumerate() {
            if Some(column) == self.shape.id {
                self.ids.push(field.to_owned());
                continue;
            }
            let number: f64 = field.trim().parse().map_err(|_| FileProblem::Field {
                line,
                column: self.shape.name(column),
                value: field.chars().take(SHOWN).collect(),
            })?;
            self.numbers.extend_from_slice(&number.to_le_bytes());
        }
        self.count += 1;
        Ok(())
    }

    fn finish(self, path: &Path) -> Result<OpenedFile, FileProblem> {
        let columns = self.shape.fields - usize::from(self.shape.id.is_some());
        if columns == 0 {
            return Err(FileProblem::NoColumns);
        }
        let (bytes, encoding) = (Bytes::Owned(self.numbers), Element::F64.little_endian());
        let file = DenseFile { bytes, encoding, ..DenseFile::empty(path, self.count, columns) };
        let ids = self.shape.id.map(|_| Ids::of_texts(&self.ids));
        Ok(OpenedFile { content: Content::Dense(file), ids, width_known: true })
    }
}
