//! Why an instance failed, in the words of its program.

use std::io::{self, Read};
use std::path::Path;

use fs_err as fs;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// More of a failure file is never shown.
const LONGEST: u64 = 64 * 1024;

/// The text of the failure file, unless it is absent or blank.
///
/// `ml` is what the instance saw as `/opt/ml`. No link is followed: the instance made them, and
/// what they point to may lie outside of it.
pub(crate) fn failure_text(ml: &Path) -> Option<String> {
    let text = read(ml, Path::new("output/failure")).ok()?;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn read(root: &Path, relative: &Path) -> io::Result<Vec<u8>> {
    let root = fs::File::open(root)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = std::fs::File::from(openat2(&root, relative, flags, Mode::empty(), resolve)?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_file_that_is_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        fs::create_dir(&output).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        assert_eq!(failure_text(folder.path()), None);
        fs::os::unix::fs::symlink("../secret", output.join("failure")).unwrap();
        assert_eq!(failure_text(folder.path()), None);
        fs::remove_file(output.join("failure")).unwrap();
        fs::write(output.join("failure"), b" out of \xff luck\n").unwrap();
        assert_eq!(failure_text(folder.path()), Some("out of \u{fffd} luck".to_owned()));
    }
}
