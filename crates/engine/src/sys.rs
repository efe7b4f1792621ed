//! The only unsafe code of the engine: system calls that no library offers as safe functions.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a file descriptor until it is readable.
#[expect(unsafe_code, reason = "tokio asks its callers to vouch for the descriptor")]
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives and always names the same descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
