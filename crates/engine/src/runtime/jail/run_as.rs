//! Running a program as another user of its instance.

use std::io;
use std::path::Path;
use std::process::Command;

use fs_err as fs;
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::fs::{CWD, chownat, fchown};

use super::{RunAs, SetupError, at, ids, step};
use crate::sys;

impl RunAs {
    /// Whether the instance has more than one user id. An ordinary user's has only one, and whoever maps
    /// just one must forbid the change of groups (user_namespaces(7)).
    pub(super) fn is_possible() -> bool {
        fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "allow")
    }

    /// Gives the user what it must be able to write: its folder and the streams, which it may open again
    /// as `/dev/stdout`.
    pub(super) fn hand_over(&self) -> Result<(), SetupError> {
        self.check_ids()?;
        let (uid, gid) = self.ids();
        give(&self.owns, uid, gid).map_err(at("give to the image's user", &self.owns))?;
        fchown(io::stdout(), Some(uid), Some(gid))
            .map_err(step("give standard output to the image's user"))?;
        fchown(io::stderr(), Some(uid), Some(gid)).map_err(step("give standard error to the image's user"))
    }

    /// Makes a program run as the user.
    pub(super) fn apply(&self, command: &mut Command) {
        let (uid, gid) = self.ids();
        let groups = self.user.groups.iter().map(|&group| Gid::from_raw(group)).collect();
        sys::run_as(command, uid, gid, groups);
    }

    /// An ordinary user has some ids to give, but not all that there are.
    fn check_ids(&self) -> Result<(), SetupError> {
        let read = |file: &'static str| fs::read_to_string(file).map_err(at("read", Path::new(file)));
        let (users, groups) = (read("/proc/self/uid_map")?, read("/proc/self/gid_map")?);
        if !ids::has(&users, self.user.uid) {
            return Err(SetupError::NoSuchId { kind: "user", id: self.user.uid });
        }
        let mut wanted = self.user.groups.iter().chain([&self.user.gid]);
        match wanted.find(|&&group| !ids::has(&groups, group)) {
            Some(&id) => Err(SetupError::NoSuchId { kind: "group", id }),
            None => Ok(()),
        }
    }

    fn ids(&self) -> (Uid, Gid) {
        (Uid::from_raw(self.user.uid), Gid::from_raw(self.user.gid))
    }
}

/// Nobody else has touched the tree yet, so it has no links and little depth.
fn give(path: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}
