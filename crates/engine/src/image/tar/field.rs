//! The fields of a header block, by their places in POSIX `ustar` and GNU tar.

use super::{BLOCK, until_zero};

pub(super) fn flag(block: &[u8; BLOCK]) -> u8 {
    block[156]
}

/// The name, behind its prefix where the dialect is POSIX: GNU puts other things there.
pub(super) fn path(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&block[..100]);
    let posix = &block[257..263] == b"ustar\0";
    let prefix = text(&block[345..500]);
    if posix && !prefix.is_empty() { [prefix, name].join(&b'/') } else { name }
}

pub(super) fn mode(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[100..108])
}

pub(super) fn uid(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[108..116])
}

pub(super) fn gid(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[116..124])
}

pub(super) fn size(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[124..136])
}

/// Times before 1970 and wrong ones become 1970.
pub(super) fn modified(block: &[u8; BLOCK]) -> (i64, u32) {
    let seconds = number(&block[136..148]).and_then(|seconds| i64::try_from(seconds).ok());
    (seconds.unwrap_or(0), 0)
}

pub(super) fn link(block: &[u8; BLOCK]) -> Vec<u8> {
    text(&block[157..257])
}

/// Major and minor number; wrong ones are no numbers of any device.
pub(super) fn device(block: &[u8; BLOCK]) -> (u32, u32) {
    let part = |field| number(field).and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX);
    (part(&block[329..337]), part(&block[337..345]))
}

/// The size of a GNU sparse file with its holes.
pub(super) fn real_size(block: &[u8; BLOCK]) -> Option<u64> {
    number(&block[483..495])
}

/// The sum of all bytes, with the field of the sum itself taken as spaces.
pub(super) fn checksum_holds(block: &[u8; BLOCK]) -> bool {
    let byte = |(place, &byte): (usize, &u8)| if (148..156).contains(&place) { b' ' } else { byte };
    let unsigned = block.iter().enumerate().map(byte).map(u64::from).sum::<u64>();
    let signed = block.iter().enumerate().map(byte).map(|byte| i64::from(byte.cast_signed())).sum::<i64>();
    // Some old programs take bytes as signed numbers.
    number(&block[148..156]).is_some_and(|stated| {
        stated == unsigned || i64::try_from(stated).is_ok_and(|stated| stated == signed)
    })
}

/// Octal digits, or a number of base 256 if the highest bit is set; an empty field is zero.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    if let Some((&first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        // A negative number has all of the first bits set.
        let start = u64::from(first & 0x7f);
        return rest.iter().try_fold(start, |sum, &byte| sum.checked_mul(256)?.checked_add(u64::from(byte)));
    }
    let digits = field.iter().skip_while(|byte| **byte == b' ').take_while(|byte| !matches!(byte, b' ' | 0));
    digits.into_iter().try_fold(0_u64, |sum, &byte| {
        let digit = char::from(byte).to_digit(8)?;
        sum.checked_mul(8)?.checked_add(u64::from(digit))
    })
}

fn text(field: &[u8]) -> Vec<u8> {
    until_zero(field.to_vec())
}
