//! The way out of a job's network: a thread of its process that stays in the machine's network.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use fs_err as fs;
use rustix::process::{Resource, getrlimit, setrlimit};
use trainyard_uplink::{Config, Device, Uplink};

use super::Join;
use crate::explain::chain;

/// Where the machine's name servers are named; resolv.conf(5) describes the file.
const RESOLVER: &str = "/etc/resolv.conf";

/// The thread, which waits for something to do.
#[derive(Debug)]
pub(super) struct WayOut {
    work: Sender<(Device, Config)>,
}

impl WayOut {
    /// To be called by a thread that is in the machine's network, and in the user namespace of the job's.
    pub(super) fn stay() -> io::Result<Self> {
        let (work, waiting) = channel();
        thread::Builder::new().name("way-out".to_owned()).spawn(move || carry(&waiting))?;
        Ok(Self { work })
    }

    /// Opens it at an interface of this thread's network namespace that is up and has the gateway's address.
    pub(super) fn open(&self, interface: &str, join: &Join, gateway: Ipv4Addr) -> io::Result<()> {
        more_files()?;
        // A machine may do without the file.
        let resolvers = resolvers(&fs::read_to_string(RESOLVER).unwrap_or_default());
        let prefix_length = join.prefix_length;
        let config = Config { network: network(gateway, prefix_length), prefix_length, gateway, resolvers };
        let device = Device::open(interface)?;
        self.work.send((device, config)).map_err(io::Error::other)
    }
}

fn carry(waiting: &Receiver<(Device, Config)>) {
    // Nothing comes for an isolated job.
    let Ok((device, config)) = waiting.recv() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // When it breaks down, instances still reach each other.
    let carried = runtime.map(|runtime| runtime.block_on(Uplink::new(device, config).run()));
    let (Err(error) | Ok(Err(error))) = carried;
    eprintln!("the way out of the network has broken down: {}", chain(&error));
}

/// Every connection to the outside needs two open files.
fn more_files() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// The first address of a network.
fn network(address: Ipv4Addr, prefix_length: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix_length.min(32))).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

/// The machine's name servers. Without one, C libraries ask at the loopback address. The ones with a zone, which are
/// addresses of a neighbour, are left out.
fn resolvers(text: &str) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    });
    let named: Vec<_> = named.collect();
    if named.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_name_servers_are_asked_in_their_order() {
        let text = "# local\nnameserver 127.0.0.53\nsearch a\nnameserver\tfd00::1 \nnameserver fe80::1%eth0\nnameserver\n";
        let expected: [IpAddr; 2] = ["127.0.0.53".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(resolvers(text), expected);
        assert_eq!(resolvers(""), [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    }

    #[test]
    fn a_network_begins_where_its_prefix_ends() {
        assert_eq!(network(Ipv4Addr::new(198, 18, 255, 254), 20), Ipv4Addr::new(198, 18, 240, 0));
        assert_eq!(network(Ipv4Addr::new(198, 18, 255, 254), 0), Ipv4Addr::UNSPECIFIED);
    }
}
