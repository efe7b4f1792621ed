//! The image as it is stored.

use std::path::Path;

use super::{About, Finding, fail, pass, unknown, warning};
use crate::facts::{ImageFacts, ProbeReport, ProgramFacts};

pub(super) fn architecture(image: &ImageFacts) -> Finding {
    match &image.program {
        ProgramFacts::OtherMachine { path, machine } => fail(
            About::Architecture,
            format!(
                "the image says {}, but {} is built for {machine}: build the image for one platform \
                 (docker build --platform {})",
                image.platform,
                path.display(),
                image.platform
            ),
        ),
        _ => pass(About::Architecture, image.platform.clone()),
    }
}

pub(super) fn size(image: &ImageFacts) -> Finding {
    let (layers, bytes) = (image.layers.len(), amount(image.bytes));
    let largest = match image.layers.iter().max() {
        Some(&largest) if largest > 0 => format!(", the largest {}", amount(largest)),
        _ => String::new(),
    };
    pass(About::Size, format!("{layers} layers, {bytes} unpacked{largest}"))
}

/// Megabytes, as registries count them.
fn amount(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// Docker writes `ENTRYPOINT text` as a shell with `-c`, which gets what follows as its own `$0`.
pub(super) fn entrypoint(image: &ImageFacts, stopped: Option<&ProbeReport>) -> Finding {
    let about = About::Entrypoint;
    let (shell, text) = match image.entrypoint.as_slice() {
        [] => return pass(about, "none: train is looked up in the PATH"),
        [shell, option, text] if is_shell(shell) && option == "-c" => (shell, text),
        words => return pass(about, format!("{:?} and the argument train", words.join(" "))),
    };
    let seen =
        format!("the shell form (ENTRYPOINT {text}) starts a shell that never passes the argument train on");
    let change = "write a list: ENTRYPOINT [\"program\", \"argument\"]";
    // A shell whose last command is a single program may become that program.
    let stays = format!("{shell} -c ");
    let stop = stopped.and_then(|report| report.stop.as_ref());
    let replaced = stop.is_some_and(|stop| !stop.first.command.starts_with(&stays));
    match replaced {
        true => warning(about, format!("{seen}; {change}")),
        false => fail(about, format!("{seen}, and SIGTERM only reaches the shell; {change}")),
    }
}

fn is_shell(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["sh", "bash", "dash", "ash", "zsh"].contains(&name)
}

pub(super) fn program(program: &ProgramFacts) -> Finding {
    let about = About::Program;
    match program {
        ProgramFacts::Found { paths } => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            pass(about, paths.join(", run by "))
        }
        ProgramFacts::OtherMachine { path, machine } => {
            fail(about, format!("{} is built for {machine}", path.display()))
        }
        ProgramFacts::Missing { explanation } => fail(about, explanation.clone()),
        ProgramFacts::Unknown { path } => {
            unknown(about, format!("{} is not a file of the image", path.display()))
        }
        ProgramFacts::NotExecutable { path } => {
            let path = path.display();
            fail(about, format!("{path} is not executable: RUN chmod +x {path}"))
        }
        ProgramFacts::NoInterpreter { path, interpreter } => {
            let path = path.display();
            let hint = if interpreter.ends_with('\r') {
                "save the file with the line ends of Unix"
            } else {
                "install it, or name one that the image has"
            };
            fail(about, format!("{path} needs {interpreter:?}, which the image does not have: {hint}"))
        }
    }
}

pub(super) fn user(image: &ImageFacts, report: Option<&ProbeReport>) -> Finding {
    let about = About::User;
    let is_root = ["", "0", "root"].contains(&image.user.split(':').next().unwrap_or_default());
    let name = if is_root { "root" } else { &image.user };
    let Some(report) = report else {
        return unknown(
            about,
            format!("runs as {name}; train did not run long enough to try what it may write"),
        );
    };
    if let Some((folder, why)) = report.not_writable.first() {
        return fail(about, format!("{name} (user id {}) can't write to {folder}: {why}", report.uid));
    }
    if is_root {
        return pass(about, "root, who can write to /opt/ml/model, /opt/ml/output and /tmp");
    }
    if report.uid == 0 {
        return unknown(
            about,
            format!(
                "runs as {name}, but only root or a user with subordinate ids can try that: here it ran as user id 0"
            ),
        );
    }
    warning(
        about,
        format!(
            "{name} (user id {}) can write to /opt/ml and /tmp here, where both are given to it; SageMaker's \
             folders belong to root: leave USER out to run there",
            report.uid
        ),
    )
}
