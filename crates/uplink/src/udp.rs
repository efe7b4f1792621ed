//! Flows of datagrams: each is two of the kernel's sockets.
//!
//! The first datagram of a flow is read by the tap. Then a socket inside stands in for the other end and gets all
//! later ones. The tap reads copies of them too; whose a datagram is, is told by when it arrived.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use socket2::Socket;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::packet::{Ends, Packet, Unreachable, unreachable_datagram};
use crate::policy::Way;
use crate::{Shared, device, names};

/// Of flows at once.
const MOST: usize = 2048;
/// A flow ends after so long without a datagram (RFC 4787 asks for two minutes at least).
const IDLE: Duration = Duration::from_secs(120);
/// Of datagrams that may wait until their flow's sockets are there.
const EARLY: usize = 64;
/// Of any datagram with its headers.
const LARGEST: usize = 1 << 16;

thread_local! {
    /// Shared by all flows, since none holds it while it waits.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST]);
}

/// A flow as the tap sees it.
struct Flow {
    early: mpsc::Sender<Vec<u8>>,
    /// When the socket inside was there: what arrived later is not the tap's to pass on.
    taken_over: Arc<OnceLock<TimeSpec>>,
}

/// A flow as its task sees it.
pub(crate) struct Inside {
    ends: Ends,
    socket: UdpSocket,
    early: mpsc::Receiver<Vec<u8>>,
}

/// Carries every flow of datagrams that begins inside.
///
/// # Errors
/// The tap's.
pub(crate) async fn watch(shared: Arc<Shared>, tap: Socket) -> io::Result<Infallible> {
    let tap = device::watched(tap)?;
    let mut flows = HashMap::<Ends, Flow>::new();
    let mut carried = JoinSet::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        let (length, arrived) = tokio::select! {
            read = tap.async_io(Interest::READABLE, || read_stamped(&tap, &mut buffer)) => read?,
            Some(ended) = carried.join_next() => {
                ended.map(|ends| flows.remove(&ends)).ok();
                continue;
            }
        };
        let Some(packet) = Packet::read(&buffer[..length]) else { continue };
        let ends = packet.ends();
        if !flows.contains_key(&ends) {
            if flows.len() >= MOST || !shared.config.holds(packet.source()) {
                continue;
            }
            let (early, waiting) = mpsc::channel(EARLY);
            let taken_over = Arc::new(OnceLock::new());
            let flow = Flow { early, taken_over: Arc::clone(&taken_over) };
            flows.insert(ends, flow);
            let shared = Arc::clone(&shared);
            carried.spawn(async move {
                carry(&shared, ends, waiting, &taken_over).await;
                ends
            });
        }
        if let Some(flow) = flows.get(&ends)
            && flow.taken_over.get().is_none_or(|&taken_over| arrived < taken_over)
        {
            let _full = flow.early.try_send(packet.datagram().to_vec());
        }
    }
}

fn read_stamped(tap: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, TimeSpec)> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut space = nix::cmsg_space!(nix::libc::timespec);
    let message = recvmsg::<()>(tap.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())?;
    let arrived = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(arrived) => Some(arrived),
        _ => None,
    });
    Ok((message.bytes, arrived.map_or_else(now, Ok)?))
}

fn now() -> io::Result<TimeSpec> {
    Ok(clock_gettime(ClockId::CLOCK_REALTIME)?)
}

async fn carry(shared: &Shared, ends: Ends, early: mpsc::Receiver<Vec<u8>>, taken_over: &OnceLock<TimeSpec>) {
    let refused = match shared.config.way(ends.outside) {
        Way::Many => return,
        Way::Prohibited => Some(Unreachable::Prohibited),
        Way::Gateway => Some(Unreachable::Port),
        Way::Outside(_) | Way::Resolver => None,
    };
    if let Some(why) = refused {
        return reject(shared, ends, why);
    }
    // Without a socket there is no flow; the next datagram tries again.
    let Ok(socket) = shared.workshop.datagrams(ends).await.and_then(UdpSocket::from_std) else { return };
    let Ok(now) = now() else { return };
    taken_over.get_or_init(|| now);
    let mut inside = Inside { ends, socket, early };
    match shared.config.way(ends.outside) {
        Way::Outside(to) => join(shared, &mut inside, to).await,
        _ => names::answer(shared, &mut inside).await,
    }
}

/// Passes datagrams on in both directions until there are none.
async fn join(shared: &Shared, inside: &mut Inside, to: SocketAddr) {
    let outside = match connected(to).await {
        Ok(outside) => outside,
        Err(error) => return tell(shared, inside.ends, &error),
    };
    let mut end = Instant::now() + IDLE;
    loop {
        let passed = tokio::select! {
            datagram = inside.next() => match datagram {
                Ok(datagram) => outside.send(&datagram).await,
                Err(_) => continue,
            },
            datagram = received(&outside) => match datagram {
                Ok(datagram) => { inside.put(&datagram); Ok(0) }
                Err(error) => Err(error),
            },
            () = sleep_until(end) => return,
        };
        end = Instant::now() + IDLE;
        if let Err(error) = passed {
            tell(shared, inside.ends, &error);
        }
    }
}

impl Inside {
    /// The next datagram for the outside.
    ///
    /// # Errors
    /// An answer inside was not wanted; further datagrams may come.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            tokio::select! {
                biased;
                Some(datagram) = self.early.recv() => return Ok(datagram),
                ready = self.socket.readable() => ready?,
            }
            let read: io::Result<_> = BUFFER.with_borrow_mut(|buffer| {
                let (length, sender) = self.socket.try_recv_from(buffer)?;
                // Before it was connected the socket may have got datagrams of others to the same address.
                Ok((sender == self.ends.inside.into()).then(|| buffer[..length].to_vec()))
            });
            match read {
                Ok(Some(datagram)) => return Ok(datagram),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes an answer on. One that finds no room is lost, as on any wire.
    pub(crate) fn put(&self, datagram: &[u8]) {
        let _lost = self.socket.try_send(datagram);
    }

    /// Whose flow it is.
    pub(crate) fn ends(&self) -> Ends {
        self.ends
    }
}

/// A socket of the machine for one address.
pub(crate) async fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

/// The next datagram of a connected socket.
pub(crate) async fn received(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    loop {
        socket.readable().await?;
        let read: io::Result<_> = BUFFER.with_borrow_mut(|buffer| {
            let length = socket.try_recv(buffer)?;
            Ok(buffer[..length].to_vec())
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Tells a sender inside what the machine was told, if it is about the destination.
fn tell(shared: &Shared, ends: Ends, error: &io::Error) {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => Unreachable::Port,
        io::ErrorKind::NetworkUnreachable => Unreachable::Network,
        io::ErrorKind::HostUnreachable => Unreachable::Host,
        io::ErrorKind::PermissionDenied => Unreachable::Prohibited,
        _ => return,
    };
    reject(shared, ends, why);
}

/// Tells a sender inside that its datagrams do not arrive.
pub(crate) fn reject(shared: &Shared, ends: Ends, why: Unreachable) {
    device::send(&shared.sender, &unreachable_datagram(ends, why), *ends.inside.ip());
}
