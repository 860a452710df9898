//! A session with a client that says what it likes. The first byte says what kind of call it is; the first piece is the offer. Each later piece
//! begins with a letter: `o` another offer, `b` a check of the client's own, `r` its answer to our last check, `w` time passes, anything
//! else is a packet.
//!
//! What is answered keeps the shape of the offer, is SDP by everybody's judgement, and tells our credentials; nobody but a proven client is
//! sent more than checks, answers to checks, and one packet that begins DTLS.

#![no_main]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_fuzz::{data_keyring, pieces};
use firsthop_shared::address::{
    ClientAddr, ClusterId, FlowHandle, Hop, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};
use firsthop_shared::control::CallKind;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token::{self, Route};
use firsthop_signaling::fragment;
use firsthop_transceiver::audio::{Codec, OpusMode};
use firsthop_transceiver::backend::Opened;
use firsthop_transceiver::dtls::Identity;
use firsthop_transceiver::life::EndReason;
use firsthop_transceiver::limits::SESSION_MAX;
use firsthop_transceiver::sdp::Offer;
use firsthop_transceiver::session::{
    Advertised, Arrival, Credentials, NewSession, Outbox, Session,
};
use libfuzzer_sys::fuzz_target;

/// Pieces of one input that are played: a session that lives takes more time than its parser.
const PIECES: usize = 24;

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let mut pieces = pieces(rest);
    let Some(Ok(offer)) = pieces.next().map(std::str::from_utf8) else {
        return;
    };
    let Some(mut stage) = Stage::new(*kind, offer) else {
        return;
    };
    for piece in pieces.take(PIECES) {
        stage.play(piece);
        stage.settle();
    }
    stage
        .session
        .end(EndReason::HungUp, stage.now, &mut stage.out);
    stage.settle();
});

struct Stage {
    session: Session,
    now: Instant,
    out: Outbox,
    credentials: Credentials,
    restarts: u8,
    /// The client's ufrag and password.
    client: (String, String),
    /// The last check that the session sent.
    check: Option<[u8; 12]>,
    answered: bool,
    /// A packet of DTLS was sent.
    hello: bool,
}

impl Stage {
    fn new(kind: u8, offer: &str) -> Option<Self> {
        let now = Instant::now();
        let credentials = credentials(0);
        let new = NewSession {
            id: SessionId(7),
            created: 1_790_000_000_000,
            credentials,
            offer,
            advertised: advertised(),
            seed: 0x1234_5678_9abc_def0,
            longest: SESSION_MAX,
            idle: None,
            kind: match kind & 1 {
                0 => CallKind::Realtime,
                _ => CallKind::Whip,
            },
            codec: [
                None,
                Some(Codec::Opus),
                Some(Codec::Pcmu),
                Some(Codec::Pcma),
            ][usize::from(kind >> 1 & 3)],
            opus: OpusMode::default(),
        };
        let identity = Identity::process().expect("an identity");
        let mut out = Outbox::default();
        let open = |_| Opened::echo(5);
        let (session, answer) = Session::create(identity, new, open, now, &mut out).ok()?;
        check(offer, &answer, &credentials);
        assert!(out.sends.is_empty(), "nothing leaves before a check came");
        let mut stage = Self {
            session,
            now,
            out,
            credentials,
            restarts: 0,
            client: (String::new(), String::new()),
            check: None,
            answered: false,
            hello: false,
        };
        stage.learn(offer);
        Some(stage)
    }

    /// Learns the client's credentials from its offer.
    fn learn(&mut self, offer: &str) {
        if let Ok(offer) = Offer::parse(offer) {
            self.client = (offer.ice_ufrag().into(), offer.ice_password().into());
        }
    }

    fn play(&mut self, piece: &[u8]) {
        let Some((kind, rest)) = piece.split_first() else {
            return;
        };
        match kind {
            b'o' => self.offer(rest),
            b'b' => {
                let ufrag = self.session.ufrag();
                let name = format!("{}:{}", ufrag.as_str(), self.client.0);
                let role = Role::Controlling(1, rest.first() == Some(&b'n'));
                let mut packet = Vec::new();
                let ours = token::ice_password(data_keyring(), ufrag.as_bytes());
                let ours = ours.expect("our own ufrag");
                binding_request(&mut packet, [9; 12], &name, ours.as_bytes(), 1, role);
                self.receive(&packet);
            }
            b'r' => {
                let Some(transaction) = self.check.take() else {
                    return;
                };
                let mut packet = Vec::new();
                let mapped = advertised()[0].address;
                binding_success(&mut packet, transaction, mapped, self.client.1.as_bytes());
                self.answered = true;
                self.receive(&packet);
            }
            b'w' => {
                let ms = rest.first().map_or(20, |n| 20 * u64::from(*n));
                self.now += Duration::from_millis(ms);
                self.session.timeout(self.now, &mut self.out);
            }
            _ => self.receive(piece),
        }
    }

    fn offer(&mut self, text: &[u8]) {
        let Ok(text) = std::str::from_utf8(text) else {
            return;
        };
        self.restarts = self.restarts.wrapping_add(1);
        let credentials = credentials(self.restarts);
        let answered =
            self.session
                .restart(credentials, text, &advertised(), self.now, &mut self.out);
        if let Ok(answer) = answered {
            if self.session.ufrag() == credentials.ufrag {
                self.credentials = credentials;
            }
            check(text, &answer, &self.credentials);
            self.learn(text);
        }
    }

    fn receive(&mut self, packet: &[u8]) {
        let from = Arrival {
            client: ClientAddr::new(address("198.51.100.7:61000")),
            ingress: IngressId(0),
            tcp: false,
            hop: Hop::new(address("10.0.0.1:4000")),
            handle: FlowHandle(1),
        };
        self.session.receive(from, packet, self.now, &mut self.out);
    }

    /// Takes what the session sends.
    fn settle(&mut self) {
        for sent in self.out.sends.drain(..) {
            let class = classify(&sent.payload);
            // One packet begins the handshake where the session begins it, with the answer to the first check.
            let hello = class == PacketClass::Dtls && !std::mem::replace(&mut self.hello, true);
            assert!(
                class == PacketClass::Stun || hello || self.answered,
                "only who is proven is sent more"
            );
            if sent.payload.starts_with(&[0, 1]) {
                self.check = sent.payload[8..20].try_into().ok();
            }
        }
        self.out.closes.clear();
    }
}

/// What must hold of an answer.
fn check(offer: &str, answer: &str, ours: &Credentials) {
    let kinds = |text: &str| -> Vec<String> {
        let media = text.split('\n').filter_map(|line| line.strip_prefix("m="));
        media
            .map(|media| media.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(kinds(answer), kinds(offer), "one section for each");
    assert!(answer.ends_with("\r\n"));
    for line in answer.trim_end_matches("\r\n").split("\r\n") {
        assert!(line.as_bytes().get(1) == Some(&b'='), "{line:?}");
        assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
    }
    assert_eq!(
        firsthop_signaling::offer::check(answer.as_bytes()),
        Ok(answer)
    );
    let read = Offer::parse(answer).expect("an answer that parses");
    assert_eq!(read.ice_ufrag(), ours.ufrag.as_str());
    assert_eq!(read.ice_password(), ours.password.as_str());
    let told = fragment::of_answer(answer).expect("a fragment of it");
    let told = fragment::parse(told.as_bytes()).expect("our own fragment");
    assert_eq!(told.ufrag, ours.ufrag.as_str());
}

fn credentials(restart: u8) -> Credentials {
    let route = Route {
        cluster: ClusterId(1),
        owner: OwnerAddr::new(address("127.0.0.1:5000")),
        shard: ShardId(0),
        restart: Restart(restart),
        session: SessionId(7),
    };
    let ufrag = token::mint(data_keyring().active(), &route);
    let password = token::ice_password(data_keyring(), ufrag.as_bytes()).expect("a known key");
    Credentials { ufrag, password }
}

fn advertised() -> Vec<Advertised> {
    vec![Advertised {
        ingress: IngressId(0),
        address: address("203.0.113.10:3478"),
    }]
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
