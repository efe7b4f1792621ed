//! A connection to the kernel's tables of interfaces, addresses and routes.
//!
//! Seven kinds of requests are all that a network needs. A library for them (netlink-packet-route) has
//! thirty thousand lines, and what is done here is a page.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

mod request;

pub(super) use request::{Interface, Mac, Request};

/// Longer than the description of an interface.
const ANSWER: usize = 16 << 10;

/// Talks about the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Of the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        // Without another protocol it is the one of these tables.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Makes a request and waits until the kernel has carried it out.
    pub(super) fn ask(&self, request: &Request) -> io::Result<()> {
        retry_on_intr(|| send(&self.socket, request.bytes(), SendFlags::empty()))?;
        let mut answer = [0; ANSWER];
        loop {
            let (length, _) = retry_on_intr(|| recv(&self.socket, &mut answer[..], RecvFlags::empty()))?;
            if let Some(result) = result(&answer[..length]) {
                return result;
            }
        }
    }
}

/// What became of a request, if that is what a message of the kernel says.
fn result(message: &[u8]) -> Option<io::Result<()>> {
    let kind = message.get(4..6)?;
    let error = message.get(request::HEADER..request::HEADER + 4)?;
    if i32::from(u16::from_ne_bytes(kind.try_into().ok()?)) != libc::NLMSG_ERROR {
        return None;
    }
    match i32::from_ne_bytes(error.try_into().ok()?) {
        0 => Some(Ok(())),
        error => Some(Err(Errno::from_raw_os_error(-error).into())),
    }
}
