//! Times of the API's answers, which are seconds since 1970 with a fraction.

use serde_json::Value;

/// Now, as the API's answers have it.
pub(crate) fn now() -> f64 {
    jiff::Timestamp::now().as_duration().as_secs_f64()
}

/// Date and time of day in UTC, or `-`.
pub(crate) fn moment(value: &Value) -> String {
    let at = value.as_f64().and_then(|seconds| jiff::Timestamp::from_second(seconds as i64).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A time span in its two largest units.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if whole < 10 => format!("{:.1} s", seconds.max(0.0)),
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => format!("{minutes} min {} s", whole % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spans_have_two_units_and_moments_are_of_utc() {
        let spans: Vec<_> = [0.26, 12.9, 61.0, 7_260.0, 90_000.0, -1.0].map(span).into();
        assert_eq!(spans, ["0.3 s", "12 s", "1 min 1 s", "2 h 1 min", "1 d 1 h", "0.0 s"]);
        assert_eq!(moment(&json!(1_440_938_160.9)), "2015-08-30 12:36:00Z");
        assert_eq!(moment(&Value::Null), "-");
    }
}
