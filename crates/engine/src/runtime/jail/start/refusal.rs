//! Why a kernel refuses namespaces, in words that lead on.

use std::io;

use fs_err as fs;

use super::StartError;

/// A setting that can refuse user namespaces, the value with which it does, and the one that helps.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

/// Names the setting that refuses, or all that could.
pub(super) fn explain(errno: i32) -> StartError {
    let error = io::Error::from_raw_os_error(errno);
    let reason = refusing_settings().unwrap_or_else(|| {
        "none of kernel.unprivileged_userns_clone, user.max_user_namespaces and \
         kernel.apparmor_restrict_unprivileged_userns forbids them; a container or a security module \
         around this program may, or too many namespaces exist already"
            .to_owned()
    });
    StartError::Namespaces {
        explanation: format!("the kernel refuses user namespaces to this user ({error}): {reason}"),
    }
}

/// The settings that forbid user namespaces or, without a word, take the rights in them away.
pub(super) fn refusing_settings() -> Option<String> {
    let refusing: Vec<String> = SETTINGS
        .iter()
        .filter(|(name, refuses, _)| value(name).as_deref() == Some(refuses))
        .map(|(name, refuses, helps)| {
            format!("{name} is {refuses}; the machine's administrator can allow it with `sysctl -w {name}={helps}`")
        })
        .collect();
    (!refusing.is_empty()).then(|| refusing.join(", "))
}

fn value(setting: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", setting.replace('.', "/"));
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
