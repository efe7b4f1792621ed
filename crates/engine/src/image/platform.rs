//! Operating system and processor that an image is for.

use std::fmt;

use serde::Deserialize;

/// Operating system and processor in the words of images, which are those of the Go language.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`, …
    pub architecture: String,
    /// `v7`, `v8`, … where a processor has several.
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of the machine that this program was built for.
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        let variant = (architecture == "arm").then(|| "v7".to_owned());
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant }
    }

    /// How well an image for `other` suits a machine of this platform, less is better; none: not at all.
    pub(super) fn distance(&self, other: &Self) -> Option<u32> {
        if self.os != other.os || self.architecture != other.architecture {
            return None;
        }
        let number = |variant: &Option<String>| match variant.as_deref() {
            None | Some("") => None,
            Some(text) => text.strip_prefix('v')?.parse::<u32>().ok(),
        };
        // What a variant stands for when it is left out; amd64 counts its levels from 1.
        let default = match self.architecture.as_str() {
            "arm64" => 8,
            "arm" => 7,
            _ => 1,
        };
        let wanted = number(&self.variant).unwrap_or(default);
        wanted.checked_sub(number(&other.variant).unwrap_or(default))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.os, self.architecture)?;
        match self.variant.as_deref() {
            None | Some("") => Ok(()),
            Some(variant) => write!(formatter, "/{variant}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        Platform { os: parts.next().unwrap(), architecture: parts.next().unwrap(), variant: parts.next() }
    }

    #[test]
    fn only_what_the_processor_can_run_suits() {
        let table = [
            ("linux/amd64", "linux/amd64", Some(0)),
            ("linux/amd64", "linux/arm64", None),
            ("linux/amd64", "windows/amd64", None),
            ("linux/amd64", "linux/amd64/v3", None),
            ("linux/arm64", "linux/arm64/v8", Some(0)),
            ("linux/arm/v7", "linux/arm/v6", Some(1)),
            ("linux/arm/v6", "linux/arm/v7", None),
        ];
        for (machine, image, expected) in table {
            assert_eq!(platform(machine).distance(&platform(image)), expected, "{image} on {machine}");
        }
    }
}
