//! Which host a part came from, and the order of hosts.

use std::cmp::Ordering;

/// What precedes the host in the PAX record `comment` of an archive entry.
const COMMENT_PREFIX: &str = "trainyard.host=";

/// The host that an entry's PAX comment names.
pub(crate) fn from_comment(comment: &str) -> Option<&str> {
    comment.strip_prefix(COMMENT_PREFIX).filter(|host| !host.is_empty())
}

/// The last `algo-<n>` in a path that begins a word: the base name says more than its folders.
pub(crate) fn from_path(path: &str) -> Option<&str> {
    let found = path.rmatch_indices("algo-").find_map(|(start, stem)| {
        let starts_word = !path[..start].ends_with(|c: char| c.is_alphanumeric());
        let digits = path[start + stem.len()..].bytes().take_while(u8::is_ascii_digit).count();
        (starts_word && digits > 0).then_some((start, start + stem.len() + digits))
    });
    found.map(|(start, end)| &path[start..end])
}

/// Number order: `algo-2` before `algo-10`.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    sort_key(a).cmp(&sort_key(b)).then_with(|| a.cmp(b))
}

/// The stem, then the number at the end as its length and digits, so that no number is too long.
fn sort_key(host: &str) -> (&str, usize, &str) {
    let stem = host.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = host[stem.len()..].trim_start_matches('0');
    (stem, digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_in_number_order() {
        let mut hosts = ["algo-10", "algo-2", "algo-1", "beta", "algo-99999999999999999999999", "algo-0"];
        hosts.sort_by(|a, b| compare(a, b));
        assert_eq!(hosts, ["algo-0", "algo-1", "algo-2", "algo-10", "algo-99999999999999999999999", "beta"]);
    }

    #[test]
    fn a_host_is_read_from_the_last_word_that_names_one() {
        let table = [
            ("part-algo-3.csv", Some("algo-3")),
            ("algo-1/part-algo-12.csv", Some("algo-12")),
            ("algo-7/part.csv", Some("algo-7")),
            ("myalgo-3.csv", None),
            ("algo-x.csv", None),
            ("part-3.csv", None),
            ("größe_algo-4", Some("algo-4")),
        ];
        for (path, host) in table {
            assert_eq!(from_path(path), host, "{path}");
        }
    }

    #[test]
    fn only_our_own_comment_names_a_host() {
        assert_eq!(from_comment("trainyard.host=algo-3"), Some("algo-3"));
        assert_eq!(from_comment("trainyard.host="), None);
        assert_eq!(from_comment("made by hand"), None);
    }
}
