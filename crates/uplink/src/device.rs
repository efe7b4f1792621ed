//! The uplink's end inside the network namespace: taps that read what opens a flow, and sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex, mpsc};

use crate::gate::{self, MARK};
use crate::packet::Ends;

/// How many connections may wait to be taken over.
const BACKLOG: i32 = 4096;
/// So many bytes of packets that open flows may wait; a burst of a thousand is normal.
const WAITING: usize = 4 << 20;

/// Of sockets of each kind that are made in advance.
const STOCK: usize = 8;

/// The uplink's hold on a network namespace. It keeps the namespace alive.
pub struct Device {
    pub(crate) taps: Taps,
    pub(crate) sender: Socket,
    pub(crate) workshop: Workshop,
}

/// Raw sockets, one per protocol, each reading copies of what arrives in the namespace.
pub(crate) struct Taps {
    /// TCP packets that open a connection, and no others.
    pub(crate) tcp: Socket,
    /// All UDP packets.
    pub(crate) udp: Socket,
    /// Questions for an echo, and no others.
    pub(crate) icmp: Socket,
}

/// Sockets of the namespace that nobody uses yet. Each kind has a thread that stays in the namespace and makes
/// them in advance: a socket belongs to the namespace of the thread that makes it, and to wait for that thread
/// takes long on a busy machine.
pub(crate) struct Workshop {
    listeners: Stock,
    datagrams: Stock,
}

type Stock = Mutex<mpsc::Receiver<io::Result<Socket>>>;

impl Device {
    /// Sets up the network namespace of the calling thread as the uplink's end, and opens it.
    ///
    /// `interface` leads to the job; it must be up and have its address. The caller needs `CAP_NET_ADMIN` and
    /// `CAP_NET_RAW` over the namespace, as the user namespace that made it has, and a `/proc` to write to.
    /// No process but the job's may rely on the namespace's routes: every address becomes local to it.
    ///
    /// # Errors
    /// What could not be set or opened.
    pub fn open(interface: &str) -> io::Result<Self> {
        gate::set_up(interface)?;
        let taps = Taps {
            tcp: tap(Protocol::TCP, &opens_connection())?,
            udp: tap(Protocol::UDP, &[])?,
            icmp: tap(Protocol::ICMPV4, &asks_for_echo())?,
        };
        stamp(&taps.udp)?;
        let sender = marked(Type::RAW, Protocol::from(libc::IPPROTO_RAW))?;
        sender.set_nonblocking(true)?;
        Ok(Self { taps, sender, workshop: Workshop::open()? })
    }
}

impl Workshop {
    /// The threads end when this is dropped.
    fn open() -> io::Result<Self> {
        Ok(Self { listeners: stock(unbound_listener)?, datagrams: stock(unbound_datagrams)? })
    }

    /// A socket that takes connections for an address of the outside, but only those that [`MARK`]ed packets
    /// open: the uplink lets in whom it has found a way for.
    pub(crate) async fn listener(&self, address: SocketAddrV4) -> io::Result<TcpListener> {
        let socket = next(&self.listeners).await?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    }

    /// A socket that stands in for the outside end of a flow of datagrams.
    pub(crate) async fn datagrams(&self, ends: Ends) -> io::Result<UdpSocket> {
        let socket = next(&self.datagrams).await?;
        socket.bind(&ends.outside.into())?;
        socket.connect(&ends.inside.into())?;
        UdpSocket::from_std(socket.into())
    }

    /// A socket that gets its own datagrams.
    pub(crate) async fn probe(&self) -> io::Result<UdpSocket> {
        let socket = next(&self.datagrams).await?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
        socket.connect(&socket.local_addr()?)?;
        UdpSocket::from_std(socket.into())
    }
}

fn stock(make: fn() -> io::Result<Socket>) -> io::Result<Stock> {
    let (made, stock) = mpsc::channel(STOCK);
    thread::Builder::new()
        .name("uplink-sockets".into())
        .spawn(move || while made.blocking_send(make()).is_ok() {})?;
    Ok(Mutex::new(stock))
}

/// Fails only if none can be made now; one that could not be made earlier does not count.
async fn next(stock: &Stock) -> io::Result<Socket> {
    let mut stock = stock.lock().await;
    let mut last = io::ErrorKind::BrokenPipe.into();
    for _ in 0..=STOCK + 1 {
        match stock.recv().await {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(error)) => last = error,
            None => break,
        }
    }
    Err(last)
}

fn unbound_listener() -> io::Result<Socket> {
    let socket = stand_in(Type::STREAM, Protocol::TCP)?;
    socket.attach_filter(&opened_by_mark())?;
    Ok(socket)
}

fn unbound_datagrams() -> io::Result<Socket> {
    let socket = stand_in(Type::DGRAM, Protocol::UDP)?;
    stamp(&socket)?;
    Ok(socket)
}

/// A socket that may take the address of anybody outside.
fn stand_in(kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = marked(kind, protocol)?;
    socket.set_reuse_address(true)?;
    socket.set_ip_transparent_v4(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends a whole IPv4 packet into the namespace. One that finds no room is lost, as on any wire.
pub(crate) fn send(sender: &Socket, packet: &[u8], to: Ipv4Addr) {
    let _lost = sender.send_to(packet, &SocketAddrV4::new(to, 0).into());
}

fn marked(kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, kind, Some(protocol))?;
    socket.set_mark(MARK)?;
    Ok(socket)
}

/// Lets the kernel say when what arrives arrived.
fn stamp(socket: &Socket) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
}

fn tap(protocol: Protocol, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol))?;
    if !filter.is_empty() {
        socket.attach_filter(filter)?;
    }
    socket.set_recv_buffer_size(WAITING)?;
    Ok(socket)
}

/// Hands a socket that carries packets of any kind to tokio, whose type for UDP does nothing that is UDP's alone.
pub(crate) fn watched(socket: Socket) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

// Filters in the kernel's classic BPF: the operations, where packets hold what, and the two verdicts.
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_BYTE_AFTER: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_IND) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const SKIP_IP_HEADER: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const TCP_FLAGS: u32 = 13;
const SYN: u32 = 0x02;
const SYN_ACK_RST_FIN: u32 = 0x17;
const PACKET_MARK: u32 = (libc::SKF_AD_OFF + 20) as u32;

fn take() -> SockFilter {
    SockFilter::new(RETURN, 0, 0, u32::MAX)
}

fn leave() -> SockFilter {
    SockFilter::new(RETURN, 0, 0, 0)
}

/// On packets from their IP header: opens a connection, and is not one that the uplink sent itself.
fn opens_connection() -> [SockFilter; 8] {
    [
        SockFilter::new(SKIP_IP_HEADER, 0, 0, 0),
        SockFilter::new(LOAD_BYTE_AFTER, 0, 0, TCP_FLAGS),
        SockFilter::new(AND, 0, 0, SYN_ACK_RST_FIN),
        SockFilter::new(IF_EQUAL, 0, 3, SYN),
        SockFilter::new(LOAD_WORD, 0, 0, PACKET_MARK),
        SockFilter::new(IF_EQUAL, 0, 1, 0),
        take(),
        leave(),
    ]
}

/// On packets from their IP header: asks for an echo.
fn asks_for_echo() -> [SockFilter; 5] {
    [
        SockFilter::new(SKIP_IP_HEADER, 0, 0, 0),
        SockFilter::new(LOAD_BYTE_AFTER, 0, 0, 0),
        SockFilter::new(IF_EQUAL, 0, 1, 8),
        take(),
        leave(),
    ]
}

/// On packets from their TCP header: does not open a connection, or carries [`MARK`].
fn opened_by_mark() -> [SockFilter; 7] {
    [
        SockFilter::new(LOAD_BYTE, 0, 0, TCP_FLAGS),
        SockFilter::new(AND, 0, 0, SYN),
        SockFilter::new(IF_EQUAL, 2, 0, 0),
        SockFilter::new(LOAD_WORD, 0, 0, PACKET_MARK),
        SockFilter::new(IF_EQUAL, 0, 1, MARK),
        take(),
        leave(),
    ]
}
