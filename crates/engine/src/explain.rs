//! How an error becomes a sentence for a report.

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A number of bytes for people, with the exact number where that differs.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.into_iter().find(|(shift, _)| count >> shift > 0) {
        Some((shift, unit)) => {
            let tenths = (u128::from(count) * 10) >> shift;
            format!("{}.{} {unit} ({count} bytes)", tenths / 10, tenths % 10)
        }
        None => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_a_unit_and_exactly() {
        let table = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1 << 20, "1.0 MiB (1048576 bytes)"),
            (15 << 29, "7.5 GiB (8053063680 bytes)"),
            (u64::MAX, "17179869183.9 GiB (18446744073709551615 bytes)"),
        ];
        for (count, text) in table {
            assert_eq!(bytes(count), text);
        }
    }
}
