//! Runs SageMaker training jobs on machines you own.

use std::process::ExitCode;

use anyhow::Context;

mod api;
mod cli;
mod client;
mod config;
mod exit;
mod for_amazon;
mod job_file;
mod keys;
mod machine;
mod notify;
mod show;
mod signature;
mod unpack;

fn main() -> ExitCode {
    // Before anything may start a thread: namespaces are for programs with one.
    if let Some(code) = cli::instance::inside() {
        return code;
    }
    match set_up().and_then(|()| cli::run()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            show::remark(&format!("error: {}", exit::one_line(&error)));
            exit::of(&error).into()
        }
    }
}

fn set_up() -> anyhow::Result<()> {
    if cfg!(linked_statically) {
        trainyard_engine::lookup::use_built_in_services().context("setting up the lookup of names")?;
    }
    Ok(())
}
