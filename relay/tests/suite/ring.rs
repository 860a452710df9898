//! The packet ring on real sockets, with so few buffers and entries that every bound is reached.

mod empties;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use firsthop_relay::limits;
use firsthop_relay::ring::{BufferId, HEADROOM, Piece, QueueFull, Received, Ring, RingSize};
use firsthop_relay::waiting::Wait;
use firsthop_relay::wake::Wake;

use crate::testbed::receive_from;

const PATIENCE: Duration = Duration::from_secs(10);

struct Bench {
    ring: Ring,
    wake: Wake,
    public: std::net::SocketAddr,
    internal: std::net::SocketAddr,
    peer: UdpSocket,
}

fn bench(size: RingSize) -> Bench {
    let socket = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (public, internal, peer) = (socket(), socket(), socket());
    peer.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let address = |socket: &UdpSocket| socket.local_addr().expect("its address");
    let (public_address, internal_address) = (address(&public), address(&internal));
    let (wake, wake_fd) = Wake::new().expect("an eventfd");
    let mut ring = Ring::new(vec![public.into()], internal.into(), wake_fd, size).expect("a ring");
    ring.arm();
    ring.enter(Wait::No).expect("entered");
    assert!(ring.all_armed());
    Bench {
        ring,
        wake,
        public: public_address,
        internal: internal_address,
        peer,
    }
}

const SMALL: RingSize = RingSize {
    queue: 8,
    public_buffers: 4,
    internal_buffers: 4,
};

const MEDIUM: RingSize = RingSize {
    queue: 64,
    public_buffers: 64,
    internal_buffers: 4,
};

impl Bench {
    /// Enters once, and takes what there is. Buffers go back at once.
    fn receive_any(&mut self) -> Vec<Received> {
        let mut received = Vec::with_capacity(1_024);
        self.ring.enter(Wait::No).expect("entered");
        self.ring.reap(&mut received);
        for one in &received {
            self.ring.release(one.buffer);
        }
        self.ring.arm();
        received
    }

    /// Enters and reaps until `count` more datagrams have come.
    fn receive(&mut self, count: usize) -> Vec<Received> {
        let deadline = Instant::now() + PATIENCE;
        let mut received = Vec::with_capacity(1_024);
        while received.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} came",
                received.len()
            );
            self.ring
                .enter(Wait::Sleep(Duration::from_millis(10)))
                .expect("entered");
            self.ring.reap(&mut received);
            self.ring.arm();
        }
        assert_eq!(received.len(), count);
        received
    }

    fn payload(&self, received: &Received) -> Vec<u8> {
        self.ring.bytes(received.buffer)[HEADROOM..HEADROOM + received.len].to_vec()
    }
}

#[test]
fn datagrams_come_with_sender_length_and_socket() {
    let mut bench = bench(SMALL);
    bench
        .peer
        .send_to(b"to the public one", bench.public)
        .expect("sent");
    let public = bench.receive(1)[0];
    bench.peer.send_to(b"inside", bench.internal).expect("sent");
    let internal = bench.receive(1)[0];
    assert_eq!(
        (public.socket, internal.socket),
        (0, bench.ring.internal_socket())
    );
    assert_eq!(bench.payload(&public), b"to the public one");
    assert_eq!(bench.payload(&internal), b"inside");
    assert_eq!(public.from, bench.peer.local_addr().ok());
    assert!(!public.truncated);
}

#[test]
fn a_datagram_longer_than_its_buffer_says_so() {
    let mut bench = bench(SMALL);
    bench.peer.send_to(&[7; 3_000], bench.public).expect("sent");
    let received = bench.receive(1)[0];
    assert!(received.truncated);
    assert_eq!(received.len, 2_048 - HEADROOM);
}

#[test]
fn nothing_is_lost_when_the_buffers_run_out() {
    let mut bench = bench(SMALL);
    for number in 0..20u8 {
        bench.peer.send_to(&[number], bench.public).expect("sent");
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        let four = bench.receive(4);
        assert_eq!(bench.ring.public_buffers_free(), 0);
        // All are held: the receive has ended, and is not armed in vain.
        bench.ring.enter(Wait::No).expect("entered");
        seen.extend(four.iter().map(|received| bench.payload(received)[0]));
        four.iter()
            .for_each(|received| bench.ring.release(received.buffer));
        bench.ring.arm();
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    assert!(bench.ring.counters().buffers_exhausted > 0);
}

#[test]
fn a_backlog_is_taken_by_as_many_buffers_as_there_are() {
    let mut bench = bench(MEDIUM);
    for number in 0..200u8 {
        bench.peer.send_to(&[number], bench.public).expect("sent");
    }
    let before = bench.ring.counters().enters;
    let mut received = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while received.len() < 200 {
        assert!(Instant::now() < deadline, "{} came", received.len());
        received.extend(bench.receive_any());
    }
    let enters = bench.ring.counters().enters - before;
    assert!(
        enters <= 200 / 32 + 2,
        "{enters} system calls for 200 datagrams"
    );
}

#[test]
fn a_buffer_stays_until_every_send_that_reads_it_has_ended() {
    let mut bench = bench(SMALL);
    bench.peer.send_to(b"twice", bench.public).expect("sent");
    let received = bench.receive(1)[0];
    let to = bench.peer.local_addr().expect("its address");
    let range = HEADROOM..HEADROOM + received.len;
    for _ in 0..2 {
        bench
            .ring
            .send_packet(0, to, received.buffer, range.clone())
            .expect("room");
    }
    bench.ring.release(received.buffer);
    assert_eq!(bench.ring.public_buffers_free(), 75, "two sends read it");
    bench.ring.enter(Wait::No).expect("entered");
    bench.ring.reap(&mut Vec::with_capacity(8));
    assert_eq!(bench.ring.public_buffers_free(), 100);
    let mut buffer = [0; 64];
    for _ in 0..2 {
        let (len, from) = receive_from(&bench.peer, &mut buffer).expect("came");
        assert_eq!((&buffer[..len], from), (&b"twice"[..], bench.public));
    }
}

#[test]
fn a_message_is_gathered_from_header_side_and_body() {
    let mut bench = bench(SMALL);
    bench.peer.send_to(b"payload", bench.public).expect("sent");
    let received = bench.receive(1)[0];
    let end = HEADROOM + received.len;
    let bytes = bench.ring.bytes_mut(received.buffer);
    bytes[HEADROOM - 5..HEADROOM].copy_from_slice(b"head-");
    bytes[end..end + 5].copy_from_slice(b"side-");
    bench.ring.retain(received.buffer);
    let piece = |side, body| Piece {
        buffer: received.buffer,
        side,
        body,
    };
    let pieces = [
        piece(0..0, HEADROOM - 5..end),
        piece(end..end + 5, HEADROOM..end),
    ];
    let to = bench.peer.local_addr().expect("its address");
    bench
        .ring
        .send_message(to, &[b'h'; 24], pieces.into_iter())
        .expect("room");
    bench.ring.enter(Wait::No).expect("entered");
    bench.ring.reap(&mut Vec::with_capacity(8));
    let mut buffer = [0; 128];
    let (len, from) = receive_from(&bench.peer, &mut buffer).expect("came");
    assert_eq!(from, bench.internal);
    assert_eq!(&buffer[..24], &[b'h'; 24]);
    assert_eq!(&buffer[24..len], b"head-payloadside-payload");
    assert_eq!(bench.ring.public_buffers_free(), 100);
    assert_eq!(bench.ring.counters().records_sent, 2);
}

#[test]
fn a_full_queue_refuses_counts_and_gives_the_buffer_back() {
    let mut bench = bench(SMALL);
    bench.peer.send_to(b"again", bench.public).expect("sent");
    let received = bench.receive(1)[0];
    let to = bench.peer.local_addr().expect("its address");
    let range = HEADROOM..HEADROOM + received.len;
    let send = |ring: &mut Ring| ring.send_packet(0, to, received.buffer, range.clone());
    let taken = (0..20)
        .take_while(|_| send(&mut bench.ring).is_ok())
        .count();
    assert_eq!(taken, 8, "as many as the queue has entries");
    assert_eq!(bench.ring.room(), 0);
    bench.ring.retain(received.buffer);
    let piece = Piece {
        buffer: received.buffer,
        side: 0..0,
        body: range.clone(),
    };
    let refused = bench
        .ring
        .send_message(to, &[0; 24], std::iter::once(piece));
    assert_eq!(refused, Err(QueueFull));
    assert_eq!(bench.ring.counters().queue_full, 2);
    bench.ring.release(received.buffer);
    bench.ring.enter(Wait::No).expect("entered");
    bench.ring.reap(&mut Vec::with_capacity(8));
    assert_eq!(
        bench.ring.public_buffers_free(),
        100,
        "every reader is gone"
    );
    assert_eq!(bench.ring.counters().packets_sent, 8);
}

#[test]
fn a_send_that_fails_is_counted_and_frees_its_buffer() {
    let mut bench = bench(SMALL);
    bench.peer.send_to(b"nowhere", bench.public).expect("sent");
    let received = bench.receive(1)[0];
    // A socket bound to loopback cannot send to another network.
    let to = "192.0.2.1:9".parse().expect("an address");
    bench
        .ring
        .send_packet(0, to, received.buffer, HEADROOM..HEADROOM + received.len)
        .expect("room");
    bench.ring.release(received.buffer);
    bench.ring.enter(Wait::No).expect("entered");
    bench.ring.reap(&mut Vec::with_capacity(8));
    assert_eq!(bench.ring.counters().packets_failed, 1);
    assert_eq!(bench.ring.public_buffers_free(), 100);
    assert!(bench.ring.all_armed(), "receiving goes on");
}

#[test]
fn every_completion_is_taken_also_when_receives_pile_up_unhandled() {
    let mut bench = bench(RingSize {
        public_buffers: 64,
        ..SMALL
    });
    let mut unhandled = Vec::with_capacity(limits::RECEIVED_MAX);
    let deadline = Instant::now() + PATIENCE;
    for number in 0..40u8 {
        bench.peer.send_to(&[number], bench.public).expect("sent");
    }
    while unhandled.len() < 40 {
        assert!(Instant::now() < deadline);
        bench.ring.enter(Wait::No).expect("entered");
        bench.ring.reap(&mut unhandled);
        bench.ring.arm();
    }
    let seen: Vec<u8> = unhandled.iter().map(|r| bench.payload(r)[0]).collect();
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_wake_up_ends_the_wait_and_so_does_the_next() {
    let mut bench = bench(SMALL);
    let start = Instant::now();
    for _ in 0..3 {
        bench.wake.wake();
        bench.ring.enter(Wait::Sleep(PATIENCE)).expect("entered");
        bench.ring.reap(&mut Vec::with_capacity(8));
        bench.wake.answer();
        bench.ring.arm();
        bench.ring.enter(Wait::No).expect("entered");
    }
    assert!(start.elapsed() < PATIENCE);
}

/// What a hand-over rests on: a receive that is cancelled takes no datagram with it.
#[test]
fn a_ring_that_stops_to_receive_loses_nothing_and_can_go_on() {
    let mut bench = bench(RingSize {
        queue: 64,
        public_buffers: 64,
        internal_buffers: 4,
    });
    let mut next = 0u32;
    let mut came = 0u32;
    for round in 0..200 {
        let mut received = Vec::with_capacity(1_024);
        // Some before the stop, some in the middle of it, some after.
        let send = |next: &mut u32, count: u32| {
            for _ in 0..count {
                bench
                    .peer
                    .send_to(&next.to_be_bytes(), bench.public)
                    .expect("sent");
                *next += 1;
            }
        };
        send(&mut next, round % 7);
        let deadline = Instant::now() + PATIENCE;
        while !bench.ring.is_quiet() {
            bench.ring.stop_receiving();
            send(&mut next, 1);
            bench.ring.enter(Wait::No).expect("entered");
            bench.ring.reap(&mut received);
            bench.ring.arm();
            assert!(Instant::now() < deadline, "it came to rest");
        }
        send(&mut next, 2);
        bench.ring.enter(Wait::No).expect("entered");
        let before = received.len();
        bench.ring.reap(&mut received);
        assert_eq!(received.len(), before, "nothing is received any more");

        bench.ring.resume_receiving();
        while came + (received.len() as u32) < next {
            bench.ring.arm();
            bench
                .ring
                .enter(Wait::Sleep(Duration::from_millis(10)))
                .expect("entered");
            bench.ring.reap(&mut received);
            assert!(Instant::now() < deadline, "all came");
        }
        for one in received {
            assert_eq!(bench.payload(&one), came.to_be_bytes(), "in order, once");
            came += 1;
            bench.ring.release(one.buffer);
        }
        bench.ring.arm();
    }
    assert_eq!(bench.ring.counters().receive_errors, 0);
}

#[test]
fn a_wait_is_bounded() {
    let mut bench = bench(SMALL);
    bench
        .ring
        .enter(Wait::Sleep(Duration::from_millis(1)))
        .expect("a time-out is no error");
}

#[test]
fn a_ring_can_be_dropped_with_receives_armed_and_sends_queued() {
    for _ in 0..20 {
        let mut bench = bench(SMALL);
        bench.peer.send_to(b"held", bench.public).expect("sent");
        let received = bench.receive(1)[0];
        let to = bench.peer.local_addr().expect("its address");
        bench
            .ring
            .send_packet(0, to, received.buffer, HEADROOM..HEADROOM + received.len)
            .expect("room");
        bench.peer.send_to(b"late", bench.public).expect("sent");
        drop(bench.ring);
    }
}

#[test]
fn buffer_names_survive_a_trip_as_numbers() {
    let mut bench = bench(SMALL);
    bench.peer.send_to(b"inside", bench.internal).expect("sent");
    let buffer = bench.receive(1)[0].buffer;
    assert_eq!(BufferId::from_raw(buffer.to_raw()), buffer);
}
