//! Runs SageMaker training jobs on machines you own.

use std::process::ExitCode;

mod cli;
mod config;
mod exit;
mod job_file;
mod machine;
mod show;

fn main() -> ExitCode {
    // Before anything may start a thread: namespaces are for programs with one.
    if let Some(code) = cli::instance::inside() {
        return code;
    }
    match cli::run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {}", exit::one_line(&error));
            exit::of(&error).into()
        }
    }
}
