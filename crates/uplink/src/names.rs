//! Names: questions at the gateway's port 53 go to the machine's name servers, the next one if one is silent.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use crate::Shared;
use crate::packet::Unreachable;
use crate::policy::DOMAIN;
use crate::udp::{Inside, connected, put, received, reject};

/// A name server that has not answered for so long is passed over; programs wait for five seconds.
const PATIENCE: Duration = Duration::from_millis(1500);
/// A flow of questions ends after so long without one.
const IDLE: Duration = Duration::from_secs(30);
/// Of questions of one flow that are asked again of the next name server.
const UNANSWERED: usize = 32;

/// The machine's name servers, and which one answers.
pub(crate) struct Resolvers {
    addresses: Vec<IpAddr>,
    preferred: AtomicUsize,
}

impl Resolvers {
    pub(crate) fn new(addresses: Vec<IpAddr>) -> Self {
        Self { addresses, preferred: AtomicUsize::new(0) }
    }

    /// All of them, the preferred one first.
    pub(crate) fn in_order(&self, port: u16) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.addresses.iter().map(|&address| SocketAddr::new(address, port)).collect();
        let first = self.preferred.load(Ordering::Relaxed).checked_rem(all.len()).unwrap_or(0);
        all.rotate_left(first);
        all
    }

    /// From now on another one is preferred to this.
    pub(crate) fn passed_over(&self, address: SocketAddr) {
        if self.in_order(address.port()).first() == Some(&address) {
            self.preferred.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Questions that were asked and not answered yet, oldest first.
#[derive(Default)]
struct Unanswered(VecDeque<Vec<u8>>);

impl Unanswered {
    fn asked(&mut self, question: Vec<u8>) {
        if self.0.len() == UNANSWERED {
            self.0.pop_front();
        }
        self.0.push_back(question);
    }

    /// A question and its answer begin with the same two bytes (RFC 1035 section 4.1.1).
    fn answered(&mut self, answer: &[u8]) {
        self.0.retain(|question| question.get(..2) != answer.get(..2));
    }
}

/// Carries the questions of one flow.
pub(crate) async fn answer(shared: &Shared, inside: &mut Inside) {
    let all = shared.resolvers.in_order(DOMAIN);
    let mut unanswered = Unanswered::default();
    for &address in &all {
        let asked = match connected(address).await {
            Ok(outside) => ask(&outside, inside, &mut unanswered).await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(()) => return,
            Err(_) => shared.resolvers.passed_over(address),
        }
    }
    reject(shared, inside.ends(), Unreachable::Port);
}

/// Asks one name server until nobody asks any more.
///
/// # Errors
/// It can't be asked or is silent.
async fn ask(outside: &UdpSocket, inside: &mut Inside, unanswered: &mut Unanswered) -> io::Result<()> {
    for question in &unanswered.0 {
        put(outside, question).await?;
    }
    let mut last = Instant::now();
    loop {
        let end = last + if unanswered.0.is_empty() { IDLE } else { PATIENCE };
        tokio::select! {
            question = inside.next() => {
                // Further questions give no more time for the ones before.
                if unanswered.0.is_empty() {
                    last = Instant::now();
                }
                unanswered.asked(question.clone());
                put(outside, &question).await?;
            }
            answer = received(outside) => {
                let answer = answer?;
                unanswered.answered(&answer);
                inside.put(&answer);
                last = Instant::now();
            }
            () = sleep_until(end) => {
                return if unanswered.0.is_empty() { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(resolvers: &Resolvers) -> String {
        resolvers.in_order(53)[0].to_string()
    }

    #[test]
    fn the_name_server_that_was_passed_over_comes_last() {
        let resolvers = Resolvers::new(vec!["127.0.0.53".parse().unwrap(), "2001:db8::1".parse().unwrap()]);
        assert_eq!(first(&resolvers), "127.0.0.53:53");
        let silent = resolvers.in_order(53)[0];
        resolvers.passed_over(silent);
        resolvers.passed_over(silent);
        assert_eq!(first(&resolvers), "[2001:db8::1]:53");
        resolvers.passed_over(resolvers.in_order(53)[0]);
        assert_eq!(first(&resolvers), "127.0.0.53:53");
    }

    #[test]
    fn without_name_servers_there_is_none_to_ask() {
        let resolvers = Resolvers::new(Vec::new());
        assert!(resolvers.in_order(53).is_empty());
        resolvers.passed_over("127.0.0.1:53".parse().unwrap());
    }

    #[test]
    fn an_answer_settles_its_question_and_no_other() {
        let mut unanswered = Unanswered::default();
        unanswered.asked(b"\x01\x02 A".to_vec());
        unanswered.asked(b"\x01\x03 AAAA".to_vec());
        unanswered.answered(b"\x01\x02 answer");
        assert_eq!(unanswered.0, [b"\x01\x03 AAAA".to_vec()]);
        unanswered.answered(b"");
        assert_eq!(unanswered.0.len(), 1);
    }

    #[test]
    fn only_the_latest_questions_are_kept() {
        let mut unanswered = Unanswered::default();
        for number in 0..100u16 {
            unanswered.asked(number.to_be_bytes().to_vec());
        }
        assert_eq!(unanswered.0.len(), UNANSWERED);
        assert_eq!(unanswered.0[UNANSWERED - 1], 99u16.to_be_bytes());
    }
}
