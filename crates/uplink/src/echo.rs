//! Echoes: asked of the outside through the kernel's sockets for them, where this user may have one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::packet::{Echo, Packet, Unreachable, echo_message, echo_reply};
use crate::policy::Way;
use crate::udp::received;
use crate::{Shared, device};

/// Of flows at once.
const MOST: usize = 256;
/// A flow ends after so long without an echo.
const IDLE: Duration = Duration::from_secs(20);
/// Of questions that may wait.
const WAITING: usize = 16;
/// Of the largest question.
const LARGEST: usize = 1 << 16;

/// One program's questions to one address: who asks, whom, under which number.
type Key = (Ipv4Addr, Ipv4Addr, u16);

/// Carries every question for an echo.
///
/// # Errors
/// The tap's.
pub(crate) async fn watch(shared: Arc<Shared>, tap: Socket) -> io::Result<Infallible> {
    let tap = device::watched(tap)?;
    let mut flows = HashMap::<Key, mpsc::Sender<Vec<u8>>>::new();
    let mut carried = JoinSet::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = tokio::select! {
            read = tap.recv(&mut buffer) => read?,
            Some(ended) = carried.join_next() => {
                ended.map(|key| flows.remove(&key)).ok();
                continue;
            }
        };
        let Some((packet, echo)) = Packet::read(&buffer[..length]).and_then(|p| Some((p, p.echo()?))) else {
            continue;
        };
        if !shared.config.holds(echo.from) {
            continue;
        }
        match shared.config.way(SocketAddrV4::new(echo.to, 0)) {
            Way::Outside(_) => {}
            Way::Gateway | Way::Resolver => {
                device::send(&shared.sender, &echo_reply(&echo), echo.from);
                continue;
            }
            Way::Prohibited => {
                let answer = packet.unreachable(echo.to, Unreachable::Prohibited);
                device::send(&shared.sender, &answer, echo.from);
                continue;
            }
            Way::Many => continue,
        }
        let key = (echo.from, echo.to, echo.identifier);
        if !flows.contains_key(&key) && flows.len() < MOST {
            let (questions, waiting) = mpsc::channel(WAITING);
            flows.insert(key, questions);
            let shared = Arc::clone(&shared);
            carried.spawn(async move {
                // Where it may not ask, nobody answers.
                let _ended = carry(&shared, key, waiting).await;
                key
            });
        }
        if let Some(questions) = flows.get(&key) {
            let _full = questions.try_send(echo_message(8, &echo));
        }
    }
}

async fn carry(shared: &Shared, key: Key, mut questions: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let (from, to, _) = key;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
    socket.connect(&SocketAddrV4::new(to, 0).into())?;
    let socket = device::watched(socket)?;
    loop {
        let answer = tokio::select! {
            question = timeout(IDLE, questions.recv()) => {
                let Ok(Some(question)) = question else { return Ok(()) };
                socket.send(&question).await?;
                continue;
            }
            answer = received(&socket) => answer?,
        };
        if let Some(answer) = answered(&answer, key) {
            device::send(&shared.sender, &answer, from);
        }
    }
}

/// The answer for whoever asked: the kernel has given the question a number of its own.
fn answered(message: &[u8], (from, to, identifier): Key) -> Option<Vec<u8>> {
    let (&[0, 0, _, _, _, _, high, low], payload) = message.split_first_chunk::<8>()? else { return None };
    let sequence = u16::from_be_bytes([high, low]);
    Some(echo_reply(&Echo { from, to, identifier, sequence, payload }))
}
