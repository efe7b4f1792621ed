//! What may be reached. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// A job's network and its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The first address of the job's network.
    pub network: Ipv4Addr,
    /// How many leading bits all addresses of that network share.
    pub prefix_length: u8,
    /// The address of the interface in it; names are looked up at its port 53.
    pub gateway: Ipv4Addr,
    /// The machine's name servers, the preferred one first. Any address may be one: also a loopback address
    /// or one of IPv6.
    pub resolvers: Vec<IpAddr>,
}

/// Where a flow leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the same address from the machine.
    Outside(SocketAddr),
    /// To the machine's name servers.
    Resolver,
    /// To the gateway itself, where there is nothing else.
    Gateway,
    /// To where a job is not let.
    Prohibited,
    /// To many at once.
    Many,
}

/// The port of name servers.
pub(crate) const DOMAIN: u16 = 53;

impl Config {
    /// Where a flow to this destination leads.
    pub(crate) fn way(&self, to: SocketAddrV4) -> Way {
        let address = *to.ip();
        match to.port() {
            DOMAIN if address == self.gateway => Way::Resolver,
            _ if address == self.gateway => Way::Gateway,
            _ if address.is_multicast() || address.is_broadcast() => Way::Many,
            _ if self.holds(address) || prohibited(address) => Way::Prohibited,
            _ => Way::Outside(to.into()),
        }
    }

    /// Whether an address is one of the job's network.
    pub(crate) fn holds(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_length.min(32))).unwrap_or(0);
        u32::from(address) & mask == u32::from(self.network) & mask
    }
}

/// "This" network (which the kernel takes for loopback), loopback, link-local (where clouds keep a machine's
/// credentials), and what is reserved.
fn prohibited(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first == 0 || first >= 240 || address.is_loopback() || address.is_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            network: Ipv4Addr::new(198, 18, 0, 0),
            prefix_length: 16,
            gateway: Ipv4Addr::new(198, 18, 0, 1),
            resolvers: Vec::new(),
        }
    }

    #[test]
    fn a_destination_decides_the_way() {
        let outside = |to: &str| Way::Outside(to.parse().unwrap());
        for (to, way) in [
            ("192.0.2.1:80", outside("192.0.2.1:80")),
            ("10.0.0.1:53", outside("10.0.0.1:53")),
            ("198.19.0.1:1", outside("198.19.0.1:1")),
            ("198.18.0.1:53", Way::Resolver),
            ("198.18.0.1:80", Way::Gateway),
            ("198.18.7.7:80", Way::Prohibited),
            ("127.0.0.1:80", Way::Prohibited),
            ("127.255.0.1:53", Way::Prohibited),
            ("0.0.0.0:80", Way::Prohibited),
            ("169.254.169.254:80", Way::Prohibited),
            ("240.0.0.1:80", Way::Prohibited),
            ("255.255.255.255:67", Way::Many),
            ("224.0.0.251:5353", Way::Many),
        ] {
            assert_eq!(config().way(to.parse().unwrap()), way, "{to}");
        }
    }

    #[test]
    fn a_network_may_have_any_size() {
        for (prefix_length, held) in [(0, true), (8, true), (31, false), (32, false)] {
            let config = Config { prefix_length, ..config() };
            assert_eq!(config.holds(Ipv4Addr::new(198, 18, 0, 3)), held, "/{prefix_length}");
        }
    }
}
