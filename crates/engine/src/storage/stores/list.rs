//! Listings of stores.
//!
//! object_store's own listing takes keys for paths: `a` and `a/` would be the same, and one odd key would make
//! all of the listing fail.

use http::Method;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::super::s3::{Bucket, Call};
use super::super::{Object, ObjectSource, StorageError, StoreError, check_segments};
use super::{Bytes, Stores};

/// One page (S3 API reference, ListObjectsV2).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Page {
    contents: Vec<Entry>,
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

impl Stores {
    /// Every object of a bucket whose key starts with `prefix`, in order of the keys' bytes.
    pub(in super::super) async fn list(
        &self,
        bucket: &str,
        prefix: &str,
    ) -> Result<Vec<Object>, StorageError> {
        let bucket = self.bucket(bucket)?;
        let mut objects = Vec::new();
        let mut token = None;
        loop {
            let page = page(&bucket, prefix, token.as_deref()).await?;
            let escaped = page.encoding_type.as_deref() == Some("url");
            for entry in page.contents {
                objects.extend(object(&bucket, entry, escaped)?);
            }
            token = match page.next_continuation_token {
                Some(next) if page.is_truncated && token.as_ref() != Some(&next) => Some(next),
                _ if page.is_truncated => {
                    let what = bucket.uri(Some(prefix));
                    return Err(bucket.malformed(&what, "the listing goes on, but not where").into());
                }
                _ => break,
            };
        }
        objects.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        Ok(objects)
    }
}

async fn page(bucket: &Bucket, prefix: &str, token: Option<&str>) -> Result<Page, StoreError> {
    // In this order they are signed.
    let mut query: Vec<_> = token.map(|token| ("continuation-token", token.to_owned())).into_iter().collect();
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
    fn an_empty_page_holds_nothing() {
        let page = parse("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
        assert!(page.contents.is_empty() && !page.is_truncated);
    }
}
