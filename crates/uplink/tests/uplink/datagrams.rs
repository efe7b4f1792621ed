//! UDP, names and echoes through an uplink.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::cable::GATEWAY;
use crate::yard::{MACHINE, METADATA, run};

/// No step of a test takes longer, unless it fails.
const PATIENCE: Duration = Duration::from_secs(10);

fn socket(address: impl Into<std::net::IpAddr>) -> UdpSocket {
    let socket = UdpSocket::bind((address.into(), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn connected(to: SocketAddr) -> UdpSocket {
    let socket = socket(Ipv4Addr::UNSPECIFIED);
    socket.connect(to).unwrap();
    socket
}

fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let length = socket.recv(&mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

/// Answers each datagram with itself.
fn echo_server() -> SocketAddr {
    let server = socket(MACHINE);
    let address = server.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..length], from).unwrap();
        }
    });
    address
}

#[test]
fn datagrams_of_all_sizes_come_back_unchanged() {
    run(&[], |yard| {
        let address = echo_server();
        yard.inside(move || {
            let socket = connected(address);
            // Larger than the network's packets too, and nothing at all.
            for length in [1, 0, 100, 1472, 1473, 9000, 60_000] {
                let said: Vec<_> = (0..length).map(|number| number as u8).collect();
                socket.send(&said).unwrap();
                assert!(next(&socket) == said, "{length} bytes");
            }
        });
    });
}

#[test]
fn none_of_the_first_datagrams_is_lost_or_comes_twice() {
    run(&[], |yard| {
        let server = socket(MACHINE);
        let address = server.local_addr().unwrap();
        for round in 0..50u8 {
            yard.inside(move || {
                let socket = connected(address);
                (0..20).for_each(|number| assert_eq!(socket.send(&[round, number]).unwrap(), 2));
            });
            let mut heard: Vec<_> = (0..20).map(|_| next(&server)).collect();
            heard.sort();
            assert_eq!(heard, (0..20).map(|number| vec![round, number]).collect::<Vec<_>>());
        }
    });
}

#[test]
fn datagrams_that_the_kernel_was_given_in_one_piece_arrive_one_by_one() {
    run(&[], |yard| {
        let address = echo_server();
        let offered = yard.inside(move || {
            let socket = connected(address);
            // The first two one by one, so that the flow is there.
            for said in [b"1", b"2"] {
                socket.send(said).unwrap();
                assert_eq!(next(&socket), said);
            }
            setsockopt(&socket, sockopt::UdpGsoSegment, &1000)?;
            socket.send(&[1; 10_000]).unwrap();
            nix::Result::Ok((0..10).map(|_| next(&socket).len()).collect::<Vec<_>>())
        });
        match offered {
            Ok(echoes) => assert_eq!(echoes, [1000; 10]),
            Err(error) => eprintln!("skipped: this kernel does not cut datagrams: {error}"),
        }
    });
}

#[test]
fn a_datagram_to_a_closed_port_is_refused() {
    run(&[], |yard| {
        let address = socket(MACHINE).local_addr().unwrap();
        let error = yard.inside(move || {
            let socket = connected(address);
            socket.send(b"anybody?").unwrap();
            socket.recv(&mut [0]).unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn datagrams_to_where_a_job_is_not_let_are_rejected() {
    run(&[], |yard| {
        let server = socket(Ipv4Addr::UNSPECIFIED);
        let port = server.local_addr().unwrap().port();
        for (address, refused) in
            [(METADATA, io::ErrorKind::HostUnreachable), (GATEWAY, io::ErrorKind::ConnectionRefused)]
        {
            let error = yard.inside(move || {
                let socket = connected((address, port).into());
                socket.send(b"secret?").unwrap();
                socket.recv(&mut [0]).unwrap_err()
            });
            assert_eq!(error.kind(), refused, "{address}");
        }
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.recv(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    });
}

/// A name server that answers every question with the question and its own mark, over UDP and TCP.
fn name_server(address: &'static str, mark: u8) {
    let server = UdpSocket::bind((address, 53)).unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 512];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            server.send_to(&[&buffer[..length], &[mark]].concat(), from).unwrap();
        }
    });
    let server = TcpListener::bind((address, 53)).unwrap();
    thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            let mut question = [0; 4];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(&[&question[..], &[mark]].concat()).unwrap();
        }
    });
}

fn ask(question: [u8; 4]) -> Vec<u8> {
    let socket = connected((GATEWAY, 53).into());
    socket.send(&question).unwrap();
    next(&socket)
}

fn ask_by_connection(question: [u8; 4]) -> Vec<u8> {
    let mut stream = TcpStream::connect((GATEWAY, 53)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&question).unwrap();
    let mut answer = vec![0; 5];
    stream.read_exact(&mut answer).unwrap();
    answer
}

#[test]
fn the_gateway_asks_the_machines_name_server_also_one_on_its_loopback() {
    run(&["127.0.0.53"], |yard| {
        name_server("127.0.0.53", 1);
        assert_eq!(yard.inside(|| ask(*b"a.b.")), *b"a.b.\x01");
        assert_eq!(yard.inside(|| ask_by_connection(*b"c.d.")), *b"c.d.\x01");
    });
}

#[test]
fn the_gateway_asks_a_name_server_of_ipv6() {
    run(&["::1"], |yard| {
        name_server("::1", 6);
        assert_eq!(yard.inside(|| ask(*b"a.b.")), *b"a.b.\x06");
        assert_eq!(yard.inside(|| ask_by_connection(*b"c.d.")), *b"c.d.\x06");
    });
}

#[test]
fn a_name_server_that_is_silent_or_gone_is_passed_over() {
    // The first refuses, the second says nothing.
    run(&["127.0.0.51", "127.0.0.52", "127.0.0.53"], |yard| {
        let _silent = UdpSocket::bind("127.0.0.52:53").unwrap();
        name_server("127.0.0.53", 3);
        let answers = yard.inside(|| {
            // Both questions of one flow are asked again.
            let socket = connected((GATEWAY, 53).into());
            socket.send(b"1.a.").unwrap();
            socket.send(b"2.b.").unwrap();
            [next(&socket), next(&socket)]
        });
        assert_eq!(answers, [*b"1.a.\x03", *b"2.b.\x03"]);
        // Who was silent once is not asked first again.
        let begun = Instant::now();
        assert_eq!(yard.inside(|| ask(*b"3.c.")), *b"3.c.\x03");
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert_eq!(yard.inside(|| ask_by_connection(*b"c.d.")), *b"c.d.\x03");
    });
}

#[test]
fn without_a_name_server_questions_are_refused() {
    run(&[], |yard| {
        let error = yard.inside(|| {
            let socket = connected((GATEWAY, 53).into());
            socket.send(b"a.b.").unwrap();
            socket.recv(&mut [0]).unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

/// What comes back for an echo question, without checksum and identifier.
fn ping(to: Ipv4Addr) -> io::Result<(u8, Vec<u8>)> {
    fs_err::write("/proc/sys/net/ipv4/ping_group_range", "0 0")?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.connect(&SocketAddr::from((to, 0)).into())?;
    socket.send(b"\x08\0\0\0\0\0\0\x07hello")?;
    let mut answer = vec![0; 100];
    let length = (&socket).read(&mut answer)?;
    Ok((answer[0], answer[6..length].to_vec()))
}

#[test]
fn echoes_come_back_from_the_gateway_and_where_the_machine_may_ask_from_the_outside() {
    run(&[], |yard| {
        assert_eq!(yard.inside(|| ping(GATEWAY)).unwrap(), (0, b"\0\x07hello".to_vec()));
        // A new network namespace lets nobody ask.
        assert_eq!(yard.inside(|| ping(MACHINE)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        fs_err::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        assert_eq!(yard.inside(|| ping(MACHINE)).unwrap(), (0, b"\0\x07hello".to_vec()));
        assert!(yard.inside(|| ping(METADATA)).is_err());
    });
}
