//! The all-pairs workload: the cosine similarity between all rows of a matrix, exact.
//!
//! It is a `train` like any user's: it reads the channel `matrix`, takes the rows of its own host by the
//! row-range formula, compares each of them with every row of the matrix and leaves
//! `part-<host>.parquet` (columns `row`, `col`, `similarity`) and `report-<host>.json` in the output folder.
//! It knows the /opt/ml contract and nothing of the engine.
//!
//! [`train`] takes plain values, [`train_here`] reads them from a contract tree. What a score is, to the last
//! bit, is said in [`score`]; which rows are neighbours in [`neighbours`].

mod dense;
mod element;
mod here;
mod machine;
mod matrix;
pub mod neighbours;
mod npy;
mod npz;
mod part;
mod problem;
mod quantised;
mod report;
pub mod score;
mod search;
mod settings;
mod sparse;
mod train;

pub use here::{HereError, train_here};
pub use matrix::Reading;
pub use part::PartError;
pub use problem::{FileProblem, MatrixError, NonFinite};
pub use report::{TrainReport, ZeroRows};
pub use settings::{HyperparameterError, Selection, Settings};
pub use train::{Progress, TrainError, TrainInput, train};
