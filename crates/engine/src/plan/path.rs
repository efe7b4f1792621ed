//! The path of an object below its channel's folder.

/// The path below `input/data/<channel>` of the object `key`, found under the prefix `prefix`.
///
/// Whole folders are stripped, never a part of a name: with the prefix `data/train`, the object
/// `data/train-2.csv` is `train-2.csv` and `data/train/a/b.csv` is `a/b.csv`.
pub(super) fn relative_path<'a>(prefix: &str, key: &'a str) -> &'a str {
    if let Some(rest) = key.strip_prefix(prefix) {
        if prefix.is_empty() || prefix.ends_with('/') {
            return rest;
        }
        if let Some(rest) = rest.strip_prefix('/') {
            return rest;
        }
    }
    let folder = prefix.rfind('/').map_or(0, |slash| slash + 1);
    key.get(folder..).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_start_after_the_last_whole_folder_of_the_prefix() {
        let table = [
            ("path/input", "path/input/test", "test"),
            ("state/", "state/algo-1/f", "algo-1/f"),
            ("state", "state/algo-1/f", "algo-1/f"),
            ("out/model.tar.gz", "out/model.tar.gz", "model.tar.gz"),
            ("data/train", "data/train-data.csv", "train-data.csv"),
            ("data/train", "data/train2/x", "train2/x"),
            ("input/code", "input/code/train.py", "train.py"),
            ("", "a/b", "a/b"),
            ("tra", "train.csv", "train.csv"),
            ("train.csv", "train.csv", "train.csv"),
        ];
        for (prefix, key, expected) in table {
            assert_eq!(relative_path(prefix, key), expected, "{prefix} {key}");
        }
    }
}
