//! The header of NumPy's .npy format: which numbers follow, and in which shape.
//!
//! Format: `numpy.lib.format` (magic string, version, length of the header, a Python dictionary as text).
//! Nothing here allocates by a number that the file claims.

use crate::element::Element;
use crate::problem::FileProblem;

const MAGIC: &[u8] = b"\x93NUMPY";

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Type of the numbers as the file spells it.
    pub(crate) descr: String,
    /// Whether columns, not rows, lie in one piece.
    pub(crate) fortran_order: bool,
    /// Length of each dimension.
    pub(crate) shape: Vec<u64>,
    /// Where the numbers begin in the file.
    pub(crate) start: usize,
}

/// How the numbers of an array are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) element: Element,
    pub(crate) big_endian: bool,
}

impl Header {
    /// Reads the header at the beginning of a file.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, FileProblem> {
        let rest = file.strip_prefix(MAGIC).ok_or(FileProblem::NotNpy)?;
        let (&[major, minor], rest) = rest.split_first_chunk().ok_or(FileProblem::NpyHeaderCut)?;
        let (length, rest) = match (major, minor) {
            (1, 0) => {
                let (length, rest) = rest.split_first_chunk().ok_or(FileProblem::NpyHeaderCut)?;
                (usize::from(u16::from_le_bytes(*length)), rest)
            }
            (2 | 3, 0) => {
                let (length, rest) = rest.split_first_chunk().ok_or(FileProblem::NpyHeaderCut)?;
                (u32::from_le_bytes(*length) as usize, rest)
            }
            _ => return Err(FileProblem::NpyVersion { major, minor }),
        };
        let text = rest.get(..length).ok_or(FileProblem::NpyHeaderCut)?;
        let start = file.len() - rest.len() + length;
        let text = std::str::from_utf8(text).map_err(|_| FileProblem::NpyHeader { wanted: "text" })?;
        dictionary(text, start)
    }

    /// Type and byte order of the numbers.
    pub(crate) fn encoding(&self) -> Result<Encoding, FileProblem> {
        let (big_endian, name) = match self.descr.split_at_checked(1) {
            Some(("<" | "|", name)) => (false, name),
            Some((">", name)) => (true, name),
            Some(("=", name)) => (cfg!(target_endian = "big"), name),
            _ => (false, self.descr.as_str()),
        };
        let element = match name {
            "i1" => Element::I8,
            "i2" => Element::I16,
            "i4" => Element::I32,
            "i8" => Element::I64,
            "u1" => Element::U8,
            "u2" => Element::U16,
            "u4" => Element::U32,
            "u8" => Element::U64,
            "f2" => Element::F16,
            "f4" => Element::F32,
            "f8" => Element::F64,
            // What NumPy writes for the bfloat16 of its extension ml_dtypes.
            "V2" | "bfloat16" => Element::Bf16,
            _ => return Err(FileProblem::ElementType { type_name: self.descr.clone() }),
        };
        Ok(Encoding { element, big_endian })
    }

    /// The shape as Python prints it.
    pub(crate) fn shape_text(&self) -> String {
        match self.shape.as_slice() {
            [one] => format!("({one},)"),
            many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        }
    }

    /// Numbers in the array; `None` if that is more than a `u64` holds.
    pub(crate) fn count(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, length| product.checked_mul(*length))
    }
}

/// The beginning of a file of that type and shape, padded to a multiple of `alignment` bytes.
pub(crate) fn header(descr: &str, shape: &str, alignment: usize) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic string, version and length take ten bytes, the newline one.
    let length = (text.len() + 11).next_multiple_of(alignment) - 10;
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&[1, 0]);
    header.extend_from_slice(&(length as u16).to_le_bytes());
    header.extend_from_slice(format!("{text:<0$}\n", length - 1).as_bytes());
    header
}

fn dictionary(text: &str, start: usize) -> Result<Header, FileProblem> {
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    let mut rest = expect(text, '{').ok_or(FileProblem::NpyHeader { wanted: "dictionary" })?;
    while expect(rest, '}').is_none() {
        let (key, after) = quoted(rest).ok_or(FileProblem::NpyHeader { wanted: "dictionary" })?;
        let after = expect(after, ':').ok_or(FileProblem::NpyHeader { wanted: "dictionary" })?;
        rest = match key {
            "descr" => {
                let (value, after) =
                    descr_value(after).ok_or(FileProblem::NpyHeader { wanted: "`descr`" })?;
                descr = Some(value);
                after
            }
            "fortran_order" => {
                let (value, after) =
                    boolean(after).ok_or(FileProblem::NpyHeader { wanted: "`fortran_order`" })?;
                fortran_order = Some(value);
                after
            }
            "shape" => {
                let (value, after) = tuple(after).ok_or(FileProblem::NpyHeader { wanted: "`shape`" })?;
                shape = Some(value);
                after
            }
            _ => return Err(FileProblem::NpyHeader { wanted: "dictionary" }),
        };
        rest = expect(rest, ',').unwrap_or(rest);
    }
    Ok(Header {
        descr: descr.ok_or(FileProblem::NpyHeader { wanted: "`descr`" })?,
        fortran_order: fortran_order.ok_or(FileProblem::NpyHeader { wanted: "`fortran_order`" })?,
        shape: shape.ok_or(FileProblem::NpyHeader { wanted: "`shape`" })?,
        start,
    })
}

fn expect(text: &str, wanted: char) -> Option<&str> {
    text.trim_start().strip_prefix(wanted)
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// A type name; a list of fields is kept as it stands, to be named when it is refused.
fn descr_value(text: &str) -> Option<(String, &str)> {
    if expect(text, '[').is_none() {
        return quoted(text).map(|(name, rest)| (name.to_owned(), rest));
    }
    let text = text.trim_start();
    let end = text.rfind(']')? + 1;
    let short: String = text[..end].chars().take(80).collect();
    Some((short, &text[end..]))
}

fn boolean(text: &str) -> Option<(bool, &str)> {
    let text = text.trim_start();
    match text.strip_prefix("True") {
        Some(rest) => Some((true, rest)),
        None => text.strip_prefix("False").map(|rest| (false, rest)),
    }
}

fn tuple(text: &str) -> Option<(Vec<u64>, &str)> {
    let (inside, rest) = expect(text, '(')?.split_once(')')?;
    let inside = inside.trim();
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    if inside.is_empty() {
        return Some((Vec::new(), rest));
    }
    // Python 2 marked long integers with an L.
    let number = |item: &str| item.trim().trim_end_matches('L').parse().ok();
    Some((inside.split(',').map(number).collect::<Option<_>>()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(version: &[u8], text: &str) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(version);
        if version[0] == 1 {
            file.extend_from_slice(&(text.len() as u16).to_le_bytes());
        } else {
            file.extend_from_slice(&(text.len() as u32).to_le_bytes());
        }
        file.extend_from_slice(text.as_bytes());
        file
    }

    #[test]
    fn headers_of_every_version_are_read() {
        for version in [[1, 0], [2, 0], [3, 0]] {
            let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1797, 64), }     \n";
            let header = Header::parse(&file(&version, text)).unwrap();
            assert_eq!(header.shape, [1797, 64]);
            assert!(!header.fortran_order);
            assert_eq!(header.start, file(&version, text).len());
            assert_eq!(header.encoding().unwrap(), Encoding { element: Element::F32, big_endian: false });
        }
        let header =
            Header::parse(&file(&[1, 0], "{\"shape\":(3L,),'fortran_order':True,'descr':'>i8'}")).unwrap();
        assert_eq!((header.shape.as_slice(), header.fortran_order), ([3].as_slice(), true));
        assert_eq!(header.encoding().unwrap(), Encoding { element: Element::I64, big_endian: true });
        assert_eq!(header.shape_text(), "(3,)");
    }

    #[test]
    fn a_header_that_is_wrong_says_in_what() {
        let table: [(Vec<u8>, &str); 9] = [
            (b"PK\x03\x04".to_vec(), "is not a .npy file: its first bytes are not those of one"),
            (b"\x93NUMPY".to_vec(), "ends inside the .npy header"),
            (b"\x93NUMPY\x01\x00\xff\xff{".to_vec(), "ends inside the .npy header"),
            (file(&[9, 1], ""), "is a .npy file of format 9.1; 1.0, 2.0 and 3.0 are known"),
            (file(&[1, 0], ""), "the .npy header has no usable dictionary"),
            (file(&[1, 0], "{}"), "the .npy header has no usable `descr`"),
            (file(&[1, 0], "{'descr': 4}"), "the .npy header has no usable `descr`"),
            (
                file(&[1, 0], "{'descr': '<f4', 'fortran_order': 1}"),
                "the .npy header has no usable `fortran_order`",
            ),
            (file(&[1, 0], "{'shape': (-1, 2)}"), "the .npy header has no usable `shape`"),
        ];
        for (bytes, message) in table {
            assert_eq!(Header::parse(&bytes).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_type_that_is_no_number_is_named() {
        for descr in ["'<U3'", "'|O'", "'<c16'", "[('a', '<f4'), ('b', '<i4')]", "'é'", "''"] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1, 2)}}");
            let error = Header::parse(&file(&[1, 0], &text)).unwrap().encoding().unwrap_err();
            assert!(error.to_string().contains(descr.trim_matches('\'')), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "\\PC{0,60}") {
            let _ = Header::parse(&bytes);
            let _ = Header::parse(&file(&[1, 0], &text));
            let _ = Header::parse(&file(&[2, 0], &format!("{{'descr': {text}, 'shape': ({text})}}")));
        }
    }
}
