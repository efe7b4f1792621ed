//! What `TrainingImage` names and what is run of it.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::{DockerPlan, Exposed, Identity, RuntimePlan};
use crate::image::{ImageConfig, User};
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
    /// A container image whose layers are on this machine.
    Container {
        /// The unpacked layers, the top-most first.
        layers: Vec<PathBuf>,
        /// How the image wants to be run.
        config: Box<ImageConfig>,
        /// The user that the config names.
        user: User,
        /// The signal that asks it to end.
        stop_signal: i32,
    },
    /// A container image that a daemon has.
    OfDaemon {
        /// How it is started, but for what the config says.
        docker: DockerPlan,
        /// How the image wants to be run.
        config: Box<ImageConfig>,
    },
}

/// An image that can't be run here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
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
    /// Finds out what `name` stands for; none if it is a container image. `program` is this program's
    /// own file.
    pub fn resolve(
        name: &str,
        program: &Path,
        kind: impl FnOnce(&Path) -> FileKind,
    ) -> Result<Option<Self>, ImageError> {
        let image = || name.to_owned();
        if name == ALLPAIRS {
            return Ok(Some(Self::BuiltIn { program: program.to_owned(), workload: "allpairs".to_owned() }));
        }
        let Some(path) = name.strip_prefix("host:").map(PathBuf::from) else { return Ok(None) };
        if !path.is_absolute() {
            return Err(ImageError::Relative { image: image() });
        }
        match kind(&path) {
            FileKind::Folder => Ok(Some(Self::HostFolder(path))),
            FileKind::File => Ok(Some(Self::HostFile(path))),
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
            Self::Container { config, .. } | Self::OfDaemon { config, .. } => config.command(algorithm),
        }
    }

    /// How it is started.
    pub fn runtime(&self) -> RuntimePlan {
        let exposed = match self {
            Self::BuiltIn { program, .. } => vec![built_in(program)],
            Self::HostFile(file) => vec![same_place(surroundings(file))],
            Self::HostFolder(folder) => vec![same_place(folder)],
            Self::Container { layers, config, user, stop_signal } => {
                return RuntimePlan::Oci {
                    layers: layers.clone(),
                    user: Identity { uid: user.uid, gid: user.gid, groups: user.groups.clone() },
                    working_directory: config.working_directory.clone(),
                    stop_signal: *stop_signal,
                };
            }
            Self::OfDaemon { docker, .. } => return RuntimePlan::Docker(docker.clone()),
        };
        RuntimePlan::Host { exposed, working_directory: PathBuf::from("/") }
    }

    /// The variables of the image itself; `machine` has them for an image that has none of its own.
    pub fn environment(&self, machine: &IndexMap<String, String>) -> IndexMap<String, String> {
        match self {
            Self::Container { config, user, .. } => {
                let mut environment = config.environment();
                environment.entry("HOME".to_owned()).or_insert_with(|| user.home.clone());
                environment
            }
            // The user's home is known only in the container.
            Self::OfDaemon { config, .. } => config.environment(),
            Self::BuiltIn { .. } | Self::HostFile(_) | Self::HostFolder(_) => {
                let mut environment = machine.clone();
                if let Some(folder) = self.path_folder() {
                    let path = environment.entry("PATH".to_owned()).or_default();
                    *path = [folder.to_string_lossy().into_owned(), std::mem::take(path)].join(":");
                }
                environment
            }
        }
    }

    /// The folder that comes first on the `PATH`, if there is one.
    fn path_folder(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn { .. } | Self::Container { .. } | Self::OfDaemon { .. } => None,
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
    use crate::image::DEFAULT_PATH;
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
    fn what_is_no_program_of_the_machine_is_a_container_image() {
        let resolve = |name| Image::resolve(name, Path::new("/bin/trainyard"), |_| FileKind::Missing);
        assert_eq!(resolve("registry.example/team/fit:1"), Ok(None));
        assert_eq!(resolve("docker-archive:/fit.tar"), Ok(None));
        assert!(matches!(resolve("host:/none"), Err(ImageError::Missing { .. })));
        assert!(matches!(resolve("host:train"), Err(ImageError::Relative { .. })));
        assert!(matches!(resolve(ALLPAIRS), Ok(Some(Image::BuiltIn { .. }))));
    }

    #[test]
    fn a_container_has_the_variables_of_its_image_and_none_of_the_machines() {
        let config = |env: &str| {
            let text = format!(r#"{{"config":{{"Env":[{env}]}},"rootfs":{{"diff_ids":[]}}}}"#);
            Box::new(ImageConfig::parse(text.as_bytes()).unwrap())
        };
        let user = || User { uid: 7, gid: 7, groups: Vec::new(), home: "/home/fit".to_owned() };
        let machine = IndexMap::from(["PATH", "HOME", "LANG"].map(|name| (name.to_owned(), "x".to_owned())));
        let variables = |env: &str| {
            let image =
                Image::Container { layers: Vec::new(), config: config(env), user: user(), stop_signal: 15 };
            Vec::from_iter(image.environment(&machine))
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(variables(""), [pair("PATH", DEFAULT_PATH), pair("HOME", "/home/fit")]);
        assert_eq!(variables(r#""HOME=/x","PATH=/y""#), [pair("HOME", "/x"), pair("PATH", "/y")]);
    }

    #[test]
    fn the_folder_around_a_program_is_shown_unless_instances_have_their_own() {
        let exposed = |file: &str| match Image::HostFile(file.into()).runtime() {
            RuntimePlan::Host { exposed, .. } => exposed[0].target.clone(),
            RuntimePlan::Oci { .. } | RuntimePlan::Docker(_) => panic!("no program of the machine"),
        };
        assert_eq!(exposed("/tmp/job/train"), Path::new("/tmp/job"));
        assert_eq!(exposed("/tmp/train"), Path::new("/tmp/train"));
        assert_eq!(exposed("/train"), Path::new("/train"));
    }
}
