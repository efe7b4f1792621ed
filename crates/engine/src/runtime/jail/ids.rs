//! Which user and group ids of the machine a user namespace knows.

use std::io;
use std::path::PathBuf;

use fs_err as fs;
use rustix::process::{Pid, getgid, getuid};

/// Maps ids into the new user namespace of a process; the caller is outside of it, in its parent.
///
/// All ids of the caller's own namespace for who may map them, else the one id as 0.
pub(super) fn map(process: Pid) -> io::Result<()> {
    let process = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    let all = fs::read_to_string("/proc/self/uid_map")?;
    // Root of a container may lack the right to map other ids.
    if getuid().is_root() && fs::write(process.join("uid_map"), identity(&all)).is_ok() {
        let all = fs::read_to_string("/proc/self/gid_map")?;
        return fs::write(process.join("gid_map"), identity(&all));
    }
    fs::write(process.join("setgroups"), "deny")?;
    fs::write(process.join("uid_map"), format!("0 {} 1\n", getuid().as_raw()))?;
    fs::write(process.join("gid_map"), format!("0 {} 1\n", getgid().as_raw()))
}

/// The map that gives every id of a namespace the same number in a namespace inside it;
/// user_namespaces(7) has the format.
fn identity(own: &str) -> String {
    let ranges = own.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?, fields.nth(1)?))
    });
    ranges.map(|(first, count)| format!("{first} {first} {count}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_map_covers_what_the_outer_namespace_has() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
