//! Runs a command in a network namespace of its own, from which it reaches the outside through an uplink:
//!
//! ```text
//! through COMMAND [ARGUMENT]…
//! ```
//!
//! As root and as an ordinary user, who is root inside. Names are looked up by the machine's name servers.

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use trainyard_uplink::{Config, Device, Uplink};

#[path = "../tests/uplink/cable.rs"]
mod cable;
#[path = "../src/netlink.rs"]
mod netlink;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<ExitCode> {
    let command: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((program, arguments)) = command.split_first() else { return Err("no command".into()) };
    if !geteuid().is_root() {
        become_root_of_a_namespace()?;
    }
    let (place, placed) = mpsc::channel();
    let (wired, ready) = mpsc::channel();
    let mut command = Command::new(program);
    command.args(arguments);
    let job = thread::spawn(move || -> Result<ExitCode> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        place.send(fs_err::File::open("/proc/thread-self/ns/net")?)?;
        ready.recv()?;
        cable::join_network()?;
        let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    });
    let place = placed.recv()?;
    let device = thread::spawn(move || cable::wire(&place).and_then(|()| Device::open("way")));
    let device = device.join().map_err(|_| "the thread that opens the device has panicked")??;
    wired.send(())?;
    carry(device, job)
}

/// Carries flows until the job has ended.
fn carry(device: Device, job: thread::JoinHandle<Result<ExitCode>>) -> Result<ExitCode> {
    let config = Config {
        network: Ipv4Addr::new(198, 18, 0, 0),
        prefix_length: cable::PREFIX_LENGTH,
        gateway: cable::GATEWAY,
        resolvers: resolvers()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ended = tokio::task::spawn_blocking(move || job.join());
        tokio::select! {
            broken = Uplink::new(device, config).run() => match broken? {},
            ended = ended => ended?.map_err(|_| "the thread of the job has panicked")?,
        }
    })
}

/// Must be called while there is a single thread.
fn become_root_of_a_namespace() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    fs_err::write("/proc/self/setgroups", "deny")?;
    fs_err::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs_err::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    Ok(())
}

fn resolvers() -> Result<Vec<std::net::IpAddr>> {
    let file = fs_err::read_to_string("/etc/resolv.conf")?;
    let servers = file.lines().filter_map(|line| line.strip_prefix("nameserver"));
    Ok(servers.filter_map(|address| address.trim().parse().ok()).collect())
}
