//! Hyperparameters of the workload: the string map and what it means.

use std::collections::BTreeMap;
use thiserror::Error;

/// Neighbours of a row if neither `top_k` nor `threshold` is given.
const DEFAULT_TOP_K: usize = 10;

/// The names that are known, as an error message lists them.
const KNOWN: &str = "`top_k`, `threshold`, `metric`";

/// Which neighbours are asked for. One of the two is always set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Selection {
    /// At most so many neighbours a row; all that reach the threshold if `None`.
    pub top_k: Option<usize>,
    /// Only neighbours whose score is at least this, the least float32 that is not below what was asked for.
    pub threshold: Option<f32>,
}

/// The hyperparameters, checked. Cosine is the only metric so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Which neighbours are asked for.
    pub selection: Selection,
}

/// A hyperparameter that can not be used.
#[derive(Debug, Error, PartialEq)]
pub enum HyperparameterError {
    /// No hyperparameter of that name exists.
    #[error("hyperparameter `{name}` is unknown: there are {KNOWN}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// `top_k` is not a positive whole number.
    #[error("hyperparameter `top_k` is `{value}`: it must be a whole number of at least 1")]
    TopK {
        /// The value.
        value: String,
    },
    /// `threshold` is not a number between -1 and 1.
    #[error("hyperparameter `threshold` is `{value}`: it must be a number from -1 to 1")]
    Threshold {
        /// The value.
        value: String,
    },
    /// `metric` is not one that is computed here.
    #[error("hyperparameter `metric` is `{value}`: it must be `cosine`")]
    Metric {
        /// The value.
        value: String,
    },
}

impl Settings {
    /// Reads the hyperparameters of a job.
    ///
    /// A value may stand in JSON quotes, as some clients send it. Names that begin with `sagemaker_` are
    /// put in by Amazon's SDKs and mean nothing here.
    ///
    /// # Errors
    /// The first name that is unknown or value that is unusable, in the order of the names.
    pub fn parse(hyperparameters: &BTreeMap<String, String>) -> Result<Self, HyperparameterError> {
        let mut selection = Selection { top_k: None, threshold: None };
        for (name, value) in hyperparameters {
            let value = unquoted(value);
            match name.as_str() {
                "top_k" => selection.top_k = Some(parse_top_k(value)?),
                "threshold" => selection.threshold = Some(parse_threshold(value)?),
                "metric" if value == "cosine" => {}
                "metric" => return Err(HyperparameterError::Metric { value: value.to_owned() }),
                _ if name.starts_with("sagemaker_") => {}
                _ => return Err(HyperparameterError::Unknown { name: name.clone() }),
            }
        }
        if selection == (Selection { top_k: None, threshold: None }) {
            selection.top_k = Some(DEFAULT_TOP_K);
        }
        Ok(Self { selection })
    }
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

fn parse_top_k(value: &str) -> Result<usize, HyperparameterError> {
    let refused = || HyperparameterError::TopK { value: value.to_owned() };
    match value.parse() {
        Ok(0) | Err(_) => Err(refused()),
        Ok(top_k) => Ok(top_k),
    }
}

fn parse_threshold(value: &str) -> Result<f32, HyperparameterError> {
    let refused = || HyperparameterError::Threshold { value: value.to_owned() };
    let threshold: f64 = value.parse().map_err(|_| refused())?;
    if !(-1.0..=1.0).contains(&threshold) {
        return Err(refused());
    }
    let nearest = threshold as f32 + 0.0;
    // Scores are float32: those that are at least the threshold are at least the next float32 from it upwards.
    Ok(if f64::from(nearest) < threshold { nearest.next_up() } else { nearest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Selection, String> {
        let map = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::parse(&map).map(|s| s.selection).map_err(|e| e.to_string())
    }

    #[test]
    fn ten_neighbours_unless_something_else_is_asked_for() {
        let ten = Selection { top_k: Some(10), threshold: None };
        assert_eq!(parse(&[]), Ok(ten));
        assert_eq!(parse(&[("metric", "cosine"), ("sagemaker_region", "\"eu-west-1\"")]), Ok(ten));
        assert_eq!(parse(&[("top_k", "\"10\""), ("metric", "\"cosine\"")]), Ok(ten));
        assert_eq!(parse(&[("threshold", "0.5")]), Ok(Selection { top_k: None, threshold: Some(0.5) }));
        assert_eq!(
            parse(&[("threshold", "0.7"), ("top_k", "3")]),
            Ok(Selection { top_k: Some(3), threshold: Some(0.700_000_05) })
        );
    }

    #[test]
    fn a_refusal_names_the_key_the_value_and_what_would_be_right() {
        let table = [
            (("topk", "3"), "hyperparameter `topk` is unknown: there are `top_k`, `threshold`, `metric`"),
            (("top_k", "0"), "hyperparameter `top_k` is `0`: it must be a whole number of at least 1"),
            (("top_k", "2.5"), "hyperparameter `top_k` is `2.5`: it must be a whole number of at least 1"),
            (("top_k", "-1"), "hyperparameter `top_k` is `-1`: it must be a whole number of at least 1"),
            (("top_k", ""), "hyperparameter `top_k` is ``: it must be a whole number of at least 1"),
            (("threshold", "nan"), "hyperparameter `threshold` is `nan`: it must be a number from -1 to 1"),
            (("threshold", "1.01"), "hyperparameter `threshold` is `1.01`: it must be a number from -1 to 1"),
            (("threshold", "high"), "hyperparameter `threshold` is `high`: it must be a number from -1 to 1"),
            (("metric", "dot"), "hyperparameter `metric` is `dot`: it must be `cosine`"),
        ];
        for (pair, message) in table {
            assert_eq!(parse(&[pair]), Err(message.to_owned()));
        }
    }
}
