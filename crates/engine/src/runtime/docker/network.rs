//! The network of an attempt: one bridge for its instances, with an address for each that is known
//! before the instance starts.
//!
//! Supervisors share it and none is the first: whoever needs it makes it, whoever ends tries to remove
//! it. Two files in the run directory keep them apart: one is locked by who makes it, the other shared by
//! who is about to join and held alone by who removes.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use bollard::errors::Error;
use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest};
use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::xxh3_64;

use super::Container;
use crate::docker::{Daemon, DaemonError, Kind, reason, status};

/// 198.18.0.0/15 is for benchmarks between networks (RFC 2544): nothing that an instance wants to reach
/// has such an address.
const FIRST: u32 = 0xC612_0000;
const BITS: u32 = 17;

/// How many subnets are tried until one is free.
const TRIES: u64 = 128;

/// Addresses before that of the first instance: the network's own and the gateway's.
const RESERVED: u32 = 2;

/// The network of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) name: String,
    first: u32,
}

impl Network {
    /// The address of an instance, counted from 0.
    pub(super) fn address(&self, rank: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first + RESERVED + u32::try_from(rank).unwrap_or_default())
    }
}

/// The network that the instance will be in unless somebody else's has its addresses already; none for one that is to
/// be alone.
pub(super) fn expected(container: &Container) -> Option<Network> {
    if container.peers.is_empty() {
        return None;
    }
    let name = name(container);
    let first = subnets(&name, container.peers.len()).next()?;
    Some(Network { name, first })
}

/// Joins the network of the attempt, making it if it is not there. As long as the file that is returned
/// is kept, nobody removes it.
pub(super) async fn join(
    daemon: &Daemon,
    container: &Container,
    program: &Path,
) -> Result<(Network, fs::File), DaemonError> {
    let making = lock(&container.run.join("network.making"), FlockOperation::LockExclusive).await;
    let path = lock_path(&container.run);
    let joined = lock(&path, FlockOperation::LockShared).await;
    let io_error = |error| DaemonError::None { tried: vec![(container.run.clone(), error)] };
    let (_making, joined) = (making.map_err(io_error)?, joined.map_err(io_error)?);
    let name = name(container);
    let found = match Noted::read(&path).map_err(io_error)? {
        Noted::Never => None,
        Noted::Unclear => existing(daemon, &name).await?,
        Noted::Made(first) => return Ok((Network { name, first }, joined)),
    };
    Noted::Unclear.write(&path).map_err(io_error)?;
    let first = match found {
        Some(first) => first,
        None => make(daemon, container, program, &name).await?,
    };
    Noted::Made(first).write(&path).map_err(io_error)?;
    Ok((Network { name, first }, joined))
}

/// Removes the network unless somebody uses it or is about to; what can't be removed now is removed when
/// the next instance ends, or when the program starts again.
pub(super) async fn leave(daemon: &Daemon, container: &Container) {
    if container.peers.is_empty() {
        return;
    }
    let path = lock_path(&container.run);
    if let Ok(_alone) = lock(&path, FlockOperation::NonBlockingLockExclusive).await {
        remove(daemon, &name(container), &path).await;
    }
}

/// Removes a network whose file is locked, unless it has containers.
pub(super) async fn remove(daemon: &Daemon, name: &str, lock: &Path) {
    // Who finds nothing written there asks the daemon; and nobody does if it can't be written, for then the folder has
    // gone.
    if !lock.exists() || Noted::Unclear.write(lock).is_ok() {
        let _ = daemon.client.remove_network(name).await;
    }
}

/// What is written down of a network, so that only one instance has to ask for it. It is read and written by who has
/// its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    /// Nobody has tried to make it.
    Never,
    /// It may or may not be there.
    Unclear,
    /// It is there and has these addresses.
    Made(u32),
}

impl Noted {
    fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let made = text.trim().parse::<Ipv4Addr>().map(|first| Self::Made(first.to_bits()));
        Ok(if text.is_empty() { Self::Never } else { made.unwrap_or(Self::Unclear) })
    }

    fn write(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Never => fs::write(path, ""),
            Self::Unclear => fs::write(path, "?"),
            Self::Made(first) => fs::write(path, Ipv4Addr::from_bits(first).to_string()),
        }
    }
}

/// Locked by whoever uses the network of a run directory.
fn lock_path(run: &Path) -> PathBuf {
    run.join("network.lock")
}

/// Opens and locks a file. It may take long, so it is done in a thread.
async fn lock(path: &Path, how: FlockOperation) -> io::Result<fs::File> {
    let path = path.to_owned();
    let locking = spawn_blocking(move || {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        flock(&file, how)?;
        Ok(file)
    });
    locking.await.map_err(io::Error::other)?
}

/// Names of jobs repeat in other data folders, so there is more in it.
fn name(container: &Container) -> String {
    let run = xxh3_64(container.run.as_os_str().as_encoded_bytes());
    format!("trainyard-{}-{}-{run:016x}", container.job.to_lowercase(), container.attempt)
}

async fn existing(daemon: &Daemon, name: &str) -> Result<Option<u32>, DaemonError> {
    let found = match daemon.client.inspect_network(name, None).await {
        Err(error) if status(&error) == Some(404) => return Ok(None),
        found => found.map_err(daemon.failed("show the network of the job"))?,
    };
    let configs = found.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
    Ok(configs.iter().find_map(|config| first_of(config.subnet.as_deref()?)))
}

/// `198.18.3.0/24`.
fn first_of(subnet: &str) -> Option<u32> {
    subnet.split('/').next()?.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits)
}

async fn make(
    daemon: &Daemon,
    container: &Container,
    program: &Path,
    name: &str,
) -> Result<u32, DaemonError> {
    let prefix = 32 - host_bits(container.peers.len());
    let mut taken = None;
    for first in subnets(name, container.peers.len()) {
        let request = NetworkCreateRequest {
            labels: Some(container.labels(&lock_path(&container.run), program)),
            internal: Some(container.plan.isolated),
            options: isolation(daemon.kind, container.plan.isolated),
            ..request(name, first, prefix)
        };
        match daemon.client.create_network(request).await {
            Ok(_) => return Ok(first),
            Err(error) if is_taken(&reason(&error)) => taken = Some(error),
            Err(error) => return Err(daemon.failed("make a network for the job")(error)),
        }
    }
    let none = || Error::DockerStreamError { error: "all subnets of 198.18.0.0/15 are in use".to_owned() };
    Err(daemon.failed("make a network for the job")(taken.unwrap_or_else(none)))
}

/// What keeps an isolated job from the machine: a bridge without an address of its own. Podman has no such option.
fn isolation(kind: Kind, isolated: bool) -> Option<HashMap<String, String>> {
    let option = ("com.docker.network.bridge.inhibit_ipv4".to_owned(), "true".to_owned());
    (isolated && kind == Kind::Docker).then(|| HashMap::from([option]))
}

/// The first addresses of subnets for so many hosts, in the order in which they are tried.
fn subnets(name: &str, hosts: usize) -> impl Iterator<Item = u32> {
    let host_bits = host_bits(hosts);
    let count = 1_u64 << (BITS - host_bits);
    let start = xxh3_64(name.as_bytes());
    (0..TRIES.min(count)).map(move |tried| {
        let number = u32::try_from(start.wrapping_add(tried) % count).unwrap_or_default();
        FIRST + (number << host_bits)
    })
}

/// How Docker and Podman say that another network has such addresses.
fn is_taken(reason: &str) -> bool {
    ["overlap", "already used", "in use", "conflict"].iter().any(|word| reason.contains(word))
}

/// How many bits of an address tell instances apart, with room for the network's own, the gateway's
/// and the last.
fn host_bits(hosts: usize) -> u32 {
    (8..BITS).find(|bits| hosts + 3 <= 1 << bits).unwrap_or(BITS)
}

fn request(name: &str, first: u32, prefix: u32) -> NetworkCreateRequest {
    let config = IpamConfig {
        subnet: Some(format!("{}/{prefix}", Ipv4Addr::from_bits(first))),
        gateway: Some(Ipv4Addr::from_bits(first + 1).to_string()),
        ..IpamConfig::default()
    };
    NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        ipam: Some(Ipam { config: Some(vec![config]), ..Ipam::default() }),
        ..NetworkCreateRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_subnets_are_tried_and_none_twice() {
        for hosts in [1, 300, 100_000] {
            let tried: Vec<u32> = subnets("trainyard-fit-1", hosts).collect();
            let different: std::collections::BTreeSet<u32> = tried.iter().copied().collect();
            assert_eq!(different.len(), tried.len());
            assert!(tried.iter().all(|first| first >> BITS == FIRST >> BITS));
            assert_eq!(tried.len() as u64, TRIES.min(1 << (BITS - host_bits(hosts))));
        }
    }

    #[test]
    fn what_is_written_down_of_a_network_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("network.lock");
        for noted in [Noted::Never, Noted::Unclear, Noted::Made(FIRST)] {
            noted.write(&path).unwrap();
            assert_eq!(Noted::read(&path).unwrap(), noted);
        }
    }

    #[test]
    fn every_instance_has_an_address_of_its_own_within_the_subnet() {
        for (hosts, bits) in [(1, 8), (253, 8), (254, 9), (4000, 12), (100_000, 17)] {
            assert_eq!(host_bits(hosts), bits, "{hosts}");
        }
        let network = Network { name: String::new(), first: first_of("198.18.3.0/24").unwrap() };
        assert_eq!(network.address(0), Ipv4Addr::new(198, 18, 3, 2));
        assert_eq!(network.address(252), Ipv4Addr::new(198, 18, 3, 254));
    }
}
