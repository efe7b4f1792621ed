//! The all-pairs workload: the cosine similarity between all rows of a matrix, exact.
//!
//! It is a `train` like any user's: it reads the channel `matrix`, takes the rows of its own host by the
//! row-range formula, compares each of them with every row of the matrix and leaves
//! `part-<host>.parquet` (columns `row`, `col`, `similarity`) and `report-<host>.json` in the output folder.
//! It knows the /opt/ml contract and nothing of the engine.
//!
//! [`train`] takes plain values, [`train_here`] reads them from a contract tree. What a score is, to the last
//! bit, is said in [`score`]; which rows are neighbours in [`neighbours`].

mod checkpoint;
mod dense;
mod element;
mod full;
mod here;
mod histogram;
mod lookup;
mod machine;
mod matrix;
pub mod neighbours;
mod npy;
mod npz;
mod output;
mod problem;
mod quantised;
mod report;
pub mod score;
mod search;
mod settings;
mod sparse;
mod symmetric;
mod train;
mod work;

pub use checkpoint::{CheckpointError, Checkpoints};
pub use here::{HereError, train_here};
pub use histogram::Histogram;
pub use lookup::{Listed, LookupError, RowOfPairs, neighbours_of};
pub use matrix::Reading;
pub use output::PartError;
pub use problem::{FileProblem, MatrixError, NonFinite};
pub use report::{TrainReport, ZeroRows};
pub use settings::{HyperparameterError, Listing, Measure, PairFormat, Selection, Settings, Wanted};
pub use train::{PairsInput, Progress, TrainError, TrainInput, pairs, train};
