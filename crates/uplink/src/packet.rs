//! Packets of IPv4: what the taps read, and the few answers that no socket gives.
//!
//! Formats: RFC 791 (IPv4), RFC 792 (ICMP), RFC 9293 (TCP), RFC 768 (UDP). Checksums of what arrives are not
//! looked at: between two namespaces of one machine they are often left out.

use std::net::{Ipv4Addr, SocketAddrV4};

const TCP: u8 = 6;
const ICMP: u8 = 1;
/// Of an IPv4 header without options.
const HEADER: usize = 20;

/// Both ends of a flow, as whoever opened it sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    /// Who opened it, inside.
    pub(crate) inside: SocketAddrV4,
    /// Whom it is for.
    pub(crate) outside: SocketAddrV4,
}

/// An IPv4 packet that is long enough for its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    bytes: &'a [u8],
    header: usize,
}

/// A question for an echo (RFC 792).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echo<'a> {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) identifier: u16,
    pub(crate) sequence: u16,
    pub(crate) payload: &'a [u8],
}

/// Why a destination can't be reached: the codes of "destination unreachable" (RFC 792, RFC 1122, RFC 1812).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Network = 0,
    Host = 1,
    Port = 3,
    Prohibited = 13,
}

impl<'a> Packet<'a> {
    /// None if it is no IPv4 packet or is cut off within its headers.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header = usize::from(first & 0xf) * 4;
        // All of the three protocols have at least eight bytes of their own.
        (first >> 4 == 4 && header >= HEADER && bytes.len() >= header + 8).then_some(Self { bytes, header })
    }

    pub(crate) fn source(&self) -> Ipv4Addr {
        address(self.bytes, 12)
    }

    pub(crate) fn destination(&self) -> Ipv4Addr {
        address(self.bytes, 16)
    }

    /// Of a TCP or UDP packet.
    pub(crate) fn ends(&self) -> Ends {
        Ends {
            inside: SocketAddrV4::new(self.source(), number(self.bytes, self.header)),
            outside: SocketAddrV4::new(self.destination(), number(self.bytes, self.header + 2)),
        }
    }

    /// What a UDP packet carries.
    pub(crate) fn datagram(&self) -> &'a [u8] {
        &self.bytes[self.header + 8..]
    }

    /// None unless it is a question for an echo.
    pub(crate) fn echo(&self) -> Option<Echo<'a>> {
        let message = &self.bytes[self.header..];
        (message[..2] == [8, 0]).then(|| Echo {
            from: self.source(),
            to: self.destination(),
            identifier: number(message, 4),
            sequence: number(message, 6),
            payload: &message[8..],
        })
    }

    /// The same TCP packet with its checksum filled in.
    pub(crate) fn checked(&self) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        let (ip, segment) = bytes.split_at_mut(self.header);
        if segment.len() >= 18 {
            check_segment(ip, segment);
        }
        bytes
    }

    /// The answer to a TCP packet that opens a connection: nobody listens there.
    pub(crate) fn refusal(&self) -> Vec<u8> {
        let segment = &self.bytes[self.header..];
        let sequence = segment.get(4..8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        let mut reset = [0; 20];
        reset[..2].copy_from_slice(&segment[2..4]);
        reset[2..4].copy_from_slice(&segment[..2]);
        reset[8..12].copy_from_slice(&sequence.wrapping_add(1).to_be_bytes());
        reset[12] = 5 << 4;
        reset[13] = 0x14; // RST and ACK
        let ip = header(self.destination(), self.source(), TCP, reset.len());
        check_segment(&ip, &mut reset);
        [&ip[..], &reset].concat()
    }

    /// The answer to a packet that can't be delivered: its headers and eight bytes, and why.
    pub(crate) fn unreachable(&self, from: Ipv4Addr, why: Unreachable) -> Vec<u8> {
        unreachable(from, &self.bytes[..self.header + 8], self.source(), why)
    }
}

/// As [`Packet::unreachable`], for a datagram that is no longer there.
pub(crate) fn unreachable_datagram(ends: Ends, why: Unreachable) -> Vec<u8> {
    let mut quoted = header(*ends.inside.ip(), *ends.outside.ip(), 17, 8).to_vec();
    for number in [ends.inside.port(), ends.outside.port(), 8, 0] {
        quoted.extend(number.to_be_bytes());
    }
    unreachable(*ends.outside.ip(), &quoted, *ends.inside.ip(), why)
}

fn unreachable(from: Ipv4Addr, quoted: &[u8], to: Ipv4Addr, why: Unreachable) -> Vec<u8> {
    let mut message = vec![3, why as u8, 0, 0, 0, 0, 0, 0];
    message.extend(quoted);
    icmp(from, to, message)
}

/// The answer to a question for an echo.
pub(crate) fn echo_reply(echo: &Echo<'_>) -> Vec<u8> {
    icmp(echo.to, echo.from, echo_message(0, echo))
}

/// An echo message without a checksum: type 8 asks, type 0 answers.
pub(crate) fn echo_message(kind: u8, echo: &Echo<'_>) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(echo.identifier.to_be_bytes());
    message.extend(echo.sequence.to_be_bytes());
    message.extend(echo.payload);
    message
}

fn icmp(from: Ipv4Addr, to: Ipv4Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [&header(from, to, ICMP, message.len())[..], &message].concat()
}

/// The kernel fills in identification and checksum of what a raw socket sends (raw(7)).
fn header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = 0x45;
    let length = u16::try_from(HEADER + payload).unwrap_or(u16::MAX);
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    header
}

/// Fills in the checksum of a TCP segment.
fn check_segment(ip: &[u8], segment: &mut [u8]) {
    segment[16..18].fill(0);
    let length = u16::try_from(segment.len()).unwrap_or(u16::MAX);
    let sum = checksum(&[&ip[12..20], &[0, TCP], &length.to_be_bytes(), segment]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// The checksum of the internet (RFC 1071) over pieces of which all but the last have an even length.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low.into())).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + (folded & 0xffff)) as u16
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn address(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INSIDE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 40000);
    const OUTSIDE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 7), 80);

    fn opening() -> Vec<u8> {
        let mut segment = vec![0; 24];
        segment[..2].copy_from_slice(&INSIDE.port().to_be_bytes());
        segment[2..4].copy_from_slice(&OUTSIDE.port().to_be_bytes());
        segment[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        segment[12] = 6 << 4;
        segment[13] = 2;
        [&header(*INSIDE.ip(), *OUTSIDE.ip(), TCP, segment.len())[..], &segment].concat()
    }

    /// Of a TCP packet: 0 if its checksum is right.
    fn remainder(packet: &[u8]) -> u16 {
        let length = (packet.len() - HEADER) as u16;
        checksum(&[&packet[12..20], &[0, TCP], &length.to_be_bytes(), &packet[HEADER..]])
    }

    #[test]
    fn the_ends_of_a_packet_are_read() {
        let packet = opening();
        assert_eq!(Packet::read(&packet).unwrap().ends(), Ends { inside: INSIDE, outside: OUTSIDE });
    }

    #[test]
    fn a_refusal_acknowledges_the_opening_and_goes_back() {
        let packet = opening();
        let answer = Packet::read(&packet).unwrap().refusal();
        let read = Packet::read(&answer).unwrap();
        assert_eq!(read.ends(), Ends { inside: OUTSIDE, outside: INSIDE });
        assert_eq!(answer[HEADER + 8..HEADER + 12], [0; 4], "the number after the last one");
        assert_eq!(answer[HEADER + 13], 0x14);
        assert_eq!(remainder(&answer), 0);
    }

    #[test]
    fn a_missing_checksum_is_filled_in() {
        let packet = opening();
        assert_eq!(remainder(&Packet::read(&packet).unwrap().checked()), 0);
    }

    #[test]
    fn an_echo_is_answered_with_what_it_said() {
        let question =
            Echo { from: *INSIDE.ip(), to: *OUTSIDE.ip(), identifier: 7, sequence: 9, payload: b"abc" };
        let answer = echo_reply(&question);
        assert_eq!(answer[12..20], [192, 0, 2, 7, 198, 18, 0, 2]);
        assert_eq!(answer[HEADER..HEADER + 2], [0, 0]);
        assert_eq!(answer[HEADER + 4..], *b"\0\x07\0\x09abc");
        assert_eq!(checksum(&[&answer[HEADER..]]), 0);
    }

    #[test]
    fn an_unreachable_datagram_is_quoted() {
        let answer = unreachable_datagram(Ends { inside: INSIDE, outside: OUTSIDE }, Unreachable::Port);
        assert_eq!(answer[HEADER..HEADER + 2], [3, 3]);
        let quoted = Packet::read(&answer[HEADER + 8..]).unwrap();
        assert_eq!(quoted.ends(), Ends { inside: INSIDE, outside: OUTSIDE });
        assert_eq!(checksum(&[&answer[HEADER..]]), 0);
    }

    proptest! {
        #[test]
        fn no_packet_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), version in 0u8..16) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | version;
            }
            if let Some(packet) = Packet::read(&bytes) {
                packet.ends();
                packet.datagram();
                packet.echo();
                packet.refusal();
                packet.checked();
                packet.unreachable(packet.destination(), Unreachable::Host);
            }
        }

        #[test]
        fn a_checksum_makes_the_sum_nothing(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            let sum = checksum(&[&bytes[..bytes.len() & !1]]);
            prop_assert_eq!(checksum(&[&bytes[..bytes.len() & !1], &sum.to_be_bytes()]), 0);
        }
    }
}
