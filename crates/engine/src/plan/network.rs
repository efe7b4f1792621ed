//! The addresses of a job's own network.
//!
//! They are from 198.18.0.0/15, which RFC 2544 keeps for measurements between network devices, so
//! that next to nobody has anything to reach there. Programs that answer name look-ups with made-up
//! addresses take theirs from the lower end of it; a job's network is the upper end of its first half.

use std::net::Ipv4Addr;

use super::{HostAddress, Image, NetworkPlan};

/// The interface of every instance in its job's network.
pub(crate) const INTERFACE: &str = "eth0";

const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 240, 0);
const PREFIX_LENGTH: u8 = 20;
/// The last address but the one for broadcasts.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);

/// The address of the host with this number, from 0.
pub(super) fn address(rank: usize, name: &str) -> HostAddress {
    let number = u32::try_from(rank).unwrap_or(u32::MAX).saturating_add(1);
    let address = Ipv4Addr::from_bits(NETWORK.to_bits().saturating_add(number));
    HostAddress { name: name.to_owned(), address: address.to_string() }
}

/// The network of a job; an isolated one has no way out. Containers get theirs from their daemon.
pub(super) fn of_job(image: &Image, isolated: bool) -> NetworkPlan {
    if matches!(image, Image::OfDaemon { .. }) {
        return NetworkPlan::Alone;
    }
    NetworkPlan::Job { prefix_length: PREFIX_LENGTH, gateway: (!isolated).then_some(GATEWAY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_addresses_in_their_order_and_none_has_the_gateways() {
        let of = |rank| address(rank, "host").address;
        assert_eq!([of(0), of(254), of(255)], ["198.18.240.1", "198.18.240.255", "198.18.241.0"]);
        assert_eq!(of(4092), "198.18.255.253");
        assert!((0..4093).map(of).all(|address| address != GATEWAY.to_string()));
    }
}
