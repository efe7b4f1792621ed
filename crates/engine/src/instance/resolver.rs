//! Where the programs of an instance look up names that are not in its `/etc/hosts`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::plan::{InstancePlan, NetworkPlan, RuntimePlan};

/// The file that C libraries read; resolv.conf(5) describes it.
const FILE: &str = "/etc/resolv.conf";

/// The text of the instance's own file: the name server is the way out of the network. Without one there
/// is nobody to ask.
pub(super) fn text(plan: &InstancePlan) -> String {
    let NetworkPlan::Job { gateway: Some(gateway), .. } = plan.network else { return String::new() };
    // A machine may do without the file.
    of_machine(&fs::read_to_string(FILE).unwrap_or_default(), gateway)
}

/// Where the file is in the instance, unless a daemon sees to it; but a daemon gives an isolated job somebody to ask. On the machine it may be a link, and what it
/// leads to is shown there.
pub(super) fn target(plan: &InstancePlan) -> Option<PathBuf> {
    let own = || Path::new(FILE).to_owned();
    match &plan.runtime {
        RuntimePlan::Host { .. } => Some(fs::canonicalize(FILE).unwrap_or_else(|_| own())),
        RuntimePlan::Oci { .. } => Some(own()),
        RuntimePlan::Docker(docker) => docker.isolated.then(own),
    }
}

/// What the machine's file says but for the name servers.
fn of_machine(text: &str, gateway: Ipv4Addr) -> String {
    let others = text.lines().filter(|line| {
        let word = line.split_ascii_whitespace().next();
        word.is_some_and(|word| ["search", "domain", "options"].contains(&word))
    });
    std::iter::once(format!("nameserver {gateway}\n")).chain(others.map(|line| format!("{line}\n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_name_servers_are_replaced_and_its_other_settings_kept() {
        let text = "# by a service\nnameserver 127.0.0.53\nnameserver ::1\noptions edns0\nsearch a.example b";
        let expected = "nameserver 198.18.255.254\noptions edns0\nsearch a.example b\n";
        assert_eq!(of_machine(text, Ipv4Addr::new(198, 18, 255, 254)), expected);
    }
}
