//! Parts in a folder, read where they lie.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::Taken;
use crate::error::MergeError;
use crate::options::Progress;
use crate::part::Part;
use crate::scratch;
use crate::select::Selection;

/// Finds the parts under `folder`; an earlier result at `output` is not one of them.
pub(super) fn take_out(
    folder: &Path,
    selection: &Selection,
    output: &Path,
    progress: &dyn Fn(Progress),
) -> Result<Taken, MergeError> {
    let open_error = |source| MergeError::Open { archive: folder.to_path_buf(), source };
    let mut files = Vec::new();
    list(folder, &mut files).map_err(open_error)?;
    files.sort();
    let earlier = fs::canonicalize(output).ok();
    let mut taken = Taken::default();
    let mut bytes = 0;
    for file in files {
        let path_bytes = relative(folder, &file);
        let path = String::from_utf8_lossy(&path_bytes).into_owned();
        let found = fs::symlink_metadata(&file).map_err(open_error)?;
        let is_output = earlier.is_some() && fs::canonicalize(&file).ok() == earlier;
        if is_output || !selection.wants(&path) {
            taken.report.skipped.add(path);
        } else if !found.is_file() {
            taken.report.warn_of_link(path);
        } else {
            bytes += found.len();
            taken.parts.push(Part::new(path_bytes, None, file));
            progress(Progress::Taken { parts: taken.parts.len(), bytes });
        }
    }
    Ok(taken)
}

/// Adds all paths under `folder` that are no folders; links are not followed.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                // A merge that was killed may have left its folder here.
                if !entry.file_name().as_encoded_bytes().starts_with(scratch::PREFIX.as_bytes()) {
                    folders.push(entry.path());
                }
            } else {
                files.push(entry.path());
            }
        }
    }
    Ok(())
}

fn relative(folder: &Path, file: &Path) -> Vec<u8> {
    file.strip_prefix(folder).unwrap_or(file).as_os_str().as_encoded_bytes().to_vec()
}
