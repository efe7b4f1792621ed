//! What makes a network namespace a gate: every address is local to it, and it keeps silent by itself.
//!
//! Three things are set, all in the namespace, none on the machine:
//!
//! - A route says that every address which no other route knows is an address of the namespace itself. So its
//!   kernel takes connections for the whole internet.
//! - A rule says that what the namespace sends has a route only if it carries [`MARK`]. The sockets that stand
//!   in for the outside carry it; the refusals that the kernel would send by itself, because nobody listens
//!   (yet), do not, and so nobody sees them.
//! - Sources are not checked against routes, because of that rule.

use std::io;

use crate::netlink::{LOOPBACK, Netlink, Request};

/// On all that the uplink sends into its namespace.
pub(crate) const MARK: u32 = 1;

const IPV4: u8 = libc::AF_INET as u8;
// From linux/fib_rules.h.
const TO_TABLE: u8 = 1;
const BLACKHOLE: u8 = 6;
const PRIORITY: u16 = 6;
const FROM_INTERFACE: u16 = 3;
const FIREWALL_MARK: u16 = 10;

/// Sets up the network namespace of this thread, of which `interface` leads to the job.
///
/// # Errors
/// What could not be set, and the kernel's answer.
pub(crate) fn set_up(interface: &str) -> io::Result<()> {
    for of in ["all", "lo", interface] {
        let setting = format!("/proc/sys/net/ipv4/conf/{of}/rp_filter");
        if fs_err::read_to_string(&setting)?.trim() != "0" {
            fs_err::write(setting, "0")?;
        }
    }
    let netlink = Netlink::open()?;
    for (what, request) in requests() {
        match netlink.ask(&request) {
            // Another device of the same namespace has done it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done.map_err(|error| io::Error::new(error.kind(), format!("can't {what}: {error}")))?,
        }
    }
    Ok(())
}

fn requests() -> [(&'static str, Request); 4] {
    let main = libc::RT_TABLE_MAIN;
    let up = (libc::IFF_UP as u32).to_ne_bytes();
    let link = [&[libc::AF_UNSPEC as u8, 0, 0, 0], &LOOPBACK.to_ne_bytes()[..], &up, &up].concat();
    let route = [IPV4, 0, 0, 0, main, libc::RTPROT_STATIC, libc::RT_SCOPE_HOST, libc::RTN_LOCAL, 0, 0, 0, 0];
    let rule = |table, action| [IPV4, 0, 0, 0, table, 0, 0, action, 0, 0, 0, 0];
    // What the namespace sends by itself counts as coming from its loopback interface.
    let own = |request: Request| request.with(FROM_INTERFACE, b"lo\0");
    [
        ("start the loopback interface", Request::change(libc::RTM_NEWLINK, &link)),
        (
            "make every address local",
            Request::create(libc::RTM_NEWROUTE, &route).with(libc::RTA_OIF, &LOOPBACK.to_ne_bytes()),
        ),
        (
            "let marked packets out",
            own(Request::create(libc::RTM_NEWRULE, &rule(main, TO_TABLE)))
                .with(PRIORITY, &100u32.to_ne_bytes())
                .with(FIREWALL_MARK, &MARK.to_ne_bytes()),
        ),
        (
            "keep other packets in",
            own(Request::create(libc::RTM_NEWRULE, &rule(0, BLACKHOLE)))
                .with(PRIORITY, &101u32.to_ne_bytes()),
        ),
    ]
}
