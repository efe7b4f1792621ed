//! The GPUs of a machine, as the Container Device Interface describes them.
//!
//! Whoever knows a device's driver writes down what an instance needs for it; for NVIDIA that is
//! `nvidia-ctk cdi generate`. The format is that of the specification of the Container Device Interface (CDI).

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::plan::Gpu;

mod cdi;

pub use cdi::CdiError;

/// Where descriptions are; of two devices of one name that of the later folder counts.
pub const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Descriptions that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GpusError {
    /// A file can't be read.
    #[error("the descriptions of GPUs can't be read")]
    Io(#[from] io::Error),
    /// A file holds something else than it should.
    #[error("{}: this is no description of devices", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: CdiError,
    },
}

/// The GPUs that are described on this machine, in order of their numbers.
///
/// # Errors
/// A description is there but can't be used.
pub fn gpus() -> Result<Vec<Gpu>, GpusError> {
    let mut found = cdi::Devices::default();
    for folder in FOLDERS.map(Path::new) {
        for path in descriptions(folder)? {
            let text = fs::read_to_string(&path)?;
            found.add(&text).map_err(|source| GpusError::Damaged { path, source })?;
        }
    }
    Ok(found.gpus())
}

/// The files of a folder that hold descriptions, in order of their names; a folder that is not there has none.
fn descriptions(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json" || ending == "yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
