//! TCP through an uplink.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::cable::GATEWAY;
use crate::yard::{self, MACHINE, METADATA, run};

/// No step of a test takes longer, unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((MACHINE, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Bytes that tell any loss, repetition or change of order.
fn numbers(mut length: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::from_fn(move || {
        let piece: Vec<u8> = (0..length.min(1 << 20).div_ceil(8))
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_ne_bytes()
            })
            .take(length)
            .collect();
        length -= piece.len();
        (!piece.is_empty()).then_some(piece)
    })
}

fn say(mut stream: &TcpStream, length: usize) {
    numbers(length).for_each(|piece| stream.write_all(&piece).unwrap());
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Fails unless exactly the numbers come, and then the end.
fn hear(mut stream: &TcpStream, length: usize) {
    let mut buffer = vec![0; 1 << 20];
    for piece in numbers(length) {
        let heard = &mut buffer[..piece.len()];
        stream.read_exact(heard).unwrap();
        assert!(*heard == piece, "other bytes than were sent");
    }
    assert_eq!(stream.read(&mut buffer).unwrap(), 0, "more bytes than were sent");
}

#[test]
fn a_hundred_megabytes_arrive_unchanged_in_both_directions_at_once() {
    const LENGTH: usize = 100 << 20;
    run(&[], |yard| {
        let (listener, address) = server();
        let both = |stream: TcpStream| {
            thread::scope(|scope| {
                scope.spawn(|| say(&stream, LENGTH));
                hear(&stream, LENGTH);
            });
        };
        let inside = yard.begin_inside(move || both(connect(address).unwrap()));
        both(accept(&listener));
        inside.recv().unwrap();
    });
}

#[test]
fn a_thousand_connections_are_open_at_once() {
    const MANY: usize = 1000;
    run(&[], |yard| {
        let (listener, address) = server();
        let limit = nix::sys::resource::Resource::RLIMIT_NOFILE;
        let (_, hard) = nix::sys::resource::getrlimit(limit).unwrap();
        nix::sys::resource::setrlimit(limit, hard, hard).unwrap();
        let inside = yard.begin_inside(move || {
            let streams: Vec<_> = (0..MANY).map(|_| connect(address).unwrap()).collect();
            for (number, mut stream) in streams.iter().enumerate() {
                stream.write_all(&(number as u32).to_be_bytes()).unwrap();
            }
            for (number, mut stream) in streams.iter().enumerate() {
                let mut echo = [0; 4];
                stream.read_exact(&mut echo).unwrap();
                assert_eq!(u32::from_be_bytes(echo), number as u32);
            }
        });
        let streams: Vec<_> = (0..MANY).map(|_| accept(&listener)).collect();
        for mut stream in &streams {
            let mut number = [0; 4];
            stream.read_exact(&mut number).unwrap();
            stream.write_all(&number).unwrap();
        }
        inside.recv().unwrap();
    });
}

#[test]
fn connections_at_the_same_moment_to_one_address_are_all_let_in() {
    const MANY: usize = 200;
    run(&[], |yard| {
        let (listener, address) = server();
        let inside = yard.begin_inside(move || {
            let openers: Vec<_> =
                (0..MANY).map(|_| thread::spawn(move || connect(address).unwrap())).collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect::<Vec<_>>()
        });
        let streams: Vec<_> = (0..MANY).map(|_| accept(&listener)).collect();
        assert_eq!(inside.recv().unwrap().len(), streams.len());
    });
}

#[test]
fn a_port_where_nobody_listens_refuses_inside_too() {
    run(&[], |yard| {
        let (listener, address) = server();
        drop(listener);
        let begun = Instant::now();
        let error = yard.inside(move || connect(address).unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(begun.elapsed() < Duration::from_millis(900), "not before the opener asked again");
        // Also beside a connection to the same port that was let in.
        let (listener, address) = server();
        let held = yard.inside(move || connect(address).unwrap());
        drop(listener);
        assert_eq!(
            yard.inside(move || connect(address).unwrap_err()).kind(),
            io::ErrorKind::ConnectionRefused
        );
        drop(held);
    });
}

#[test]
fn a_network_that_the_machine_can_not_reach_is_unreachable_inside_too() {
    run(&[], |yard| {
        let error = yard.inside(|| connect("203.0.113.1:80".parse().unwrap()).unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    });
}

#[test]
fn neither_the_metadata_service_nor_the_machines_loopback_can_be_reached() {
    run(&[], |yard| {
        let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = everywhere.local_addr().unwrap().port();
        for (address, refused) in [
            (METADATA, io::ErrorKind::HostUnreachable),
            (Ipv4Addr::LOCALHOST, io::ErrorKind::ConnectionRefused),
            (Ipv4Addr::UNSPECIFIED, io::ErrorKind::ConnectionRefused),
            (GATEWAY, io::ErrorKind::ConnectionRefused),
        ] {
            let error = yard.inside(move || connect((address, port).into()).unwrap_err());
            assert_eq!(error.kind(), refused, "{address}");
        }
        yard.inside(move || connect((MACHINE, port).into()).unwrap());
    });
}

#[test]
fn a_loopback_address_that_is_sent_to_the_gateway_is_not_the_machines() {
    run(&[], |yard| {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 9, 9, 9), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let error = yard.inside(move || {
            // What a job with rights over its own network could do.
            fs_err::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1").unwrap();
            yard::send_loopback_to_the_gateway();
            TcpStream::connect_timeout(&address, Duration::from_secs(2)).unwrap_err()
        });
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    });
}

#[test]
fn one_direction_may_end_before_the_other() {
    run(&[], |yard| {
        let (listener, address) = server();
        let inside = yard.begin_inside(move || {
            let stream = connect(address).unwrap();
            say(&stream, 1000);
            hear(&stream, 5_000_000);
        });
        let stream = accept(&listener);
        hear(&stream, 1000);
        say(&stream, 5_000_000);
        inside.recv().unwrap();
        // And the other way round.
        let inside = yard.begin_inside(move || {
            let stream = connect(address).unwrap();
            hear(&stream, 1000);
            say(&stream, 5_000_000);
        });
        let stream = accept(&listener);
        say(&stream, 1000);
        hear(&stream, 5_000_000);
        inside.recv().unwrap();
    });
}

#[test]
fn a_reset_of_either_side_is_a_reset_of_the_other() {
    run(&[], |yard| {
        let (listener, address) = server();
        let reset = |stream: TcpStream| {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            drop(stream);
        };
        let inside = yard.inside(move || connect(address).unwrap());
        reset(accept(&listener));
        let read = yard.inside(move || (&inside).read(&mut [0]).unwrap_err());
        assert_eq!(read.kind(), io::ErrorKind::ConnectionReset);
        let inside = yard.inside(move || connect(address).unwrap());
        reset(inside);
        let read = accept(&listener).read(&mut [0]).unwrap_err();
        assert_eq!(read.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reset_is_noticed_while_the_other_side_has_no_room() {
    run(&[], |yard| {
        let (listener, address) = server();
        let inside = yard.inside(move || connect(address).unwrap());
        let outside = accept(&listener);
        yard.inside(move || {
            fill(&inside);
            SockRef::from(&inside).set_linger(Some(Duration::ZERO)).unwrap();
        });
        wait_for_reset(&outside);
    });
}

#[test]
fn a_reset_after_the_end_of_one_direction_is_noticed() {
    run(&[], |yard| {
        let (listener, address) = server();
        let inside = yard.inside(move || connect(address).unwrap());
        let mut outside = accept(&listener);
        let inside = yard.inside(move || {
            inside.shutdown(Shutdown::Write).unwrap();
            inside
        });
        assert_eq!(outside.read(&mut [0]).unwrap(), 0);
        yard.inside(move || SockRef::from(&inside).set_linger(Some(Duration::ZERO)).unwrap());
        wait_for_reset(&outside);
    });
}

#[test]
fn what_was_said_before_a_reset_arrives_before_it() {
    const LENGTH: usize = 20_000;
    run(&[], |yard| {
        let (listener, address) = server();
        for _ in 0..100 {
            let inside = yard.begin_inside(move || {
                let mut stream = connect(address).unwrap();
                stream.write_all(b"a question that nobody reads").unwrap();
                let mut heard = Vec::new();
                let ended = stream.read_to_end(&mut heard).map_err(|error| error.kind());
                (heard.len(), ended)
            });
            let mut outside = accept(&listener);
            outside.peek(&mut [0]).unwrap();
            outside.write_all(&[1; LENGTH]).unwrap();
            // Closing it with something unread resets it.
            drop(outside);
            assert_eq!(inside.recv().unwrap(), (LENGTH, Err(io::ErrorKind::ConnectionReset)));
        }
    });
}

/// Without reading, which would make room, and without writing.
fn wait_for_reset(stream: &TcpStream) {
    let begun = Instant::now();
    let error = loop {
        if let Some(error) = stream.take_error().unwrap() {
            break error;
        }
        assert!(begun.elapsed() < PATIENCE, "the reset is not passed on");
        thread::yield_now();
    };
    assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
}

/// Says as much as there is room for on the whole way; how much that was.
fn fill(mut stream: &TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let piece = vec![7; 64 << 10];
    let mut length = 0;
    loop {
        match stream.write(&piece) {
            Ok(written) => length += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return length,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender_and_costs_no_memory() {
    run(&[], |yard| {
        let (listener, address) = server();
        let inside = yard.inside(move || connect(address).unwrap());
        let outside = accept(&listener);
        let before = resident();
        let said = fill(&outside);
        assert!(said < 40 << 20, "the sender was not stopped: {said} bytes");
        let grown = resident().saturating_sub(before);
        assert!(grown < 4 << 20, "{grown} bytes of memory more");
        outside.shutdown(Shutdown::Write).unwrap();
        let heard = yard.inside(move || io::copy(&mut &inside, &mut io::sink()).unwrap());
        assert_eq!(heard, said as u64);
    });
}

/// Of this process's memory, in bytes.
fn resident() -> usize {
    let pages = fs_err::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_connection_that_has_ended_leaves_no_open_file() {
    run(&[], |yard| {
        let (listener, address) = server();
        let once = |yard: &yard::Yard| {
            let inside = yard.inside(move || connect(address).unwrap());
            let outside = accept(&listener);
            drop(inside);
            hear(&outside, 0);
        };
        once(yard);
        let before = open_files();
        for _ in 0..100 {
            once(yard);
        }
        let begun = Instant::now();
        // Besides, the uplink keeps a stock of sockets, which may have been filled since.
        while open_files() > before + 50 {
            assert!(begun.elapsed() < PATIENCE, "{} open files, {before} before", open_files());
            thread::yield_now();
        }
    });
}

fn open_files() -> usize {
    fs_err::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn an_uplink_that_is_dropped_breaks_its_connections_off() {
    run(&[], |yard| {
        let (listener, address) = server();
        let inside = yard.inside(move || connect(address).unwrap());
        let mut outside = accept(&listener);
        yard.stop();
        assert!(matches!(outside.read(&mut [0]), Ok(0) | Err(_)));
        assert!(yard.inside(move || matches!((&inside).read(&mut [0]), Ok(0) | Err(_))));
    });
}
