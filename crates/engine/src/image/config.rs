//! What an image says about how it wants to be run, and what is run of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use indexmap::IndexMap;
use serde::Deserialize;

use super::digest::Digest;
use super::platform::Platform;
use crate::spec::AlgorithmSpec;

/// The `PATH` of an image that sets none, as Docker has it.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The argument that a training image gets unless the request gives others.
const TRAIN: &str = "train";

/// How an image wants to be run. What it leaves out is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments of `docker run` without any; training jobs never use them.
    pub cmd: Vec<String>,
    /// Variables, without the default `PATH`; see [`ImageConfig::environment`].
    pub env: IndexMap<String, String>,
    /// Where the program starts: an absolute path.
    pub working_directory: PathBuf,
    /// Name or number, maybe with a group behind a colon; empty for root.
    pub user: String,
    /// The signal that asks the program to end, by name or number.
    pub stop_signal: Option<String>,
    /// What the image runs on; empty where the image does not say.
    pub platform: Platform,
    /// Ports as `8080/tcp`.
    pub exposed_ports: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Digests of the unpacked layers, lowest first.
    pub diff_ids: Vec<Digest>,
}

/// A config that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No JSON of the right form.
    #[error("the image's config is damaged")]
    Json(#[from] serde_json::Error),
    /// Something that is stored like an image.
    #[error("this is no container image: its config names no layers")]
    NoImage,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(flatten)]
    platform: WirePlatform,
    config: Option<WireRun>,
    rootfs: Option<WireLayers>,
}

#[derive(Deserialize)]
struct WirePlatform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

#[derive(Deserialize)]
struct WireLayers {
    diff_ids: Option<Vec<Digest>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireRun {
    entrypoint: Option<Words>,
    cmd: Option<Words>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    stop_signal: Option<String>,
    exposed_ports: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    labels: Option<BTreeMap<String, Option<String>>>,
}

/// Old tools write a command of one word without the list around it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Many(Vec<String>),
}

impl From<Words> for Vec<String> {
    fn from(words: Words) -> Self {
        match words {
            Words::One(word) => vec![word],
            Words::Many(words) => words,
        }
    }
}

impl ImageConfig {
    /// Reads the config of an image, of Docker's or OCI's form; members may be missing or null.
    ///
    /// # Errors
    ///
    /// Fails where it is not the config of a container image.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let wire: Wire = serde_json::from_slice(bytes)?;
        let run = wire.config.unwrap_or_default();
        let layers = wire.rootfs.ok_or(ConfigError::NoImage)?;
        Ok(Self {
            entrypoint: run.entrypoint.map(Into::into).unwrap_or_default(),
            cmd: run.cmd.map(Into::into).unwrap_or_default(),
            env: variables(run.env.unwrap_or_default()),
            // Also where it was given without the slash, it is meant from the root.
            working_directory: PathBuf::from("/").join(run.working_dir.unwrap_or_default()),
            user: run.user.unwrap_or_default(),
            stop_signal: run.stop_signal.filter(|signal| !signal.is_empty()),
            platform: Platform {
                os: wire.platform.os.unwrap_or_default(),
                architecture: wire.platform.architecture.unwrap_or_default(),
                variant: wire.platform.variant.filter(|variant| !variant.is_empty()),
            },
            exposed_ports: run.exposed_ports.unwrap_or_default().into_keys().collect(),
            labels: run
                .labels
                .unwrap_or_default()
                .into_iter()
                .map(|(name, value)| (name, value.unwrap_or_default()))
                .collect(),
            diff_ids: layers.diff_ids.unwrap_or_default(),
        })
    }

    /// What is run: the program and its arguments. A name without a slash is to be looked up in the
    /// `PATH` of [`ImageConfig::environment`].
    ///
    /// As `docker run IMAGE train` would: `train` unless the request gives arguments, behind the
    /// image's own entrypoint unless the request gives another, and nothing at all is added to that
    /// one. The image's CMD is never used.
    pub fn command(&self, algorithm: &AlgorithmSpec) -> Vec<String> {
        let arguments = algorithm.arguments.clone();
        match &algorithm.entrypoint {
            Some(entrypoint) => [entrypoint.clone(), arguments.unwrap_or_default()].concat(),
            None => [self.entrypoint.clone(), arguments.unwrap_or_else(|| vec![TRAIN.to_owned()])].concat(),
        }
    }

    /// The image's variables, and a `PATH` if it sets none.
    pub fn environment(&self) -> IndexMap<String, String> {
        let mut variables = self.env.clone();
        variables.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
        variables
    }
}

/// The last of several values counts; what has no equals sign is no variable.
pub(super) fn variables(lines: Vec<String>) -> IndexMap<String, String> {
    lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::spec::InputMode;

    fn config(run: &str) -> ImageConfig {
        let text =
            format!(r#"{{"os":"linux","architecture":"amd64","config":{run},"rootfs":{{"diff_ids":[]}}}}"#);
        ImageConfig::parse(text.as_bytes()).unwrap()
    }

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
    fn each_combination_of_entrypoints_and_arguments_runs_what_sagemaker_runs() {
        let with = config(r#"{"Entrypoint":["/init","--"],"Cmd":["serve"]}"#);
        let without = config(r#"{"Cmd":["serve"]}"#);
        type Words = &'static [&'static str];
        let table: [(&ImageConfig, Option<Words>, Option<Words>, Words); 8] = [
            (&with, None, None, &["/init", "--", "train"]),
            (&without, None, None, &["train"]),
            (&with, Some(&["python3", "fit.py"]), None, &["python3", "fit.py"]),
            (&without, Some(&["python3", "fit.py"]), None, &["python3", "fit.py"]),
            (&with, None, Some(&["fit", "--fast"]), &["/init", "--", "fit", "--fast"]),
            (&without, None, Some(&["fit", "--fast"]), &["fit", "--fast"]),
            (&with, Some(&["python3"]), Some(&["fit.py"]), &["python3", "fit.py"]),
            (&without, Some(&["python3"]), Some(&["fit.py"]), &["python3", "fit.py"]),
        ];
        for (image, entrypoint, arguments, expected) in table {
            assert_eq!(image.command(&algorithm(entrypoint, arguments)), expected);
        }
    }

    #[test]
    fn the_environment_is_the_images_with_a_path() {
        let environment = config(r#"{"Env":["A=1","B=x=y","A=2","odd","=odd"]}"#).environment();
        let expected = [("A", "2"), ("B", "x=y"), ("PATH", DEFAULT_PATH)];
        assert!(environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert_eq!(config(r#"{"Env":["PATH=/opt/bin"]}"#).environment()["PATH"], "/opt/bin");
    }

    #[test]
    fn members_may_be_null_or_missing() {
        let nulls = r#"{"Entrypoint":null,"Cmd":null,"Env":null,"WorkingDir":null,"User":null,
            "StopSignal":null,"ExposedPorts":null,"Labels":null}"#;
        assert_eq!(config(nulls), config("{}"));
        assert_eq!(config(nulls), config("null"));
        assert_eq!(config("{}").working_directory, Path::new("/"));
        let bare = ImageConfig::parse(br#"{"rootfs":{"diff_ids":null}}"#).unwrap();
        assert_eq!(bare.platform, Platform::default());
    }

    #[test]
    fn every_member_is_read() {
        let full = config(
            r#"{"Entrypoint":"/run","WorkingDir":"work","User":"1000:100","StopSignal":"SIGINT",
            "ExposedPorts":{"8080/tcp":{}},"Labels":{"a":"b","c":null}}"#,
        );
        assert_eq!(full.entrypoint, ["/run"]);
        assert_eq!(full.working_directory, Path::new("/work"));
        assert_eq!((full.user.as_str(), full.stop_signal.as_deref()), ("1000:100", Some("SIGINT")));
        assert_eq!(full.exposed_ports, ["8080/tcp"]);
        assert_eq!(full.labels["a"], "b");
        assert_eq!(full.platform.to_string(), "linux/amd64");
    }

    #[test]
    fn what_is_no_image_is_said_to_be_none() {
        assert!(matches!(ImageConfig::parse(b"{}"), Err(ConfigError::NoImage)));
        assert!(matches!(ImageConfig::parse(b"no"), Err(ConfigError::Json(_))));
    }
}
