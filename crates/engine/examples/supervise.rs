//! The smallest program that can run an instance, for tests and measurements:
//! `supervise instance <instance folder> [read-only]`.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use trainyard_engine::instance::{Own, supervise};
use trainyard_engine::network::job_network;
use trainyard_engine::run::InstanceDirectory;
use trainyard_engine::runtime::{Shield, container_init, instance_init};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["instance-init"] => instance_init(),
        ["network", _] => job_network(),
        ["instance", folder] => run(folder, Shield::Overlay),
        ["instance", folder, "read-only"] => run(folder, Shield::ReadOnly),
        [command] => container_init(command).unwrap_or(ExitCode::from(2)),
        _ => ExitCode::from(2),
    }
}

fn run(folder: &str, shield: Shield) -> ExitCode {
    let Ok(program) = env::current_exe() else { return ExitCode::FAILURE };
    let own = Own { shield, ..Own::default() };
    match supervise(&InstanceDirectory::open(Path::new(folder)), &program, own) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
