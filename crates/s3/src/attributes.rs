//! What comes with an object and goes with it again.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use s3s::dto::{Tag, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};

/// Name and value, in the order in which they were set.
pub(crate) type Tags = Vec<(String, String)>;

/// S3 user guide, "Categorizing your objects using tags".
const MOST_TAGS: usize = 10;

/// Takes what a put, a copy or an upload brings.
macro_rules! attributes {
    ($input:expr) => {{
        let members = [
            ("cache-control", $input.cache_control.take()),
            ("content-disposition", $input.content_disposition.take()),
            (
                "content-encoding",
                $input.content_encoding.take().as_deref().and_then($crate::attributes::encoding),
            ),
            ("content-language", $input.content_language.take()),
            ("content-type", $input.content_type.take()),
            ("expires", $input.expires.take().as_ref().and_then($crate::attributes::http_date)),
            ("x-amz-storage-class", $input.storage_class.take().map(|class| class.as_str().to_owned())),
            ("x-amz-website-redirect-location", $input.website_redirect_location.take()),
        ];
        let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        trainyard_bucket::Attributes {
            headers: given.collect(),
            metadata: $input.metadata.take().unwrap_or_default().into_iter().collect(),
            tags: $crate::attributes::tags_of_header($input.tagging.take().as_deref().unwrap_or_default())?,
            ..Default::default()
        }
    }};
}
pub(crate) use attributes;

/// Gives it back with a read.
macro_rules! give_back {
    ($output:expr, $attributes:expr) => {{
        let attributes: &trainyard_bucket::Attributes = $attributes;
        let header = |name: &str| attributes.headers.get(name).cloned();
        $output.cache_control = header("cache-control");
        $output.content_disposition = header("content-disposition");
        $output.content_encoding = header("content-encoding");
        $output.content_language = header("content-language");
        $output.content_type = header("content-type").or_else(|| Some("binary/octet-stream".to_owned()));
        $output.expires = header("expires").and_then(|text| $crate::attributes::parse_http_date(&text));
        $output.storage_class = header("x-amz-storage-class")
            .filter(|class| class != s3s::dto::StorageClass::STANDARD)
            .map(s3s::dto::StorageClass::from);
        $output.website_redirect_location = header("x-amz-website-redirect-location");
        $output.metadata = Some(attributes.metadata.clone().into_iter().collect());
    }};
}
pub(crate) use give_back;

/// The encoding of the content itself: how it was sent does not belong to the object.
pub(crate) fn encoding(text: &str) -> Option<String> {
    let kept: Vec<_> = text.split(',').map(str::trim).filter(|name| *name != "aws-chunked").collect();
    Some(kept.join(",")).filter(|kept| !kept.is_empty())
}

pub(crate) fn http_date(time: &Timestamp) -> Option<String> {
    let mut text = Vec::new();
    time.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

pub(crate) fn parse_http_date(text: &str) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, text).ok()
}

/// Tags of the header `x-amz-tagging`, which is written like a query.
pub(crate) fn tags_of_header(header: &str) -> S3Result<Tags> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = header.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    checked(pairs.collect())
}

/// Tags of a body.
pub(crate) fn tags_of_set(set: Vec<Tag>) -> S3Result<Tags> {
    let pair = |tag: Tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default());
    checked(set.into_iter().map(pair).collect())
}

/// The limits of the same page: 10 tags, 128 and 256 characters.
fn checked(tags: Tags) -> S3Result<Tags> {
    if tags.len() > MOST_TAGS {
        return Err(s3_error!(
            InvalidTag,
            "an object has at most {MOST_TAGS} tags, these are {}",
            tags.len()
        ));
    }
    let mut seen = BTreeMap::new();
    for (name, value) in &tags {
        if name.is_empty() || name.chars().count() > 128 {
            return Err(s3_error!(InvalidTag, "the name of a tag has 1 to 128 characters: {name:?}"));
        }
        if value.chars().count() > 256 {
            return Err(s3_error!(InvalidTag, "the value of the tag {name:?} has more than 256 characters"));
        }
        if seen.insert(name, value).is_some() {
            return Err(s3_error!(InvalidTag, "the tag {name:?} is there twice"));
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_a_header_are_decoded_and_checked() {
        let tags = tags_of_header("a=1&b%26=x+y%2B&c").unwrap();
        let expected = [("a", "1"), ("b&", "x y+"), ("c", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(tags, expected);
        for wrong in ["a=1&a=2", "=1", &"x=1&y=2&".repeat(6), &"x".repeat(129)] {
            assert!(tags_of_header(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn how_content_was_sent_is_no_encoding_of_it() {
        assert_eq!(encoding("aws-chunked"), None);
        assert_eq!(encoding("gzip, aws-chunked").as_deref(), Some("gzip"));
    }
}
