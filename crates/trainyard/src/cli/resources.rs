//! What instances may take of this machine.

use clap::{Args, ValueEnum};
use trainyard_engine::plan::{GpuPolicy, LimitPolicy};

/// How the resources that a job file asks for are understood.
#[derive(Debug, Args)]
pub(super) struct Resources {
    /// Whether instances get only the CPUs, memory and volume of their type, or what the machine has
    #[arg(long, value_enum, default_value_t, env = "TRAINYARD_LIMITS")]
    pub(super) limits: Limits,
    /// Whether instances of types with GPUs get GPUs of this machine
    #[arg(long, value_enum, default_value_t, env = "TRAINYARD_GPUS")]
    pub(super) gpus: Gpus,
}

/// What the limits of an instance type mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Limits {
    /// Instances may take what the machine has
    #[default]
    Advise,
    /// Instances get no more than their type has; a job that asks for more than the machine has is refused
    Enforce,
}

/// What is done about GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Gpus {
    /// They get GPUs; a job that asks for some where there are none is refused
    #[default]
    Use,
    /// They run without
    Ignore,
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
