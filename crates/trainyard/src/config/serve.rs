//! `[serve]`: how much the endpoint takes on. Each setting is a flag of `trainyard serve` as well, which wins.

use std::num::NonZero;

use clap::Args;
use serde::Deserialize;

/// The limits of the endpoint; none where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServeLimits {
    /// Run at most N instances at once; other jobs wait in order [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub(crate) max_instances: Option<NonZero<u32>>,
    /// Refuse jobs of more than N instances (ResourceLimitExceeded)
    #[arg(long, value_name = "N")]
    pub(crate) max_instances_per_job: Option<NonZero<u32>>,
    /// Refuse jobs as long as N have not ended (ResourceLimitExceeded)
    #[arg(long, value_name = "N")]
    pub(crate) max_jobs: Option<NonZero<u32>>,
    /// Answer at most N requests a second of each key (ThrottlingException, SlowDown) [default: 5000]
    #[arg(long, value_name = "N")]
    pub(crate) max_request_rate: Option<NonZero<u32>>,
    /// Talk to at most N clients at once; others wait [default: 4096]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<NonZero<u32>>,
}

impl ServeLimits {
    /// With what the file says where the command line says nothing.
    pub(crate) fn or(&self, file: &Self) -> Self {
        Self {
            max_instances: self.max_instances.or(file.max_instances),
            max_instances_per_job: self.max_instances_per_job.or(file.max_instances_per_job),
            max_jobs: self.max_jobs.or(file.max_jobs),
            max_request_rate: self.max_request_rate.or(file.max_request_rate),
            max_connections: self.max_connections.or(file.max_connections),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins_over_the_file_setting_by_setting() {
        let file: ServeLimits = toml::from_str("max_jobs = 5\nmax_instances = 2").unwrap();
        let flags = ServeLimits { max_jobs: NonZero::new(7), ..ServeLimits::default() };
        let merged = flags.or(&file);
        assert_eq!((merged.max_jobs, merged.max_instances), (NonZero::new(7), NonZero::new(2)));
        assert!(toml::from_str::<ServeLimits>("max_jobs = 0").is_err());
        assert!(toml::from_str::<ServeLimits>("max_job = 1").is_err());
    }
}
