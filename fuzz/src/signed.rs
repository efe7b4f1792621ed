//! Signatures of requests.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::signature::{Paths, SignatureError, Signed, Signer, sign, verify};

// The example of the AWS General Reference, "Signature Version 4 signing process" (IAM ListUsers).
const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const NOW: i64 = 1_440_938_160;

/// A request as HTTP/1.1 has it: the signature that it has is looked at, and one that we make is right.
pub fn signature(bytes: &[u8]) {
    let (head, body) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|&byte| byte == b'\n');
    let Ok(first) = std::str::from_utf8(lines.next().unwrap_or_default()) else { return };
    let (method, target) = first.split_once(' ').unwrap_or((first, "/"));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers: HeaderMap = lines.filter_map(header).collect();
    let secret = |key: &str| (key == KEY).then(|| SECRET.to_owned());
    let _ = verify(&Signed { method, path, query, headers: &headers, body }, secret, NOW);

    headers.remove(AUTHORIZATION);
    let signer = Signer { access_key: KEY.into(), region: "us-east-1".into(), service: "iam".into() };
    let request = Signed { method, path, query, headers: &headers, body };
    let Ok(made) = sign(&request, &signer, SECRET, Paths::EncodedTwice) else { return };
    let Ok(made) = HeaderValue::from_str(&made) else { return };
    headers.insert(AUTHORIZATION, made);
    let found = verify(&Signed { method, path, query, headers: &headers, body }, secret, NOW);
    match found {
        Ok(found) => assert_eq!(found, signer),
        // Of another time, or of none.
        Err(SignatureError::Clock | SignatureError::Incomplete(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let value = line[colon + 1..].trim_ascii();
    Some((HeaderName::from_bytes(&line[..colon]).ok()?, HeaderValue::from_bytes(value).ok()?))
}
