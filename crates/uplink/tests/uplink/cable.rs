//! A cable between two network namespaces: one where an uplink ends, and a job's.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};

use crate::netlink::{LOOPBACK, Netlink, Request};

/// The way out of the job's network.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const JOB: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub(crate) const PREFIX_LENGTH: u8 = 16;

/// Moves the calling thread into a namespace of its own with one end of a cable, `way`; the other is in `place`.
pub(crate) fn wire(place: &fs_err::File) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let netlink = Netlink::open()?;
    let peer = [
        vec![0; 16],
        attribute(libc::IFLA_IFNAME, b"eth0\0"),
        attribute(libc::IFLA_NET_NS_FD, &place.as_raw_fd().to_ne_bytes()),
    ]
    .concat();
    let cable =
        [attribute(libc::IFLA_INFO_KIND, b"veth"), attribute(libc::IFLA_INFO_DATA, &attribute(1, &peer))];
    netlink.ask(
        &Request::create(libc::RTM_NEWLINK, &[0; 16])
            .with(libc::IFLA_IFNAME, b"way\0")
            .with(libc::IFLA_LINKINFO, &cable.concat()),
    )?;
    let index = if_nametoindex("way")?;
    give(&netlink, index, GATEWAY, PREFIX_LENGTH)?;
    set_up(&netlink, index)
}

/// In the job's namespace, once it is wired: the address and the way out.
pub(crate) fn join_network() -> io::Result<()> {
    let netlink = Netlink::open()?;
    let index = if_nametoindex("eth0")?;
    set_up(&netlink, LOOPBACK)?;
    give(&netlink, index, JOB, PREFIX_LENGTH)?;
    set_up(&netlink, index)?;
    let route = [
        libc::AF_INET as u8,
        0,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_UNIVERSE,
        libc::RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    netlink.ask(&Request::create(libc::RTM_NEWROUTE, &route).with(libc::RTA_GATEWAY, &GATEWAY.octets()))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [((4 + value.len()) as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Starts an interface.
pub(crate) fn set_up(netlink: &Netlink, index: u32) -> io::Result<()> {
    let up = (libc::IFF_UP as u32).to_ne_bytes();
    netlink.ask(&Request::change(libc::RTM_NEWLINK, &[&[0; 4], &index.to_ne_bytes()[..], &up, &up].concat()))
}

/// Gives an interface an address.
pub(crate) fn give(netlink: &Netlink, index: u32, address: Ipv4Addr, prefix_length: u8) -> io::Result<()> {
    let body = [&[libc::AF_INET as u8, prefix_length, 0, 0], &index.to_ne_bytes()[..]].concat();
    netlink.ask(
        &Request::create(libc::RTM_NEWADDR, &body)
            .with(libc::IFA_LOCAL, &address.octets())
            .with(libc::IFA_ADDRESS, &address.octets()),
    )
}
