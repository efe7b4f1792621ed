//! What is told of the values of a period.

use super::{ApiError, wrong_value};

/// One way to make one number of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Statistic {
    SampleCount,
    Average,
    Sum,
    Minimum,
    Maximum,
    /// Up to this part of the values, in per cent.
    Percentile(f64),
}

impl Statistic {
    /// Reads its name.
    pub(super) fn parse(name: &str) -> Result<Self, ApiError> {
        let percentile = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            text.parse().ok().filter(|percent: &f64| plain && (0.0..=100.0).contains(percent))
        };
        match name {
            "SampleCount" => Ok(Self::SampleCount),
            "Average" => Ok(Self::Average),
            "Sum" => Ok(Self::Sum),
            "Minimum" => Ok(Self::Minimum),
            "Maximum" => Ok(Self::Maximum),
            other => other.strip_prefix('p').and_then(percentile).map(Self::Percentile).ok_or_else(|| {
                wrong_value(format!(
                    "{other} is no statistic that is known here: SampleCount, Average, Sum, Minimum, Maximum and \
                     percentiles such as p99.9 are"
                ))
            }),
        }
    }

    /// Of values that are in order, at least one.
    pub(super) fn of(self, sorted: &[f64]) -> f64 {
        let count = sorted.len() as f64;
        let sum = || sorted.iter().sum::<f64>();
        match self {
            Self::SampleCount => count,
            Self::Average => sum() / count,
            Self::Sum => sum(),
            Self::Minimum => sorted.first().copied().unwrap_or_default(),
            Self::Maximum => sorted.last().copied().unwrap_or_default(),
            Self::Percentile(percent) => between(sorted, percent / 100.0 * (count - 1.0)),
        }
    }
}

/// The value at a place between two, by the straight line between them.
fn between(sorted: &[f64], place: f64) -> f64 {
    let at = |index: f64| sorted.get(index as usize).copied().unwrap_or_default();
    let (below, above) = (at(place.floor()), at(place.ceil()));
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statistic_is_what_its_name_says() {
        let values = [1.0, 2.0, 4.0, 9.0];
        let of = |name: &str| Statistic::parse(name).unwrap().of(&values);
        let found = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"].map(of);
        assert_eq!(found, [4.0, 4.0, 16.0, 1.0, 9.0]);
        assert_eq!(["p0", "p50", "p100", "p75.0"].map(of), [1.0, 3.0, 9.0, 5.25]);
        assert_eq!(Statistic::Percentile(99.0).of(&[7.0]), 7.0);
    }

    #[test]
    fn what_is_not_known_is_told() {
        for wrong in ["", "average", "p", "p101", "p-1", "pNaN", "p1e1", "TM(10%:90%)", "IQM"] {
            let error = Statistic::parse(wrong).unwrap_err();
            assert!(error.message.contains(wrong) && error.message.contains("p99.9"), "{wrong}");
        }
    }
}
