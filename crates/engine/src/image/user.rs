//! Who runs inside an image: the names and numbers of its own `/etc/passwd` and `/etc/group`.

use std::io::{self, Read};
use std::path::Path;

use fs_err as fs;

use super::lowers::Lowers;

/// `/etc/passwd` and `/etc/group` are read up to this size, in bytes.
const ACCOUNTS_LIMIT: u64 = 16 << 20;

/// Who runs a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups, in the order of `/etc/group`.
    pub groups: Vec<u32>,
    /// Home directory; `/` for whom the image does not know.
    pub home: String,
}

/// A user that can't be found out.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// A name that the image does not know.
    #[error("the image runs as user {user:?}, but its /etc/passwd has no {name:?}: use the user's number")]
    NoUser {
        /// As the image has it.
        user: String,
        /// The name.
        name: String,
    },
    /// A group that the image does not know.
    #[error("the image runs as user {user:?}, but its /etc/group has no {name:?}: use the group's number")]
    NoGroup {
        /// As the image has it.
        user: String,
        /// The name.
        name: String,
    },
    /// The image's files can't be read.
    #[error("can't read {file} of the image")]
    Read {
        /// Which.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl User {
    /// Looks up the `USER` of an image: a name or a number, maybe with a group behind a colon; root if
    /// empty. The rules are Docker's: names come before numbers, numbers need not be known, and who is
    /// given a group has no supplementary ones.
    ///
    /// # Errors
    ///
    /// Fails for names that the image does not know.
    pub fn resolve(user: &str, lowers: &Lowers) -> Result<Self, UserError> {
        let read =
            |file| read_accounts(lowers, Path::new(file)).map_err(|source| UserError::Read { file, source });
        resolve(user, &read("/etc/passwd")?, &read("/etc/group")?)
    }

    /// The same for a process that runs inside the image.
    ///
    /// # Errors
    ///
    /// Fails for names that the image does not know.
    pub fn resolve_inside(user: &str) -> Result<Self, UserError> {
        Self::resolve(user, &Lowers::new(vec!["/".into()]))
    }
}

fn read_accounts(lowers: &Lowers, path: &Path) -> io::Result<String> {
    let Some(file) = lowers.find(path)? else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    if fs::symlink_metadata(&file)?.is_file() {
        fs::File::open(file)?.take(ACCOUNTS_LIMIT).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A line of `/etc/passwd`.
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

fn resolve(user: &str, passwd: &str, group: &str) -> Result<User, UserError> {
    let (name, group_name) = match user.split_once(':') {
        Some((name, group)) => (name, Some(group).filter(|group| !group.is_empty())),
        None => (user, None),
    };
    let name = if name.is_empty() { "0" } else { name };
    let account = accounts(passwd).find(|account| account.name == name);
    let account = account.or_else(|| {
        let number = number(name)?;
        accounts(passwd).find(|account| account.uid == number)
    });
    let Some(uid) = account.as_ref().map(|account| account.uid).or_else(|| number(name)) else {
        return Err(UserError::NoUser { user: user.to_owned(), name: name.to_owned() });
    };
    let home = account.as_ref().map_or("", |account| account.home);
    let (gid, supplementary) = match group_name {
        Some(group_name) => (find_group(user, group_name, group)?, Vec::new()),
        None => match &account {
            Some(account) => (account.gid, memberships(account.name, group)),
            None => (0, Vec::new()),
        },
    };
    let home = if home.is_empty() { "/" } else { home };
    Ok(User { uid, gid, groups: supplementary, home: home.to_owned() })
}

fn find_group(user: &str, name: &str, group: &str) -> Result<u32, UserError> {
    let known = groups(group).find(|group| group.name == name).map(|group| group.gid);
    known
        .or_else(|| number(name))
        .ok_or_else(|| UserError::NoGroup { user: user.to_owned(), name: name.to_owned() })
}

fn memberships(name: &str, group: &str) -> Vec<u32> {
    let is_member = |group: &Group<'_>| group.members.split(',').any(|member| member == name);
    groups(group).filter(is_member).map(|group| group.gid).collect()
}

/// The highest number stands for nobody in system calls.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number != u32::MAX)
}

/// Lines that are damaged count for nothing.
fn accounts(passwd: &str) -> impl Iterator<Item = Account<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let (uid, gid) = (number(fields.next()?)?, number(fields.next()?)?);
        let _comment = fields.next();
        Some(Account { name, uid, gid, home: fields.next().unwrap_or_default() })
    })
}

fn groups(group: &str) -> impl Iterator<Item = Group<'_>> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        Some(Group { name, gid: number(fields.next()?)?, members: fields.next().unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nfit:x:1000:100:Fit,,,:/home/fit:/bin/sh\n\
                          damaged\n# comment\n42:x:7:7::/home/seven:\nbare:x:8:8\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nvideo:x:44:root,fit\naudio:x:63:fit\nx\n";

    fn user(uid: u32, gid: u32, groups: &[u32], home: &str) -> User {
        User { uid, gid, groups: groups.to_vec(), home: home.to_owned() }
    }

    #[test]
    fn users_are_found_as_docker_finds_them() {
        let table = [
            ("", user(0, 0, &[44], "/root")),
            ("root", user(0, 0, &[44], "/root")),
            ("fit", user(1000, 100, &[44, 63], "/home/fit")),
            ("1000", user(1000, 100, &[44, 63], "/home/fit")),
            ("fit:", user(1000, 100, &[44, 63], "/home/fit")),
            ("fit:video", user(1000, 44, &[], "/home/fit")),
            ("fit:12", user(1000, 12, &[], "/home/fit")),
            ("5000", user(5000, 0, &[], "/")),
            ("5000:6000", user(5000, 6000, &[], "/")),
            ("42", user(7, 7, &[], "/home/seven")),
            (":audio", user(0, 63, &[], "/root")),
            ("bare", user(8, 8, &[], "/")),
        ];
        for (text, expected) in table {
            assert_eq!(resolve(text, PASSWD, GROUP).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_image_without_accounts_has_numbers_only() {
        assert_eq!(resolve("", "", "").unwrap(), user(0, 0, &[], "/"));
        assert!(matches!(resolve("fit", "", ""), Err(UserError::NoUser { .. })));
        assert!(matches!(resolve("4294967295", "", ""), Err(UserError::NoUser { .. })));
        assert!(matches!(resolve("0:fit", "", ""), Err(UserError::NoGroup { .. })));
    }
}
