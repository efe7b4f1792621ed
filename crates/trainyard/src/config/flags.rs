//! The command line's part of the configuration.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// What the command line can set.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Flags {
    /// Read settings from FILE instead of the user's config.toml [env: TRAINYARD_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Use the folder DIR as the bucket NAME; other buckets are folders in <data-dir>/s3
    #[arg(long = "bucket", value_name = "NAME=DIR", value_parser = bucket, value_hint = ValueHint::DirPath)]
    pub(crate) buckets: Vec<(String, PathBuf)>,
    /// Run SOURCE where a job file says NAME, such as my/image=host:./bin
    #[arg(long = "image", value_name = "NAME=SOURCE", value_parser = image)]
    pub(crate) images: Vec<(String, String)>,
    /// Keep jobs and buckets in DIR instead of the user's data folder [env: TRAINYARD_DATA_DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data_dir: Option<PathBuf>,
}

fn bucket(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = split(text).ok_or("write NAME=DIR, such as my-bucket=./data")?;
    Ok((name, PathBuf::from(folder)))
}

fn image(text: &str) -> Result<(String, String), String> {
    Ok(split(text).ok_or("write NAME=SOURCE, such as my/image=host:./bin")?)
}

fn split(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_none_is_told_what_to_write() {
        for text in ["b", "b=", "=./data"] {
            assert!(bucket(text).unwrap_err().contains("NAME=DIR"), "{text}");
            assert!(image(text).unwrap_err().contains("NAME=SOURCE"), "{text}");
        }
        assert_eq!(bucket("b=a=c"), Ok(("b".into(), "a=c".into())));
    }
}
