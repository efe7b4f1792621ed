//! Which user ids an instance has, and what they are on the machine. The one place where this is decided.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;
use rustix::process::{Pid, getgid, getuid};
use serde::{Deserialize, Serialize};

use crate::explain::chain;

/// Where distributions put `newuidmap` and `newgidmap`: programs of the package `uidmap` (or
/// `shadow-utils`) that give an ordinary user the ids that `/etc/subuid` and `/etc/subgid` set aside.
const FOLDERS: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];

/// Ids that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: u32,
    count: u32,
}

/// The user ids of an instance; group ids are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    /// All that this process's namespace has, by the same numbers.
    Same,
    /// The user's own as 0, and from 1 on those that are set aside for the user.
    Subordinate(Subordinate),
    /// The user's own as 0 and no other.
    Own,
}

/// What `/etc/subuid` and `/etc/subgid` set aside for a user, and the programs that map it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subordinate {
    newuidmap: PathBuf,
    newgidmap: PathBuf,
    users: Vec<Range>,
    groups: Vec<Range>,
}

/// Why an ordinary user's instances have user id 0 alone.
#[derive(Debug, thiserror::Error)]
pub enum NoSubordinateIds {
    /// The programs are not installed.
    #[error("the program {program} is not installed (Debian's package uidmap, Fedora's shadow-utils)")]
    NoProgram {
        /// `newuidmap` or `newgidmap`.
        program: &'static str,
    },
    /// Nothing is set aside for this user.
    #[error(
        "{file} sets no ids aside for user id {user}; the machine's administrator can do that with \
         `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER`"
    )]
    NoRange {
        /// `/etc/subuid` or `/etc/subgid`.
        file: &'static str,
        /// Whose ids they would be.
        user: u32,
    },
}

/// How many user ids beside their own this user's instances have. For root, whose instances have all ids, the
/// answer is about what would be if it were an ordinary user.
pub fn subordinate_ids() -> Result<u64, NoSubordinateIds> {
    Ok(Subordinate::of_this_user()?.users.iter().map(|range| u64::from(range.count)).sum())
}

impl Ids {
    /// What this user can give to an instance.
    pub(crate) fn of_this_user() -> Self {
        if getuid().is_root() {
            return Self::Same;
        }
        Subordinate::of_this_user().map_or(Self::Own, Self::Subordinate)
    }
}

/// Which ids a new namespace was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Mapped {
    /// All that this user can give.
    All,
    /// The user's own, although others are set aside.
    OwnAlone {
        /// Why the others were refused.
        refusal: String,
    },
}

/// Gives the ids that this user can give to the new user namespace of a process; the caller is in its parent. In
/// a namespace that was given ids before, it passes on all of them.
pub(super) fn map(process: Pid) -> io::Result<Mapped> {
    let pid = process.as_raw_nonzero().to_string();
    let process = Path::new("/proc").join(&pid);
    match Ids::of_this_user() {
        // Root of a container may lack the right to map other ids.
        Ids::Same if give_same(&process, "uid_map").is_ok() => give_same(&process, "gid_map")?,
        Ids::Subordinate(ids) => match ids.give_users(&pid) {
            Ok(()) => ids.give_groups(&pid)?,
            // Also where they are set aside, a container around this program may lack them.
            Err(error) => {
                give_own(&process)?;
                return Ok(Mapped::OwnAlone { refusal: chain(&error) });
            }
        },
        Ids::Same | Ids::Own => give_own(&process)?,
    }
    Ok(Mapped::All)
}

impl Subordinate {
    fn of_this_user() -> Result<Self, NoSubordinateIds> {
        let user = getuid().as_raw();
        let names = names(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user);
        let ranges = |file: &'static str| {
            let found = ranges(&fs::read_to_string(file).unwrap_or_default(), &names, user);
            if found.is_empty() { Err(NoSubordinateIds::NoRange { file, user }) } else { Ok(found) }
        };
        Ok(Self {
            newuidmap: find("newuidmap")?,
            newgidmap: find("newgidmap")?,
            users: ranges("/etc/subuid")?,
            groups: ranges("/etc/subgid")?,
        })
    }

    fn give_users(&self, pid: &str) -> io::Result<()> {
        run(&self.newuidmap, pid, &numbers(getuid().as_raw(), &self.users))
    }

    fn give_groups(&self, pid: &str) -> io::Result<()> {
        run(&self.newgidmap, pid, &numbers(getgid().as_raw(), &self.groups))
    }
}

/// The map of an instance: its id, the machine's id, and how many follow; user_namespaces(7).
fn numbers(own: u32, ranges: &[Range]) -> Vec<[u32; 3]> {
    let mut next = 1;
    let mut map = vec![[0, own, 1]];
    for range in ranges {
        map.push([next, range.first, range.count]);
        // Too many for the kernel, which will refuse them.
        next = next.saturating_add(range.count);
    }
    map
}

fn run(program: &Path, pid: &str, map: &[[u32; 3]]) -> io::Result<()> {
    let numbers = map.iter().flatten().map(u32::to_string);
    let output = Command::new(program).arg(pid).args(numbers).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{}: {}", program.display(), said.trim())))
}

fn find(program: &'static str) -> Result<PathBuf, NoSubordinateIds> {
    let mut places = FOLDERS.iter().map(|folder| Path::new(folder).join(program));
    places.find(|path| path.exists()).ok_or(NoSubordinateIds::NoProgram { program })
}

/// The names of a user id; passwd(5) has the format.
fn names(passwd: &str, user: u32) -> Vec<String> {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(user)).then(|| name.to_owned())
    };
    passwd.lines().filter_map(name).collect()
}

/// What is set aside for a user, named or by number; subuid(5) has the format.
fn ranges(text: &str, names: &[String], user: u32) -> Vec<Range> {
    let number = user.to_string();
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let ours = owner == number || names.iter().any(|name| name == owner);
        (ours && count > 0).then_some(Range { first, count })
    };
    let mut found: Vec<Range> = Vec::new();
    for range in text.lines().filter_map(range) {
        // Both the name and the number may be there, for the same ids.
        if !found.contains(&range) {
            found.push(range);
        }
    }
    found
}

fn give_same(process: &Path, file: &str) -> io::Result<()> {
    let all = fs::read_to_string(Path::new("/proc/self").join(file))?;
    fs::write(process.join(file), identity(&all))
}

fn give_own(process: &Path) -> io::Result<()> {
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

/// Whether a namespace with this map has an id.
pub(super) fn has(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.nth(1)) else { return false };
        (first..first + count).contains(&u64::from(id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_map_covers_what_the_outer_namespace_has() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }

    #[test]
    fn ids_are_set_aside_by_name_or_number() {
        let names = names("root:x:0:0::/:/bin/sh\nme:x:7:7::/:/bin/sh\ndamaged\nagain:x:7:7::/:\n", 7);
        assert_eq!(names, ["me", "again"]);
        let text = "me:100:10\n7:200:20\nother:300:30\n77:1:1\n again:400:40 \nme:100:10\nme:x:1\nme:5\nme:9:0\n# me:1:1\n";
        let found = ranges(text, &names, 7);
        let expected = [(100, 10), (200, 20), (400, 40)].map(|(first, count)| Range { first, count });
        assert_eq!(found, expected);
        assert_eq!(numbers(7, &found), [[0, 7, 1], [1, 100, 10], [11, 200, 20], [31, 400, 40]]);
        assert_eq!(ranges("", &names, 7), []);
    }

    #[test]
    fn an_id_is_there_if_a_range_of_the_map_has_it() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        for (id, expected) in [(0, true), (1, true), (65536, true), (65537, false), (u32::MAX, false)] {
            assert_eq!(has(map, id), expected, "{id}");
        }
        assert!(has("0 0 4294967295\n", 4_294_967_294));
        assert!(!has("", 0));
    }
}
