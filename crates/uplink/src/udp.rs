//! Flows of datagrams: each is two of the kernel's sockets.
//!
//! The first datagram of a flow is read by the tap. Then a socket inside stands in for the other end and gets all
//! later ones. The tap reads copies of them too. Which of the two passes a datagram on is told by the stamp that
//! the kernel gave it: what the socket got, from its first one on, is not the tap's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use socket2::Socket;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

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
    early: mpsc::Sender<(Vec<u8>, TimeSpec)>,
    taken_over: TakenOver,
}

/// The stamp of the first datagram that the socket inside got.
type TakenOver = Arc<OnceLock<TimeSpec>>;

/// A flow as its task sees it.
pub(crate) struct Inside {
    ends: Ends,
    socket: UdpSocket,
    early: mpsc::Receiver<(Vec<u8>, TimeSpec)>,
    taken_over: TakenOver,
    /// What the socket got and nobody has yet.
    got: Option<Vec<u8>>,
}

/// What a socket got.
struct Arrival {
    length: usize,
    sender: Option<SocketAddrV4>,
    stamp: TimeSpec,
}

/// Carries every flow of datagrams that begins inside.
///
/// # Errors
/// The tap's.
pub(crate) async fn watch(shared: Arc<Shared>, tap: Socket) -> io::Result<Infallible> {
    let tap = device::watched(tap)?;
    stamped(&shared).await?;
    let mut flows = HashMap::<Ends, Flow>::new();
    let mut carried = JoinSet::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        let arrival = tokio::select! {
            read = tap.async_io(Interest::READABLE, || read_stamped(&tap, &mut buffer)) => read?,
            Some(ended) = carried.join_next() => {
                ended.map(|ends| flows.remove(&ends)).ok();
                continue;
            }
        };
        let Some(packet) = Packet::read(&buffer[..arrival.length]) else { continue };
        let ends = packet.ends();
        if !flows.contains_key(&ends) {
            if flows.len() >= MOST || !shared.config.holds(packet.source()) {
                continue;
            }
            let (early, waiting) = mpsc::channel(EARLY);
            let taken_over = TakenOver::default();
            flows.insert(ends, Flow { early, taken_over: Arc::clone(&taken_over) });
            let shared = Arc::clone(&shared);
            carried.spawn(async move {
                carry(&shared, ends, waiting, taken_over).await;
                ends
            });
        }
        if let Some(flow) = flows.get(&ends)
            && flow.taken_over.get().is_none_or(|&first| arrival.stamp < first)
        {
            let _full = flow.early.try_send((packet.datagram().to_vec(), arrival.stamp));
        }
    }
}

/// Waits until the kernel stamps what arrives, which it begins some time after it was asked to. Before, it stamps
/// what is read when it is read.
async fn stamped(shared: &Shared) -> io::Result<()> {
    let probe = shared.workshop.probe().await?;
    loop {
        probe.send(&[0]).await?;
        let sent = clock_gettime(ClockId::CLOCK_REALTIME)?;
        let arrival = probe.async_io(Interest::READABLE, || read_stamped(&probe, &mut [0])).await?;
        if arrival.stamp < sent {
            return Ok(());
        }
        sleep(Duration::from_millis(1)).await;
    }
}

fn read_stamped(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrival> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut space = nix::cmsg_space!(libc::timespec);
    let message = recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    });
    let stamp = stamp.ok_or_else(|| io::Error::other("the kernel has not stamped a datagram"))?;
    Ok(Arrival { length: message.bytes, sender: message.address.map(Into::into), stamp })
}

async fn carry(
    shared: &Shared,
    ends: Ends,
    early: mpsc::Receiver<(Vec<u8>, TimeSpec)>,
    taken_over: TakenOver,
) {
    let way = shared.config.way(ends.outside);
    match way {
        Way::Many => return,
        Way::Prohibited => return reject(shared, ends, Unreachable::Prohibited),
        Way::Gateway => return reject(shared, ends, Unreachable::Port),
        Way::Outside(_) | Way::Resolver => {}
    }
    // Without a socket there is no flow; the next datagram tries again.
    let Ok(socket) = shared.workshop.datagrams(ends).await else { return };
    let mut inside = Inside { ends, socket, early, taken_over, got: None };
    match way {
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
            datagram = inside.next() => put(&outside, &datagram).await,
            datagram = received(&outside) => datagram.map(|datagram| inside.put(&datagram)),
            () = sleep_until(end) => return,
        };
        end = Instant::now() + IDLE;
        if let Err(error) = passed {
            tell(shared, inside.ends, &error);
        }
    }
}

/// Sends a datagram outside.
///
/// # Errors
/// It can't be sent. That an earlier one was refused is not an error of this one.
pub(crate) async fn put(outside: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    match outside.send(datagram).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => outside.send(datagram).await,
        sent => sent,
    }
    .map(|_| ())
}

impl Inside {
    /// The next datagram for the outside.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        loop {
            while let Ok(early) = self.early.try_recv() {
                if let Some(datagram) = self.unless_got(early) {
                    return datagram;
                }
            }
            if let Some(datagram) = self.got.take() {
                return datagram;
            }
            tokio::select! {
                Some(early) = self.early.recv() => {
                    if let Some(datagram) = self.unless_got(early) {
                        return datagram;
                    }
                }
                // That an answer was not wanted inside concerns nobody: the next one may be.
                _ = ready(&self.socket) => self.get(),
            }
        }
    }

    /// A datagram of the tap's, unless the socket has got it too.
    fn unless_got(&mut self, (datagram, stamp): (Vec<u8>, TimeSpec)) -> Option<Vec<u8>> {
        if self.got.is_none() {
            // Asked of the kernel itself: the runtime may not know yet that something is there.
            self.got = self.taken(|socket, buffer| read_stamped(socket, buffer).ok());
        }
        self.taken_over.get().is_none_or(|&first| stamp < first).then_some(datagram)
    }

    fn get(&mut self) {
        self.got = self
            .taken(|socket, buffer| socket.try_io(Interest::READABLE, || read_stamped(socket, buffer)).ok());
    }

    /// The flow's next datagram of those that `read` gives.
    fn taken(&self, read: impl Fn(&UdpSocket, &mut [u8]) -> Option<Arrival>) -> Option<Vec<u8>> {
        BUFFER.with_borrow_mut(|buffer| {
            loop {
                let arrival = read(&self.socket, buffer)?;
                // Before it was connected the socket may have got datagrams of others to the same address.
                if arrival.sender == Some(self.ends.inside) {
                    self.taken_over.get_or_init(|| arrival.stamp);
                    return Some(buffer[..arrival.length].to_vec());
                }
            }
        })
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
        ready(socket).await?;
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

/// Waits for a datagram, or for word that one that was sent has not arrived, which is an error.
async fn ready(socket: &UdpSocket) -> io::Result<()> {
    if socket.ready(Interest::READABLE | Interest::ERROR).await?.is_error() {
        let refused = socket.try_io(Interest::ERROR, || {
            Err(socket.take_error()?.unwrap_or_else(|| io::ErrorKind::WouldBlock.into()))
        });
        return refused.or_else(|error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => Ok(()),
            _ => Err(error),
        });
    }
    Ok(())
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
