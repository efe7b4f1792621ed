//! Signature Version 4 of requests (IAM user guide, "Create a signed AWS API request"): checked by the endpoint,
//! made by the client.
//!
//! Pure: the time and the secrets come from the caller.

use std::borrow::Cow;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use hyper::HeaderMap;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

/// How far a client's clock may be off, in seconds.
const CLOCK_SKEW: i64 = 15 * 60;
/// For how long a signature in a query is good at most: a week.
const LONGEST_LIFE: i64 = 7 * 86_400;
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A request as it was signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// As it was sent, without the query.
    pub(crate) path: &'a str,
    /// As it was sent, without the question mark.
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// Who has signed, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signer {
    pub(crate) access_key: String,
    pub(crate) region: String,
    pub(crate) service: String,
}

/// A request that is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    #[error("Missing Authentication Token: sign the request with the keys that `trainyard env` prints")]
    Missing,
    #[error("the signature in the Authorization header or in the query has no usable {0}")]
    Incomplete(&'static str),
    #[error("The security token included in the request is invalid.")]
    UnknownKey,
    #[error("Signature expired: the request was signed at another time than the clock of this machine shows")]
    Clock,
    #[error("The header x-amz-target has to be signed too: it says what is done")]
    UnsignedTarget,
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
         Access Key and signing method."
    )]
    Mismatch,
}

impl SignatureError {
    /// As Amazon's services name it.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Missing => "MissingAuthenticationTokenException",
            Self::Incomplete(_) => "IncompleteSignatureException",
            Self::UnknownKey => "UnrecognizedClientException",
            Self::Clock | Self::Mismatch | Self::UnsignedTarget => "InvalidSignatureException",
        }
    }
}

/// What is sent of a signature: in the `Authorization` header, or in the query of a presigned URL.
struct Presented<'a> {
    credential: Cow<'a, str>,
    signed_headers: Cow<'a, str>,
    signature: Cow<'a, str>,
    date: Cow<'a, str>,
    /// For how many seconds after its date it is good.
    life: i64,
    /// What of the query is signed.
    query: Cow<'a, str>,
}

/// Whose key it is, and what the signature is good for.
struct Credential<'a> {
    access_key: &'a str,
    /// `<date>/<region>/<service>/aws4_request`.
    scope: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
}

/// Checks that a request was signed with a known key, now; `now` is in seconds since 1970.
pub(crate) fn verify(
    request: &Signed<'_>,
    secret: impl Fn(&str) -> Option<String>,
    now: i64,
) -> Result<Signer, SignatureError> {
    let presented = match text(request.headers, "authorization") {
        Some(header) => Presented::in_header(header, request)?,
        None => Presented::in_query(request)?,
    };
    let Presented { signed_headers, date, .. } = &presented;
    let given = Credential::parse(&presented.credential)?;
    let at = seconds(date).ok_or(SignatureError::Incomplete("X-Amz-Date"))?;
    let age = now - at;
    if age < -CLOCK_SKEW || age > presented.life || !date.starts_with(given.date) {
        return Err(SignatureError::Clock);
    }
    // Otherwise a URL that was given away for one operation could be used for another.
    if request.headers.contains_key("x-amz-target")
        && !signed_headers.split(';').any(|name| name == "x-amz-target")
    {
        return Err(SignatureError::UnsignedTarget);
    }
    let secret = secret(given.access_key).ok_or(SignatureError::UnknownKey)?;
    let as_signed = Signed { query: &presented.query, ..*request };
    let canonical = canonical_request(&as_signed, signed_headers, Paths::EncodedTwice)?;
    let to_sign = to_sign(date, given.scope, &canonical);
    let signature = from_hex(&presented.signature).ok_or(SignatureError::Incomplete("Signature"))?;
    let key = signing_key(&secret, [given.date, given.region, given.service]);
    // In constant time.
    let right = keyed(&key).is_some_and(|mut mac| {
        mac.update(to_sign.as_bytes());
        mac.verify_slice(&signature).is_ok()
    });
    if !right {
        return Err(SignatureError::Mismatch);
    }
    let owned = |text: &str| text.to_owned();
    let Credential { access_key, region, service, .. } = given;
    Ok(Signer { access_key: owned(access_key), region: owned(region), service: owned(service) })
}

/// How a service wants the path in what is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// As it was sent, and encoded once more.
    EncodedTwice,
    /// As it was sent: S3.
    AsSent,
}

/// The value of the `Authorization` header with which `signer` signs a request.
///
/// All headers of the request are signed; `host` and `x-amz-date` have to be among them.
///
/// # Errors
/// One of the two is not.
pub(crate) fn sign(
    request: &Signed<'_>,
    signer: &Signer,
    secret: &str,
    paths: Paths,
) -> Result<String, SignatureError> {
    let date = text(request.headers, "x-amz-date").ok_or(SignatureError::Incomplete("X-Amz-Date"))?;
    let mut names: Vec<_> = request.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let signed_headers = names.join(";");
    let day = date.get(..8).ok_or(SignatureError::Incomplete("X-Amz-Date"))?;
    let Signer { access_key, region, service } = signer;
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = to_sign(date, &scope, &canonical_request(request, &signed_headers, paths)?);
    let signature = hex(&mac(&signing_key(secret, [day, region, service]), to_sign.as_bytes()));
    Ok(format!(
        "{ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={signed_headers}, Signature={signature}"
    ))
}

fn to_sign(date: &str, scope: &str, canonical: &str) -> String {
    format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)))
}

/// The key for day, region and service.
fn signing_key(secret: &str, scope: [&str; 3]) -> Vec<u8> {
    let steps = scope.into_iter().chain(["aws4_request"]);
    steps.fold(format!("AWS4{secret}").into_bytes(), |key, step| mac(&key, step.as_bytes()))
}

impl<'a> Presented<'a> {
    fn in_header(header: &'a str, request: &Signed<'a>) -> Result<Self, SignatureError> {
        let rest = header
            .strip_prefix(ALGORITHM)
            .ok_or(SignatureError::Incomplete("algorithm (AWS4-HMAC-SHA256)"))?;
        let part = |name: &'static str| {
            let found = rest.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
            found.map(Cow::Borrowed).ok_or(SignatureError::Incomplete(name))
        };
        let date = text(request.headers, "x-amz-date").ok_or(SignatureError::Incomplete("X-Amz-Date"))?;
        Ok(Self {
            credential: part("Credential")?,
            signed_headers: part("SignedHeaders")?,
            signature: part("Signature")?,
            date: date.into(),
            life: CLOCK_SKEW,
            query: request.query.into(),
        })
    }

    /// IAM user guide, "Authenticating requests: query parameters".
    fn in_query(request: &Signed<'a>) -> Result<Self, SignatureError> {
        let pairs = || request.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let find = |wanted: &str| {
            let (_, value) = pairs().find(|(name, _)| *name == wanted)?;
            percent_decode_str(value).decode_utf8().ok()
        };
        let part = |name: &'static str| find(name).ok_or(SignatureError::Incomplete(name));
        if find("X-Amz-Algorithm").ok_or(SignatureError::Missing)? != ALGORITHM {
            return Err(SignatureError::Incomplete("algorithm (AWS4-HMAC-SHA256)"));
        }
        let life = find("X-Amz-Expires").map_or(Some(CLOCK_SKEW), |text| text.parse().ok());
        let life = life.filter(|life| (1..=LONGEST_LIFE).contains(life));
        let signed = request.query.split('&').filter(|pair| !pair.starts_with("X-Amz-Signature="));
        Ok(Self {
            credential: part("X-Amz-Credential")?,
            signed_headers: part("X-Amz-SignedHeaders")?,
            signature: part("X-Amz-Signature")?,
            date: part("X-Amz-Date")?,
            life: life.ok_or(SignatureError::Incomplete("X-Amz-Expires (1 to 604800 seconds)"))?,
            query: signed.collect::<Vec<_>>().join("&").into(),
        })
    }
}

impl<'a> Credential<'a> {
    fn parse(credential: &'a str) -> Result<Self, SignatureError> {
        let (access_key, scope) =
            credential.split_once('/').ok_or(SignatureError::Incomplete("Credential"))?;
        let mut steps = scope.split('/');
        let (date, region, service, end) = (steps.next(), steps.next(), steps.next(), steps.next());
        match (date, region, service, end, steps.next()) {
            (Some(date), Some(region), Some(service), Some("aws4_request"), None) if date.len() == 8 => {
                Ok(Self { access_key, scope, date, region, service })
            }
            _ => Err(SignatureError::Incomplete("Credential")),
        }
    }
}

fn canonical_request(
    request: &Signed<'_>,
    signed_headers: &str,
    paths: Paths,
) -> Result<String, SignatureError> {
    let path = match paths {
        Paths::EncodedTwice => encoded(request.path),
        Paths::AsSent => request.path.to_owned(),
    };
    let mut lines = format!("{}\n{path}\n{}\n", request.method, query(request.query));
    let names: Vec<_> = signed_headers.split(';').collect();
    // Without the host a request for another endpoint could be sent to this one.
    if !names.contains(&"host") {
        return Err(SignatureError::Incomplete("SignedHeaders (host)"));
    }
    for name in names {
        let values = request.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let values: Vec<_> =
            values.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        // A String takes everything.
        let _ = writeln!(lines, "{name}:{}", values.join(","));
    }
    let own = hex(&Sha256::digest(request.body));
    if text(request.headers, "x-amz-content-sha256").is_some_and(|told| told != own) {
        return Err(SignatureError::Mismatch);
    }
    let _ = write!(lines, "\n{signed_headers}\n{own}");
    Ok(lines)
}

/// The path, encoded.
fn encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(byte.into())
            }
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
    if text.is_empty() { "/".to_owned() } else { text }
}

/// Pairs in order; those without a value get an empty one.
fn query(raw: &str) -> String {
    let mut pairs: Vec<_> = raw
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Of `YYYYMMDD'T'HHMMSS'Z'`.
fn seconds(date: &str) -> Option<i64> {
    let parsed = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).ok()?;
    Some(jiff::tz::Offset::UTC.to_timestamp(parsed).ok()?.as_second())
}

fn keyed(key: &[u8]) -> Option<Hmac<Sha256>> {
    // Keys of any length are taken.
    Hmac::new_from_slice(key).ok()
}

/// HMAC-SHA-256 (RFC 2104).
pub(crate) fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    keyed(key).map_or_else(Vec::new, |mut mac| {
        mac.update(text);
        mac.finalize().into_bytes().to_vec()
    })
}

/// In lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 == 1 {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    // The example of the AWS General Reference, "Signature Version 4 signing process" (IAM ListUsers).
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const HEADERS: [(&str, &str); 4] = [
        ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
        ("host", "iam.amazonaws.com"),
        ("x-amz-date", "20150830T123600Z"),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        ),
    ];
    const NOW: i64 = 1_440_938_160;

    fn check(changes: &[(&str, &str)], body: &[u8], now: i64) -> Result<Signer, SignatureError> {
        let mut headers = HeaderMap::new();
        for (name, value) in HEADERS.iter().chain(changes) {
            headers.insert(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let query = "Action=ListUsers&Version=2010-05-08";
        let request = Signed { method: "GET", path: "/", query, headers: &headers, body };
        verify(&request, |access| (access == "AKIDEXAMPLE").then(|| SECRET.to_owned()), now)
    }

    #[test]
    fn amazons_own_example_is_right_and_names_its_scope() {
        let signer = check(&[], b"", NOW).unwrap();
        assert_eq!((signer.region.as_str(), signer.service.as_str()), ("us-east-1", "iam"));
        assert!(check(&[], b"", NOW + CLOCK_SKEW).is_ok());
    }

    #[test]
    fn what_is_signed_is_amazons_own_example_and_is_found_right() {
        let mut headers = HeaderMap::new();
        for (name, value) in &HEADERS[..3] {
            headers.insert(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let query = "Action=ListUsers&Version=2010-05-08";
        let request = Signed { method: "GET", path: "/", query, headers: &headers, body: b"" };
        let signer =
            Signer { access_key: "AKIDEXAMPLE".into(), region: "us-east-1".into(), service: "iam".into() };
        assert_eq!(sign(&request, &signer, SECRET, Paths::EncodedTwice).unwrap(), HEADERS[3].1);
        headers.remove("x-amz-date");
        let undated = Signed { method: "GET", path: "/", query, headers: &headers, body: b"" };
        assert!(sign(&undated, &signer, SECRET, Paths::AsSent).is_err());
    }

    #[test]
    fn whatever_is_changed_makes_the_signature_wrong() {
        use SignatureError::{Clock, Incomplete, Mismatch, UnknownKey};
        let authorization = HEADERS[3].1;
        let other = |from: &str, to: &str| authorization.replace(from, to);
        assert_eq!(check(&[], b"body", NOW), Err(Mismatch));
        assert_eq!(check(&[("content-type", "text/plain")], b"", NOW), Err(Mismatch));
        assert_eq!(check(&[("authorization", &other("us-east-1", "eu-west-1"))], b"", NOW), Err(Mismatch));
        assert_eq!(check(&[("authorization", &other("AKIDEXAMPLE", "OTHER"))], b"", NOW), Err(UnknownKey));
        assert_eq!(check(&[], b"", NOW + CLOCK_SKEW + 1), Err(Clock));
        assert_eq!(check(&[("authorization", &other("/20150830/", "/20150829/"))], b"", NOW), Err(Clock));
        let unsigned_host = other("content-type;host;", "content-type;");
        assert_eq!(
            check(&[("authorization", &unsigned_host)], b"", NOW),
            Err(Incomplete("SignedHeaders (host)"))
        );
        for damaged in
            ["", "Bearer x", "AWS4-HMAC-SHA256 Credential=a/b", &other("Signature=5", "Signature=x")]
        {
            assert!(check(&[("authorization", damaged)], b"", NOW).is_err(), "{damaged}");
        }
    }

    /// Made with botocore's `SigV4QueryAuth`, with the keys of the example above.
    const PRESIGNED: &str = "Action=GetCallerIdentity&Version=2011-06-15&\
         X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Fus-east-1%2Fsts%2Faws4_request&\
         X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&\
         X-Amz-Signature=1d10ef2bc2bb1b02201752f1912e9eb7a5df0d0d7bd2cc98b1f5557b7a9254be";

    fn check_query(
        query: &str,
        changes: &[(&'static str, &'static str)],
        now: i64,
    ) -> Result<Signer, SignatureError> {
        let changes = changes.iter().chain(&[("host", "sts.amazonaws.com")]);
        let headers: HeaderMap = changes
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let request = Signed { method: "GET", path: "/", query, headers: &headers, body: b"" };
        verify(&request, |access| (access == "AKIDEXAMPLE").then(|| SECRET.to_owned()), now)
    }

    #[test]
    fn a_url_that_botocore_has_presigned_is_good_for_its_time_and_as_it_is() {
        use SignatureError::{Clock, Incomplete, Mismatch, Missing, UnknownKey, UnsignedTarget};
        let signer = check_query(PRESIGNED, &[], NOW).unwrap();
        assert_eq!((signer.region.as_str(), signer.service.as_str()), ("us-east-1", "sts"));
        assert!(
            check_query(PRESIGNED, &[], NOW + 60).is_ok()
                && check_query(PRESIGNED, &[], NOW - CLOCK_SKEW).is_ok()
        );
        assert_eq!(check_query(PRESIGNED, &[], NOW + 61), Err(Clock));
        assert_eq!(check_query(PRESIGNED, &[], NOW - CLOCK_SKEW - 1), Err(Clock));
        let changed = |from: &str, to: &str| {
            assert!(PRESIGNED.contains(from), "{from}");
            check_query(&PRESIGNED.replace(from, to), &[], NOW)
        };
        assert_eq!(changed("GetCallerIdentity", "GetSessionToken"), Err(Mismatch));
        assert_eq!(changed("X-Amz-Expires=60", "X-Amz-Expires=6000"), Err(Mismatch));
        assert_eq!(changed("us-east-1", "eu-west-1"), Err(Mismatch));
        assert_eq!(changed("AKIDEXAMPLE", "OTHER"), Err(UnknownKey));
        assert_eq!(changed("X-Amz-Algorithm=AWS4-HMAC-SHA256", "a=b"), Err(Missing));
        for life in ["0", "-1", "604801", "", "x"] {
            let wrong = changed("X-Amz-Expires=60", &format!("X-Amz-Expires={life}"));
            assert_eq!(wrong, Err(Incomplete("X-Amz-Expires (1 to 604800 seconds)")), "{life}");
        }
        assert_eq!(
            changed("SignedHeaders=host", "SignedHeaders=date"),
            Err(Incomplete("SignedHeaders (host)"))
        );
        let target = ("x-amz-target", "SageMaker.ListTrainingJobs");
        assert_eq!(check_query(PRESIGNED, &[target], NOW), Err(UnsignedTarget));
    }

    #[test]
    fn a_hash_of_other_content_is_refused() {
        let told = "0".repeat(64);
        assert_eq!(check(&[("x-amz-content-sha256", &told)], b"", NOW), Err(SignatureError::Mismatch));
    }

    /// Pieces of which headers and queries are made, and anything else.
    fn any_text() -> impl Strategy<Value = String> {
        let known = prop::sample::select(vec![
            "AWS4-HMAC-SHA256 ",
            "Credential=",
            "AKIDEXAMPLE",
            "/20150830",
            "/us-east-1",
            "/iam",
            "/aws4_request",
            ", ",
            "SignedHeaders=",
            "host",
            ";",
            "Signature=",
            "20150830T123600Z",
            "=",
            "&",
            "%",
            "é",
        ]);
        let piece = prop_oneof![3 => known.prop_map(ToOwned::to_owned), 1 => "\\PC{0,6}"];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    fn header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
        let name = prop::sample::select(vec![
            "authorization",
            "x-amz-date",
            "x-amz-content-sha256",
            "host",
            "content-type",
        ]);
        let value = prop_oneof![
            any_text().prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..40),
            // The example with some bytes changed.
            (0..3_usize, prop::collection::vec((any::<usize>(), any::<u8>()), 0..4)).prop_map(
                |(which, changes)| {
                    let mut value = HEADERS[which + 1].1.as_bytes().to_vec();
                    for (place, byte) in changes {
                        let length = value.len();
                        value[place % length] = byte;
                    }
                    value
                }
            ),
        ];
        (name, value).prop_filter_map("a value that HTTP has", |(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_bytes(&value).ok()?))
        })
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_in_headers_or_query_panics_or_passes(
            headers in prop::collection::vec(header(), 0..8),
            path in any_text(),
            query in any_text(),
        ) {
            let headers: HeaderMap = HEADERS[..3].iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .chain(headers)
                .collect();
            let request = Signed { method: "GET", path: &path, query: &query, headers: &headers, body: b"" };
            // Nobody knows this secret.
            let found = verify(&request, |_| Some("other".to_owned()), NOW);
            prop_assert!(found.is_err());
        }

        #[test]
        fn whatever_is_signed_is_found_right(
            path in any_text(),
            query in any_text(),
            value in any_text(),
            body in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut headers: HeaderMap = HEADERS[1..3].iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            headers.insert("content-type", HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("")));
            let signer = Signer { access_key: "A".into(), region: "r".into(), service: "s".into() };
            let request = Signed { method: "POST", path: &path, query: &query, headers: &headers, body: &body };
            let authorization = sign(&request, &signer, SECRET, Paths::EncodedTwice).unwrap();
            let mut headers = headers.clone();
            headers.insert("authorization", authorization.parse().unwrap());
            let request = Signed { headers: &headers, ..request };
            prop_assert_eq!(verify(&request, |_| Some(SECRET.to_owned()), NOW), Ok(signer));
        }
    }
}
