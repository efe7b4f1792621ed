//! Where an archive is.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::super::remote::Remote;
use super::stored;
use crate::client::object::ObjectReader;
use crate::exit::Refused;

/// An archive that is open, and its size in bytes where that is known.
pub(super) struct Source {
    pub(super) archive: Box<dyn Read + Send>,
    pub(super) size: Option<u64>,
}

/// What is meant by the name of a source.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Object { bucket: String, key: String },
    File(PathBuf),
    Job(String),
}

impl Place {
    /// `is_file` tells whether a path is there.
    fn of(source: &str, is_file: impl Fn(&Path) -> bool) -> anyhow::Result<Self> {
        if let Some(rest) = source.strip_prefix("s3://") {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() || key.is_empty() {
                bail!("{source}: this names no object, such as s3://bucket/fit-1/output/model.tar.gz");
            }
            return Ok(Self::Object { bucket: bucket.to_owned(), key: key.to_owned() });
        }
        if let Some(path) = source.strip_prefix("file://") {
            return Ok(Self::File(path.into()));
        }
        // No name of a job has a slash or a dot in it.
        let looks_like_file = source.contains(['/', '.']) && !source.starts_with("arn:");
        if looks_like_file || is_file(Path::new(source)) {
            return Ok(Self::File(source.into()));
        }
        Ok(Self::Job(source.to_owned()))
    }
}

/// Opens what is meant; of a job the archive of its output data if `output`, else that of its model.
pub(super) async fn open(source: &str, output: bool, remote: &Remote) -> anyhow::Result<Source> {
    let place = Place::of(source, Path::is_file).map_err(Refused::from)?;
    if let Place::Job(job) = &place {
        let client = remote.client()?;
        let described = client.describe(job).await?;
        let model = described["ModelArtifacts"]["S3ModelArtifacts"].as_str().unwrap_or_default();
        if model.is_empty() {
            bail!("{job} has no artifact");
        }
        if model.ends_with('/') && !output {
            bail!("{job} leaves no archive of its model: its files are below {model} as they are");
        }
        let uri = match model.trim_end_matches('/').rsplit_once('/') {
            Some((folder, "model.tar.zst")) if output => format!("{folder}/output.tar.zst"),
            Some((folder, _)) if output => format!("{folder}/output.tar.gz"),
            _ => model.to_owned(),
        };
        let archive = Place::of(&uri, |_| true)?;
        return open_place(archive, remote).await.with_context(|| {
            let status = described["TrainingJobStatus"].as_str().unwrap_or_default();
            format!("the artifact of {job}, which is {status}")
        });
    }
    open_place(place, remote).await
}

async fn open_place(place: Place, remote: &Remote) -> anyhow::Result<Source> {
    match place {
        Place::File(path) => {
            let file = fs_err::File::open(&path)?;
            let size = file.metadata()?.len();
            Ok(Source { archive: Box::new(file), size: Some(size) })
        }
        Place::Object { bucket, key } => {
            if let Some(stores) = remote.stores(&bucket)? {
                return stored::open(&stores, bucket, key).await;
            }
            let object = ObjectReader::open(remote.client()?, &bucket, &key).await?;
            let size = object.size;
            Ok(Source { archive: Box::new(object), size })
        }
        Place::Job(job) => bail!("{job}: this is no archive"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_object_a_file_or_a_job() {
        let object = |bucket: &str, key: &str| Place::Object { bucket: bucket.into(), key: key.into() };
        let table = [
            ("s3://b/a/model.tar.gz", object("b", "a/model.tar.gz")),
            ("file:///srv/m.tar.gz", Place::File("/srv/m.tar.gz".into())),
            ("model.tar.gz", Place::File("model.tar.gz".into())),
            ("./here", Place::File("./here".into())),
            ("there", Place::File("there".into())),
            ("fit-1", Place::Job("fit-1".into())),
            ("arn:aws:sagemaker:us-east-1:0:training-job/fit-1", {
                Place::Job("arn:aws:sagemaker:us-east-1:0:training-job/fit-1".into())
            }),
        ];
        for (source, place) in table {
            assert_eq!(Place::of(source, |path| path == "there").unwrap(), place);
        }
        for wrong in ["s3://", "s3://b", "s3://b/", "s3:///k"] {
            assert!(Place::of(wrong, |_| false).unwrap_err().to_string().contains("no object"), "{wrong}");
        }
    }
}
