//! Requests of live calls from where their clients are not: replayed as they were seen, and forged.
//!
//! Somebody on the way can see a client's checks, and send them again from any address. Each of them is valid, so a server answers it and checks that address;
//! but media must not follow, because nobody there answers the server's own check. Forged requests must come to nothing at all.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use firsthop_shared::packet::{PacketClass, classify};
use firsthop_shared::stun::Stun;
use firsthop_shared::stun_write::{Role, binding_request};
use serde::Serialize;
use socket2::{Domain, Socket, Type};

use super::command::Attack;
use super::seat::Captured;

/// Ports at each address.
const PORTS: usize = 8;

/// How often requests are captured anew.
const REFRESH: Duration = Duration::from_secs(1);

/// How often packets are sent, some at a time.
const TURN: Duration = Duration::from_millis(2);

/// How long it listens after the last request.
const LINGER: Duration = Duration::from_millis(500);

/// A password that is nobody's.
const WRONG: &[u8] = b"not the password of this call";

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Spoofed {
    /// Requests sent again as they were.
    pub replayed: u64,
    /// Requests with a wrong integrity.
    pub forged: u64,
    /// Addresses and ports that they came from.
    pub sources: usize,
    /// STUN messages that came back: answers to what was replayed, and checks of where it came from.
    pub stun_back: u64,
    /// Media that came back: a call that was led astray. Has to be none.
    pub media_back: u64,
}

/// Sockets at any addresses; those that are not this machine's need the right `CAP_NET_ADMIN`.
fn open(ips: &[Ipv4Addr]) -> io::Result<Vec<UdpSocket>> {
    let mut sockets = Vec::new();
    for ip in ips {
        for _ in 0..PORTS {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            // Without the right only own addresses can be bound, as the error then says.
            let _ = socket.set_ip_transparent_v4(true);
            socket.set_nonblocking(true)?;
            let address = SocketAddr::from((*ip, 0));
            socket
                .bind(&address.into())
                .map_err(|error| io::Error::new(error.kind(), format!("{ip}: {error}")))?;
            sockets.push(socket.into());
        }
    }
    Ok(sockets)
}

/// Attacks the calls whose requests `capture` gives, for as long and as fast as the attack says.
///
/// # Errors
/// An address cannot be used, or there is nothing to capture.
pub(super) fn run(
    attack: Attack,
    ips: &[Ipv4Addr],
    capture: impl FnMut() -> io::Result<Vec<Captured>>,
) -> io::Result<Spoofed> {
    run_until(attack, ips, capture, |_, listened| listened >= LINGER)
}

/// The same, which listens until `heard` is content with what has come back and how long it has listened.
fn run_until(
    attack: Attack,
    ips: &[Ipv4Addr],
    mut capture: impl FnMut() -> io::Result<Vec<Captured>>,
    heard: impl Fn(&Spoofed, Duration) -> bool,
) -> io::Result<Spoofed> {
    let sockets = open(ips)?;
    let mut spoofed = Spoofed {
        sources: sockets.len(),
        ..Spoofed::default()
    };
    let begin = Instant::now();
    let mut requests = capture()?;
    let mut captured = begin;
    let mut sent = 0u64;
    loop {
        let now = Instant::now();
        if now.duration_since(captured) >= REFRESH {
            requests = capture()?;
            captured = now;
        }
        if requests.is_empty() {
            return Err(io::Error::other("no live call has sent a request"));
        }
        let time = now.duration_since(begin);
        let due = (time.min(attack.time).as_secs_f64() * attack.rate) as u64;
        while sent < due {
            let request = &requests[sent as usize % requests.len()];
            // Each request leaves from each socket in the course of time.
            let from = sent as usize / requests.len() % sockets.len();
            let forged = forge(&request.packet, sent);
            let packet = match &forged {
                Some(forged) => forged,
                None => &request.packet,
            };
            // What finds no room is not sent, and not counted.
            if sockets[from].send_to(packet, request.to).is_ok() {
                match forged {
                    Some(_) => spoofed.forged += 1,
                    None => spoofed.replayed += 1,
                }
            }
            sent += 1;
        }
        hear(&sockets, &mut spoofed);
        if time >= attack.time && heard(&spoofed, time - attack.time) {
            return Ok(spoofed);
        }
        std::thread::sleep(TURN);
    }
}

/// Every other request is replayed; of the others, half are what was captured with a bit of its integrity turned, and half are new ones.
fn forge(request: &[u8], number: u64) -> Option<Vec<u8>> {
    match number % 4 {
        1 => {
            let mut forged = request.to_vec();
            // The integrity lies before the fingerprint, which is 8 bytes long.
            let at = forged.len().checked_sub(9)?;
            forged[at] ^= 1;
            Some(forged)
        }
        3 => {
            let name = Stun::parse(request).ok()?.username()?;
            let name = std::str::from_utf8(name).ok()?;
            let mut transaction = *b"spoofed.....";
            transaction[4..].copy_from_slice(&number.to_be_bytes());
            let mut forged = Vec::new();
            let role = Role::Controlling(number, true);
            binding_request(&mut forged, transaction, name, WRONG, 0x6e00_01ff, role);
            Some(forged)
        }
        _ => None,
    }
}

fn hear(sockets: &[UdpSocket], spoofed: &mut Spoofed) {
    let mut buffer = [0; 2_048];
    for socket in sockets {
        while let Ok(length) = socket.recv(&mut buffer) {
            match classify(&buffer[..length]) {
                PacketClass::Stun => spoofed.stun_back += 1,
                _ => spoofed.media_back += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &[u8] = b"the password of the call";

    fn request() -> Vec<u8> {
        let mut request = Vec::new();
        let role = Role::Controlling(1, true);
        binding_request(&mut request, [7; 12], "server:client", PASSWORD, 1, role);
        request
    }

    #[test]
    fn half_of_the_requests_are_as_captured_and_the_rest_do_not_verify() {
        let request = request();
        let mut valid = 0;
        for number in 0..100 {
            let packet = forge(&request, number).unwrap_or_else(|| request.clone());
            let stun = Stun::parse(&packet).expect("a request");
            assert_eq!(stun.username(), Some(&b"server:client"[..]));
            let verifies = stun.verify_integrity(PASSWORD);
            assert_eq!(verifies, packet == request);
            valid += usize::from(verifies);
        }
        assert_eq!(valid, 50);
    }

    #[test]
    fn a_victim_hears_them_from_many_sources_and_what_comes_back_is_told_apart() {
        let victim = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = victim.local_addr().expect("an address");
        let attack = Attack {
            time: Duration::from_millis(200),
            rate: 1_000.0,
        };
        let thread = std::thread::spawn(move || {
            let mut sources = std::collections::HashSet::new();
            let mut buffer = [0; 2_048];
            for number in 0..200 {
                let (length, from) = victim.recv_from(&mut buffer).expect("a request");
                sources.insert(from);
                match number {
                    0..10 => victim.send_to(&buffer[..length], from),
                    10 => victim.send_to(&[0x80; 50], from),
                    _ => Ok(0),
                }
                .expect("sent back");
            }
            sources.len()
        });
        let ips = [Ipv4Addr::new(127, 3, 0, 1), Ipv4Addr::new(127, 3, 0, 2)];
        let packet = request();
        let capture = || {
            let packet = packet.clone();
            Ok(vec![Captured { to, packet }])
        };
        // The victim answers when it has a turn.
        let all = |spoofed: &Spoofed, listened| {
            spoofed.stun_back + spoofed.media_back >= 11 || listened >= 100 * LINGER
        };
        let spoofed = run_until(attack, &ips, capture, all).expect("spoofed");
        assert_eq!(thread.join().expect("heard"), 2 * PORTS);
        let expected = Spoofed {
            replayed: 100,
            forged: 100,
            sources: 2 * PORTS,
            stun_back: 10,
            media_back: 1,
        };
        assert_eq!(spoofed, expected);
        let nothing = run(attack, &ips, || Ok(Vec::new())).expect_err("nothing to replay");
        assert!(nothing.to_string().contains("no live call"), "{nothing}");
    }
}
