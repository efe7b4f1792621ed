//! How often the holder of a key may ask.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A bucket of tokens for each access key: it fills at the rate, and holds what comes in two seconds.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Requests per second.
    rate: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Pace {
    /// So many requests per second of each key.
    pub(crate) fn new(rate: u32) -> Self {
        Self { rate: rate.into(), buckets: Mutex::default() }
    }

    /// Whether another request may come in now. Keys are asked of whose signature is right, so there are few.
    pub(crate) fn allows(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let most = 2.0 * self.rate;
        if !buckets.contains_key(key) {
            buckets.insert(key.to_owned(), Bucket { tokens: most, filled: now });
        }
        let Some(bucket) = buckets.get_mut(key) else { return true };
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * self.rate).min(most);
        bucket.filled = now;
        let allowed = bucket.tokens >= 1.0;
        bucket.tokens -= f64::from(u8::from(allowed));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_key_has_its_own_rate_and_a_short_rush() {
        let (pace, start) = (Pace::new(10), Instant::now());
        let allowed = |key: &str, at: f64| {
            let at = start + Duration::from_secs_f64(at);
            (0..100).filter(|_| pace.allows(key, at)).count()
        };
        assert_eq!((allowed("a", 0.0), allowed("a", 0.0), allowed("b", 0.0)), (20, 0, 20));
        assert_eq!(allowed("a", 0.55), 5);
        assert_eq!(allowed("a", 100.0), 20);
    }
}
