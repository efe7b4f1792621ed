//! Hyperparameters of the workload: the string map and what it means.

use crate::matrix::Reading;
use std::collections::BTreeMap;
use thiserror::Error;

/// Neighbours of a row if neither `top_k` nor `threshold` is given.
const DEFAULT_TOP_K: usize = 10;

/// The names that are known, as an error message lists them.
const KNOWN: &str = "`top_k`, `threshold`, `pairs`, `mutual`, `output`, `full`, `force`, `format`, `id_column`, \
                     `csv_header`, `tensor`, `symmetric`, `metric`";

/// Which neighbours are asked for. One of the two is always set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Selection {
    /// At most so many neighbours a row; all that reach the threshold if `None`.
    pub top_k: Option<usize>,
    /// Only neighbours whose score is at least this, the least float32 that is not below what was asked for.
    pub threshold: Option<f32>,
}

/// How often a pair of rows that are each other's neighbours is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listing {
    /// With each of the two rows.
    #[default]
    Twice,
    /// With the lower row only.
    Once,
}

/// The number that is written for a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// The score, from −1 to 1.
    #[default]
    Similarity,
    /// One minus the score, from 0 to 2, rounded to float32. Neighbours stay in the order of their scores.
    Distance,
}

/// The format of the file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PairFormat {
    /// Parquet: sorted by row and rank, so that one row can be looked up without reading the others.
    #[default]
    Parquet,
    /// Comma-separated text with a header.
    Csv,
    /// Arrow's file format.
    Arrow,
    /// A sparse matrix as `scipy.sparse.load_npz` reads it: row numbers only, columns ascending in each row.
    Npz,
}

/// What is to be found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted {
    /// The neighbours of each row.
    Neighbours {
        /// Which ones.
        selection: Selection,
        /// Whether pairs of rows are written once or twice.
        listing: Listing,
        /// Only pairs of rows that are in each other's lists.
        mutual: bool,
    },
    /// All scores of all rows.
    Full {
        /// Whether to write them however large the result is.
        force: bool,
    },
}

/// The hyperparameters, checked. Cosine is the only metric so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What is to be found.
    pub wanted: Wanted,
    /// The number that is written for a pair.
    pub measure: Measure,
    /// The format of the result; the whole matrix is always `.npy`.
    pub format: PairFormat,
    /// How the files of the matrix are to be read.
    pub reading: Reading,
    /// Whether several hosts share out pairs, so that the merge has to combine their lists; where that is possible
    /// and pays if `None`.
    pub symmetric: Option<bool>,
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
    /// The value is none that the hyperparameter can have.
    #[error("hyperparameter `{name}` is `{value}`: it must be {needed}")]
    Value {
        /// The name.
        name: &'static str,
        /// The value.
        value: String,
        /// What it can be.
        needed: &'static str,
    },
    /// Two hyperparameters that do not go together.
    #[error("hyperparameter `{name}` does not go with {other}: {reason}")]
    Conflict {
        /// The name.
        name: &'static str,
        /// The other one, or what else is asked for.
        other: &'static str,
        /// Why.
        reason: &'static str,
    },
}

/// The values as they were given, before it is seen whether they go together.
#[derive(Debug, Default)]
struct Given {
    top_k: Option<usize>,
    threshold: Option<f32>,
    listing: Listing,
    mutual: bool,
    full: bool,
    force: bool,
    format: Option<PairFormat>,
}

impl Settings {
    /// Reads the hyperparameters of a job.
    ///
    /// A value may stand in JSON quotes, as some clients send it. Names that begin with `sagemaker_` are
    /// put in by Amazon's SDKs and mean nothing here.
    ///
    /// # Errors
    /// The first name that is unknown or value that is unusable, in the order of the names; then what does not go
    /// together.
    pub fn parse(hyperparameters: &BTreeMap<String, String>) -> Result<Self, HyperparameterError> {
        let mut given = Given::default();
        let mut measure = Measure::default();
        let mut reading = Reading::default();
        let mut symmetric = None;
        for (name, value) in hyperparameters {
            let value = unquoted(value);
            match name.as_str() {
                "top_k" => given.top_k = Some(parse_top_k(value)?),
                "threshold" => given.threshold = Some(parse_threshold(value)?),
                "pairs" => given.listing = one_of("pairs", value, "`twice` or `once`", &LISTINGS)?,
                "mutual" => given.mutual = parse_truth("mutual", value)?,
                "output" => measure = one_of("output", value, "`similarity` or `distance`", &MEASURES)?,
                "full" => given.full = parse_truth("full", value)?,
                "force" => given.force = parse_truth("force", value)?,
                "format" => {
                    given.format =
                        Some(one_of("format", value, "`parquet`, `csv`, `arrow` or `npz`", &FORMATS)?);
                }
                "id_column" => reading.id_column = Some(value.to_owned()),
                "csv_header" => reading.csv_header = Some(parse_truth("csv_header", value)?),
                "tensor" => reading.tensor = Some(value.to_owned()),
                "symmetric" => symmetric = Some(parse_truth("symmetric", value)?),
                "metric" => one_of("metric", value, "`cosine`", &[("cosine", ())])?,
                _ if name.starts_with("sagemaker_") => {}
                _ => return Err(HyperparameterError::Unknown { name: name.clone() }),
            }
        }
        let format = given.format.unwrap_or_default();
        Ok(Self { wanted: given.wanted()?, measure, format, reading, symmetric })
    }

    /// Checks that the settings make sense for rows of a query.
    ///
    /// # Errors
    /// A hyperparameter that only has a meaning among the rows of one matrix.
    pub fn check_query(&self) -> Result<(), HyperparameterError> {
        let reason = "its rows are no neighbours of the query's, but the other way round only";
        let other = "the channel `query`";
        match self.wanted {
            Wanted::Neighbours { mutual: true, .. } => conflict("mutual", other, reason),
            Wanted::Neighbours { listing: Listing::Once, .. } => conflict("pairs", other, reason),
            _ => Ok(()),
        }
    }
}

impl Given {
    fn wanted(&self) -> Result<Wanted, HyperparameterError> {
        if self.full {
            return self.full();
        }
        if self.force {
            return conflict("force", "neighbours", "it is for `full`, whose size is limited");
        }
        let mut selection = Selection { top_k: self.top_k, threshold: self.threshold };
        if self.mutual && self.top_k.is_none() && self.threshold.is_some() {
            return conflict(
                "mutual",
                "`threshold` alone",
                "pairs above a threshold always are; it needs `top_k`",
            );
        }
        if selection == (Selection { top_k: None, threshold: None }) {
            selection.top_k = Some(DEFAULT_TOP_K);
        }
        if self.listing == Listing::Once && selection.top_k.is_some() && !self.mutual {
            return conflict(
                "pairs",
                "`top_k`",
                "one row can be among the nearest of another without the reverse; `once` needs `threshold` alone, or `mutual`",
            );
        }
        Ok(Wanted::Neighbours { selection, listing: self.listing, mutual: self.mutual })
    }

    fn full(&self) -> Result<Wanted, HyperparameterError> {
        let reason = "all scores of all rows are written then";
        let others = [
            ("top_k", self.top_k.is_some()),
            ("threshold", self.threshold.is_some()),
            ("mutual", self.mutual),
            ("pairs", self.listing == Listing::Once),
        ];
        if let Some((name, _)) = others.iter().find(|(_, given)| *given) {
            return conflict(name, "`full`", reason);
        }
        if self.format.is_some() {
            return conflict("format", "`full`", "the whole matrix is written as .npy");
        }
        Ok(Wanted::Full { force: self.force })
    }
}

const LISTINGS: [(&str, Listing); 2] = [("twice", Listing::Twice), ("once", Listing::Once)];
const MEASURES: [(&str, Measure); 2] = [("similarity", Measure::Similarity), ("distance", Measure::Distance)];
const FORMATS: [(&str, PairFormat); 4] = [
    ("parquet", PairFormat::Parquet),
    ("csv", PairFormat::Csv),
    ("arrow", PairFormat::Arrow),
    ("npz", PairFormat::Npz),
];

impl PairFormat {
    /// The format as its name and as the ending of its files.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// The format of a file with that ending.
    pub fn of_ending(ending: &str) -> Option<Self> {
        FORMATS.iter().find(|(name, _)| ending.eq_ignore_ascii_case(name)).map(|(_, format)| *format)
    }
}

fn conflict<T>(
    name: &'static str,
    other: &'static str,
    reason: &'static str,
) -> Result<T, HyperparameterError> {
    Err(HyperparameterError::Conflict { name, other, reason })
}

fn refused(name: &'static str, value: &str, needed: &'static str) -> HyperparameterError {
    HyperparameterError::Value { name, value: value.to_owned(), needed }
}

fn one_of<T: Copy>(
    name: &'static str,
    value: &str,
    needed: &'static str,
    words: &[(&str, T)],
) -> Result<T, HyperparameterError> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| refused(name, value, needed))
}

fn parse_truth(name: &'static str, value: &str) -> Result<bool, HyperparameterError> {
    // Python's spelling comes from clients that turn everything into text.
    one_of(
        name,
        value,
        "`true` or `false`",
        &[("true", true), ("false", false), ("True", true), ("False", false)],
    )
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

fn parse_top_k(value: &str) -> Result<usize, HyperparameterError> {
    match value.parse() {
        Ok(0) | Err(_) => Err(refused("top_k", value, "a whole number of at least 1")),
        Ok(top_k) => Ok(top_k),
    }
}

fn parse_threshold(value: &str) -> Result<f32, HyperparameterError> {
    let refused = || refused("threshold", value, "a number from -1 to 1");
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

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let map = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::parse(&map).map_err(|e| e.to_string())
    }

    fn selection(pairs: &[(&str, &str)]) -> Selection {
        match parse(pairs).unwrap().wanted {
            Wanted::Neighbours { selection, .. } => selection,
            Wanted::Full { .. } => panic!("not neighbours"),
        }
    }

    #[test]
    fn ten_neighbours_unless_something_else_is_asked_for() {
        let ten = Selection { top_k: Some(10), threshold: None };
        assert_eq!(selection(&[]), ten);
        assert_eq!(selection(&[("metric", "cosine"), ("sagemaker_region", "\"eu-west-1\"")]), ten);
        assert_eq!(selection(&[("top_k", "\"10\""), ("metric", "\"cosine\"")]), ten);
        assert_eq!(selection(&[("mutual", "true")]), ten);
        assert_eq!(selection(&[("threshold", "0.5")]), Selection { top_k: None, threshold: Some(0.5) });
        assert_eq!(
            selection(&[("threshold", "0.7"), ("top_k", "3")]),
            Selection { top_k: Some(3), threshold: Some(0.700_000_05) }
        );
    }

    #[test]
    fn every_setting_has_its_place() {
        let settings = parse(&[
            ("pairs", "once"),
            ("threshold", "0"),
            ("output", "distance"),
            ("format", "npz"),
            ("id_column", "word"),
            ("csv_header", "False"),
            ("tensor", "emb.weight"),
            ("symmetric", "true"),
        ]);
        let selection = Selection { top_k: None, threshold: Some(0.0) };
        let wanted = Wanted::Neighbours { selection, listing: Listing::Once, mutual: false };
        let reading = Reading {
            id_column: Some("word".into()),
            csv_header: Some(false),
            tensor: Some("emb.weight".into()),
        };
        assert_eq!(
            settings,
            Ok(Settings {
                wanted,
                measure: Measure::Distance,
                format: PairFormat::Npz,
                reading,
                symmetric: Some(true)
            })
        );
        assert_eq!(
            parse(&[("full", "true"), ("force", "true")]).unwrap().wanted,
            Wanted::Full { force: true }
        );
    }

    #[test]
    fn a_refusal_names_the_key_the_value_and_what_would_be_right() {
        let unknown = ["hyperparameter `topk` is unknown: there are ", KNOWN].concat();
        let table = [
            (("topk", "3"), unknown.as_str()),
            (("top_k", "0"), "hyperparameter `top_k` is `0`: it must be a whole number of at least 1"),
            (("top_k", "2.5"), "hyperparameter `top_k` is `2.5`: it must be a whole number of at least 1"),
            (("top_k", "-1"), "hyperparameter `top_k` is `-1`: it must be a whole number of at least 1"),
            (("top_k", ""), "hyperparameter `top_k` is ``: it must be a whole number of at least 1"),
            (("threshold", "nan"), "hyperparameter `threshold` is `nan`: it must be a number from -1 to 1"),
            (("threshold", "1.01"), "hyperparameter `threshold` is `1.01`: it must be a number from -1 to 1"),
            (("threshold", "high"), "hyperparameter `threshold` is `high`: it must be a number from -1 to 1"),
            (("metric", "dot"), "hyperparameter `metric` is `dot`: it must be `cosine`"),
            (("pairs", "both"), "hyperparameter `pairs` is `both`: it must be `twice` or `once`"),
            (("mutual", "1"), "hyperparameter `mutual` is `1`: it must be `true` or `false`"),
            (
                ("format", "xlsx"),
                "hyperparameter `format` is `xlsx`: it must be `parquet`, `csv`, `arrow` or `npz`",
            ),
        ];
        for (pair, message) in table {
            assert_eq!(parse(&[pair]).unwrap_err(), message);
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_reason() {
        let table: [(&[(&str, &str)], &str); 7] = [
            (&[("full", "true"), ("top_k", "3")], "`top_k` does not go with `full`"),
            (&[("full", "true"), ("threshold", "0.3")], "`threshold` does not go with `full`"),
            (&[("full", "true"), ("mutual", "true")], "`mutual` does not go with `full`"),
            (&[("full", "true"), ("format", "csv")], "`format` does not go with `full`"),
            (&[("force", "true")], "`force` does not go with neighbours"),
            (&[("pairs", "once"), ("top_k", "3")], "`pairs` does not go with `top_k`"),
            (&[("mutual", "true"), ("threshold", "0.3")], "`mutual` does not go with `threshold` alone"),
        ];
        for (pairs, message) in table {
            let found = parse(pairs).unwrap_err();
            assert!(found.starts_with(&["hyperparameter ", message, ": "].concat()), "{found}");
        }
        for name in ["mutual", "pairs"] {
            let value = if name == "pairs" { "once" } else { "true" };
            let settings =
                parse(&[(name, value), if name == "pairs" { ("threshold", "0.1") } else { ("top_k", "2") }]);
            let error = settings.unwrap().check_query().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("`query`"), "{error}");
        }
    }
}
