//! A store of its own for each test, and users and processes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use fs_err as fs;
use rustix::process::getuid;
use tempfile::TempDir;
use trainyard_engine::image::{
    Credentials, ImageReference, ImageStore, Obtain, ObtainError, Platform, Progress, UnpackedImage,
};

/// `nobody` on most systems.
pub(crate) const ORDINARY: u32 = 65534;

/// A folder with a store in it.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) store: ImageStore,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = ImageStore::open(folder.path().join("images")).unwrap();
        Self { folder, store }
    }

    /// A path for something that is no part of the store.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn obtain(&self, reference: &str) -> Result<UnpackedImage, ObtainError> {
        obtain(&self.store, reference, how()).await
    }

    /// Names below a folder of the store.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        names(&self.path("images").join(folder))
    }

    /// Nothing that is not complete is left.
    pub(crate) fn assert_tidy(&self) {
        assert_eq!(self.names("blobs"), [""; 0]);
        assert_eq!(self.names("incoming"), [""; 0]);
        let layers = self.names("layers");
        assert!(layers.iter().all(|name| !name.ends_with(".unpacking")), "{layers:?}");
    }
}

pub(crate) fn how() -> Obtain {
    Obtain {
        platform: Platform::of_this_machine(),
        credentials: Credentials::default(),
        progress: Arc::new(|_: Progress| {}),
    }
}

pub(crate) async fn obtain(
    store: &ImageStore,
    reference: &str,
    how: Obtain,
) -> Result<UnpackedImage, ObtainError> {
    let reference = ImageReference::parse(reference, Path::new("/")).unwrap();
    store.obtain(&reference, &how).await
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Runs the test `name` as an ordinary user too, in a process of its own, if this user is root.
pub(crate) fn also_as_ordinary_user(name: &str) {
    if !getuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = again(name, folder.path());
    let output = command.uid(ORDINARY).gid(ORDINARY).output().unwrap();
    assert_succeeded(&output);
}

/// This program with one of its tests, from a place where every user finds it.
pub(crate) fn again(name: &str, folder: &Path) -> Command {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("tests");
    let own = std::env::current_exe().unwrap();
    // A copy can't be started while another thread that was about to start something has it open too.
    if !program.exists() && fs::hard_link(&own, &program).is_err() {
        fs::copy(own, &program).unwrap();
    }
    let mut command = Command::new(program);
    command.args([name, "--exact", "--nocapture"]).current_dir("/");
    command
}

pub(crate) fn assert_succeeded(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
}
