//! The files of a channel that make up the matrix, in their order.

use crate::problem::MatrixError;
use std::path::{Path, PathBuf};

/// All files below the folder in the order of the bytes of their paths; a file stands for itself.
///
/// Names that begin with `.` or `_` do not count, as is the custom for folders of Parquet files.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, MatrixError> {
    if fs_err::metadata(folder).map_err(MatrixError::List)?.is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    collect(folder, &mut found)?;
    if found.is_empty() {
        return Err(MatrixError::Empty { folder: folder.to_owned() });
    }
    found.sort_by(|a, b| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), MatrixError> {
    for entry in fs_err::read_dir(folder).map_err(MatrixError::List)? {
        let entry = entry.map_err(MatrixError::List)?;
        if matches!(entry.file_name().as_encoded_bytes().first(), Some(b'.' | b'_')) {
            continue;
        }
        // A link counts as what it leads to; a circle of links ends with an error of the system.
        if fs_err::metadata(entry.path()).map_err(MatrixError::List)?.is_dir() {
            collect(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_the_byte_order_of_their_relative_paths() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["b.npy", "a/z.npy", "a.npy", "a-1.npy", "B.npy", "_SUCCESS", ".hidden", "10.npy", "9.npy"]
        {
            let path = folder.path().join(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "").unwrap();
        }
        let names: Vec<_> = files(folder.path())
            .unwrap()
            .iter()
            .map(|f| f.strip_prefix(folder.path()).unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["10.npy", "9.npy", "B.npy", "a-1.npy", "a.npy", "a/z.npy", "b.npy"]);
    }

    #[test]
    fn a_folder_without_files_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = files(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }
}
