//! How container images are run.

use std::fmt;

use anyhow::anyhow;
use clap::ValueEnum;
use serde::Deserialize;
use trainyard_engine::prepare::RuntimeChoice;

use super::file::File;
use super::{Flags, Origin, Setting, Surroundings};

const VARIABLE: &str = "TRAINYARD_RUNTIME";

/// The runtimes by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Runtime {
    /// Without a daemon if the kernel lets this user, else through Docker or Podman
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
        if let Some(value) = flags.runtime {
            return Ok(Setting { value, origin: Origin::Flag("--runtime") });
        }
        if let Some(given) = (surroundings.variable)(VARIABLE).filter(|given| !given.is_empty()) {
            let value = given.to_str().and_then(|given| Self::from_str(given, false).ok());
            let value =
                value.ok_or_else(|| anyhow!("{VARIABLE} is {given:?}: auto, oci or docker is expected"))?;
            return Ok(Setting { value, origin: Origin::Variable(VARIABLE) });
        }
        let written = file.settings.runtime.map(|value| file.setting(value));
        Ok(written.unwrap_or(Setting { value: Self::Auto, origin: Origin::Default }))
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Oci => "oci",
            Self::Docker => "docker",
        })
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
