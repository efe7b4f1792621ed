//! The processes of an instance, as `/proc` shows them.

use fs_err as fs;

use crate::facts::Process;

/// SIGTERM's bit in the masks of proc(5).
const TERM: u64 = 1 << 14;

/// Characters of a command line that are shown.
const SHOWN: usize = 60;

/// A process that runs.
pub(super) fn process(pid: i32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    if field("State")?.starts_with('Z') {
        return None;
    }
    let mask = |name| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    Some(Process {
        pid,
        parent: field("PPid")?.parse().ok()?,
        command: command(pid).unwrap_or_else(|| field("Name").unwrap_or("?").to_owned()),
        handles_sigterm: mask("SigCgt") & TERM != 0,
    })
}

fn command(pid: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = String::from_utf8_lossy(&line).replace('\0', " ");
    let words = words.trim();
    let short: String = words.chars().take(SHOWN).collect();
    let dots = if short.len() < words.len() { "…" } else { "" };
    (!short.is_empty()).then(|| short + dots)
}

/// All processes that come from `first` or were left to the probe, but for `first` itself.
pub(super) fn others(first: i32) -> Vec<Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut left: Vec<Process> = numbers.filter_map(process).collect();
    left.sort_by_key(|process| process.pid);
    let (mut found, mut parents) = (Vec::new(), vec![own, first]);
    while let Some(parent) = parents.pop() {
        let (children, rest): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|process| process.parent == parent && process.pid != first);
        parents.extend(children.iter().map(|child| child.pid));
        found.extend(children);
        left = rest;
    }
    found
}
