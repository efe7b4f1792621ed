//! Number types that a matrix may be stored in, and their conversion to float64.

/// Type of one stored number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    /// The upper half of a float32. NumPy has no name for it and stores it as two bytes without a type.
    Bf16,
    F32,
    F64,
}

impl Element {
    /// Bytes of one number.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether squares of its numbers can over- or underflow in float64.
    pub(crate) fn needs_scaling(self) -> bool {
        self == Self::F64
    }
}

/// Converts stored numbers to float64; exact but for 64-bit integers, which are rounded to the nearest.
/// Reads as many numbers as both sides have.
pub(crate) fn decode(bytes: &[u8], element: Element, big_endian: bool, out: &mut [f64]) {
    macro_rules! convert {
        ($type:ty, $value:ident => $float:expr) => {{
            let stored = bytes.as_chunks::<{ size_of::<$type>() }>().0.iter().zip(out);
            if big_endian {
                stored.for_each(|(bytes, out)| {
                    let $value = <$type>::from_be_bytes(*bytes);
                    *out = $float;
                });
            } else {
                stored.for_each(|(bytes, out)| {
                    let $value = <$type>::from_le_bytes(*bytes);
                    *out = $float;
                });
            }
        }};
    }
    match element {
        Element::I8 => convert!(i8, v => f64::from(v)),
        Element::I16 => convert!(i16, v => f64::from(v)),
        Element::I32 => convert!(i32, v => f64::from(v)),
        Element::I64 => convert!(i64, v => v as f64),
        Element::U8 => convert!(u8, v => f64::from(v)),
        Element::U16 => convert!(u16, v => f64::from(v)),
        Element::U32 => convert!(u32, v => f64::from(v)),
        Element::U64 => convert!(u64, v => v as f64),
        Element::F16 => convert!(u16, v => half::f16::from_bits(v).to_f64()),
        Element::Bf16 => convert!(u16, v => f64::from(f32::from_bits(u32::from(v) << 16))),
        Element::F32 => convert!(f32, v => f64::from(v)),
        Element::F64 => convert!(f64, v => v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read_in_both_byte_orders() {
        let table: [(Element, Vec<u8>, f64); 12] = [
            (Element::I8, (-5i8).to_le_bytes().into(), -5.0),
            (Element::I16, (-5i16).to_le_bytes().into(), -5.0),
            (Element::I32, (-70_000i32).to_le_bytes().into(), -70_000.0),
            (Element::I64, (-5i64).to_le_bytes().into(), -5.0),
            (Element::U8, 200u8.to_le_bytes().into(), 200.0),
            (Element::U16, 60_000u16.to_le_bytes().into(), 60_000.0),
            (Element::U32, u32::MAX.to_le_bytes().into(), 4_294_967_295.0),
            (Element::U64, u64::MAX.to_le_bytes().into(), 18_446_744_073_709_551_616.0),
            (Element::F16, half::f16::from_f32(-1.5).to_le_bytes().into(), -1.5),
            (Element::Bf16, half::bf16::from_f32(-1.5).to_le_bytes().into(), -1.5),
            (Element::F32, 1e-45f32.to_le_bytes().into(), f64::from(1e-45f32)),
            (Element::F64, (-1e300f64).to_le_bytes().into(), -1e300),
        ];
        for (element, mut bytes, expected) in table {
            assert_eq!(bytes.len(), element.size());
            for big_endian in [false, true] {
                let mut out = [0.0];
                decode(&bytes, element, big_endian, &mut out);
                assert_eq!(out[0], expected, "{element:?}");
                bytes.reverse();
            }
        }
    }
}
