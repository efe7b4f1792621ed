//! The fields of a tar header block as they are found in the wild.

use crate::artifact::header::BLOCK;

/// What kind of entry the header is for.
pub(super) fn type_flag(block: &[u8; BLOCK]) -> u8 {
    block[156]
}

/// The size of the content, unless the field holds no number or one of more than 63 bits.
pub(super) fn size(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[124..136]).filter(|&size| i64::try_from(size).is_ok())
}

/// The time of the last change, in seconds since 1970, unless the field holds no number.
pub(super) fn modified(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[136..148])
}

/// The nine lowest bits of the mode; none of them where the field holds no number.
pub(super) fn mode(block: &[u8; BLOCK]) -> u32 {
    number(&block[100..108]).map_or(0, |mode| (mode & 0o777) as u32)
}

/// Prefix and name, joined.
pub(super) fn path(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&block[..100]);
    let prefix = text(&block[345..500]);
    // GNU's older format has other things in the place of the prefix, and says so by its magic.
    if &block[257..263] != b"ustar\0" || prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

/// Whether the header's bytes add up, with the checksum field itself taken as spaces.
pub(super) fn checksum_holds(block: &[u8; BLOCK]) -> bool {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    let expected = sum(&block[..148]) + sum(&block[156..]) + 8 * u64::from(b' ');
    number(&block[148..156]) == Some(expected)
}

fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// Octal digits with spaces or zeros around them, or a binary number marked by the first bit.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        return binary(field);
    }
    let digits = std::str::from_utf8(text(field)).ok()?.trim();
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

/// Big-endian; the first byte is the mark and, with `0xff`, the sign: no number here is negative.
fn binary(field: &[u8]) -> Option<u64> {
    let (high, low) = field.split_at(field.len() - 8);
    let clear = high.iter().enumerate().all(|(place, &byte)| byte == if place == 0 { 0x80 } else { 0 });
    let low = low.try_into().ok()?;
    clear.then(|| u64::from_be_bytes(low))
}
