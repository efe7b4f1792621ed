//! The command line's part of the configuration.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Runtime;
use super::resources::{Gpus, Limits};

/// What the command line can set.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Flags {
    /// Read settings from FILE instead of the user's config.toml [env: TRAINYARD_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// How to run container images [env: TRAINYARD_RUNTIME] [default: auto]
    #[arg(long, value_enum, hide_possible_values = false)]
    pub(crate) runtime: Option<Runtime>,
    /// Use the folder DIR as the bucket NAME; other buckets are folders in <data-dir>/s3
    #[arg(long = "bucket", value_name = "NAME=DIR", value_parser = bucket, value_hint = ValueHint::DirPath)]
    pub(crate) buckets: Vec<(String, PathBuf)>,
    /// Use the folder DIR as the shared file system ID of a FileSystemDataSource
    #[arg(long = "file-system", value_name = "ID=DIR", value_parser = file_system, value_hint = ValueHint::DirPath)]
    pub(crate) file_systems: Vec<(String, PathBuf)>,
    /// Run SOURCE where a job file says NAME, such as my/image=host:./bin
    #[arg(long = "image", value_name = "NAME=SOURCE", value_parser = image)]
    pub(crate) images: Vec<(String, String)>,
    /// Keep jobs and buckets in DIR instead of the user's data folder [env: TRAINYARD_DATA_DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Whether instances get only the CPUs, memory and volume of their type [env: TRAINYARD_LIMITS]
    #[arg(long, value_enum)]
    pub(crate) limits: Option<Limits>,
    /// Whether instances of types with GPUs get GPUs of this machine [env: TRAINYARD_GPUS]
    #[arg(long, value_enum)]
    pub(crate) gpus: Option<Gpus>,
}

fn bucket(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = split(text).ok_or("write NAME=DIR, such as my-bucket=./data")?;
    Ok((name, PathBuf::from(folder)))
}

fn file_system(text: &str) -> Result<(String, PathBuf), String> {
    let (id, folder) = split(text).ok_or("write ID=DIR, such as fs-0123456789abcdef0=/mnt/data")?;
    Ok((id, PathBuf::from(folder)))
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
            assert!(file_system(text).unwrap_err().contains("ID=DIR"), "{text}");
            assert!(image(text).unwrap_err().contains("NAME=SOURCE"), "{text}");
        }
        assert_eq!(bucket("b=a=c"), Ok(("b".into(), "a=c".into())));
    }
}
