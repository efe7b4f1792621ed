//! The header of a `.npy` file, versions 1 to 3.

use std::io::{self, Read};

use crate::error::{NpyFault, PartError};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Values begin at a multiple of this.
const ALIGNMENT: usize = 64;
/// The longest header that is read; NumPy itself stops at 10,000 bytes unless told otherwise.
const LONGEST: u32 = 1 << 20;
/// Room for the number of rows, so that the header's length does not depend on it.
const ROWS_WIDTH: usize = 20;

/// What a header says, for an array of at least one axis in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::join) struct Header {
    /// Type of the values, such as `<f8`.
    descr: String,
    item_bytes: u64,
    /// Length of the first axis.
    pub(in crate::join) rows: u64,
    /// Lengths of the others.
    row_shape: Vec<u64>,
}

impl Header {
    /// Reads a header and says how many bytes it took.
    pub(in crate::join) fn read(reader: &mut impl Read) -> Result<(Self, u64), PartError> {
        let mut start = [0; 8];
        reader.read_exact(&mut start).map_err(cut_off)?;
        if !start.starts_with(MAGIC) {
            return Err(NpyFault::NotNumPy.into());
        }
        let (length, length_bytes) = match start[6] {
            1 => (u32::from(u16::from_le_bytes(read_array(reader)?)), 2),
            2 | 3 => (u32::from_le_bytes(read_array(reader)?), 4),
            _ => return Err(NpyFault::Version.into()),
        };
        if length > LONGEST {
            return Err(NpyFault::LongHeader.into());
        }
        let mut text = Vec::new();
        reader.take(u64::from(length)).read_to_end(&mut text)?;
        if text.len() as u64 != u64::from(length) {
            return Err(NpyFault::CutOff.into());
        }
        let text = std::str::from_utf8(&text).map_err(|_| NpyFault::Malformed)?;
        Ok((Self::parse(text)?, 8 + length_bytes + u64::from(length)))
    }

    fn parse(text: &str) -> Result<Self, PartError> {
        let Dict { descr, fortran_order, shape } = Dict::parse(text).ok_or(NpyFault::Malformed)?;
        let descr = descr.ok_or(NpyFault::Records)?;
        let item_bytes = item_bytes(&descr)?;
        let Some((&rows, row_shape)) = shape.split_first() else {
            return Err(NpyFault::Scalar.into());
        };
        if fortran_order && !row_shape.is_empty() {
            return Err(NpyFault::Fortran.into());
        }
        Ok(Self { descr, item_bytes, rows, row_shape: row_shape.to_vec() })
    }

    /// A vector of so many values.
    pub(in crate::join) fn of_vector(descr: &str, rows: u64) -> Self {
        // Only types with a size are written.
        let item_bytes = item_bytes(descr).unwrap_or(0);
        Self { descr: descr.to_owned(), item_bytes, rows, row_shape: Vec::new() }
    }

    /// The header of a single value, as bytes.
    pub(in crate::join) fn scalar(descr: &str) -> Vec<u8> {
        let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (), }}");
        // Magic, version and length take ten bytes, the newline one.
        let length = (dict.len() + 11).next_multiple_of(ALIGNMENT) - 10;
        let text = format!("{dict:<0$}\n", length - 1);
        [MAGIC, &[1, 0][..], &(length as u16).to_le_bytes(), text.as_bytes()].concat()
    }

    /// Whether the rows of another array can follow.
    pub(in crate::join) fn same_rows(&self, other: &Self) -> bool {
        self.descr == other.descr && self.row_shape == other.row_shape
    }

    /// Type and shape of a row, for messages.
    pub(in crate::join) fn rows_text(&self) -> String {
        let shape: Vec<String> = self.row_shape.iter().map(u64::to_string).collect();
        match shape.len() {
            0 => self.descr.clone(),
            _ => format!("{} × {}", self.descr, shape.join(" × ")),
        }
    }

    /// Bytes of all values; `u128::MAX` where that can not be counted.
    pub(in crate::join) fn bytes(&self) -> u128 {
        let axes = self.row_shape.iter().chain([&self.rows, &self.item_bytes]);
        if axes.clone().any(|&axis| axis == 0) {
            return 0;
        }
        axes.fold(1u128, |product, &axis| product.saturating_mul(u128::from(axis)))
    }

    /// The header as bytes: version 1.0, or 2.0 where the shape is too long for it.
    pub(in crate::join) fn encode(&self) -> Vec<u8> {
        let mut shape = self.rows.to_string();
        for axis in &self.row_shape {
            shape.push_str(", ");
            shape.push_str(&axis.to_string());
        }
        if self.row_shape.is_empty() {
            shape.push(',');
        }
        let dict = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}), }}", self.descr);
        let spare = ROWS_WIDTH - self.rows.to_string().len().min(ROWS_WIDTH);
        let text = |prefix: usize| {
            let length = (prefix + dict.len() + spare + 1).next_multiple_of(ALIGNMENT) - prefix;
            format!("{dict}{}\n", " ".repeat(length - dict.len() - 1))
        };
        let (short, long) = (text(MAGIC.len() + 4), text(MAGIC.len() + 6));
        match u16::try_from(short.len()) {
            Ok(length) => [MAGIC, &[1, 0][..], &length.to_le_bytes(), short.as_bytes()].concat(),
            // Headers that were read are at most 1 MiB, so this length fits.
            Err(_) => {
                let length = u32::try_from(long.len()).unwrap_or(u32::MAX);
                [MAGIC, &[2, 0][..], &length.to_le_bytes(), long.as_bytes()].concat()
            }
        }
    }
}

/// Bytes of one value of a plain type such as `<f8`, `|b1`, `<U10` or `<M8[ns]`.
fn item_bytes(descr: &str) -> Result<u64, PartError> {
    let unknown = || NpyFault::UnknownType.into();
    let rest = descr.strip_prefix(['<', '>', '|', '=']).unwrap_or(descr);
    let mut chars = rest.chars();
    let kind = chars.next().ok_or_else(unknown)?;
    let digits = chars.as_str().split('[').next().unwrap_or_default();
    let count: u64 = digits.parse().map_err(|_| unknown())?;
    match kind {
        'O' => Err(NpyFault::Objects.into()),
        'U' => count.checked_mul(4).ok_or_else(unknown),
        'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'V' | 'M' | 'm' | '?' => Ok(count),
        _ => Err(unknown()),
    }
}

/// The Python dict of a header.
#[derive(Debug, Default)]
struct Dict {
    /// `None` for the list of fields that a record type is.
    descr: Option<String>,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Dict {
    fn parse(text: &str) -> Option<Self> {
        let mut dict = Self::default();
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let mut keys = Vec::new();
        while !rest.trim().is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            let after = match key {
                "descr" => dict.descr(value)?,
                "fortran_order" => dict.fortran_order(value)?,
                "shape" => dict.shape(value)?,
                _ => return None,
            };
            keys.push(key);
            let after = after.trim_start();
            rest = after.strip_prefix(',').or_else(|| after.is_empty().then_some(after))?;
        }
        keys.sort_unstable();
        (keys == ["descr", "fortran_order", "shape"]).then_some(dict)
    }

    fn descr<'a>(&mut self, value: &'a str) -> Option<&'a str> {
        if value.starts_with('[') {
            return value.rfind(']').map(|_| record_end(value));
        }
        let (descr, after) = quoted(value)?;
        let plain = descr.chars().all(|c| c.is_ascii_alphanumeric() || "<>|=?[]".contains(c));
        self.descr = Some(descr.to_owned());
        plain.then_some(after)
    }

    fn fortran_order<'a>(&mut self, value: &'a str) -> Option<&'a str> {
        self.fortran_order = value.starts_with("True");
        value.strip_prefix("True").or_else(|| value.strip_prefix("False"))
    }

    fn shape<'a>(&mut self, value: &'a str) -> Option<&'a str> {
        let (axes, after) = value.strip_prefix('(')?.split_once(')')?;
        for axis in axes.trim().trim_end_matches(',').split(',').filter(|axis| !axis.trim().is_empty()) {
            // Python 2 wrote long integers with an L.
            self.shape.push(axis.trim().trim_end_matches('L').parse().ok()?);
        }
        Some(after)
    }
}

/// What follows a list of fields: brackets nest, and names may hold anything but need not be understood.
fn record_end(value: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in value.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &value[at + 1..];
        }
    }
    ""
}

/// A quoted word and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

fn read_array<const N: usize>(reader: &mut impl Read) -> Result<[u8; N], PartError> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes).map_err(cut_off)?;
    Ok(bytes)
}

fn cut_off(source: io::Error) -> PartError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => NpyFault::CutOff.into(),
        _ => PartError::Read(source),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Header, String> {
        Header::parse(text).map_err(|error| error.to_string())
    }

    #[test]
    fn headers_of_plain_arrays_are_read() {
        let table = [
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }", 96, "<f8 × 4"),
            ("{'shape': (5,), 'descr': '|b1', 'fortran_order': True}", 5, "|b1"),
            ("{\"descr\": \"<U10\", \"fortran_order\": False, \"shape\": (2L, 1L)}\n", 80, "<U10 × 1"),
            ("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (0, 7)}", 0, "<M8[ns] × 7"),
        ];
        for (text, bytes, rows) in table {
            let header = parse(text).unwrap();
            assert_eq!((header.bytes(), header.rows_text().as_str()), (bytes, rows), "{text}");
        }
    }

    #[test]
    fn what_can_not_be_joined_is_refused_with_its_reason() {
        let table = [
            ("{'descr': '<f8', 'fortran_order': True, 'shape': (3, 4)}", "Fortran order"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", "single value"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "no fixed size"),
            ("{'descr': '|O8', 'fortran_order': False, 'shape': (3,)}", "Python objects"),
            (
                "{'descr': [('a', '<f8'), ('b', '<i4', (2,))], 'fortran_order': False, 'shape': (3,)}",
                "records",
            ),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "not that of"),
            ("{'descr': '<f8', 'fortran_order': False}", "not that of"),
            ("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", "not that of"),
            ("{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}", "not that of"),
            ("", "not that of"),
            ("}{", "not that of"),
        ];
        for (text, reason) in table {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_shape_of_absurd_size_does_not_overflow() {
        let max = u64::MAX;
        let header =
            parse(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({max}, {max}, {max})}}"))
                .unwrap();
        assert_eq!(header.bytes(), u128::MAX);
    }

    proptest! {
        #[test]
        fn a_header_is_read_back_as_it_was_written(rows in any::<u64>(), row_shape in prop::collection::vec(any::<u64>(), 0..6)) {
            let header = Header { descr: "<f4".to_owned(), item_bytes: 4, rows, row_shape };
            let bytes = header.encode();
            prop_assert_eq!(bytes.len() % ALIGNMENT, 0);
            let (read, length) = Header::read(&mut &bytes[..]).unwrap();
            prop_assert_eq!(length, bytes.len() as u64);
            prop_assert_eq!(read, header);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[{}()\\[\\]',:a-z0-9 <ü]{0,40}") {
            let _ = Header::parse(&text);
        }
    }

    #[test]
    fn a_header_too_long_for_version_1_becomes_version_2() {
        let header = Header { descr: "<f4".to_owned(), item_bytes: 4, rows: 1, row_shape: vec![1; 30_000] };
        let bytes = header.encode();
        assert_eq!(bytes[6], 2);
        assert_eq!(Header::read(&mut &bytes[..]).unwrap().0, header);
    }
}
