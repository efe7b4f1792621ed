//! What PAX records say about the next entry.

use super::sparse;

/// Kept of all records for one entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) modified: Option<(i64, u32)>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: sparse::Records,
}

/// Before the name of an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";

impl Records {
    /// Adds what stands in an extended header; tells which field is wrong.
    pub(super) fn add(&mut self, mut content: &[u8]) -> Result<(), &'static str> {
        while !content.is_empty() {
            let (key, value, rest) = record(content).ok_or("a PAX record")?;
            self.set(key, value)?;
            content = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            // The name that stands in the header is made up for sparse files.
            b"GNU.sparse.name" | b"path" => self.path = Some(name(value)?),
            b"linkpath" => self.link = Some(name(value)?),
            b"size" => self.size = Some(decimal(value).ok_or("the PAX record size")?),
            b"uid" => self.uid = Some(decimal(value).ok_or("the PAX record uid")?),
            b"gid" => self.gid = Some(decimal(value).ok_or("the PAX record gid")?),
            b"mtime" => self.modified = Some(time(value).ok_or("the PAX record mtime")?),
            _ if key.starts_with(XATTR) => {
                self.xattrs.push((key[XATTR.len()..].to_vec(), value.to_vec()));
            }
            _ => self.sparse.set(key, value).ok_or("a PAX record of a sparse file")?,
        }
        Ok(())
    }
}

/// The first record of `LENGTH KEY=VALUE\n…`: key, value and the rest.
fn record(content: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = content.iter().take(20).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(&content[..space])?).ok()?;
    let (record, rest) = content.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|&byte| byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

/// A zero would cut the name off in every system call.
fn name(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    if value.contains(&0) { Err("the PAX record of a name") } else { Ok(value.to_vec()) }
}

pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Seconds with decimals; what is finer than a nanosecond is cut off. Times before 1970 become 1970.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    if text.starts_with('-') {
        return Some((0, 0));
    }
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    let nine: String = decimals.chars().chain("000000000".chars()).take(9).collect();
    Some((seconds.parse().ok()?, nine.parse().ok()?))
}
