//! Numbers in text: what counts as one, and keys that order them.

/// A number as read from text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// Digits without a fraction or exponent.
    Int(i128),
    /// Anything else that reads as a number, `nan` and `inf` included.
    Float(f64),
}

impl Number {
    /// Reads a number, with blanks around it or not.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text.trim_ascii()).ok()?;
        match text.parse::<i128>() {
            Ok(value) => Some(Self::Int(value)),
            Err(_) => text.parse::<f64>().ok().map(Self::Float),
        }
    }

    /// Appends 24 bytes whose order is that of the numbers; NaN is above all others.
    ///
    /// The float comes first; the whole value behind it tells integers apart that are one float. Two equal floats
    /// that are no integers stand for the same number, so the rounding of the second half does no harm.
    pub(crate) fn push_key(self, key: &mut Vec<u8>) {
        let (float, whole) = match self {
            #[expect(clippy::cast_precision_loss, reason = "the whole value follows")]
            Self::Int(value) => (value as f64, value),
            #[expect(clippy::cast_possible_truncation, reason = "saturates; see above")]
            Self::Float(value) => (value, value as i128),
        };
        key.extend(float_bits(float).to_be_bytes());
        key.extend((whole.cast_unsigned() ^ (1 << 127)).to_be_bytes());
    }
}

/// Bits that compare as unsigned integers like the numbers they stand for; one zero, one NaN.
fn float_bits(value: f64) -> u64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() };
    let negative = bits >> 63 == 1;
    if negative { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut key = Vec::new();
        Number::parse(text.as_bytes()).unwrap().push_key(&mut key);
        key
    }

    #[test]
    fn keys_are_ordered_like_the_numbers() {
        let ascending = [
            "-inf",
            "-1e300",
            "-170141183460469231731687303715884105728",
            "-9007199254740993",
            "-9007199254740992",
            "-1.5",
            "-1",
            "-0.5",
            "0",
            "1e-320",
            "0.5",
            "1",
            "1.5",
            " 2 ",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "1e39",
            "inf",
            "nan",
        ];
        for pair in ascending.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn one_number_has_one_key_however_it_is_written() {
        for (a, b) in [("0", "-0.0"), ("7", "007"), ("7", "+7"), ("7", "7.0"), ("70", "7e1"), ("nan", "-NaN")]
        {
            assert_eq!(key(a), key(b), "{a} {b}");
        }
    }

    #[test]
    fn text_is_no_number() {
        for text in ["", " ", "a", "1a", "0x10", "1_000", "1,5", "--1"] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Number::parse(b"\xff1"), None);
    }

    proptest! {
        #[test]
        fn any_two_numbers_compare_as_their_keys(a in any::<i64>(), b in any::<f64>()) {
            let (x, y) = (key(&a.to_string()), key(&format!("{b:e}")));
            // Exact comparison of an i64 with a float: by way of i128, which holds every i64 and rounds down.
            let expected = if b.is_nan() || b >= 1e30 { std::cmp::Ordering::Less }
                else if b <= -1e30 { std::cmp::Ordering::Greater }
                else { i128::from(a).cmp(&(b.floor() as i128)).then(if b.floor() < b { std::cmp::Ordering::Less } else { std::cmp::Ordering::Equal }) };
            prop_assert_eq!(x.cmp(&y), expected);
        }
    }
}
