//! Why a kernel refuses namespaces, in words that lead on.

use std::io;

use fs_err as fs;

/// A setting that can refuse namespaces, the value with which it does, and the one that helps.
const SETTINGS: [(&str, &str, &str); 8] = [
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "15000"),
    ("user.max_net_namespaces", "0", "15000"),
    ("user.max_mnt_namespaces", "0", "15000"),
    ("user.max_pid_namespaces", "0", "15000"),
    ("user.max_uts_namespaces", "0", "15000"),
    ("user.max_ipc_namespaces", "0", "15000"),
];

/// Names the setting that refuses, or all that could.
pub(crate) fn explain(error: &io::Error) -> String {
    explain_by(error, refusing_settings())
}

/// The same by settings that were read earlier: each user namespace has limits of its own, and one that was
/// just entered forbids nothing, though those above it may.
pub(crate) fn explain_by(error: &io::Error, refusing: Option<String>) -> String {
    let reason = refusing.unwrap_or_else(|| {
        "none of kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and \
         user.max_…_namespaces forbids them; a container or a security module around this program may, or \
         too many namespaces exist already"
            .to_owned()
    });
    format!("the kernel refuses namespaces to this user ({error}): {reason}")
}

/// The settings that forbid namespaces or, without a word, take the rights in them away.
pub(crate) fn refusing_settings() -> Option<String> {
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
