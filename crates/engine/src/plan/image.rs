//! What `TrainingImage` names and what is run of it.

use std::path::{Path, PathBuf};

use super::{Exposed, RuntimePlan};
use crate::spec::AlgorithmSpec;

/// Where the program itself stands in an instance that runs a built-in image.
pub const BUILT_IN_PROGRAM: &str = "/opt/trainyard/bin/trainyard";

/// The built-in image: cosine similarity between all rows of a matrix.
pub const ALLPAIRS: &str = "trainyard/allpairs";

/// What an image name stands for on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// This program itself, started with the name of a built-in workload.
    BuiltIn {
        /// The program's file on this machine.
        program: PathBuf,
        /// Its first argument.
        workload: String,
    },
    /// A file of this machine that takes the place of `train`.
    HostFile(PathBuf),
    /// A folder of this machine that comes first on the `PATH`.
    HostFolder(PathBuf),
}

/// An image that can't be run here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// No runtime for it yet.
    #[error(
        "TrainingImage {image:?} can't be run yet: use the built-in {ALLPAIRS}, or host:PATH for a program \
         of this machine, or keep the job file and map the image with --image {image}=host:PATH"
    )]
    Unsupported {
        /// The name as sent.
        image: String,
    },
    /// A program of this machine that is not there.
    #[error("TrainingImage {image:?}: there is no file or folder {path:?}")]
    Missing {
        /// The name as sent.
        image: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The path is relative to nothing.
    #[error("TrainingImage {image:?}: the path must start with a slash")]
    Relative {
        /// The name as sent.
        image: String,
    },
}

/// What kind of file is at a path; the plan itself does not look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A folder.
    Folder,
    /// Anything else that is there.
    File,
    /// Nothing.
    Missing,
}

impl Image {
    /// Finds out what `name` stands for. `program` is this program's own file.
    pub fn resolve(
        name: &str,
        program: &Path,
        kind: impl FnOnce(&Path) -> FileKind,
    ) -> Result<Self, ImageError> {
        let image = || name.to_owned();
        if name == ALLPAIRS {
            return Ok(Self::BuiltIn { program: program.to_owned(), workload: "allpairs".to_owned() });
        }
        let Some(path) = name.strip_prefix("host:").map(PathBuf::from) else {
            return Err(ImageError::Unsupported { image: image() });
        };
        if !path.is_absolute() {
            return Err(ImageError::Relative { image: image() });
        }
        match kind(&path) {
            FileKind::Folder => Ok(Self::HostFolder(path)),
            FileKind::File => Ok(Self::HostFile(path)),
            FileKind::Missing => Err(ImageError::Missing { image: image(), path }),
        }
    }

    /// What is run: the program and its arguments.
    ///
    /// As `docker run IMAGE train` would: `train` unless the request gives arguments, behind the
    /// image's own entrypoint unless the request gives another, and nothing at all is added to that
    /// one. A file is its own entrypoint and needs no `train`.
    pub fn command(&self, algorithm: &AlgorithmSpec) -> Vec<String> {
        let arguments = algorithm.arguments.clone();
        if let Some(entrypoint) = &algorithm.entrypoint {
            return [entrypoint.clone(), arguments.unwrap_or_default()].concat();
        }
        match self {
            Self::BuiltIn { workload, .. } => {
                let command = vec![BUILT_IN_PROGRAM.to_owned(), workload.clone()];
                [command, arguments.unwrap_or_default()].concat()
            }
            Self::HostFile(file) => {
                [vec![file.to_string_lossy().into_owned()], arguments.unwrap_or_default()].concat()
            }
            Self::HostFolder(_) => arguments.unwrap_or_else(|| vec!["train".to_owned()]),
        }
    }

    /// How it is started.
    pub fn runtime(&self) -> RuntimePlan {
        let exposed = match self {
            Self::BuiltIn { program, .. } => vec![built_in(program)],
            Self::HostFile(file) => vec![same_place(surroundings(file))],
            Self::HostFolder(folder) => vec![same_place(folder)],
        };
        RuntimePlan::Host { exposed, working_directory: PathBuf::from("/") }
    }

    /// The folder that comes first on the `PATH`, if there is one.
    pub fn path_folder(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn { .. } => None,
            Self::HostFile(file) => file.parent(),
            Self::HostFolder(folder) => Some(folder),
        }
    }
}

/// This program where built-in images expect it.
pub(super) fn built_in(program: &Path) -> Exposed {
    Exposed { source: program.to_owned(), target: PathBuf::from(BUILT_IN_PROGRAM) }
}

fn same_place(path: &Path) -> Exposed {
    Exposed { source: path.to_owned(), target: path.to_owned() }
}

/// A program may need what lies beside it; but a folder that instances have of their own must not be
/// covered by the machine's.
fn surroundings(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !OWN_FOLDERS.iter().any(|own| Path::new(own) == folder) => folder,
        _ => file,
    }
}

/// Folders that each instance has of its own, and those above them.
const OWN_FOLDERS: [&str; 7] = ["/", "/tmp", "/dev", "/dev/shm", "/opt", "/opt/ml", "/proc"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::InputMode;

    fn algorithm(entrypoint: Option<&[&str]>, arguments: Option<&[&str]>) -> AlgorithmSpec {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        AlgorithmSpec {
            image: "image".into(),
            by_name: false,
            input_mode: InputMode::File,
            metrics: Vec::new(),
            entrypoint: entrypoint.map(owned),
            arguments: arguments.map(owned),
        }
    }

    #[test]
    fn what_is_run_follows_docker_run_with_the_argument_train() {
        let folder = Image::HostFolder("/jobs".into());
        let file = Image::HostFile("/jobs/fit.py".into());
        type Words = &'static [&'static str];
        let table: [(&Image, Option<Words>, Option<Words>, Words); 8] = [
            (&folder, None, None, &["train"]),
            (&folder, Some(&["python3", "fit.py"]), None, &["python3", "fit.py"]),
            (&folder, None, Some(&["fit", "--fast"]), &["fit", "--fast"]),
            (&folder, Some(&["python3"]), Some(&["fit.py"]), &["python3", "fit.py"]),
            (&file, None, None, &["/jobs/fit.py"]),
            (&file, None, Some(&["--fast"]), &["/jobs/fit.py", "--fast"]),
            (&file, Some(&["sh"]), Some(&["-c", "x"]), &["sh", "-c", "x"]),
            (&file, Some(&["true"]), None, &["true"]),
        ];
        for (image, entrypoint, arguments, expected) in table {
            assert_eq!(image.command(&algorithm(entrypoint, arguments)), expected);
        }
    }

    #[test]
    fn an_image_that_can_not_be_run_is_refused_with_what_would_work() {
        let resolve = |name| Image::resolve(name, Path::new("/bin/trainyard"), |_| FileKind::Missing);
        let error = resolve("registry.example/team/fit:1").unwrap_err().to_string();
        assert!(error.contains("--image registry.example/team/fit:1=host:PATH"), "{error}");
        assert!(matches!(resolve("host:/none"), Err(ImageError::Missing { .. })));
        assert!(matches!(resolve("host:train"), Err(ImageError::Relative { .. })));
        assert!(resolve(ALLPAIRS).is_ok());
    }

    #[test]
    fn the_folder_around_a_program_is_shown_unless_instances_have_their_own() {
        let exposed = |file: &str| match Image::HostFile(file.into()).runtime() {
            RuntimePlan::Host { exposed, .. } => exposed[0].target.clone(),
        };
        assert_eq!(exposed("/tmp/job/train"), Path::new("/tmp/job"));
        assert_eq!(exposed("/tmp/train"), Path::new("/tmp/train"));
        assert_eq!(exposed("/train"), Path::new("/train"));
    }
}
