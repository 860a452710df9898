//! What a client packet costs the relay beside a bare receive: run by hand, in release, on a quiet machine.
//!
//! ```sh
//! cargo test --release -p firsthop-relay --test suite cost -- --ignored --nocapture --test-threads 1
//! ```
//!
//! The relay is stopped while a backlog gathers in its socket, and then works it off: so it is saturated whatever the
//! sender can do, and the sender's half of loopback is not in the figures. They are to be compared with each other.

#![allow(unsafe_code)] // The floor is `recvmmsg`, which has no safe wrapper.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use crate::testbed::owner::{Owner, record};
use crate::testbed::process::RelayProcess;
use crate::testbed::{Client, Testbed, rtp};
use socket2::SockRef;

const CLIENTS: usize = 200;
const BACKLOG: usize = 6_000;
const ROUNDS: usize = 30;
const SIZE: usize = 172;

fn packet(number: u32) -> Vec<u8> {
    let mut packet = rtp(number);
    packet.resize(SIZE, 0);
    packet
}

/// The clients' order of sending: no two packets of one flow in a row.
fn sender(i: usize) -> usize {
    (i * 73) % CLIENTS
}

/// CPU time of the relay's core thread, in nanoseconds.
fn core_time(relay: &RelayProcess) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", relay.id())).expect("threads");
    threads
        .filter_map(|thread| {
            let path = thread.expect("a thread").path();
            let name = fs::read_to_string(path.join("comm")).ok()?;
            let time = fs::read_to_string(path.join("schedstat")).ok()?;
            (name.trim() == "relay-core-0").then(|| {
                time.split(' ')
                    .next()
                    .and_then(|ns| ns.parse::<u64>().ok())
                    .expect("nanoseconds")
            })
        })
        .sum()
}

fn floor() -> f64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    SockRef::from(&socket)
        .set_recv_buffer_size(4 << 20)
        .expect("a buffer");
    socket.set_nonblocking(true).expect("non-blocking");
    let clients: Vec<UdpSocket> = (0..CLIENTS)
        .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"))
        .collect();
    let to = socket.local_addr().expect("its address");
    let packet = packet(0);
    let mut buffers = vec![[0u8; 2_048]; 64];
    let mut names = vec![[0u8; 28]; 64];
    let mut vectors: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        })
        .collect();
    let mut total = 0;
    for _ in 0..ROUNDS {
        for i in 0..BACKLOG {
            clients[sender(i)].send_to(&packet, to).expect("sent");
        }
        let start = thread_time();
        let mut received = 0;
        while received < BACKLOG {
            let mut messages: Vec<libc::mmsghdr> = vectors
                .iter_mut()
                .zip(&mut names)
                .map(|(vector, name)| {
                    // SAFETY: integers and pointers, for which all zeroes is a valid value.
                    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                    message.msg_hdr.msg_iov = vector;
                    message.msg_hdr.msg_iovlen = 1;
                    message.msg_hdr.msg_name = name.as_mut_ptr().cast();
                    message.msg_hdr.msg_namelen = name.len() as u32;
                    message
                })
                .collect();
            // SAFETY: the messages point to vectors, names and buffers that outlive the call.
            let count = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    messages.as_mut_ptr(),
                    64,
                    0,
                    std::ptr::null_mut(),
                )
            };
            assert!(count > 0, "the whole backlog fits the socket");
            received += count as usize;
        }
        total += thread_time() - start;
    }
    total as f64 / (ROUNDS * BACKLOG) as f64
}

fn thread_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Works off backlogs of client packets for `owners` owners. Returns nanoseconds per packet and records per datagram.
fn uplink(mtu: u16, owners: u8) -> (f64, f64) {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[
        ("--internal-mtu", mtu.to_string()),
        ("--spin", "off".to_owned()),
    ]);
    let owners: Vec<Owner> = (0..owners)
        .map(|n| Owner::bind(testbed.owner_address(n)))
        .collect();
    let clients: Vec<Client> = (0..CLIENTS).map(|n| testbed.client(n as u8)).collect();
    for owner in &owners {
        SockRef::from(&owner.socket)
            .set_recv_buffer_size(4 << 20)
            .expect("a buffer");
    }
    for (n, client) in clients.iter().enumerate() {
        let owner = &owners[n % owners.len()];
        client.send(
            testbed.public(0),
            &testbed.check(owner.address(), 0, n as u32),
        );
        owner.receive_one();
    }
    let packet = packet(0);
    let mut done = CLIENTS as u64;
    let (mut total, mut records, mut datagrams) = (0, 0, 0);
    for _ in 0..ROUNDS {
        relay.signal("STOP");
        for i in 0..BACKLOG {
            clients[sender(i)].send(testbed.public(0), &packet);
        }
        let start = core_time(&relay);
        relay.signal("CONT");
        done += BACKLOG as u64;
        relay.wait_metric("uplink_packets_total", done);
        total += core_time(&relay) - start;
        for owner in &owners {
            owner.socket.set_nonblocking(true).expect("non-blocking");
            while let Ok(arrived) = owner.try_receive() {
                records += arrived.records.len();
                datagrams += 1;
            }
        }
    }
    assert_eq!(relay.metric("drops_total", None), 0);
    assert_eq!(records, ROUNDS * BACKLOG, "nothing was lost");
    relay.stop();
    (
        total as f64 / (ROUNDS * BACKLOG) as f64,
        f64::from(records as u32) / f64::from(datagrams),
    )
}

/// Works off backlogs of packets for clients, `packed` to a datagram. Returns nanoseconds per packet.
fn downlink(packed: usize) -> f64 {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[("--spin", "off".to_owned())]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<Client> = (0..CLIENTS).map(|n| testbed.client(n as u8)).collect();
    let packet = packet(0);
    let mut done = 0;
    let mut total = 0;
    for _ in 0..ROUNDS {
        relay.signal("STOP");
        for datagram in 0..BACKLOG / packed {
            let records: Vec<_> = (0..packed)
                .map(|i| {
                    (
                        record(clients[sender(datagram * packed + i)].address(), 0, 1),
                        &packet[..],
                    )
                })
                .collect();
            owner.send(testbed.relay_internal(0), &records);
        }
        let start = core_time(&relay);
        relay.signal("CONT");
        done += (BACKLOG / packed * packed) as u64;
        relay.wait_metric("client_packets_sent_total", done);
        total += core_time(&relay) - start;
        for client in &clients {
            while !client.is_empty() {}
        }
    }
    assert_eq!(relay.metric("drops_total", None), 0);
    relay.stop();
    total as f64 / done as f64
}

/// One bare `sendmmsg` for 64 packets at a time to the clients, nanoseconds per packet.
fn send_floor() -> f64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let clients: Vec<UdpSocket> = (0..CLIENTS)
        .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"))
        .collect();
    let mut addresses: Vec<libc::sockaddr_in> = (0..CLIENTS)
        .map(|i| {
            let Ok(SocketAddr::V4(address)) = clients[sender(i)].local_addr() else {
                panic!("an IPv4 address");
            };
            libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*address.ip()).to_be(),
                },
                sin_zero: [0; 8],
            }
        })
        .collect();
    let mut packet = packet(0);
    let mut total = 0;
    let mut sent = 0;
    for _ in 0..ROUNDS * BACKLOG / CLIENTS {
        for group in addresses.chunks_mut(50) {
            let mut vector = libc::iovec {
                iov_base: packet.as_mut_ptr().cast(),
                iov_len: packet.len(),
            };
            let mut messages: Vec<libc::mmsghdr> = group
                .iter_mut()
                .map(|address| {
                    // SAFETY: integers and pointers, for which all zeroes is a valid value.
                    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                    message.msg_hdr.msg_iov = &raw mut vector;
                    message.msg_hdr.msg_iovlen = 1;
                    message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
                    message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
                    message
                })
                .collect();
            let start = thread_time();
            // SAFETY: the messages point to the vector, the packet and the addresses, which outlive the call.
            let count = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as u32,
                    0,
                )
            };
            total += thread_time() - start;
            sent += u64::try_from(count).expect("sent");
        }
        let mut buffer = [0; 2_048];
        for client in &clients {
            client.set_nonblocking(true).expect("non-blocking");
            while client.recv_from(&mut buffer).is_ok() {}
        }
    }
    total as f64 / sent as f64
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn nanoseconds_per_packet_up() {
    let receive = floor();
    println!("receive floor (recvmmsg)          {receive:7.0} ns/packet");
    for (mtu, owners) in [
        (1_500, 1),
        (9_000, 1),
        (1_500, 8),
        (9_000, 8),
        (1_500, 64),
        (9_000, 64),
    ] {
        let (cost, packing) = uplink(mtu, owners);
        println!(
            "uplink, MTU {mtu}, {owners:3} owners       {cost:7.0} ns/packet  {:5.2} floors  {packing:5.1} records/datagram",
            cost / receive
        );
    }
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn nanoseconds_per_packet_down() {
    let send = send_floor();
    println!("send floor (sendmmsg)             {send:7.0} ns/packet");
    for packed in [1, 8, 40] {
        let cost = downlink(packed);
        println!(
            "downlink, {packed:2} records/datagram     {cost:7.0} ns/packet  {:5.2} floors",
            cost / send
        );
    }
}
