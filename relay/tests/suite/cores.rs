//! 1,000 flows over two relay cores and an owner with two workers: nothing is lost, everything is at its right place.
//!
//! Two of each is the least that can go wrong, and what the smallest machine has. The sender waits for every packet of a
//! window to come back before it sends the next, so no socket buffer decides the result.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::testbed::owner::Owner;
use crate::testbed::{Client, Testbed, need_two_processors, rtp, rtp_number};
use firsthop_relay::sockets::attach_steering;
use firsthop_relay_core::{Instruction, Steering};
use firsthop_shared::address::ClientAddr;
use socket2::{Domain, Protocol, Socket, Type};

/// Client sockets; each checks two public addresses, which makes two flows.
const CLIENTS: u32 = 500;
const INGRESSES: u8 = 2;
const FLOWS: u32 = CLIENTS * INGRESSES as u32;
const WORKERS: u8 = 2;
/// Packets under way at a time.
const WINDOW: usize = 50;
const ROUNDS: u32 = 5;

/// The owner's sockets: one port, a worker picked by byte 3 of the payload, the shard.
fn workers(address: SocketAddr) -> Vec<Owner> {
    let sockets: Vec<Socket> = (0..WORKERS)
        .map(|_| {
            let socket =
                Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
            socket.set_reuse_port(true).expect("a group");
            socket.set_recv_buffer_size(1 << 20).expect("a buffer");
            socket.bind(&address.into()).expect("the owner's address");
            socket
        })
        .collect();
    let instruction = |code, k| Instruction {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    // ldb [3]; mod #WORKERS; ret a
    let program = [
        instruction(0x30, 3),
        instruction(0x94, u32::from(WORKERS)),
        instruction(0x16, 0),
    ];
    attach_steering(&sockets[0], &program).expect("the program is taken");
    sockets
        .into_iter()
        .enumerate()
        .map(|(shard, socket)| Owner::with_socket(socket.into(), shard as u8))
        .collect()
}

/// A worker: sends every packet back, and checks that it came to the right one. Returns what it saw.
fn serve(mut owner: Owner, stop: &AtomicBool) -> (u32, HashSet<SocketAddr>, u32) {
    let (mut packets, mut datagrams, mut hops) = (0, 0, HashSet::new());
    owner
        .socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a time-out");
    while !stop.load(Ordering::Acquire) {
        let Ok(arrived) = owner.try_receive() else {
            continue;
        };
        assert_eq!(arrived.shard, owner.shard, "a datagram of another worker");
        datagrams += 1;
        hops.insert(arrived.from);
        for (header, _) in &arrived.records {
            assert_eq!(
                header.session.0 % u32::from(WORKERS),
                u32::from(owner.shard.0),
                "a record of another worker"
            );
        }
        packets += arrived.records.len() as u32;
        let records: Vec<_> = arrived
            .records
            .iter()
            .map(|(header, payload)| (*header, &payload[..]))
            .collect();
        owner.send(arrived.from, &records);
    }
    (packets, hops, datagrams)
}

struct Flow<'a> {
    client: &'a Client,
    ingress: u8,
    session: u32,
}

#[test]
fn a_thousand_flows_over_two_cores_and_two_workers_lose_nothing() {
    need_two_processors();
    let testbed = Testbed::new();
    let relay = testbed.relay(&[
        ("--cores", "2".to_owned()),
        (
            "--listen",
            format!("{},{}", testbed.public(0), testbed.public(1)),
        ),
    ]);
    let address = testbed.owner_address(0);
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = workers(address)
        .into_iter()
        .map(|owner| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || serve(owner, &stop))
        })
        .collect();

    let clients: Vec<Client> = (0..CLIENTS).map(|n| testbed.client(n as u8)).collect();
    let flows: Vec<Flow<'_>> = (0..FLOWS)
        .map(|n| Flow {
            client: &clients[(n % CLIENTS) as usize],
            ingress: (n / CLIENTS) as u8,
            session: n,
        })
        .collect();
    for window in flows.chunks(WINDOW) {
        for flow in window {
            let shard = (flow.session % u32::from(WORKERS)) as u8;
            let check = testbed.check(address, shard, flow.session);
            flow.client.send(testbed.public(flow.ingress), &check);
        }
        for flow in window {
            assert_eq!(flow.client.receive().0, testbed.public(flow.ingress));
        }
    }
    for round in 0..ROUNDS {
        for window in flows.chunks(WINDOW) {
            for flow in window {
                flow.client.send(
                    testbed.public(flow.ingress),
                    &rtp(round * FLOWS + flow.session),
                );
            }
            for flow in window {
                let (from, packet) = flow.client.receive();
                assert_eq!(from, testbed.public(flow.ingress));
                assert_eq!(rtp_number(&packet), round * FLOWS + flow.session);
            }
        }
    }
    let sent = FLOWS * (1 + ROUNDS);
    relay.wait_metric("uplink_packets_total", u64::from(sent));
    relay.wait_metric("client_packets_sent_total", u64::from(sent));
    relay.wait_metric("flows", u64::from(FLOWS));
    assert_eq!(relay.metric("drops_total", None), 0);

    // Each core had the clients that the rule gives it, and nobody else's.
    let steering = Steering::new(0, 2);
    for core in 0..2 {
        let own = clients
            .iter()
            .filter(|client| steering.core_for(&ClientAddr::new(client.address())) == core)
            .count() as u64;
        assert!(own > 0, "both cores have clients");
        let expected = own * u64::from(INGRESSES) * u64::from(1 + ROUNDS);
        let counted = relay.metric("uplink_packets_total", Some(("core", &core.to_string())));
        assert_eq!(counted, expected, "core {core}");
    }

    stop.store(true, Ordering::Release);
    let mut arrived = 0;
    let mut hops = HashSet::new();
    for thread in threads {
        let (packets, from, datagrams) =
            thread.join().expect("a worker that found everything right");
        assert_eq!(packets, sent / u32::from(WORKERS));
        assert!(datagrams <= packets);
        arrived += packets;
        hops.extend(from);
    }
    assert_eq!(arrived, sent);
    assert_eq!(
        hops,
        HashSet::from([testbed.relay_internal(0), testbed.relay_internal(1)])
    );
    relay.stop();
}
