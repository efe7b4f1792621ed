//! Two network namespaces in one process: the machine's, with servers, and a job's, which reaches it through an
//! uplink. Nothing of the real machine's network is used.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use tokio::sync::oneshot;
use trainyard_uplink::{Config, Device, Uplink};

use crate::cable::{GATEWAY, PREFIX_LENGTH, give, join_network, set_up, wire};
use crate::netlink::{LOOPBACK, Netlink, Request};

/// The machine's own address, which is not one of its loopback.
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Where clouds keep a machine's credentials; here the machine has it itself.
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Set for the process that a test starts itself as.
const STARTED: &str = "UPLINK_TEST_STARTED";

/// A job's network and the machine's. The calling thread, and threads that it starts, are in the machine's.
pub(crate) struct Yard {
    job: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    uplink: Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

/// Runs a test in a process with namespaces of its own: as an ordinary user, and as root if this is root.
pub(crate) fn run<T: FnOnce(&mut Yard)>(resolvers: &[&str], test: T) {
    if std::env::var_os(STARTED).is_some() {
        let resolvers = resolvers.iter().map(|address| address.parse().unwrap()).collect();
        return test(&mut Yard::new(resolvers));
    }
    // A closure of the test: "uplink::module::name::{{closure}}".
    let name = std::any::type_name::<T>().trim_start_matches("uplink::").trim_end_matches("::{{closure}}");
    let own = ["unshare", "--user", "--map-root-user", "--net"];
    let other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let users = if nix::unistd::geteuid().is_root() {
        vec![("root", vec!["unshare", "--net"]), ("an ordinary user", [&other[..], &own].concat())]
    } else {
        vec![("an ordinary user", own.to_vec())]
    };
    for (user, start) in users {
        if !Command::new(start[0]).args(&start[1..]).arg("true").status().is_ok_and(|status| status.success())
        {
            eprintln!("{name} is skipped as {user}: can't make namespaces by {}", start.join(" "));
            continue;
        }
        let program = std::env::current_exe().unwrap();
        let output = Command::new("timeout")
            .arg("120")
            .args(&start)
            .arg(program)
            .args(["--exact", name, "--nocapture"])
            .env(STARTED, "1")
            .output()
            .unwrap();
        let [said, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success() && said.contains("1 passed"), "as {user}: {said}{errors}");
    }
}

impl Yard {
    fn new(resolvers: Vec<std::net::IpAddr>) -> Self {
        let machine = Netlink::open().unwrap();
        set_up(&machine, LOOPBACK).unwrap();
        for address in [MACHINE, METADATA] {
            give(&machine, LOOPBACK, address, 32).unwrap();
        }
        let (job, orders) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            orders.into_iter().for_each(|order| order());
        });
        let mut yard = Self { job, uplink: None };
        let place = yard.inside(|| fs_err::File::open("/proc/thread-self/ns/net").unwrap());
        let device = thread::spawn(move || wire(&place).and_then(|()| Device::open("way")).unwrap());
        let device = device.join().unwrap();
        yard.inside(|| join_network().unwrap());
        let config = Config {
            network: Ipv4Addr::new(198, 18, 0, 0),
            prefix_length: PREFIX_LENGTH,
            gateway: GATEWAY,
            resolvers,
        };
        let (stop, stopped) = oneshot::channel();
        let uplink = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    broken = Uplink::new(device, config).run() => panic!("{broken:?}"),
                    _ = stopped => {}
                }
            });
        });
        yard.uplink = Some((stop, uplink));
        // A cable loses what is sent before the kernel has noticed that both of its ends are up.
        let refused = yard.inside(|| TcpStream::connect((GATEWAY, 1)).unwrap_err());
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        yard
    }

    /// Does something in the job's network; threads started there stay there.
    pub(crate) fn inside<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin_inside(what).recv().expect("the thread in the job's network has panicked")
    }

    /// As [`Yard::inside`], but the result comes later. One such thing at a time.
    pub(crate) fn begin_inside<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (done, result) = mpsc::channel();
        self.job.send(Box::new(move || drop(done.send(what())))).unwrap();
        result
    }

    /// Ends the uplink.
    pub(crate) fn stop(&mut self) {
        if let Some((stop, ended)) = self.uplink.take() {
            drop(stop);
            ended.join().unwrap();
        }
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop();
        }
    }
}

/// In the job's network: lets the gateway have what is for a part of the loopback network.
pub(crate) fn send_loopback_to_the_gateway() {
    let netlink = Netlink::open().unwrap();
    let route = |kind, length| {
        [libc::AF_INET as u8, length, 0, 0, libc::RT_TABLE_MAIN, 0, libc::RT_SCOPE_UNIVERSE, kind, 0, 0, 0, 0]
    };
    // The kernel's own route for all of 127.0.0.0/8 comes first, in a table of its own.
    let own = [libc::AF_INET as u8, 8, 0, 0, libc::RT_TABLE_LOCAL, 0, libc::RT_SCOPE_NOWHERE, 0, 0, 0, 0, 0];
    netlink.ask(&Request::change(libc::RTM_DELROUTE, &own).with(libc::RTA_DST, &[127, 0, 0, 0])).unwrap();
    netlink
        .ask(
            &Request::create(libc::RTM_NEWROUTE, &route(libc::RTN_UNICAST, 8))
                .with(libc::RTA_DST, &[127, 0, 0, 0])
                .with(libc::RTA_GATEWAY, &GATEWAY.octets()),
        )
        .unwrap();
}
