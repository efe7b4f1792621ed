//! Joins two connections: what one says the other hears, in both directions, until both have ended.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// So many bytes are moved at once.
const PIECE: usize = 256 << 10;

thread_local! {
    /// Shared by all connections, since none holds it while it waits.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// Ends when both directions have. The end of one direction is passed on and leaves the other open; a reset is
/// passed on as a reset.
///
/// # Errors
/// Whatever broke one of the connections.
pub(crate) async fn relay(inside: &TcpStream, outside: &TcpStream) -> io::Result<()> {
    let ended = tokio::try_join!(pump(inside, outside), pump(outside, inside));
    if ended.is_err() {
        // What was said before the reset may still be on its way.
        drain(inside, outside);
        drain(outside, inside);
        for stream in [inside, outside] {
            // Closing it now resets it.
            let _closed = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
    ended.map(|_| ())
}

async fn pump(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    loop {
        tokio::select! {
            readable = from.readable() => readable?,
            broken = broken(to) => return broken,
        }
        match piece(from, to) {
            Ok(None) => return end(to),
            Ok(Some(rest)) => write(&rest, from, to).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Moves what is there and finds room.
fn drain(from: &TcpStream, to: &TcpStream) {
    while piece(from, to).is_ok_and(|rest| rest.is_some_and(|rest| rest.is_empty())) {}
}

/// Moves one piece; what the receiver has no room for is handed back. None at the end.
fn piece(from: &TcpStream, to: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    BUFFER.with_borrow_mut(|buffer| {
        let read = from.try_read(buffer)?;
        if read == 0 {
            return Ok(None);
        }
        let written = unless_full(to.try_write(&buffer[..read]))?;
        Ok(Some(buffer[written..read].to_vec()))
    })
}

async fn write(mut rest: &[u8], from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    while !rest.is_empty() {
        tokio::select! {
            writable = to.writable() => writable?,
            broken = broken(from) => return broken,
        }
        rest = &rest[unless_full(to.try_write(rest))?..];
    }
    Ok(())
}

/// Waits until a connection breaks. One that is only written to, or not at all for lack of room, would not tell.
///
/// # Errors
/// Always.
async fn broken(stream: &TcpStream) -> io::Result<()> {
    stream.ready(Interest::ERROR).await?;
    Err(io::ErrorKind::ConnectionReset.into())
}

fn unless_full(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

/// A receiver that has closed altogether needs no end.
fn end(to: &TcpStream) -> io::Result<()> {
    match SockRef::from(to).shutdown(Shutdown::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        ended => ended,
    }
}
