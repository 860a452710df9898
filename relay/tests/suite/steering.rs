//! The steering program on the real kernel: every datagram reaches the core that `Steering::core_for` names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use firsthop_relay::sockets;
use firsthop_relay_core::Steering;
use firsthop_shared::address::ClientAddr;

use crate::testbed::receive_from;

const PAYLOAD: &[u8] = b"any payload";

/// A port on `ip` that was free a moment ago.
fn free_port(ip: IpAddr) -> u16 {
    let socket = UdpSocket::bind((ip, 0)).expect("a free port");
    socket.local_addr().expect("its address").port()
}

/// More ports than a group here has cores.
const GROUP_PORTS: u16 = 16;

/// A loopback address and the first of [`GROUP_PORTS`] ports there that no other call gives, in this process or in another.
fn own_address() -> (IpAddr, u16) {
    static PORT: AtomicU16 = AtomicU16::new(4_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Process ids have 22 bits at most.
    let ip = Ipv4Addr::new(127, 192 | high, middle, low);
    (ip.into(), PORT.fetch_add(GROUP_PORTS, Ordering::Relaxed))
}

fn every_datagram_reaches_its_core(
    listen_ip: IpAddr,
    client_ips: &[IpAddr],
    cores: u16,
    seed: u32,
) {
    let steering = Steering::new(seed, cores);
    let listen = SocketAddr::new(listen_ip, free_port(listen_ip));
    let (internal, port) = own_address();
    let (opened, _) = sockets::open(&[listen], internal, port, &steering).expect("sockets");
    let servers: Vec<UdpSocket> = opened
        .into_iter()
        .map(|mut core| UdpSocket::from(core.public.remove(0)))
        .collect();
    for server in &servers {
        server
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a time-out");
    }
    let mut seen = vec![0; usize::from(cores)];
    for round in 0..60 {
        let ip = client_ips[round % client_ips.len()];
        let client = UdpSocket::bind((ip, 0)).expect("a client socket");
        let address = client.local_addr().expect("its address");
        client.send_to(PAYLOAD, listen).expect("sent");
        let core = usize::from(steering.core_for(&ClientAddr::new(address)));
        let mut buffer = [0; 64];
        let (len, from) = receive_from(&servers[core], &mut buffer).unwrap_or_else(|error| {
            panic!("core {core} of {cores} got nothing from {address}: {error}")
        });
        assert_eq!((&buffer[..len], from), (PAYLOAD, address));
        seen[core] += 1;
    }
    assert!(
        seen.iter().all(|&count| count > 0),
        "some core got no client at all: {seen:?}"
    );
}

#[test]
fn ipv4_clients_reach_the_core_that_the_rule_names() {
    let clients: Vec<IpAddr> = (1..=5)
        .map(|i| IpAddr::V4(Ipv4Addr::new(127, 0, 9, i)))
        .collect();
    for (cores, seed) in [(2, 1), (3, 0xdead_beef), (5, 7)] {
        every_datagram_reaches_its_core(
            IpAddr::V4(Ipv4Addr::new(127, 0, 9, 100)),
            &clients,
            cores,
            seed,
        );
    }
}

#[test]
fn ipv6_clients_reach_the_core_that_the_rule_names() {
    let loopback = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
    for (cores, seed) in [(2, 1), (3, 0xdead_beef), (4, 9)] {
        every_datagram_reaches_its_core(loopback, &[loopback], cores, seed);
    }
}

#[test]
fn an_address_that_somebody_holds_is_refused_even_to_a_group() {
    let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 9, 101));
    let listen = SocketAddr::new(ip, free_port(ip));
    let steering = Steering::new(0, 2);
    let open = || {
        let (internal, port) = own_address();
        sockets::open(&[listen], internal, port, &steering)
    };
    let first = open().expect("the first group");
    let error = open().expect_err("the second is refused");
    assert!(
        error
            .to_string()
            .starts_with(&format!("--listen: cannot listen on {listen} (")),
        "{error}"
    );
    drop(first);
}
