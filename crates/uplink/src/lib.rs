//! The way out of a job's network: a NAT in user space, for root and for ordinary users, which touches nothing
//! of the machine's firewall, forwarding or interfaces.
//!
//! ```text
//! network namespace of the job            the machine's network
//!  train ── eth0 ── … ── interface  │
//!            TCP   the kernel's end ─┼─ ordinary socket ── the outside
//!                                   this process
//! ```
//!
//! Inside, the kernel itself takes part in every connection: the namespace is set up so that every address is
//! its own, and a socket of this process stands in for the other end. Outside are ordinary sockets, so what may
//! be reached is what this process may reach. Between the two, bytes are copied. What opens a flow is read
//! by raw sockets, and decided on here. `docs/design/uplink.md` says why it is done so.
//!
//! IPv4 only inside; name servers may have addresses of IPv6. Not reached: the machine's loopback addresses,
//! link-local ones (a cloud machine's credentials are handed out there), the job's own network, and groups.
//!
//! # Use
//!
//! [`Device::open`] is called by a thread that is in the namespace at whose `interface` the job's network ends;
//! [`Uplink::run`] by one that is in the machine's. For an ordinary user both can be threads of one process: make
//! the user namespace first (with a single thread), then let one thread make the network namespace.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use socket2::Socket;

mod device;
mod echo;
mod flows;
mod gate;
mod names;
mod netlink;
mod packet;
mod policy;
mod relay;
mod tcp;
mod udp;

pub use device::Device;
pub use policy::Config;

use device::{Taps, Workshop};
use names::Resolvers;

/// The way out of one network namespace.
pub struct Uplink {
    taps: Taps,
    shared: Arc<Shared>,
}

/// What all flows use.
struct Shared {
    config: Config,
    resolvers: Resolvers,
    /// Sends whole packets into the namespace.
    sender: Socket,
    workshop: Workshop,
    listeners: tcp::Listeners,
}

impl Uplink {
    /// An uplink that has not begun.
    pub fn new(device: Device, config: Config) -> Self {
        let Device { taps, sender, workshop } = device;
        let resolvers = Resolvers::new(config.resolvers.clone());
        let shared = Shared { config, resolvers, sender, workshop, listeners: tcp::Listeners::default() };
        Self { taps, shared: Arc::new(shared) }
    }

    /// Carries flows until it is dropped, which breaks them off. Runs on any kind of tokio runtime with I/O and
    /// time; all sockets of the outside are made by its threads.
    ///
    /// Each connection holds two open files of this process, so does each flow of datagrams: the soft limit
    /// of open files bounds how many there can be. At the limit new ones wait or are lost, as on a busy network.
    ///
    /// # Errors
    /// What broke the connection to the namespace.
    pub async fn run(self) -> io::Result<Infallible> {
        let Self { taps, shared } = self;
        let connections = tcp::watch(Arc::clone(&shared), taps.tcp);
        let datagrams = udp::watch(Arc::clone(&shared), taps.udp);
        let echoes = echo::watch(shared, taps.icmp);
        tokio::try_join!(connections, datagrams, echoes).map(|(never, _, _)| never)
    }
}
