//! The `/opt/ml` contract between a platform that runs training jobs and the program that trains,
//! both sides of it.
//!
//! The platform's side writes the configuration files ([`contract`]). The program's side reads them
//! ([`Training::load`]), takes its share of the rows ([`split::row_range`]), keeps checkpoints that are
//! never half written ([`checkpoint`]) and says why it gave up ([`fail`]).
//!
//! ```no_run
//! use trainyard_toolkit::Training;
//!
//! let training = Training::load()?;
//! let matrix = training.channel("matrix")?;
//! let rows = training.row_range(1_797);
//! let part = training.model_folder().join(format!("part-{}.csv", training.host()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod checkpoint;
pub mod contract;
mod failure;
pub mod split;
mod training;

pub use failure::{fail, fail_in};
pub use training::{ChannelError, LoadError, Training};
