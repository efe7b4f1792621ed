//! What instances may take of this machine.

use anyhow::anyhow;
use clap::ValueEnum;
use serde::Deserialize;
use trainyard_engine::plan::{GpuPolicy, LimitPolicy};

use super::file::File;
use super::{Flags, Origin, Setting, Surroundings};

/// How the resources that a job file asks for are understood.
#[derive(Debug)]
pub(crate) struct Resources {
    /// What the limits of an instance type mean.
    pub(crate) limits: Setting<Limits>,
    /// What is done about GPUs.
    pub(crate) gpus: Setting<Gpus>,
}

/// What the limits of an instance type mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limits {
    /// Instances may take what the machine has [default]
    #[default]
    Advise,
    /// Instances get no more than their type has; a job that asks for more than the machine has is refused
    Enforce,
}

/// What is done about GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gpus {
    /// They get GPUs; a job that asks for some where there are none is refused [default]
    #[default]
    Use,
    /// They run without
    Ignore,
}

impl Resources {
    pub(super) fn merge(flags: &Flags, surroundings: &Surroundings<'_>, file: &File) -> anyhow::Result<Self> {
        let limits = Choice { flag: "--limits", variable: "TRAINYARD_LIMITS", given: flags.limits };
        let gpus = Choice { flag: "--gpus", variable: "TRAINYARD_GPUS", given: flags.gpus };
        Ok(Self {
            limits: limits.merge(surroundings, file, file.settings.limits)?,
            gpus: gpus.merge(surroundings, file, file.settings.gpus)?,
        })
    }
}

/// One of a few words that a flag, a variable or the file may give.
pub(super) struct Choice<T> {
    pub(super) flag: &'static str,
    pub(super) variable: &'static str,
    pub(super) given: Option<T>,
}

impl<T: ValueEnum + Default> Choice<T> {
    pub(super) fn merge(
        self,
        surroundings: &Surroundings<'_>,
        file: &File,
        written: Option<T>,
    ) -> anyhow::Result<Setting<T>> {
        if let Some(value) = self.given {
            return Ok(Setting { value, origin: Origin::Flag(self.flag) });
        }
        if let Some(text) = (surroundings.variable)(self.variable).filter(|text| !text.is_empty()) {
            let text = text.to_string_lossy();
            let value = T::from_str(&text, false)
                .map_err(|_| anyhow!("{}={text}: this is none of {}", self.variable, words::<T>()))?;
            return Ok(Setting { value, origin: Origin::Variable(self.variable) });
        }
        let default = Setting { value: T::default(), origin: Origin::Default };
        Ok(written.map_or(default, |value| file.setting(value)))
    }
}

fn words<T: ValueEnum>() -> String {
    let words: Vec<_> = T::value_variants().iter().map(word).collect();
    words.join(", ")
}

fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl<T: ValueEnum> Setting<T> {
    /// With the word that stands for it.
    pub(crate) fn as_text(&self) -> Setting<String> {
        Setting { value: word(&self.value), origin: self.origin.clone() }
    }
}

impl From<Limits> for LimitPolicy {
    fn from(limits: Limits) -> Self {
        match limits {
            Limits::Advise => Self::Advise,
            Limits::Enforce => Self::Enforce,
        }
    }
}

impl From<Gpus> for GpuPolicy {
    fn from(gpus: Gpus) -> Self {
        match gpus {
            Gpus::Use => Self::Use,
            Gpus::Ignore => Self::Ignore,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn merged(
        given: Option<Limits>,
        variable: &str,
        written: Option<Limits>,
    ) -> anyhow::Result<Setting<Limits>> {
        let variable = |_: &str| Some(OsString::from(variable));
        let surroundings = Surroundings { variable: &variable, current_dir: "/".into(), home: None };
        let choice = Choice { flag: "--limits", variable: "TRAINYARD_LIMITS", given };
        choice.merge(&surroundings, &File::default(), written)
    }

    #[test]
    fn a_word_is_taken_from_the_flag_then_the_variable_then_the_file() {
        let (advise, enforce) = (Limits::Advise, Limits::Enforce);
        let table = [
            (Some(enforce), "advise", Some(advise), enforce, Origin::Flag("--limits")),
            (None, "enforce", Some(advise), enforce, Origin::Variable("TRAINYARD_LIMITS")),
            (None, "", Some(enforce), enforce, Origin::File("".into())),
            (None, "", None, advise, Origin::Default),
        ];
        for (given, variable, written, value, origin) in table {
            assert_eq!(merged(given, variable, written).unwrap(), Setting { value, origin });
        }
    }

    #[test]
    fn a_word_that_is_none_is_told_what_to_write() {
        let error = merged(None, "strict", None).unwrap_err().to_string();
        assert_eq!(error, "TRAINYARD_LIMITS=strict: this is none of advise, enforce");
    }
}
