//! What can be told about an image without running it.

use std::io::Read;
use std::path::{Path, PathBuf};

use fs_err as fs;
use trainyard_engine::executable::{Executable, look};
use trainyard_engine::image::{ImageConfig, Lowers};

use crate::facts::{ImageFacts, ProgramFacts};

/// A script's interpreter may be a script; the kernel follows as many.
const MOST_INTERPRETERS: usize = 5;

/// Folders of which the image says nothing: each instance has its own.
const OWN_FOLDERS: [&str; 5] = ["/opt/ml", "/tmp", "/dev", "/proc", "/sys"];

/// What an image says of itself, with the bytes of its layers and the program that would be started in it.
pub fn examine(config: &ImageConfig, layers: Vec<u64>, program: ProgramFacts) -> ImageFacts {
    ImageFacts {
        platform: config.platform.to_string(),
        bytes: layers.iter().sum(),
        layers,
        entrypoint: config.entrypoint.clone(),
        user: config.user.clone(),
        program,
    }
}

/// Follows the first word of a command to the program that the kernel would execute.
pub fn program(name: &str, places: &Places<'_>) -> ProgramFacts {
    let Some(mut path) = places.find(name) else {
        return ProgramFacts::Missing { explanation: format!("there is no {name} in the image") };
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    loop {
        if OWN_FOLDERS.iter().any(|own| path.starts_with(own)) {
            return ProgramFacts::Unknown { path };
        }
        let Ok(Some(file)) = places.lowers.find(&path) else { return ProgramFacts::Unknown { path } };
        if !is_executable(&file) {
            return ProgramFacts::NotExecutable { path };
        }
        let Executable { interpreter, machine, .. } = look(&file);
        paths.push(path.clone());
        if let Some(machine) = machine.filter(|&machine| machine != std::env::consts::ARCH) {
            return ProgramFacts::OtherMachine { path, machine: machine.to_owned() };
        }
        let Some(interpreter) = interpreter else { return ProgramFacts::Found { paths } };
        let interpreter = String::from_utf8_lossy(&interpreter).into_owned();
        let wanted = env_argument(&file, &interpreter).unwrap_or_else(|| interpreter.clone());
        match places.find(&wanted) {
            Some(next) if paths.len() < MOST_INTERPRETERS => path = next,
            Some(_) => return ProgramFacts::Found { paths },
            None => return ProgramFacts::NoInterpreter { path, interpreter: wanted },
        }
    }
}

/// Where programs of an image are looked for.
pub struct Places<'a> {
    /// What the image shows.
    pub lowers: &'a Lowers,
    /// Where the program starts.
    pub folder: &'a Path,
    /// `PATH`.
    pub searched: &'a str,
}

impl Places<'_> {
    /// The path in the image that a name means; of several in the `PATH`, the first that may be executed.
    fn find(&self, name: &str) -> Option<PathBuf> {
        let is_own = |path: &Path| OWN_FOLDERS.iter().any(|own| path.starts_with(own));
        let file = |path: &Path| self.lowers.find(path).ok().flatten();
        if name.contains('/') {
            let path = self.folder.join(name);
            return (is_own(&path) || file(&path).is_some()).then_some(path);
        }
        let paths = self.searched.split(':').map(|entry| self.folder.join(entry).join(name));
        let there: Vec<PathBuf> = paths.filter(|path| is_own(path) || file(path).is_some()).collect();
        let runs = there.iter().find(|path| file(path).is_some_and(|file| is_executable(&file)));
        runs.or(there.first()).cloned()
    }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

/// The program that `env` looks up, where a script names it so: `#!/usr/bin/env python3`.
fn env_argument(script: &Path, interpreter: &str) -> Option<String> {
    if Path::new(interpreter).file_name()? != "env" {
        return None;
    }
    let mut head = Vec::new();
    fs::File::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let words = head.lines().next()?.split_whitespace().skip(1);
    // Options and variables come before the name.
    let mut names = words.skip(usize::from(head.starts_with("#! ")));
    names.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned)
}
