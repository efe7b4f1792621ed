//! URIs of objects and of files.

use proptest::prelude::*;

use crate::spec::{ObjectUri, Place};

#[test]
fn every_form_of_an_s3_uri_gives_bucket_and_key() {
    let table = [
        ("s3://bucket/key/x", "bucket", "key/x"),
        ("s3://bucket/key/", "bucket", "key/"),
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket//key", "bucket", "/key"),
        ("s3://my.bucket_1/a b", "my.bucket_1", "a b"),
        ("https://bucket.s3.amazonaws.com/key/x", "bucket", "key/x"),
        ("https://my.bucket.s3.eu-west-1.amazonaws.com/key", "my.bucket", "key"),
        ("https://bucket.s3-eu-west-1.amazonaws.com/key", "bucket", "key"),
        ("https://bucket.s3.dualstack.eu-west-1.amazonaws.com", "bucket", ""),
        ("https://bucket.s3.cn-north-1.amazonaws.com.cn/key", "bucket", "key"),
        ("https://s3.backup.s3.eu-west-1.amazonaws.com/key", "s3.backup", "key"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/key/x", "bucket", "key/x"),
        ("https://s3.amazonaws.com/bucket", "bucket", ""),
        ("https://s3-eu-west-1.amazonaws.com/bucket/a%20b", "bucket", "a%20b"),
    ];
    for (text, bucket, key) in table {
        let uri = ObjectUri::parse(text).unwrap();
        assert_eq!((uri.bucket(), uri.key(), uri.path()), (Some(bucket), Some(key), None), "{text}");
        assert_eq!(uri.to_string(), text);
    }
}

#[test]
fn a_file_uri_gives_the_path() {
    for (text, path) in [("file:///a/b c", "/a/b c"), ("file:///", "/"), ("file:///a/%20/", "/a/%20/")] {
        let uri = ObjectUri::parse(text).unwrap();
        assert_eq!(*uri.place(), Place::File(path.into()), "{text}");
        assert_eq!((uri.bucket(), uri.key(), uri.to_string()), (None, None, text.to_owned()));
    }
}

#[test]
fn a_text_that_points_to_no_objects_is_refused_with_what_would_be_right() {
    let table = [
        ("/a/b", "'/a/b' begins neither with s3://, file:/// nor https://"),
        ("", "'' begins neither with s3://, file:/// nor https://"),
        ("file://a/b", "'file://a/b' has no absolute path: write file:/// and the path from the root"),
        ("https://example.com/x", "'https://example.com/x' is not an address of S3: write s3://BUCKET/KEY"),
        (
            "https://ec2.amazonaws.com/x",
            "'https://ec2.amazonaws.com/x' is not an address of S3: write s3://BUCKET/KEY",
        ),
        (
            "s3://../x",
            "'..' in 's3://../x' is not the name of a bucket: letters, digits, '.', '-', '_' and ':'",
        ),
        ("s3://", "'' in 's3://' is not the name of a bucket: letters, digits, '.', '-', '_' and ':'"),
        (
            "s3://a\\b/x",
            "'a\\b' in 's3://a\\b/x' is not the name of a bucket: letters, digits, '.', '-', '_' and ':'",
        ),
    ];
    for (text, message) in table {
        assert_eq!(ObjectUri::parse(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_child_is_joined_by_one_slash() {
    let table = [
        ("s3://b", "s3://b/job/output"),
        ("s3://b/", "s3://b/job/output"),
        ("s3://b/p", "s3://b/p/job/output"),
        ("s3://b/p/", "s3://b/p/job/output"),
        ("s3://b//", "s3://b//job/output"),
        ("file:///", "file:///job/output"),
        ("file:///p/", "file:///p/job/output"),
    ];
    for (text, child) in table {
        let uri = ObjectUri::parse(text).unwrap();
        assert_eq!(uri.child("job/output").to_string(), child);
        assert_eq!(uri.child("/job/output").to_string(), child);
    }
}

#[test]
fn a_uri_is_stored_as_its_text() {
    let uri = ObjectUri::parse("s3://b/k").unwrap();
    let stored = serde_json::to_string(&uri).unwrap();
    assert_eq!(stored, "\"s3://b/k\"");
    assert_eq!(serde_json::from_str::<ObjectUri>(&stored).unwrap(), uri);
    assert!(serde_json::from_str::<ObjectUri>("\"k\"").is_err());
}

proptest! {
    #[test]
    fn no_text_panics_and_a_child_points_to_what_its_own_text_says(
        base in "(s3://b|file://|https://s3\\.amazonaws\\.com/b)/?[/.ab%é]{0,12}|\\PC{0,20}",
        relative in "[.abé]{1,4}(/[.abé]{1,4})?",
    ) {
        if let Ok(uri) = ObjectUri::parse(&base) {
            let child = uri.child(&relative);
            prop_assert_eq!(ObjectUri::parse(&child.to_string()).unwrap(), child);
        }
    }
}
