//! Connections: each is two of the kernel's, joined here.
//!
//! The packet that opens one is held back until the machine has connected to the same address. Only then is
//! there somebody who listens inside, and the packet is sent again; so a refusal looks like one.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use crate::flows::{Entry, Flows};
use crate::packet::{Ends, Packet, Unreachable};
use crate::policy::{DOMAIN, Way};
use crate::relay::relay;
use crate::{Shared, device};

/// Of connections at once.
const MOST: usize = 4096;
/// More bytes than a packet that opens a connection has, even with data in it.
const OPENING: usize = 2048;
/// How often the opening packet is sent inside, a second apart, before the opener is taken for gone.
const OPENINGS: u32 = 4;
/// Of listeners that are kept although no flow needs them.
const RECENT: usize = 32;
/// A peer that is gone without a word is noticed after a minute of silence and four unanswered questions.
const SILENCE: Duration = Duration::from_secs(60);

/// The sockets inside that stand in for addresses of the outside, each as long as a flow needs it, and those
/// that were used last a while longer: programs come back to the same address.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Listening>);

#[derive(Default)]
struct Listening {
    all: HashMap<SocketAddrV4, Weak<Listener>>,
    /// The latest first.
    recent: VecDeque<Arc<Listener>>,
}

/// One of them, with those who wait for a connection on it, by the address of the opener.
pub(crate) struct Listener {
    address: SocketAddrV4,
    waiting: Arc<Waiting>,
    accepting: AbortHandle,
}

type Waiting = Mutex<HashMap<SocketAddr, oneshot::Sender<TcpStream>>>;

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Carries every connection that is opened inside.
///
/// # Errors
/// The tap's.
pub(crate) async fn watch(shared: Arc<Shared>, tap: Socket) -> io::Result<Infallible> {
    let tap = device::watched(tap)?;
    let flows = Flows::new(MOST);
    let mut carried = JoinSet::new();
    let mut buffer = [0; OPENING];
    loop {
        let length = tokio::select! {
            read = tap.recv(&mut buffer) => read?,
            Some(_) = carried.join_next() => continue,
        };
        let opening = &buffer[..length];
        if let Some(packet) = Packet::read(opening)
            && shared.config.holds(packet.source())
            && let Some(entry) = flows.enter(packet.ends())
        {
            carried.spawn(carry(Arc::clone(&shared), opening.to_vec(), entry));
        }
    }
}

/// Carries one connection from the packet that opens it to its end.
async fn carry(shared: Arc<Shared>, opening: Vec<u8>, entry: Entry<Ends>) {
    let Some(packet) = Packet::read(&opening) else { return };
    let ends = packet.ends();
    let from = *ends.outside.ip();
    let outside = match shared.config.way(ends.outside) {
        Way::Outside(to) => connect(&[to]).await,
        Way::Resolver => connect(&shared.resolvers.in_order(DOMAIN)).await,
        Way::Gateway => Err(io::ErrorKind::ConnectionRefused.into()),
        Way::Prohibited => Err(io::ErrorKind::PermissionDenied.into()),
        Way::Many => return,
    };
    let answer = |packet: Vec<u8>| device::send(&shared.sender, &packet, *ends.inside.ip());
    let outside = match outside {
        Ok(outside) => outside,
        Err(error) => return reject(&packet, from, error.kind()).map_or((), answer),
    };
    // Without one inside there is no connection; the opener tries again or gives up.
    if let Ok((inside, _listener)) = admit(&shared, &packet, ends).await {
        let _ended = relay(&inside, &outside).await;
    }
    drop(entry);
}

/// The first that answers.
async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NetworkUnreachable.into();
    for &address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                ready(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What an opener is told, if it is told anything: one that got no answer in time has itself waited as long,
/// and when this machine has no room now, the next try may find some.
fn reject(packet: &Packet<'_>, from: Ipv4Addr, error: io::ErrorKind) -> Option<Vec<u8>> {
    let why = match error {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => return Some(packet.refusal()),
        io::ErrorKind::NetworkUnreachable => Unreachable::Network,
        io::ErrorKind::HostUnreachable => Unreachable::Host,
        io::ErrorKind::PermissionDenied => Unreachable::Prohibited,
        _ => return None,
    };
    Some(packet.unreachable(from, why))
}

/// The connection inside. The listener is to be kept as long as it lives: packets that open further ones would
/// otherwise meet another.
async fn admit(shared: &Shared, packet: &Packet<'_>, ends: Ends) -> io::Result<(TcpStream, Arc<Listener>)> {
    let listener = shared.listeners.of(shared, ends.outside).await?;
    let (accepted, mut taken) = oneshot::channel();
    let opener = SocketAddr::from(ends.inside);
    listener.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(opener, accepted);
    let opening = packet.checked();
    for _ in 0..OPENINGS {
        device::send(&shared.sender, &opening, *ends.outside.ip());
        if let Ok(stream) = tokio::time::timeout(Duration::from_secs(1), &mut taken).await {
            let stream = stream.map_err(|_| io::ErrorKind::ConnectionAborted)?;
            SockRef::from(&stream).detach_filter()?;
            ready(&stream)?;
            return Ok((stream, listener));
        }
    }
    listener.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&opener);
    Err(io::ErrorKind::TimedOut.into())
}

/// Nothing is held back here, and a peer that is gone is noticed.
fn ready(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 4).with_retries(4);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

impl Listeners {
    async fn of(&self, shared: &Shared, address: SocketAddrV4) -> io::Result<Arc<Listener>> {
        if let Some(listener) = self.known(address) {
            return Ok(listener);
        }
        let made = shared.workshop.listener(address).await;
        // Another flow to the same address may have been faster.
        if let Some(listener) = self.known(address) {
            return Ok(listener);
        }
        let listener = Arc::new(Listener::new(address, made?));
        let mut listening = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listening.all.retain(|_, listener| listener.strong_count() > 0);
        listening.all.insert(address, Arc::downgrade(&listener));
        listening.used(&listener);
        Ok(listener)
    }

    fn known(&self, address: SocketAddrV4) -> Option<Arc<Listener>> {
        let mut listening = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = listening.all.get(&address)?.upgrade()?;
        listening.used(&listener);
        Some(listener)
    }
}

impl Listening {
    fn used(&mut self, listener: &Arc<Listener>) {
        self.recent.retain(|other| other.address != listener.address);
        self.recent.push_front(Arc::clone(listener));
        self.recent.truncate(RECENT);
    }
}

impl Listener {
    fn new(address: SocketAddrV4, socket: TcpListener) -> Self {
        let waiting = Arc::new(Waiting::default());
        let openers = Arc::clone(&waiting);
        let accepting = tokio::spawn(async move {
            loop {
                match socket.accept().await {
                    Ok((stream, opener)) => {
                        let taken = openers.lock().unwrap_or_else(PoisonError::into_inner).remove(&opener);
                        let _gone = taken.map(|taken| taken.send(stream));
                    }
                    // One connection was broken off, or this process has too many files open for now.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        Self { address, waiting, accepting: accepting.abort_handle() }
    }
}
