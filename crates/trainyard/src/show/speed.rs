//! How fast something comes, and how long it will take.

use std::fmt;
use std::time::Duration;

use indicatif::{HumanBytes, HumanDuration};

/// Over all the time so far; nothing at all before there is anything to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Speed {
    pub(super) bytes_per_second: Option<u64>,
    pub(super) seconds_left: Option<u64>,
}

/// Before this much time has passed a speed is chance.
const FIRST_MILLIS: u64 = 500;

impl Speed {
    /// `bytes` of `of_bytes` have come in so many milliseconds.
    pub(super) fn of(bytes: u64, of_bytes: u64, millis: u64) -> Self {
        if bytes == 0 || millis < FIRST_MILLIS {
            return Self { bytes_per_second: None, seconds_left: None };
        }
        let per_second = u128::from(bytes) * 1000 / u128::from(millis);
        let left = u128::from(of_bytes.saturating_sub(bytes)).checked_div(per_second);
        let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Self { bytes_per_second: Some(narrow(per_second)), seconds_left: left.map(narrow) }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bytes) = self.bytes_per_second {
            write!(f, ", {}/s", HumanBytes(bytes))?;
        }
        match self.seconds_left {
            Some(seconds) if seconds > 0 => {
                write!(f, ", {} left", HumanDuration(Duration::from_secs(seconds)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_what_is_missing_at_the_speed_so_far() {
        let speed = |bytes, of, millis| {
            let Speed { bytes_per_second, seconds_left } = Speed::of(bytes, of, millis);
            (bytes_per_second, seconds_left)
        };
        assert_eq!(speed(1000, 4000, 2000), (Some(500), Some(6)));
        assert_eq!(speed(4000, 4000, 2000), (Some(2000), Some(0)));
        assert_eq!(speed(1, 4000, 2000), (Some(0), None));
        assert_eq!(speed(0, 4000, 2000), (None, None));
        assert_eq!(speed(1000, 4000, 10), (None, None));
        assert_eq!(Speed::of(1 << 20, 11 << 20, 1000).to_string(), ", 1.00 MiB/s, 10 seconds left");
    }
}
