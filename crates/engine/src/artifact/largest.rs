//! What takes most of a part.

use std::collections::BTreeMap;
use std::path::Path;

use super::index::{IndexError, IndexReader, index_path};

/// The files and folders right below the packed folder that take most, with their bytes, the largest first.
///
/// # Errors
/// The part's index can't be read.
pub fn largest(part: &Path, count: usize) -> Result<Vec<(String, u64)>, IndexError> {
    let mut index = IndexReader::open(index_path(part))?;
    let mut sizes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    while let Some(entry) = index.read()? {
        let end =
            entry.path.iter().position(|&byte| byte == b'/').map_or(entry.path.len(), |slash| slash + 1);
        *sizes.entry(entry.path[..end].to_vec()).or_default() += entry.size;
    }
    let mut sizes: Vec<_> = sizes.into_iter().filter(|(_, size)| *size > 0).collect();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    sizes.truncate(count);
    Ok(sizes.into_iter().map(|(name, size)| (String::from_utf8_lossy(&name).into_owned(), size)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::tests::{part_of, write};

    #[test]
    fn folders_count_with_all_that_is_in_them() {
        let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, size) in
            [("steps/1/a", 300), ("steps/2/b", 300), ("model.bin", 500), ("log", 1), ("empty", 0)]
        {
            write(folder.path(), name, vec![b'x'; size]);
        }
        let part = part_of(folder.path(), "algo-1", scratch.path());
        let expected = [("steps/".to_owned(), 600), ("model.bin".to_owned(), 500)];
        assert_eq!(largest(&part.path, 2).unwrap(), expected);
    }
}
