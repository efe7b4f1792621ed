//! The frame of a RecordIO record, as MXNet and dmlc write it (dmlc-core, `include/dmlc/recordio.h`).
//!
//! A record is a magic number, its length in the lower 29 bits of the next, its bytes, and zeros up to a multiple of
//! four. The upper three bits would say that a record is one part of several; here each is whole, which readers take
//! whose payload happens to hold the magic number.

/// The magic number.
pub const MAGIC: u32 = 0xCED7_230A;

/// The longest record, in bytes.
pub const LONGEST: u64 = (1 << 29) - 1;

/// What stands before so many bytes; none if they are too many for a record.
pub fn header(length: u64) -> Option<[u8; 8]> {
    let length = u32::try_from(length).ok().filter(|&length| u64::from(length) <= LONGEST)?;
    let mut header = [0; 8];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..].copy_from_slice(&length.to_le_bytes());
    Some(header)
}

/// What stands behind so many bytes.
pub fn padding(length: u64) -> &'static [u8] {
    match length % 4 {
        1 => &[0; 3],
        2 => &[0; 2],
        3 => &[0; 1],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads records as dmlc-core does, parts and all.
    fn read(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(number(0), 0xced7_230a);
            let (flag, length) = (number(4) >> 29, (number(4) & ((1 << 29) - 1)) as usize);
            assert_eq!(flag, 0, "a whole record");
            records.push(bytes[8..8 + length].to_vec());
            let end = 8 + length.div_ceil(4) * 4;
            assert!(bytes[8 + length..end].iter().all(|&byte| byte == 0));
            bytes = &bytes[end..];
        }
        records
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)
        ) {
            let mut written = Vec::new();
            for record in &records {
                let length = record.len() as u64;
                written.extend(header(length).unwrap());
                written.extend(record);
                written.extend(padding(length));
            }
            prop_assert_eq!(read(&written), records);
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        assert_eq!(header(5), Some([0x0a, 0x23, 0xd7, 0xce, 5, 0, 0, 0]));
    }

    #[test]
    fn a_record_has_less_than_512_mebibytes() {
        assert!(header(LONGEST).is_some());
        assert_eq!(header(LONGEST + 1), None);
        assert_eq!(header(u64::MAX), None);
    }
}
