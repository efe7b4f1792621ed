//! Requests to the kernel's tables of interfaces, addresses and routes, as bytes.
//!
//! The format is that of netlink(7) and rtnetlink(7): a header, a structure that depends on the kind of
//! the request, then attributes, each with its length and type and padded to four bytes.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use libc::{
    AF_INET, AF_UNSPEC, IFA_LOCAL, IFF_UP, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NET_NS_FD, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST,
    RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_GATEWAY, RTM_GETLINK, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
    RTN_UNICAST, RTPROT_STATIC,
};

/// The other end of a pair, `linux/veth.h`.
const VETH_INFO_PEER: u16 = 1;

/// Bytes before the structure of a request.
pub(super) const HEADER: usize = 16;

/// An address of the link layer.
pub(in crate::network) type Mac = [u8; 6];

/// One request. Its sequence number is always 0: no second one is sent before the answer has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::network) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A new bridge without ports, in operation.
    pub(in crate::network) fn bridge(index: u32, name: &str, mac: Mac) -> Self {
        let mut request = Self::create(RTM_NEWLINK, &link(index, true));
        request.name(name);
        request.attribute(IFLA_ADDRESS, &mac);
        request.within(IFLA_LINKINFO, |request| request.attribute(IFLA_INFO_KIND, b"bridge"));
        request
    }

    /// A new pair of interfaces, both not in operation: one here, the other in another namespace.
    pub(in crate::network) fn pair(here: &Interface<'_>, there: &Interface<'_>, namespace: RawFd) -> Self {
        let mut request = Self::create(RTM_NEWLINK, &link(here.index, false));
        request.interface(here);
        request.within(IFLA_LINKINFO, |request| {
            request.attribute(IFLA_INFO_KIND, b"veth");
            request.within(IFLA_INFO_DATA, |request| {
                request.within(VETH_INFO_PEER, |request| {
                    request.bytes.extend(link(there.index, false));
                    request.interface(there);
                    request.attribute(IFLA_NET_NS_FD, &namespace.to_ne_bytes());
                });
            });
        });
        request
    }

    /// Takes an interface into operation, as a port of a bridge if one is named.
    pub(in crate::network) fn up(index: u32, bridge: Option<u32>) -> Self {
        let mut request = Self::new(RTM_NEWLINK, 0, &link(index, true));
        if let Some(bridge) = bridge {
            request.attribute(IFLA_MASTER, &bridge.to_ne_bytes());
        }
        request
    }

    /// Asks for an interface.
    pub(in crate::network) fn get(index: u32) -> Self {
        Self::new(RTM_GETLINK, 0, &link(index, false))
    }

    /// Gives an interface its address.
    pub(in crate::network) fn address(index: u32, address: Ipv4Addr, prefix_length: u8) -> Self {
        let [a, b, c, d] = index.to_ne_bytes();
        let structure = [narrow(AF_INET), prefix_length, 0, RT_SCOPE_UNIVERSE, a, b, c, d];
        let mut request = Self::create(RTM_NEWADDR, &structure);
        request.attribute(IFA_LOCAL, &address.octets());
        request
    }

    /// Sends what no other route is for to a gateway.
    pub(in crate::network) fn default_route(gateway: Ipv4Addr) -> Self {
        let kind = [RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST];
        let structure = [[narrow(AF_INET), 0, 0, 0], kind, [0; 4]].concat();
        let mut request = Self::create(RTM_NEWROUTE, &structure);
        request.attribute(RTA_GATEWAY, &gateway.octets());
        request
    }

    /// As it is sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn create(kind: u16, structure: &[u8]) -> Self {
        Self::new(kind, NLM_F_CREATE | NLM_F_EXCL, structure)
    }

    fn new(kind: u16, flags: i32, structure: &[u8]) -> Self {
        let flags = u16::try_from(flags | NLM_F_REQUEST | NLM_F_ACK).unwrap_or_default();
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(structure);
        let mut request = Self { bytes };
        request.count(0);
        request
    }

    fn interface(&mut self, interface: &Interface<'_>) {
        self.name(interface.name);
        self.attribute(IFLA_ADDRESS, &interface.mac);
        self.attribute(IFLA_MTU, &interface.mtu.to_ne_bytes());
    }

    fn name(&mut self, name: &str) {
        self.attribute(IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.within(kind, |request| request.bytes.extend(value));
    }

    /// An attribute whose value is what the closure adds.
    fn within(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.count(0);
    }

    fn count(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// One end of a pair.
#[derive(Clone, Copy, Debug)]
pub(in crate::network) struct Interface<'a> {
    /// Its number in its namespace.
    pub(in crate::network) index: u32,
    /// At most 15 bytes.
    pub(in crate::network) name: &'a str,
    /// Its own.
    pub(in crate::network) mac: Mac,
    /// The longest packet, in bytes.
    pub(in crate::network) mtu: u32,
}

/// `struct ifinfomsg`.
fn link(index: u32, up: bool) -> Vec<u8> {
    let flags = if up { IFF_UP.to_ne_bytes() } else { [0; 4] };
    let change = IFF_UP.to_ne_bytes();
    [[narrow(AF_UNSPEC), 0, 0, 0], index.to_ne_bytes(), flags, change].concat()
}

/// Address families are small numbers; this structure has one byte for them.
fn narrow(family: i32) -> u8 {
    u8::try_from(family).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the attributes, and what is in them, level by level.
    fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
        let mut found = Vec::new();
        while let [a, b, c, d, ..] = *bytes {
            let length = usize::from(u16::from_ne_bytes([a, b]));
            found.push((u16::from_ne_bytes([c, d]), &bytes[4..length]));
            bytes = &bytes[length.next_multiple_of(4)..];
        }
        assert!(bytes.is_empty(), "{bytes:?}");
        found
    }

    fn within(attributes: &[(u16, &[u8])], kind: u16) -> Vec<u8> {
        let found: Vec<_> = attributes.iter().filter(|(other, _)| *other == kind).collect();
        assert_eq!(found.len(), 1, "{kind} in {attributes:?}");
        found[0].1.to_vec()
    }

    #[test]
    fn an_address_is_asked_for_as_rtnetlink_describes_it() {
        let request = Request::address(2, Ipv4Addr::new(198, 18, 240, 1), 20);
        let header = [&32_u32.to_ne_bytes()[..], &20_u16.to_ne_bytes(), &0x605_u16.to_ne_bytes(), &[0; 8]];
        let structure = [&[2, 20, 0, 0], &2_u32.to_ne_bytes()[..]];
        let attribute = [&8_u16.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[198, 18, 240, 1]];
        assert_eq!(request.bytes(), [header.concat(), structure.concat(), attribute.concat()].concat());
    }

    #[test]
    fn the_other_end_of_a_pair_is_described_within_the_first() {
        let end = |index, name| Interface { index, name, mac: [2, 0, 0, 0, 0, 7], mtu: 1500 };
        let request = Request::pair(&end(3, "port1"), &end(2, "eth0"), 9);
        let length = u32::try_from(request.bytes().len()).unwrap();
        assert_eq!(request.bytes()[..4], length.to_ne_bytes());
        let here = attributes(&request.bytes()[HEADER + 16..]);
        assert_eq!(within(&here, IFLA_IFNAME), b"port1\0");
        let information = within(&here, IFLA_LINKINFO);
        let information = attributes(&information);
        assert_eq!(within(&information, IFLA_INFO_KIND), b"veth");
        let peer = within(&attributes(&within(&information, IFLA_INFO_DATA)), VETH_INFO_PEER);
        assert_eq!(peer[4..8], 2_u32.to_ne_bytes());
        let there = attributes(&peer[16..]);
        assert_eq!(within(&there, IFLA_IFNAME), b"eth0\0");
        assert_eq!(within(&there, IFLA_NET_NS_FD), 9_i32.to_ne_bytes());
    }
}
