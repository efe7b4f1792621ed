//! PAX extended headers: records of the form `LENGTH KEYWORD=VALUE`, each closed by a newline.

/// What the extended headers before an entry say about it.
#[derive(Debug, Clone, Default)]
pub(super) struct Extension {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) comment: Option<Vec<u8>>,
    /// The content is not stored as it is.
    pub(super) sparse: bool,
}

impl Extension {
    /// Takes over all records of `content`; gives the name of what is wrong. A later record of the same
    /// keyword overrides, an empty value takes an earlier one back.
    pub(super) fn apply(&mut self, mut content: &[u8]) -> Result<(), &'static str> {
        while !content.is_empty() && content[0] != 0 {
            let (keyword, value, rest) = split_record(content).ok_or("extended header record")?;
            self.set(keyword, value)?;
            content = rest;
        }
        Ok(())
    }

    fn set(&mut self, keyword: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let given = (!value.is_empty()).then(|| value.to_vec());
        match keyword {
            b"path" => self.path = given,
            b"comment" => self.comment = given,
            b"size" => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                // As in the header itself: what comes with its padding is still a number.
                let number = number.filter(|&size: &u64| i64::try_from(size).is_ok());
                self.size = number;
                if number.is_none() && given.is_some() {
                    return Err("size");
                }
            }
            _ if keyword.starts_with(b"GNU.sparse.") => self.sparse = true,
            _ => {}
        }
        Ok(())
    }
}

/// Keyword, value and what comes after the first record.
fn split_record(content: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = content.iter().take(20).position(|&byte| byte == b' ')?;
    let length: usize = std::str::from_utf8(&content[..space]).ok()?.parse().ok()?;
    let record = content.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &content[length..]))
}
