//! An uplink between real network namespaces, as root and as an ordinary user.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod cable;
mod connections;
mod datagrams;
#[path = "../../src/netlink.rs"]
mod netlink;
mod yard;
