//! A stub relay.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_shared::address::{BootId, FlowHandle, IngressId, SessionId, ShardId};
use firsthop_shared::control::CreateResponse;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};
use str0m::net::{Protocol, Receive};
use str0m::{Input, Output};

use super::{PATIENCE, Process, Signaling, masters, request};
use crate::peer::{Client, addr};

/// A relay core with one client behind it: the client's packets travel in trunk records.
pub(crate) struct Relay {
    pub(crate) socket: UdpSocket,
    pub(crate) keyring: Arc<DataKeyring>,
    owner: SocketAddr,
    pub(crate) session: SessionId,
    shard: ShardId,
    boot: BootId,
    sequence: u32,
    pub(crate) client: Client,
    pub(crate) closed: bool,
    /// Records that prove the client's address.
    pub(crate) proven: usize,
}

impl Relay {
    /// Makes a call, and returns it answered and not yet connected.
    pub(crate) fn call(process: &Process, signaling: &Signaling, id: u32, shard: u8) -> Self {
        let mut client = Client::new(Instant::now());
        let (offer, pending) = client.offer(true);
        let (status, body) = signaling.create(process, &request(process, id, shard, &offer));
        assert_eq!(status, 201, "{body}");
        let answer: CreateResponse = serde_json::from_str(&body).expect("an answer");
        client.accept(pending, &answer.answer);
        Self {
            socket: UdpSocket::bind("127.0.0.1:0").expect("a socket"),
            keyring: Arc::new(DataKeyring::parse(&masters().data_toml()).expect("a keyring")),
            owner: process.trunk,
            session: SessionId(id),
            shard: ShardId(shard),
            boot: BootId::of_relay(id),
            sequence: 0,
            client,
            closed: false,
            proven: 0,
        }
    }

    /// Runs until `done`, and fails when that takes longer than [`PATIENCE`].
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        Self::until_all(std::slice::from_mut(self), what, done);
    }

    /// Runs all of them until each is `done`: none is silent, and so interrupted, while another one takes its time.
    pub(crate) fn until_all(relays: &mut [Self], what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        // Whoever is waited for waits for no other longer than this.
        let longest = match relays.len() {
            1 => Duration::from_millis(100),
            _ => Duration::from_millis(2),
        };
        while !relays.iter().all(&done) {
            for relay in &mut *relays {
                assert!(
                    Instant::now() < end,
                    "{what}: not within {PATIENCE:?}; events {:?}",
                    relay.client.heard.types()
                );
                relay.step(longest);
            }
        }
    }

    /// Does what is due, and takes one datagram, if there is one before something else is due.
    fn step(&mut self, longest: Duration) {
        self.turn(Instant::now());
        let mut wake = self.client.deadline;
        if let Some(frame) = self.client.next_frame {
            wake = wake.min(frame);
        }
        let wait = wake.saturating_duration_since(Instant::now());
        let wait = wait.clamp(Duration::from_micros(100), longest);
        self.socket.set_read_timeout(Some(wait)).expect("a timeout");
        let mut buffer = [0; 9_000];
        if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
            assert_eq!(from, self.owner, "relays know an owner by its address");
            self.down(&buffer[..length]);
        }
    }

    fn turn(&mut self, now: Instant) {
        if self.client.next_frame.is_some_and(|at| at <= now) {
            self.client.speak(now);
            self.client.next_frame = self
                .client
                .next_frame
                .map(|at| at + Duration::from_millis(20));
            self.drain(now);
        }
        self.client
            .rtc
            .handle_input(Input::Timeout(now))
            .expect("a timeout");
        self.drain(now);
    }

    fn drain(&mut self, now: Instant) {
        loop {
            match self.client.rtc.poll_output().expect("output") {
                Output::Timeout(at) => {
                    self.client.deadline = at;
                    return;
                }
                Output::Event(event) => self.client.event(event, now),
                Output::Transmit(transmit) => {
                    let ingress = u8::from(transmit.destination == addr("203.0.113.20:3478"));
                    self.up(IngressId(ingress), &transmit.contents);
                }
            }
        }
    }

    /// Sends a packet of the client's.
    pub(crate) fn up(&mut self, ingress: IngressId, packet: &[u8]) {
        let header = RecordHeader {
            kind: RecordKind::Packet,
            client: self.client.public,
            tcp: false,
            proven: false,
            ingress,
            session: self.session,
            handle: FlowHandle(5),
            owner: None,
            payload_len: 0,
        };
        let mut builder = DatagramBuilder::new(1_452);
        assert!(builder.push(&header, packet));
        self.sequence += 1;
        let datagram = builder.finish(self.keyring.active(), self.shard, self.boot, self.sequence);
        self.socket.send_to(datagram, self.owner).expect("sent");
    }

    fn down(&mut self, datagram: &[u8]) {
        let keyring = Arc::clone(&self.keyring);
        let opened = trunk::open(&keyring, datagram).expect("an authentic datagram");
        assert_eq!(opened.header.shard, self.shard);
        let now = Instant::now();
        for record in opened.records() {
            assert_eq!(record.header.session, self.session);
            assert_eq!(record.header.client, self.client.public);
            assert_eq!(record.header.handle, FlowHandle(5));
            self.proven += usize::from(record.header.proven);
            if record.header.kind == RecordKind::Close {
                self.closed = true;
                continue;
            }
            // What the client still sent to a session that had ended.
            if record.header.kind == RecordKind::UnknownSession {
                continue;
            }
            let source = match record.header.ingress {
                IngressId(0) => addr("203.0.113.10:3478"),
                _ => addr("203.0.113.20:3478"),
            };
            let receive = Receive::new(Protocol::Udp, source, self.client.local, record.payload)
                .expect("a packet of WebRTC");
            self.client
                .rtc
                .handle_input(Input::Receive(now, receive))
                .expect("received");
            self.drain(now);
        }
    }

    pub(crate) fn connect(&mut self) {
        self.until("connect", Self::is_connected);
    }

    pub(crate) fn connect_all(relays: &mut [Self]) {
        Self::until_all(relays, "connect", Self::is_connected);
    }

    fn is_connected(&self) -> bool {
        self.client.heard.connected.is_some() && !self.client.heard.events.is_empty()
    }
}
