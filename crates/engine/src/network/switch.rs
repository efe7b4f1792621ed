//! The process of a network: the bridge, and a place at it for each instance that is asked for.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use fs_err as fs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::setsid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::netlink::{Interface, Mac, Netlink, Request};
use super::way_out::WayOut;
use super::{Answer, Join, LOOPBACK, hear, tell};
use crate::explain::chain;
use crate::plan::network::INTERFACE;
use crate::runtime::jail::{NamespaceError, refusal, unshare};
use crate::sys;

/// Of the first interface that is made in a namespace.
const FIRST: u32 = 2;
const BRIDGE: &str = "bridge";
/// The bridge's; made up, as the second bit of the first byte says.
const BRIDGE_MAC: Mac = [2, 0, 0, 0, 0, 1];
/// Ethernet's.
const MTU: u32 = 1500;

/// What the program does when a backend started it with the hidden subcommand `network`: a job's network
/// for as long as somebody uses it.
///
/// Must be called first thing in `main`, before any thread exists.
pub fn job_network() -> ExitCode {
    sys::close_inherited();
    // Who leads a session already can stay where it is.
    let _ = setsid();
    match io::stdin().as_fd().try_clone_to_owned().and_then(|requests| serve(&requests)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Gives places to those who ask, until nobody can ask any more and nobody has a place.
fn serve(requests: &OwnedFd) -> io::Result<()> {
    let mut switch = Switch::new();
    let mut places = Vec::new();
    while let Some((join, mut with)) = hear::<Join>(requests)? {
        if let Some(lease) = with.pop() {
            let place = match &mut switch {
                Ok(switch) => switch.connect(&join).map_err(|error| chain(&error)),
                Err(error) => Err(chain(error)),
            };
            places.push((lease, place));
        }
    }
    // Only now, so that whoever starts finds every other at its address.
    let answered = places.into_iter().filter_map(|(lease, place)| {
        let told = match (&switch, place) {
            (Ok(switch), Ok(place)) => tell(&lease, &Answer::Joined, &[switch.user.as_fd(), place.as_fd()]),
            (Ok(_), Err(explanation)) => tell(&lease, &Answer::Refused { explanation }, &[]),
            (Err(error), _) => tell(&lease, &Answer::Refused { explanation: chain(error) }, &[]),
        };
        // Who has gone already has no lease either.
        told.is_ok().then_some(lease)
    });
    wait_for_ends(answered.collect())
}

/// Waits until all connections have ended.
fn wait_for_ends(mut leases: Vec<OwnedFd>) -> io::Result<()> {
    while !leases.is_empty() {
        let mut polled: Vec<_> = leases.iter().map(|lease| PollFd::new(lease, PollFlags::empty())).collect();
        retry_on_intr(|| poll(&mut polled, None))?;
        let ended: Vec<_> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        leases.retain(|_| !ended.next().unwrap_or(false));
    }
    Ok(())
}

/// A network that could not be made.
#[derive(Debug, thiserror::Error)]
enum NetworkError {
    #[error("{0}")]
    Namespace(String),
    #[error("can't {step}{}", hint())]
    Step { step: &'static str, source: io::Error },
}

/// A setting that takes rights away without a word.
fn hint() -> String {
    refusal::refusing_settings().map(|settings| format!(" ({settings})")).unwrap_or_default()
}

fn step(step: &'static str) -> impl FnOnce(io::Error) -> NetworkError {
    move |source| NetworkError::Step { step, source }
}

/// A bridge in a network namespace, to which this process belongs.
struct Switch {
    /// The user namespace to which all network namespaces belong.
    user: OwnedFd,
    /// The bridge's own namespace.
    home: OwnedFd,
    tables: Netlink,
    /// Of the last interface that was made.
    last: u32,
    way_out: WayOut,
    /// Whether the way out has been opened.
    open: bool,
    /// The machine's settings that forbid namespaces.
    refusing: Option<String>,
}

impl Switch {
    fn new() -> Result<Self, NetworkError> {
        let refusing = refusal::refusing_settings();
        unshare(UnshareFlags::empty()).map_err(refused)?;
        let way_out = WayOut::stay().map_err(step("start the way out"))?;
        // From here on that thread alone is in the machine's network.
        sys::unshare(UnshareFlags::NEWNET)
            .map_err(|error| NetworkError::Namespace(refusal::explain_by(&error, refusing.clone())))?;
        let user = own("user").map_err(step("find the user namespace"))?;
        let home = own("net").map_err(step("find the network namespace"))?;
        let tables = Netlink::open().map_err(step("ask for interfaces"))?;
        tables.ask(&Request::bridge(FIRST, BRIDGE, BRIDGE_MAC)).map_err(step("make a bridge"))?;
        Ok(Self { user, home, tables, last: FIRST, way_out, open: false, refusing })
    }

    /// Makes an instance's network namespace.
    fn connect(&mut self, join: &Join) -> Result<OwnedFd, NetworkError> {
        if let (Some(gateway), false) = (join.gateway, self.open) {
            self.open(join, gateway)?;
        }
        sys::unshare(UnshareFlags::NEWNET)
            .map_err(|error| NetworkError::Namespace(refusal::explain_by(&error, self.refusing.clone())))?;
        let opened = inside();
        // Back before anything else, for the bridge's namespace is where this thread belongs.
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| step("go back to the bridge")(error.into()))?;
        let (place, tables) = opened?;
        self.last += 1;
        self.wire(join, &place, &tables)?;
        Ok(place)
    }

    /// Makes the bridge itself the gateway.
    fn open(&mut self, join: &Join, gateway: Ipv4Addr) -> Result<(), NetworkError> {
        let address = Request::address(FIRST, gateway, join.prefix_length);
        self.tables.ask(&address).map_err(step("give the gateway its address"))?;
        self.way_out.open(BRIDGE, join, gateway).map_err(step("open the way out"))?;
        self.open = true;
        Ok(())
    }

    /// Connects a namespace to the bridge.
    ///
    /// The order matters. A packet that is sent while the kernel still takes in that an interface has a
    /// carrier is lost, and the search for a neighbour's address is repeated only after a second. The
    /// port, taken into operation last, finds its carrier at once; asking for the other end makes
    /// the kernel finish there, too.
    fn wire(&self, join: &Join, place: &OwnedFd, tables: &Netlink) -> Result<(), NetworkError> {
        let name = format!("port{}", self.last - FIRST);
        let port = Interface { index: self.last, name: &name, mac: port_mac(self.last), mtu: MTU };
        let end = Interface { index: FIRST, name: INTERFACE, mac: mac(join), mtu: MTU };
        self.tables.ask(&Request::pair(&port, &end, place.as_raw_fd())).map_err(step("make an interface"))?;
        tables.ask(&Request::up(LOOPBACK, None)).map_err(step("start the loopback interface"))?;
        let address = Request::address(FIRST, join.address, join.prefix_length);
        tables.ask(&address).map_err(step("give the interface its address"))?;
        tables.ask(&Request::up(FIRST, None)).map_err(step("start the interface"))?;
        let port = Request::up(self.last, Some(FIRST));
        self.tables.ask(&port).map_err(step("connect the interface to the bridge"))?;
        tables.ask(&Request::get(FIRST)).map_err(step("wait for the interface"))?;
        if let Some(gateway) = join.gateway {
            tables.ask(&Request::default_route(gateway)).map_err(step("set the way out"))?;
        }
        Ok(())
    }
}

fn refused(error: NamespaceError) -> NetworkError {
    match error {
        NamespaceError::Refused(error) => NetworkError::Namespace(refusal::explain(&error)),
        other => NetworkError::Namespace(chain(&other)),
    }
}

/// A namespace of this thread.
fn own(kind: &str) -> io::Result<OwnedFd> {
    Ok(OwnedFd::from(fs::File::open(format!("/proc/thread-self/ns/{kind}"))?.into_file()))
}

/// The network namespace of this thread, set up as far as it concerns no other.
fn inside() -> Result<(OwnedFd, Netlink), NetworkError> {
    let place = own("net").map_err(step("find the network namespace"))?;
    let tables = Netlink::open().map_err(step("ask for interfaces"))?;
    settings().map_err(step("set up the network namespace"))?;
    Ok((place, tables))
}

/// An instance has no power over its network, so what needs one elsewhere is allowed to everybody in
/// it: to listen at any port, and to send echo requests.
fn settings() -> io::Result<()> {
    let groups = fs::read_to_string("/proc/self/gid_map")?;
    set("ip_unprivileged_port_start", "0")?;
    set("ping_group_range", &format!("0 {}", last_id(&groups)))
}

fn set(name: &str, value: &str) -> io::Result<()> {
    match fs::write(format!("/proc/sys/net/ipv4/{name}"), value) {
        // In some containers settings can't be changed, whoever they belong to. Their instances lack
        // these two rights.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        result => result,
    }
}

/// The highest id of a namespace by its map (user_namespaces(7)); the kernel takes none above 2³¹ - 1 for
/// a range.
fn last_id(map: &str) -> u32 {
    let last = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.nth(1)?.parse().ok()?;
        Some(first.saturating_add(count).saturating_sub(1))
    };
    map.lines().filter_map(last).max().unwrap_or(0).min(i32::MAX.unsigned_abs())
}

/// Follows from the address, so that it is the same in each attempt.
fn mac(join: &Join) -> Mac {
    let [a, b, c, d] = join.address.octets();
    [2, 1, a, b, c, d]
}

fn port_mac(index: u32) -> Mac {
    let [a, b, c, d] = index.to_be_bytes();
    [2, 2, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_of_a_namespace_may_send_echo_requests() {
        assert_eq!(last_id("         0          0 4294967295\n"), 2_147_483_647);
        assert_eq!(last_id("0 1000 1\n1 100000 65536\n"), 65536);
        assert_eq!(last_id("0 1000 1\n"), 0);
    }
}
