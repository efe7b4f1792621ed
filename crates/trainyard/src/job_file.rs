//! Reading a job file: JSON or YAML, from a file or from standard input, its relative paths made
//! absolute.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use trainyard_engine::wire::{CreateTrainingJobRequest, parse_json};

use crate::exit::Refused;

/// Reads a job file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<CreateTrainingJobRequest, Refused> {
    let (text, folder) = text_and_folder(path)?;
    // Standard input has no ending; a request as JSON is an object.
    let by_look = path == Path::new("-") && !text.trim_start().starts_with('{');
    let yaml = by_look || path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let request = if yaml {
        serde_saphyr::from_str(&text).map_err(anyhow::Error::new)
    } else {
        parse_json(&text).map_err(anyhow::Error::new)
    };
    let mut request = request.with_context(|| path.display().to_string())?;
    make_absolute(&mut request, &folder);
    Ok(request)
}

/// The text of a job file and the folder that its relative paths start from.
fn text_and_folder(path: &Path) -> anyhow::Result<(String, PathBuf)> {
    let here = std::env::current_dir().context("the current folder")?;
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        return Ok((text, here));
    }
    let folder = here.join(path).parent().map(Path::to_owned).unwrap_or(here);
    Ok((fs_err::read_to_string(path)?, folder))
}

/// Relative `file://` URIs, `host:` programs and archives of images are meant from the job file's own folder.
fn make_absolute(request: &mut CreateTrainingJobRequest, folder: &Path) {
    if let Some(image) =
        request.algorithm_specification.as_mut().and_then(|spec| spec.training_image.as_mut())
    {
        *image = absolute_image(image, folder);
    }
    if let Some(output) =
        request.output_data_config.as_mut().and_then(|output| output.s3_output_path.as_mut())
    {
        *output = absolute_uri(output, folder);
    }
    for channel in request.input_data_config.iter_mut().flatten() {
        let source = channel.data_source.as_mut().and_then(|source| source.s3_data_source.as_mut());
        if let Some(uri) = source.and_then(|source| source.s3_uri.as_mut()) {
            *uri = absolute_uri(uri, folder);
        }
    }
}

/// `host:./train` or `docker-archive:fit.tar` from a folder.
pub(crate) fn absolute_image(image: &str, folder: &Path) -> String {
    for form in ["host:", "docker-archive:", "oci-archive:", "oci:"] {
        if let Some(path) = image.strip_prefix(form)
            && !path.is_empty()
            && !path.starts_with('/')
        {
            return [form, &plain(&folder.join(path))].concat();
        }
    }
    image.to_owned()
}

/// `file://./data/` or `file://data/` from a folder.
fn absolute_uri(uri: &str, folder: &Path) -> String {
    match uri.strip_prefix("file://") {
        Some(path) if !path.starts_with('/') => {
            let slash = if path.ends_with('/') || path.is_empty() || path == "." { "/" } else { "" };
            format!("file://{}{slash}", plain(&folder.join(path)))
        }
        _ => uri.to_owned(),
    }
}

/// The path without `.` and `..`; links are not looked at.
fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_meant_from_the_job_files_folder() {
        let folder = Path::new("/jobs/digits");
        let table = [
            ("file://./digits.npy", "file:///jobs/digits/digits.npy"),
            ("file://data/", "file:///jobs/digits/data/"),
            ("file://../shared/x", "file:///jobs/shared/x"),
            ("file://.", "file:///jobs/digits/"),
            ("file:///srv/x", "file:///srv/x"),
            ("s3://b/./x", "s3://b/./x"),
        ];
        for (uri, expected) in table {
            assert_eq!(absolute_uri(uri, folder), expected);
        }
        assert_eq!(absolute_image("host:./train", folder), "host:/jobs/digits/train");
        assert_eq!(absolute_image("host:/srv/train", folder), "host:/srv/train");
        assert_eq!(absolute_image("oci:../fit:2", folder), "oci:/jobs/fit:2");
        assert_eq!(absolute_image("docker-archive:fit.tar", folder), "docker-archive:/jobs/digits/fit.tar");
        assert_eq!(absolute_image("team/fit:1", folder), "team/fit:1");
        assert_eq!(absolute_image("trainyard/allpairs", folder), "trainyard/allpairs");
    }
}
