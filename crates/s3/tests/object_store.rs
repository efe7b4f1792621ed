//! The endpoint as `object_store` uses it, which many programs read and write their data with: the checks that it has for
//! stores, and what these leave out.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fs_err as fs;
use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum, S3CopyIfNotExists};
use object_store::integration::{self as checks, MarkerHttpConnector};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use trainyard_s3::{Buckets, answer, service};

const BUCKET: &str = "bucket";

/// An endpoint with one empty bucket, which ends with the test.
struct Endpoint {
    url: String,
    folder: tempfile::TempDir,
    serving: JoinHandle<()>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Endpoint {
    async fn start() -> Self {
        // Another test of this process may have done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let named = BTreeMap::from([(BUCKET.to_owned(), folder.path().join(BUCKET))]);
        fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let buckets = Buckets::new(named, folder.path().join("others"));
        let secrets = Arc::new(|access: &str| (access == "access").then(|| "secret".to_owned()));
        let s3 = service(buckets, secrets, Arc::new(|_: &str| true));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let s3 = s3.clone();
                let each = service_fn(move |request| {
                    let s3 = s3.clone();
                    async move { answer(&s3, request).await }
                });
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // A client that goes away is no failure.
                    let _ = builder.serve_connection(TokioIo::new(stream), each).await;
                });
            }
        });
        Self { url, folder, serving }
    }

    fn builder(&self) -> AmazonS3Builder {
        AmazonS3Builder::new()
            .with_endpoint(&self.url)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name(BUCKET)
            .with_access_key_id("access")
            .with_secret_access_key("secret")
    }

    fn store(&self) -> AmazonS3 {
        self.builder().with_copy_if_not_exists(S3CopyIfNotExists::Multipart).build().unwrap()
    }
}

async fn listed(store: &AmazonS3) -> BTreeSet<String> {
    store.list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap()
}

#[tokio::test]
async fn objects_are_put_read_listed_and_deleted() {
    let endpoint = Endpoint::start().await;
    checks::put_get_delete_list(&endpoint.store()).await;
    checks::stream_get(&endpoint.store()).await;
    checks::put_get_attributes(&endpoint.store()).await;
    checks::get_opts(&endpoint.store()).await;
    checks::get_nonexistent_object(&endpoint.store(), None).await.unwrap_err();
}

#[tokio::test]
async fn content_is_taken_with_each_checksum_and_without_a_signature_of_its_own() {
    let endpoint = Endpoint::start().await;
    for checksum in [Checksum::SHA256, Checksum::CRC64NVME] {
        let store = endpoint.builder().with_checksum_algorithm(checksum).build().unwrap();
        checks::put_get_delete_list(&store).await;
    }
    checks::put_get_delete_list(&endpoint.builder().with_unsigned_payload(true).build().unwrap()).await;
}

#[tokio::test]
async fn lists_have_their_folders_offsets_and_pages() {
    let endpoint = Endpoint::start().await;
    let store = endpoint.store();
    checks::list_uses_directories_correctly(&store).await;
    checks::list_with_delimiter(&store).await;
    checks::list_with_offset_exclusivity(&store).await;
    checks::list_paginated(&store, &store).await;
}

#[tokio::test]
async fn objects_are_copied_and_renamed_also_only_where_there_is_none() {
    let endpoint = Endpoint::start().await;
    checks::rename_and_copy(&endpoint.store()).await;
    checks::copy_rename_nonexistent_object(&endpoint.store()).await;
    checks::copy_if_not_exists(&endpoint.store()).await;
}

#[tokio::test]
async fn a_put_may_want_no_object_or_the_one_of_an_etag() {
    let endpoint = Endpoint::start().await;
    checks::put_opts(&endpoint.store(), true).await;
}

#[tokio::test]
async fn uploads_in_parts_come_in_any_order_and_side_by_side() {
    let endpoint = Endpoint::start().await;
    let store = endpoint.store();
    checks::multipart(&store, &store).await;
    checks::multipart_with_opts(&store, &store).await;
    checks::multipart_put_part_out_of_order(&store, &store).await;
    checks::multipart_out_of_order(&store).await;
    checks::multipart_race_condition(&store, true).await;
}

#[tokio::test]
async fn answers_have_what_a_connector_adds_to_them() {
    let endpoint = Endpoint::start().await;
    let store = endpoint.builder().with_http_connector(MarkerHttpConnector::default()).build().unwrap();
    checks::response_extensions(&store, true).await;
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing() {
    let endpoint = Endpoint::start().await;
    let store = endpoint.store();
    let mut upload = store.put_multipart(&Path::from("large")).await.unwrap();
    upload.put_part(PutPayload::from(vec![7; 5 << 20])).await.unwrap();
    upload.abort().await.unwrap();
    upload.complete().await.unwrap_err();
    assert!(listed(&store).await.is_empty());
    let mut left = Vec::new();
    files(endpoint.folder.path(), &mut left);
    left.retain(|(name, _)| !name.starts_with("index.sqlite"));
    assert!(left.is_empty(), "{left:?}");
}

/// The names and sizes of all files below a folder.
fn files(folder: &std::path::Path, found: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push((entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()));
        }
    }
}

#[tokio::test]
async fn odd_keys_are_keys_like_any_other() {
    let endpoint = Endpoint::start().await;
    let store = endpoint.store();
    let long = "k".repeat(300);
    let keys = [
        "a b/c  d",
        "ünïcode/日本語/🦀",
        "plus+and&equals=",
        "per%20cent",
        "quote'\"<>",
        "a/b",
        "a/b/c",
        &long,
    ];
    for key in keys {
        let path = Path::parse(key).unwrap();
        let content = format!("content of {key}");
        store.put(&path, content.clone().into()).await.unwrap();
        let got = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(got, content.as_bytes(), "{key}");
        assert_eq!(store.head(&path).await.unwrap().size, content.len() as u64, "{key}");
    }
    assert_eq!(listed(&store).await, keys.map(str::to_owned).into());
    let copied = Path::parse("other place/ü +").unwrap();
    store.copy(&Path::parse(keys[1]).unwrap(), &copied).await.unwrap();
    store.head(&copied).await.unwrap();
    // It knows no empty segments: what others have stored so must not disturb it, and never be something else.
    Path::parse("a//b").unwrap_err();
}

#[tokio::test]
async fn many_objects_are_listed_and_deleted_over_several_pages() {
    let endpoint = Endpoint::start().await;
    let store = endpoint.store();
    let names: BTreeSet<_> = (0..2100).map(|number| format!("many/{:02}/{number}", number % 7)).collect();
    let puts = stream::iter(&names).map(|name| {
        let (store, path) = (&store, Path::from(name.as_str()));
        async move { store.put(&path, PutPayload::from_static(b"x")).await }
    });
    puts.buffer_unordered(16).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(listed(&store).await, names);
    let folders = store.list_with_delimiter(Some(&Path::from("many"))).await.unwrap();
    assert_eq!((folders.common_prefixes.len(), folders.objects.len()), (7, 0));
    let from = names.iter().nth(1500).unwrap();
    let rest =
        store.list_with_offset(None, &Path::from(from.as_str())).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(rest.len(), names.len() - 1501);
    let all = stream::iter(names.clone()).map(|name| Ok(Path::from(name))).boxed();
    let deleted = store.delete_stream(all).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(deleted.len(), names.len());
    assert!(listed(&store).await.is_empty());
}
