//! `[storage]` and `[cache]`: buckets that are in stores, and what is kept of their objects.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use trainyard_engine::storage::{StoreAddress, StoreKind};

use super::Origin;
use super::file::File;

/// What is said about stores.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Storage {
    /// Buckets with a store of their own.
    pub(crate) buckets: BTreeMap<String, StoreAddress>,
    /// The store of all buckets that are named nowhere; they are folders when absent.
    pub(crate) others: Option<StoreAddress>,
    cache: Option<u64>,
    /// Jobs that ended longer ago are forgotten.
    pub(crate) keep_jobs_days: Option<u32>,
}

/// The table `[storage]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StorageTable {
    default: Option<Others>,
    endpoint: Option<String>,
    region: Option<String>,
    path_style: Option<bool>,
    profile: Option<String>,
    anonymous: bool,
    bucket: BTreeMap<String, StoreAddress>,
}

/// Where the buckets are that are named nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Others {
    /// Below the data folder.
    Folders,
    /// At Amazon, or at the endpoint.
    Aws,
}

/// The table `[cache]`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CacheTable {
    max: Option<String>,
}

/// The table `[gc]`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GcTable {
    keep_jobs_days: Option<u32>,
}

/// Without `[cache] max` one tenth of the file system may be used.
const CACHE_SHARE: u64 = 10;

impl Storage {
    pub(super) fn merge(file: &File) -> anyhow::Result<Self> {
        let StorageTable { default, endpoint, region, path_style, profile, anonymous, bucket } =
            file.settings.storage.clone();
        let others = match default {
            Some(Others::Folders) => None,
            Some(Others::Aws) => Some(()),
            None => endpoint.as_ref().map(|_| ()),
        };
        let address =
            StoreAddress { endpoint, region, path_style, profile, anonymous, ..StoreAddress::default() };
        let named = bucket.iter().map(|(name, address)| (format!("[storage.bucket.{name}]"), address));
        for (place, address) in named.chain([("[storage]".to_owned(), &address)]) {
            address.check().with_context(|| format!("configuration file, {place}"))?;
        }
        let cache = file.settings.cache.max.as_deref().map(bytes).transpose();
        let cache = cache.context("configuration file, [cache] max")?;
        let keep_jobs_days = file.settings.gc.keep_jobs_days;
        Ok(Self { buckets: bucket, others: others.map(|()| address), cache, keep_jobs_days })
    }

    /// The tables as a configuration file has them, each value with who has set it, the default or `file`.
    pub(crate) fn as_text(&self, data: &Path, file: &Origin) -> Vec<String> {
        let origin = |is_set: bool| if is_set { file } else { &Origin::Default };
        let (place, address) = match &self.others {
            Some(address) => ("aws", address_lines(address)),
            None => ("folders", Vec::new()),
        };
        let mut lines = vec![String::new(), "[storage]".to_owned()];
        lines.push(format!("default = \"{place}\"  # {}", origin(self.others.is_some())));
        lines.extend(address);
        for (name, address) in &self.buckets {
            lines.push(String::new());
            lines.push(format!("[storage.bucket.{}]  # {}", quoted(name), file));
            lines.extend(address_lines(address));
        }
        lines.extend([String::new(), "[cache]".to_owned()]);
        lines.push(format!("max = \"{}\"  # {}", self.cache_limit(data), origin(self.cache.is_some())));
        lines.extend([String::new(), "[gc]".to_owned()]);
        let kept = self.keep_jobs_days.map(|days| format!("keep_jobs_days = {days}  # {file}"));
        lines.push(kept.unwrap_or_else(|| "# keep_jobs_days is not set: jobs are kept".to_owned()));
        lines
    }

    /// How much is kept of what comes from stores, in bytes.
    pub(crate) fn cache_limit(&self, data: &Path) -> u64 {
        self.cache.unwrap_or_else(|| share_of(data))
    }
}

/// What is said of a store.
fn address_lines(address: &StoreAddress) -> Vec<String> {
    let StoreAddress { kind, endpoint, region, path_style, profile, anonymous, account } = address;
    let texts = [("endpoint", endpoint), ("region", region), ("profile", profile), ("account", account)];
    let texts =
        texts.into_iter().filter_map(|(name, text)| Some(format!("{name} = {}", quoted(text.as_ref()?))));
    let path_style = path_style.map(|path_style| format!("path_style = {path_style}"));
    let anonymous = anonymous.then(|| "anonymous = true".to_owned());
    let kind = (*kind != StoreKind::S3).then(|| format!("kind = {}", quoted(kind.as_str())));
    kind.into_iter().chain(texts).chain(path_style).chain(anonymous).collect()
}

/// A basic string of TOML; its escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A tenth of the file system that a folder is on, which need not be there yet.
fn share_of(folder: &Path) -> u64 {
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    trainyard_engine::storage::file_system_size(there).map_or(0, |size| size / CACHE_SHARE)
}

/// A number of bytes with or without a unit: `0`, `500 MB`, `20GB`, `1.5 TiB`.
fn bytes(text: &str) -> anyhow::Result<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let text = text.trim();
    let unit = UNITS.into_iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    let number: f64 =
        number.trim().parse().ok().filter(|number| (0.0..1e15).contains(number)).with_context(|| {
            format!("{text:?} is no size: write a number and a unit, such as \"20GB\", or \"0\" for nothing")
        })?;
    // Below 2^64 for every unit that disks have.
    Ok((number * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_units() {
        let table =
            [("0", 0), ("12", 12), ("20GB", 20_000_000_000), ("1.5 KiB", 1536), ("500 MB", 500_000_000)];
        for (text, size) in table {
            assert_eq!(bytes(text).unwrap(), size, "{text}");
        }
        for wrong in ["", "GB", "20 G", "-1", "1e99", "NaN"] {
            assert!(bytes(wrong).unwrap_err().to_string().contains("is no size"), "{wrong}");
        }
    }

    fn merged(text: &str) -> anyhow::Result<Storage> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("config.toml");
        fs_err::write(&path, text)?;
        Storage::merge(&File::read(&path)?)
    }

    #[test]
    fn buckets_are_in_a_store_only_if_the_file_says_so() {
        assert_eq!(merged("").unwrap(), Storage::default());
        assert_eq!(merged("[storage]\nregion = 'r'").unwrap(), Storage::default());
        assert_eq!(merged("[storage]\ndefault = 'aws'").unwrap().others, Some(StoreAddress::default()));
        let minio =
            merged("[storage]\nendpoint = 'http://h:1'\nprofile = 'p'\n[storage.bucket.b]\nregion = 'x'");
        let minio = minio.unwrap();
        assert_eq!(minio.others.unwrap().endpoint.as_deref(), Some("http://h:1"));
        assert_eq!(minio.buckets["b"].region.as_deref(), Some("x"));
        let folders = merged("[storage]\nendpoint = 'http://h:1'\ndefault = 'folders'").unwrap();
        assert_eq!(folders.others, None);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let table = [
            ("[storage.bucket.b]\nendpoint = 'h:1'", vec!["storage.bucket.b", "h:1"]),
            ("[storage]\nendpoint = ''", vec!["[storage]", "http://HOST"]),
            ("[storage.bucket.b]\nkind = 'gcs'\nregion = 'x'", vec!["storage.bucket.b", "region", "gcs"]),
            ("[storage.bucket.b]\naccount = 'x'", vec!["account", "s3"]),
            ("[cache]\nmax = 'much'", vec!["[cache] max", "much"]),
            ("[storage]\nsecret = 'x'", vec!["secret", "endpoint", "line 2"]),
        ];
        for (text, words) in table {
            let error = format!("{:#}", merged(text).unwrap_err());
            for word in words {
                assert!(error.contains(word), "{text}: {error}");
            }
        }
    }
}
