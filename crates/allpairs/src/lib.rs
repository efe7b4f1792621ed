//! The all-pairs workload: the cosine similarity between all rows of a matrix, exact.
//!
//! It is a `train` like any user's: it reads the channel `matrix`, takes the rows of its own host by the
//! row-range formula, compares each of them with every row of the matrix and leaves
//! `part-<host>.parquet` (columns `row`, `col`, `similarity`) and `report-<host>.json` in the output folder.
//! It knows the /opt/ml contract and nothing of the engine.
//!
//! [`train`] takes plain values, [`train_here`] reads them from a contract tree, [`pairs`] is the same without a job.
//! What a score is, to the last bit, is said in [`score`]; which rows are neighbours in [`neighbours`].
//!
//! # Files that are read
//!
//! | ending | what |
//! |---|---|
//! | `.npy` | two dimensions, either order, floats of 16 to 64 bits and integers; mapped |
//! | `.npz` | a sparse matrix in CSR form as `scipy.sparse.save_npz` writes it |
//! | `.parquet`, `.arrow`, `.feather`, `.arrows` | all columns numbers; or one column of lists of one length; or two of lists, `indices` and `values`, for sparse rows |
//! | `.csv`, `.tsv` | numbers, with a header or without |
//! | `.safetensors`, `.h5` (with the feature `hdf5`) | one matrix, named by `tensor` if there are several |
//! | `.fvecs`, `.bvecs`, `.ivecs` | rows that each begin with their length; mapped |
//!
//! The files of a folder are one matrix in the byte order of their paths; all must have the same number of columns.
//! `.npy`, `.safetensors` and vectors are read where they lie, block by block, so that they may be larger than the
//! memory; the others are decoded once, in the number type that they have (text as float64). A `.npy` in Fortran's
//! order is turned into rows first if half of the memory has room for it, since its rows do not lie in one piece.
//!
//! Ids are taken from the column that `id_column` names, else from one called `id` or from the index that pandas
//! writes, and stand in the result in place of row numbers. In a CSV file without a header a first field that is no
//! number is the id.
//!
//! # What can be asked for
//!
//! | hyperparameter | meaning |
//! |---|---|
//! | `top_k` | at most so many neighbours of each row; 10 if there is no `threshold` either |
//! | `threshold` | only pairs whose score, as written, is at least this; with `top_k`, both hold |
//! | `pairs` | `twice` (each pair with both of its rows) or `once` (with the lower row; for `threshold` alone, or `mutual`) |
//! | `mutual` | only pairs of rows that are each among the `top_k` of the other |
//! | `output` | `similarity`, or `distance`: 1 − similarity, from 0 to 2, 0 for copies; the order stays that of the scores |
//! | `format` | `parquet`, `csv`, `arrow`, or `npz`: one sparse matrix, rows of this host by rows of the matrix |
//! | `full` | all scores of all rows, the row itself included, as one `.npy` matrix of float32 (see `full.rs`); above 10 GiB an instance only with `force` |
//!
//! With a channel `query` its rows are compared with those of `matrix`, not these with one another, and no row is left
//! out as being the same. `mutual` has each instance search all rows, since it takes the lists of both sides: more
//! instances make it no faster.

mod bytes;
mod checkpoint;
mod dense;
mod element;
mod full;
mod here;
mod histogram;
mod lookup;
mod machine;
mod matrix;
mod memory;
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
mod words;
mod work;

pub use checkpoint::{CheckpointError, Checkpoints};
pub use here::{HereError, train_here};
pub use histogram::Histogram;
pub use lookup::{Listed, LookupError, RowOfPairs, neighbours_of};
pub use matrix::{Reading, read_shape};
pub use output::PartError;
pub use problem::{FileProblem, MatrixError, NonFinite};
pub use report::{TrainReport, ZeroRows};
pub use settings::{HyperparameterError, Listing, Measure, PairFormat, Selection, Settings, Wanted};
pub use train::{PairsInput, Progress, TrainError, TrainInput, pairs, train};
