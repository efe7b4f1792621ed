//! A job's own network, in which its instances on this machine reach each other and nothing else.
//!
//! The backend starts one process for it, [`job_network`]. That process makes a user namespace and in it
//! a network namespace with a bridge, and then, for each instance, a network namespace with an interface
//! on that bridge:
//!
//! ```text
//! user namespace of the network
//!  ├─ network namespace: bridge ── port 1, port 2, …      the process itself
//!  ├─ network namespace: eth0 (198.18.240.1), lo          algo-1
//!  └─ network namespace: eth0 (198.18.240.2), lo          algo-2
//! ```
//!
//! An instance's own user namespace is made below the one of the network. So it has no right over its
//! interface and its addresses: they belong to a namespace above it.
//!
//! Whoever launches asks for an instance's place with one end of a connection; the other end becomes the
//! standard input of the supervisor. The answer comes on it: the two namespaces as descriptors. The
//! connection is also the lease: the process ends when nobody can ask any more and every connection has
//! ended, whoever was killed in whatever order.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

mod launch;
mod namespaces;
mod netlink;
mod socket;
mod switch;
mod way_out;

pub(crate) use launch::JobNetwork;
pub(crate) use namespaces::{JoinError, Namespaces, Place};
pub(crate) use socket::{receive, send};
pub use switch::job_network;

use netlink::{Netlink, Request};

use crate::plan::{InstancePlan, NetworkPlan};

/// The number of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;

/// The hidden subcommand that runs [`job_network`]; the run directory follows it.
const COMMAND: &str = "network";

/// What is asked of the process of a network; it comes with the end of a connection for the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Join {
    /// The instance's.
    address: Ipv4Addr,
    /// Of the network.
    prefix_length: u8,
    /// The way out, if the job has one.
    gateway: Option<Ipv4Addr>,
}

/// What the process of a network answers to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// The user namespace and the instance's network namespace come with this.
    Joined,
    /// There is no place.
    Refused {
        /// Why, in words that lead on.
        explanation: String,
    },
}

impl Join {
    fn of(plan: &InstancePlan) -> io::Result<Self> {
        let NetworkPlan::Job { prefix_length, gateway } = plan.network else {
            return Err(io::Error::other(format!("{} is planned to be alone", plan.host)));
        };
        let host = plan.hosts.iter().find(|host| host.name == plan.host);
        let host =
            host.ok_or_else(|| io::Error::other(format!("{} has no address in its plan", plan.host)))?;
        let address = host.address.parse().map_err(io::Error::other)?;
        Ok(Self { address, prefix_length, gateway })
    }
}

/// Takes the loopback interface of this process's network namespace, which is its own, into operation.
pub(crate) fn start_loopback() -> io::Result<()> {
    Netlink::open()?.ask(&Request::up(LOOPBACK, None))
}

/// Sends one message over a socket that keeps them apart.
fn tell<T: Serialize>(socket: impl AsFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, &serde_json::to_vec(message)?, descriptors)
}

/// Receives the next message and what has come with it; none when there will be no more.
fn hear<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = [0; 4096];
    let (length, descriptors) = receive(socket, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&buffer[..length])?, descriptors)))
}
