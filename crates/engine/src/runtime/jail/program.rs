//! Finds and starts `train`, and explains why it can't be started.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fs_err as fs;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::{Program, RunAs};
use crate::executable;
use crate::sys::{self, Strings};

/// The exit code of a shell for a program that is not there.
const NOT_FOUND: i32 = 127;
/// The exit code of a shell for a program that can't be executed.
const NOT_EXECUTABLE: i32 = 126;

/// A program that can't be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("no program to start: the command is empty")]
    Empty,
    #[error("{name:?}: executable file not found in PATH ({searched})")]
    NotInPath { name: String, searched: String },
    #[error("{name:?}: executable file not found: PATH is not set")]
    NoPath { name: String },
    #[error("{}: no such file", path.display())]
    NotFound { path: PathBuf },
    #[error("{}: permission denied: the file is not executable (chmod +x makes it so)", path.display())]
    NotExecutable { path: PathBuf },
    #[error("{}: is a folder, not a program", path.display())]
    IsFolder { path: PathBuf },
    #[error("{}: its interpreter {interpreter:?} does not exist{hint}", path.display())]
    NoInterpreter { path: PathBuf, interpreter: String, hint: &'static str },
    #[error("{}: exec format error: {reason}", path.display())]
    Format { path: PathBuf, reason: String },
    #[error("{}: can't be started", path.display())]
    Refused { path: PathBuf, source: io::Error },
    #[error("{}: the working directory does not exist or is not a folder", path.display())]
    WorkingDirectory { path: PathBuf },
}

impl StartError {
    /// The exit code that a shell would give.
    pub(super) fn code(&self) -> i32 {
        match self {
            Self::Empty
            | Self::NotInPath { .. }
            | Self::NoPath { .. }
            | Self::NotFound { .. }
            | Self::NoInterpreter { .. } => NOT_FOUND,
            Self::NotExecutable { .. }
            | Self::IsFolder { .. }
            | Self::Format { .. }
            | Self::Refused { .. }
            | Self::WorkingDirectory { .. } => NOT_EXECUTABLE,
        }
    }
}

/// Starts a program with this process's standard output and error and nothing to read.
pub(super) fn start(program: &Program, run_as: Option<&RunAs>) -> Result<Child, StartError> {
    let name = program.command.first().ok_or(StartError::Empty)?;
    let folder = &program.working_directory;
    if !folder.is_dir() {
        return Err(StartError::WorkingDirectory { path: folder.clone() });
    }
    let path = find(name, program)?;
    if let Some(reason) = executable::refusal(&path) {
        return Err(StartError::Format { path, reason });
    }
    let mut command = Command::new(&path);
    if let Some(run_as) = run_as {
        run_as.apply(&mut command);
    }
    let executed = execute(&mut command, &path, program);
    executed.map_err(|error| explain(path.clone(), error))?;
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        // A group of its own: what `train` sends to its group must not reach those who watch it.
        .process_group(0)
        .spawn()
        .map_err(|error| explain(path, error))
}

/// Says what is executed, with which arguments and environment.
fn execute(command: &mut Command, path: &Path, program: &Program) -> io::Result<()> {
    let bytes = |text: &String| text.clone().into_bytes();
    let arguments = Strings::new(program.command.iter().map(bytes))?;
    let variables = program.environment.iter().map(|(name, value)| format!("{name}={value}").into_bytes());
    let path = CString::new(path.as_os_str().as_bytes())?;
    sys::execute_directly(command, path, arguments, Strings::new(variables)?);
    Ok(())
}

/// The file that a name means; relative paths start at the working directory.
fn find(name: &str, program: &Program) -> Result<PathBuf, StartError> {
    if name.contains('/') {
        let path = program.working_directory.join(name);
        return check(&path).map(|()| path);
    }
    let Some(searched) = program.environment.get("PATH") else {
        return Err(StartError::NoPath { name: name.to_owned() });
    };
    let mut nearly = None;
    for folder in searched.split(':') {
        let path = program.working_directory.join(folder).join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(StartError::NotFound { .. }) => {}
            Err(error) => nearly = nearly.or(Some(error)),
        }
    }
    Err(nearly.unwrap_or_else(|| StartError::NotInPath { name: name.to_owned(), searched: searched.clone() }))
}

fn check(path: &Path) -> Result<(), StartError> {
    let path = path.to_owned();
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => Err(StartError::IsFolder { path }),
        Ok(_) if access(&path, Access::EXEC_OK).is_ok() => Ok(()),
        Ok(_) => Err(StartError::NotExecutable { path }),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(StartError::Refused { path, source: error })
        }
        Err(_) => Err(StartError::NotFound { path }),
    }
}

/// Why the kernel would not execute a file that is there and executable.
fn explain(path: PathBuf, error: io::Error) -> StartError {
    let found = executable::look(&path);
    match (error.raw_os_error().map(Errno::from_raw_os_error), found.interpreter) {
        (Some(Errno::NOENT), Some(interpreter)) => {
            let hint = if interpreter.ends_with(b"\r") {
                ": the line ends as on Windows, with a carriage return"
            } else {
                ""
            };
            let interpreter = OsStr::from_bytes(&interpreter).to_string_lossy().into_owned();
            StartError::NoInterpreter { path, interpreter, hint }
        }
        (Some(Errno::NOEXEC), _) => StartError::Format { path, reason: found.description },
        _ => StartError::Refused { path, source: error },
    }
}
