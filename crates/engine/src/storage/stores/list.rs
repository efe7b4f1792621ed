//! Listings of stores: one page after the other, and where keys are in few large folders, folder by folder at once.
//!
//! object_store's own listing takes keys for paths: `a` and `a/` would be the same, and one odd key would make
//! all of the listing fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};
use http::Method;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::super::s3::{Bucket, Call};
use super::super::{Object, ObjectSource, StorageError, StoreError, check_segments};
use super::{Bytes, Stores};

/// One page (S3 API reference, ListObjectsV2).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Page {
    contents: Vec<Entry>,
    common_prefixes: Vec<CommonPrefix>,
    encoding_type: Option<String>,
    is_truncated: bool,
    next_continuation_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    key: String,
    size: u64,
    #[serde(rename = "ETag", default)]
    etag: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CommonPrefix {
    prefix: String,
}

/// Pages that are asked for at once.
const PAGES: usize = 16;
/// Folders are listed by themselves if a page holds no more of them than this: then each has so many keys that the
/// requests that this takes beyond those of one listing are outweighed by their being made at once.
const FOLDERS_OF_A_PAGE: usize = 10;

impl Stores {
    /// Every object of a bucket whose key starts with `prefix`, in order of the keys' bytes.
    pub(in super::super) async fn list(
        &self,
        bucket: &str,
        prefix: &str,
    ) -> Result<Vec<Object>, StorageError> {
        if let Some(foreign) = self.foreign(bucket)? {
            return foreign.list(prefix).await;
        }
        let listing = Arc::new(Listing { bucket: self.bucket(bucket)?, pages: Semaphore::new(PAGES) });
        let mut objects = listing.all(prefix.to_owned()).await?;
        objects.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        Ok(objects)
    }
}

/// A listing under way.
struct Listing {
    bucket: Arc<Bucket>,
    pages: Semaphore,
}

impl Listing {
    /// Every object below a prefix, in any order.
    fn all(self: Arc<Self>, prefix: String) -> BoxFuture<'static, Result<Vec<Object>, StorageError>> {
        Box::pin(async move {
            let first = self.page(&prefix, None, "").await?;
            if first.is_truncated
                && let Some((folders, objects)) = self.split(&prefix, &first).await?
            {
                let below = folders.into_iter().map(|folder| Arc::clone(&self).all(folder));
                return Ok(try_join_all(below).await?.into_iter().flatten().chain(objects).collect());
            }
            self.rest(&prefix, first).await
        })
    }

    /// The folders right below a prefix and the objects beside them, if it is worth while to list each by itself.
    async fn split(
        &self,
        prefix: &str,
        first: &Page,
    ) -> Result<Option<(Vec<String>, Vec<Object>)>, StorageError> {
        let escaped = first.is_escaped();
        let mut folders = BTreeSet::new();
        for entry in &first.contents {
            let key = self.plain(&entry.key, escaped)?;
            let below = key.strip_prefix(prefix).unwrap_or_default();
            match below.split_once('/') {
                Some((folder, _)) => folders.insert(folder.to_owned()),
                None => return Ok(None),
            };
        }
        if folders.len() > FOLDERS_OF_A_PAGE {
            return Ok(None);
        }
        let page = match self.page(prefix, None, "/").await {
            // Somebody may be allowed to list in one way only.
            Err(error) if error.status() == Some(403) => return Ok(None),
            page => page?,
        };
        if page.is_truncated || page.common_prefixes.len() < 2 {
            return Ok(None);
        }
        let escaped = page.is_escaped();
        let folders = page.common_prefixes.iter().map(|folder| self.plain(&folder.prefix, escaped));
        let folders = folders.collect::<Result<_, _>>()?;
        Ok(Some((folders, self.objects(page)?)))
    }

    /// The objects of the first page and of all that follow it.
    async fn rest(&self, prefix: &str, mut page: Page) -> Result<Vec<Object>, StorageError> {
        let mut objects = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let next = page.next_continuation_token.take();
            let is_truncated = page.is_truncated;
            objects.extend(self.objects(page)?);
            token = match next {
                Some(next) if is_truncated && token.as_ref() != Some(&next) => Some(next),
                _ if is_truncated => {
                    let what = self.bucket.uri(Some(prefix));
                    return Err(self.bucket.malformed(&what, "the listing goes on, but not where").into());
                }
                _ => return Ok(objects),
            };
            page = self.page(prefix, token.as_deref(), "").await?;
        }
    }

    async fn page(&self, prefix: &str, token: Option<&str>, delimiter: &str) -> Result<Page, StoreError> {
        // Never closed.
        let _permit = self.pages.acquire().await.ok();
        page(&self.bucket, prefix, token, delimiter).await
    }

    fn objects(&self, page: Page) -> Result<Vec<Object>, StorageError> {
        let escaped = page.is_escaped();
        let objects = page.contents.into_iter().map(|entry| object(&self.bucket, entry, escaped));
        objects.filter_map(Result::transpose).collect()
    }

    fn plain(&self, key: &str, escaped: bool) -> Result<String, StorageError> {
        if escaped { unescaped(&self.bucket, key) } else { Ok(key.to_owned()) }
    }
}

impl Page {
    fn is_escaped(&self) -> bool {
        self.encoding_type.as_deref() == Some("url")
    }
}

/// One page; with a delimiter that is not empty, what holds it behind the prefix is put together.
async fn page(
    bucket: &Bucket,
    prefix: &str,
    token: Option<&str>,
    delimiter: &str,
) -> Result<Page, StoreError> {
    // In this order they are signed.
    let mut query: Vec<_> = token.map(|token| ("continuation-token", token.to_owned())).into_iter().collect();
    if !delimiter.is_empty() {
        query.push(("delimiter", delimiter.to_owned()));
    }
    query.push(("encoding-type", "url".to_owned()));
    query.push(("list-type", "2".to_owned()));
    query.push(("prefix", prefix.to_owned()));
    let call = Call { method: Method::GET, key: None, query, headers: Vec::new(), body: Bytes::new() };
    let what = format!("listing {}", bucket.uri(Some(prefix)));
    let mut patience = super::super::s3::Patience::new(bucket.tries);
    loop {
        match bucket.call(&call).await?.into_body().bytes().await {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text);
                return quick_xml::de::from_str(&text).map_err(|error| bucket.malformed(&what, error));
            }
            Err(error) if !patience.wait().await => {
                return Err(StoreError::Broken { what, store: bucket.store.clone(), why: error.to_string() });
            }
            Err(_) => {}
        }
    }
}

/// None for a folder marker: an empty object that stands for a folder, which is no file.
fn object(bucket: &Bucket, entry: Entry, escaped: bool) -> Result<Option<Object>, StorageError> {
    let Entry { key, size, etag } = entry;
    let key = if escaped { unescaped(bucket, &key)? } else { key };
    if key.ends_with('/') && size == 0 {
        return Ok(None);
    }
    let uri = bucket.uri(Some(&key));
    if key.ends_with('/') {
        return Err(StorageError::Marker { uri, size });
    }
    check_segments(&key, &uri)?;
    let source = ObjectSource::Store { bucket: bucket.name.clone(), key: key.clone(), etag };
    Ok(Some(Object { key, source, size }))
}

/// In listings a blank is a plus sign, as in forms.
fn unescaped(bucket: &Bucket, key: &str) -> Result<String, StorageError> {
    let plain = key.replace('+', " ");
    match percent_decode_str(&plain).decode_utf8() {
        Ok(key) => Ok(key.into_owned()),
        Err(_) => Err(StorageError::KeyNotUtf8 { bucket: bucket.name.clone(), key: key.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Page {
        quick_xml::de::from_str(text).unwrap()
    }

    #[test]
    fn a_page_is_read_as_servers_write_it() {
        let page = parse(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
             <IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>\
             <EncodingType>url</EncodingType><Contents><Key>a%2Fb+c</Key><LastModified>x</LastModified>\
             <ETag>&quot;e&quot;</ETag><Size>3</Size></Contents><KeyCount>1</KeyCount>\
             <Contents><Key>d</Key><Size>0</Size></Contents></ListBucketResult>",
        );
        assert!(page.is_truncated);
        assert_eq!(page.next_continuation_token.as_deref(), Some("t"));
        let entries: Vec<_> =
            page.contents.iter().map(|entry| (&*entry.key, entry.size, &*entry.etag)).collect();
        assert_eq!(entries, [("a%2Fb+c", 3, "\"e\""), ("d", 0, "")]);
    }

    #[test]
    fn folders_of_a_page_are_read_whether_they_come_together_or_not() {
        let page = parse(
            "<ListBucketResult><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes><Contents><Key>b</Key>\
             <Size>1</Size></Contents><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes></ListBucketResult>",
        );
        let folders: Vec<_> = page.common_prefixes.iter().map(|folder| &*folder.prefix).collect();
        assert_eq!((folders, page.contents.len()), (vec!["a/", "c/"], 1));
    }

    #[test]
    fn an_empty_page_holds_nothing() {
        let page = parse("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
        assert!(page.contents.is_empty() && !page.is_truncated);
    }
}
