//! How container images are run.

use clap::ValueEnum;
use serde::Deserialize;
use trainyard_engine::prepare::RuntimeChoice;

use super::file::File;
use super::resources::Choice;
use super::{Flags, Setting, Surroundings};

const VARIABLE: &str = "TRAINYARD_RUNTIME";

/// The runtimes by their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Runtime {
    /// Without a daemon if the kernel lets this user, else through Docker or Podman
    #[default]
    Auto,
    /// Without a daemon
    Oci,
    /// Through Docker or Podman
    Docker,
}

impl Runtime {
    pub(super) fn merge(
        flags: &Flags,
        surroundings: &Surroundings<'_>,
        file: &File,
    ) -> anyhow::Result<Setting<Self>> {
        let choice = Choice { given: flags.runtime, flag: "--runtime", variable: VARIABLE };
        choice.merge(surroundings, file, file.settings.runtime)
    }
}

impl From<Runtime> for RuntimeChoice {
    fn from(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Auto => Self::Auto,
            Runtime::Oci => Self::Oci,
            Runtime::Docker => Self::Docker,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn an_unknown_runtime_of_the_environment_is_refused_with_those_that_are_known() {
        let merged = |value: &'static str| {
            let variable = move |name: &str| (name == VARIABLE).then(|| OsString::from(value));
            let surroundings = Surroundings { variable: &variable, current_dir: "/".into(), home: None };
            Runtime::merge(&Flags::default(), &surroundings, &File::default())
        };
        assert_eq!(merged("docker").unwrap().value, Runtime::Docker);
        assert_eq!(merged("").unwrap().value, Runtime::Auto);
        let error = merged("podman").unwrap_err().to_string();
        assert!(error.contains(VARIABLE) && error.contains("podman") && error.contains("docker"), "{error}");
    }
}
