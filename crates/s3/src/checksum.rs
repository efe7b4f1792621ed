//! Checksums as clients send them, in headers or behind the content.

use std::collections::BTreeMap;

use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumType};
use s3s::{S3Request, S3Result, TrailingHeaders, s3_error};

/// The algorithms of the S3 API with their headers.
const ALGORITHMS: [(&str, &str); 5] = [
    ("CRC32", "x-amz-checksum-crc32"),
    ("CRC32C", "x-amz-checksum-crc32c"),
    ("CRC64NVME", "x-amz-checksum-crc64nvme"),
    ("SHA1", "x-amz-checksum-sha1"),
    ("SHA256", "x-amz-checksum-sha256"),
];

/// Base64 checksums by algorithm.
pub(crate) type Checksums = BTreeMap<String, String>;

/// What a request says of the checksums of its content.
pub(crate) struct Announced {
    headers: Checksums,
    trailing: Option<TrailingHeaders>,
    computed: Vec<&'static str>,
    md5: Option<String>,
}

impl Announced {
    /// Reads what the request has.
    pub(crate) fn of<T>(request: &S3Request<T>) -> Self {
        let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let trailers = text("x-amz-trailer").unwrap_or_default().to_ascii_lowercase();
        let asked = text("x-amz-sdk-checksum-algorithm").unwrap_or_default();
        let mut headers = Checksums::new();
        let mut computed = Vec::new();
        for (algorithm, header) in ALGORITHMS {
            let value = text(header);
            headers.extend(value.map(|value| (algorithm.to_owned(), value.to_owned())));
            let behind = trailers.split(',').any(|name| name.trim() == header);
            if value.is_some() || behind || asked.eq_ignore_ascii_case(algorithm) {
                computed.push(algorithm);
            }
        }
        let md5 = text("content-md5").map(ToOwned::to_owned);
        Self { headers, trailing: request.trailing_headers.clone(), computed, md5 }
    }

    /// What the headers say.
    pub(crate) fn headers(self) -> Checksums {
        self.headers
    }

    /// Computes all that will be compared or kept.
    pub(crate) fn hasher(&self) -> ChecksumHasher {
        hasher(&self.computed)
    }

    /// Compares what was computed with what was sent; the former is what is kept.
    pub(crate) fn check(&self, computed: Checksums, md5: &[u8; 16]) -> S3Result<Checksums> {
        use base64::Engine as _;
        if let Some(sent) = &self.md5 {
            let own = base64::engine::general_purpose::STANDARD.encode(md5);
            differing("Content-MD5", sent, &own)?;
        }
        for (algorithm, own) in &computed {
            let behind = || {
                let header = ALGORITHMS.iter().find(|(name, _)| name == algorithm)?.1;
                self.trailing
                    .as_ref()?
                    .read(|headers| Some(headers.get(header)?.to_str().ok()?.to_owned()))?
            };
            if let Some(sent) = self.headers.get(algorithm).cloned().or_else(behind) {
                differing(algorithm, &sent, own)?;
            }
        }
        Ok(computed)
    }
}

fn differing(name: &str, sent: &str, own: &str) -> S3Result<()> {
    match sent == own {
        true => Ok(()),
        false => Err(s3_error!(BadDigest, "the content has the {name} {own}, the request says {sent}")),
    }
}

/// A hasher for these algorithms.
pub(crate) fn hasher(algorithms: &[&str]) -> ChecksumHasher {
    let wanted = |name: &str| algorithms.contains(&name);
    ChecksumHasher {
        crc32: wanted("CRC32").then(Crc32::new),
        crc32c: wanted("CRC32C").then(Crc32c::new),
        crc64nvme: wanted("CRC64NVME").then(Crc64Nvme::new),
        sha1: wanted("SHA1").then(Sha1::new),
        sha256: wanted("SHA256").then(Sha256::new),
    }
}

/// What a hasher found.
pub(crate) fn found(checksum: Checksum) -> Checksums {
    let values = [
        ("CRC32", checksum.checksum_crc32),
        ("CRC32C", checksum.checksum_crc32c),
        ("CRC64NVME", checksum.checksum_crc64nvme),
        ("SHA1", checksum.checksum_sha1),
        ("SHA256", checksum.checksum_sha256),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The checksum of the checksums of an object's parts, in the form `<base64>-<count>` (S3 user guide, "Checking
/// object integrity", composite checksums); none where a part has none.
pub(crate) fn composite(parts: &[&Checksums]) -> Checksums {
    use base64::Engine as _;
    let mut all = Checksums::new();
    for (algorithm, _) in ALGORITHMS {
        let mut hasher = hasher(&[algorithm]);
        let complete = parts.iter().all(|part| {
            let bytes = part
                .get(algorithm)
                .and_then(|sum| base64::engine::general_purpose::STANDARD.decode(sum).ok());
            bytes.map(|bytes| hasher.update(&bytes)).is_some()
        });
        if complete && !parts.is_empty() {
            let sums = found(hasher.finalize()).into_iter();
            all.extend(sums.map(|(name, sum)| (name, format!("{sum}-{}", parts.len()))));
        }
    }
    all
}

/// Whether they are of the whole content or of the parts' checksums.
pub(crate) fn kind(checksums: &Checksums) -> Option<ChecksumType> {
    let first = checksums.values().next()?;
    let kind = if first.contains('-') { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT };
    Some(ChecksumType::from_static(kind))
}

/// Fills in the checksum members of an answer; those about an object also tell of which kind they are.
macro_rules! checksums {
    ($output:expr, $checksums:expr) => {{
        let checksums: &$crate::checksum::Checksums = $checksums;
        $output.checksum_crc32 = checksums.get("CRC32").cloned();
        $output.checksum_crc32c = checksums.get("CRC32C").cloned();
        $output.checksum_crc64nvme = checksums.get("CRC64NVME").cloned();
        $output.checksum_sha1 = checksums.get("SHA1").cloned();
        $output.checksum_sha256 = checksums.get("SHA256").cloned();
    }};
    ($output:expr, $checksums:expr, kind) => {{
        checksums!($output, $checksums);
        $output.checksum_type = $crate::checksum::kind($checksums);
    }};
}
pub(crate) use checksums;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composite_checksum_is_that_of_the_parts_checksums() {
        let sums = |content: &[u8]| {
            let mut hasher = hasher(&["CRC32", "SHA256"]);
            hasher.update(content);
            found(hasher.finalize())
        };
        let (one, two) = (sums(b"one"), sums(b"two"));
        // python3: b64encode(crc32(crc32(b"one").to_bytes(4) + crc32(b"two").to_bytes(4)).to_bytes(4))
        assert_eq!(composite(&[&one, &two])["CRC32"], "uDltSA==-2");
        assert_eq!(composite(&[&one, &Checksums::new()]), Checksums::new());
    }
}
