//! A worker with calls on a clock of its own, clients and model servers beside it, and no socket.

#[path = "../../tests/suite/peer/speaker.rs"]
mod speaker;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firsthop_shared::address::{
    BootId, ClientAddr, ClusterId, FlowHandle, IngressId, Networks, OwnerAddr, Restart, SessionId,
    ShardId,
};
use firsthop_shared::control::CallKind;
use firsthop_shared::fleet::Fleet;
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};
use firsthop_transceiver::audio::{
    Codec, Encoder, EncoderSettings, FRAME, Law, MAX_PAYLOAD, OpusMode, PlayoutSettings,
};
use firsthop_transceiver::backend::{
    App, BackendStats, Backends, Format, FromServer, Line, Linked, Message, NoSuchApp, Opened,
    Realtime, RealtimeSettings, Waker, Wanted,
};
use firsthop_transceiver::dtls::Identity;
use firsthop_transceiver::lifetimes::Lifetimes;
use firsthop_transceiver::session::{Advertised, Credentials};
use firsthop_transceiver::worker::{
    Command, Core, CoreSettings, CreateSpec, Directory, Endings, Shared, WorkerStats,
};
use futures_util::FutureExt as _;
use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};
use tokio::sync::{mpsc, oneshot};

/// A step of the clock: the grid on which a worker sends audio has five of them.
const STEP: Duration = Duration::from_millis(1);

const SHARD: ShardId = ShardId(0);

/// A second of speech, the same at each call.
struct Speech {
    codec: Codec,
    /// What a client sends, in pieces of 20 ms.
    client: Vec<Vec<u8>>,
    /// What a model server says.
    server: String,
}

impl Speech {
    fn new(codec: Codec) -> Self {
        let (client, server) = match codec.law() {
            // G.711 is not looked into.
            Some(_) => (
                (0..50_u8)
                    .map(|at| (0..160).map(|n| at.wrapping_mul(n)).collect())
                    .collect(),
                (0..8_000_u32).map(|n| (n * 7) as u8).collect(),
            ),
            None => speech(codec),
        };
        let server = format!(
            r#"{{"type":"response.output_audio.delta","event_id":"e3","response_id":"resp_1","item_id":"item_1","output_index":0,"content_index":0,"delta":"{}"}}"#,
            STANDARD.encode::<Vec<u8>>(server)
        );
        Self {
            codec,
            client,
            server,
        }
    }
}

/// A second of a voice, encoded by 20 ms, and its PCM as a model server gives it.
fn speech(codec: Codec) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut speaker = speaker::Speaker::default();
    let mut encoder = Encoder::new(codec, EncoderSettings::default()).expect("an encoder");
    let mut payload = [0; MAX_PAYLOAD];
    let (mut client, mut server) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let wide = speaker.frame();
        let pcm: [i16; FRAME] = std::array::from_fn(|n| wide[2 * n]);
        let length = encoder.encode(&pcm, &mut payload).expect("encoded");
        client.push(payload[..length].to_vec());
        server.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes()));
    }
    (client, server)
}

/// One client, and the model server of its call.
struct Peer {
    rtc: Rtc,
    address: SocketAddr,
    session: SessionId,
    mid: Mid,
    pt: Option<Pt>,
    connected: bool,
    channel: bool,
    /// In steps within 20 ms.
    phase: u64,
    spoken: u64,
    heard: usize,
    line: Line,
    told: usize,
}

/// A worker, its calls, and their time.
pub(crate) struct World {
    core: Core,
    stats: WorkerStats,
    wakes: mpsc::UnboundedReceiver<SessionId>,
    peers: Vec<Peer>,
    keyring: Arc<DataKeyring>,
    ingress: SocketAddr,
    relay: SocketAddr,
    sequence: u32,
    now: Instant,
    steps: u64,
    speech: Speech,
    /// What clients send, until the next turn.
    up: Vec<(RecordHeader, Vec<u8>)>,
}

/// What the worker does in one turn.
pub(crate) struct Turn<'a> {
    core: &'a mut Core,
    wakes: &'a mut mpsc::UnboundedReceiver<SessionId>,
    from: SocketAddr,
    datagrams: &'a [Vec<u8>],
    sent: &'a mut Vec<Vec<u8>>,
    stats: &'a WorkerStats,
    now: Instant,
}

impl Turn<'_> {
    /// As the worker's thread does it, without its socket.
    #[inline(always)]
    pub(crate) fn run(&mut self) {
        while let Ok(session) = self.wakes.try_recv() {
            self.core.wake(session, self.now);
        }
        self.core.timers(self.now);
        for datagram in self.datagrams {
            self.core.datagram(self.from, datagram, self.now);
        }
        let sent = &mut *self.sent;
        self.core
            .flush(|ready| sent.extend(ready.iter().map(|(_, bytes)| bytes.to_vec())));
        let drops = self.core.drops().clone();
        self.stats.publish(self.core.counters(), &drops);
    }
}

/// Backends whose server is here.
struct Servers {
    wakes: mpsc::UnboundedSender<SessionId>,
    lines: Arc<Mutex<VecDeque<Line>>>,
}

impl Backends for Servers {
    fn find(&self, _name: Option<&str>) -> Result<Arc<App>, NoSuchApp> {
        Ok(Arc::default())
    }

    fn open(&self, _app: &App, wanted: Wanted<'_>, now: Instant) -> Opened {
        let translator = Realtime::new(RealtimeSettings {
            format: Some(wanted.codec.law().map_or(Format::Pcm, |_| Format::Pcmu)),
            passed: wanted.codec.law().filter(|law| *law == Law::Mu),
            seed: wanted.seed,
            ..RealtimeSettings::default()
        });
        let waker = Waker::new(wanted.session, self.wakes.clone());
        let (backend, line) = Linked::new(translator, waker, Arc::<BackendStats>::default(), now);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        Opened {
            backend: Box::new(backend),
            playout: PlayoutSettings::default(),
        }
    }
}

impl World {
    /// So many calls with Opus, or with the µ-law of G.711, placed and answered.
    pub(crate) fn new(calls: u32, codec: Codec) -> Self {
        let now = Instant::now();
        let keyring = DataKeyring::parse(&Masters::new([1; 32]).data_toml()).expect("a keyring");
        let keyring = Arc::new(keyring);
        let ingress: SocketAddr = ([203, 0, 113, 10], 3_478).into();
        let fleet =
            format!("[[cluster]]\nid=1\nname=\"bench\"\n[[ingress]]\nid=0\nipv4=\"{ingress}\"\n");
        let shared = Shared {
            keyring: Arc::clone(&keyring),
            fleet: Arc::new(Fleet::parse(&fleet).expect("a fleet")),
        };
        let settings = CoreSettings {
            shard: SHARD,
            capacity: calls as usize,
            networks: Networks::parse("10.0.0.0/8").expect("networks"),
            lifetimes: Lifetimes::default(),
            opus: OpusMode::default(),
            directory: Directory::default(),
            endings: Endings::default(),
            epoch: now,
        };
        let (wake, wakes) = mpsc::unbounded_channel();
        let lines = Arc::default();
        let servers = Servers {
            wakes: wake,
            lines: Arc::clone(&lines),
        };
        let identity = Identity::process().expect("an identity");
        let core = Core::new(settings, shared, identity, || 42).with_backends(Box::new(servers));
        let mut world = Self {
            core,
            stats: WorkerStats::default(),
            wakes,
            peers: Vec::new(),
            keyring,
            ingress,
            relay: ([10, 0, 0, 9], 4_001).into(),
            sequence: 0,
            now,
            steps: 0,
            speech: Speech::new(codec),
            up: Vec::new(),
        };
        for n in 0..calls {
            world.place(n, identity, &lines);
        }
        world
    }

    fn place(&mut self, n: u32, identity: &Identity, lines: &Mutex<VecDeque<Line>>) {
        let address: SocketAddr = ([198, 51, 100, 7], 40_000 + n as u16).into();
        let mut config = RtcConfig::new()
            .set_crypto_provider(identity.provider())
            .set_dtls_cert(identity.certificate())
            .set_rtp_mode(true)
            .clear_codecs();
        match self.speech.codec {
            Codec::Opus => config.codec_config().enable_opus(true, false),
            _ => config.codec_config().enable_pcmu(true, false),
        }
        let mut rtc = config.build(self.now);
        rtc.add_local_candidate(Candidate::host(address, "udp").expect("a candidate"));
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        changes.add_channel("oai-events".to_owned());
        let (offer, pending) = changes.apply().expect("changes");

        let session = SessionId(1_000_003 * (n + 1));
        let route = Route {
            cluster: ClusterId(1),
            owner: OwnerAddr::new(([10, 0, 0, 1], 5_000).into()),
            shard: SHARD,
            restart: Restart(0),
            session,
        };
        let ufrag = token::mint(self.keyring.active(), &route);
        let password = token::ice_password(&self.keyring, ufrag.as_bytes()).expect("a password");
        let spec = CreateSpec {
            id: session,
            created: 1,
            client: None,
            credentials: Credentials { ufrag, password },
            offer: offer.to_sdp_string(),
            advertised: vec![Advertised {
                ingress: IngressId(0),
                address: self.ingress,
            }],
            longest: None,
            kind: CallKind::Realtime,
            app: None,
            config: None,
            trace: None,
        };
        let (reply, mut result) = oneshot::channel();
        self.core
            .command(Command::Create(Box::new(spec), reply), self.now);
        let answer = result.try_recv().expect("answered").expect("an answer");
        let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
        rtc.sdp_api()
            .accept_answer(pending, answer)
            .expect("accepted");
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.peers.push(Peer {
            rtc,
            address,
            session,
            mid,
            pt: None,
            connected: false,
            channel: false,
            phase: u64::from(7 * n % 20),
            spoken: 0,
            heard: 0,
            line: lines.pop_front().expect("a backend"),
            told: 0,
        });
    }

    /// Until every call is up, and its model speaks.
    pub(crate) fn connect(&mut self) {
        for peer in &self.peers {
            peer.tell(FromServer::Connected);
            for text in [
                r#"{"type":"session.created","event_id":"e1","session":{"type":"realtime","id":"s"}}"#,
                r#"{"type":"response.created","event_id":"e2","response":{"id":"resp_1","status":"in_progress"}}"#,
                &self.speech.server,
                &self.speech.server,
            ] {
                peer.tell(FromServer::Message(Message::Text(text.to_owned())));
            }
        }
        for _ in 0..5_000 {
            self.step(&mut |turn| turn.run());
            if self.peers.iter().all(|peer| peer.channel && peer.heard > 0) {
                return;
            }
        }
        panic!("the calls do not come up");
    }

    /// So many seconds of both sides speaking, each turn of the worker by `turn`.
    pub(crate) fn talk(&mut self, seconds: u64, mut turn: impl FnMut(&mut Turn<'_>)) {
        for _ in 0..seconds {
            for peer in &self.peers {
                peer.tell(FromServer::Message(Message::Text(
                    self.speech.server.clone(),
                )));
            }
            for _ in 0..1_000 {
                self.step(&mut turn);
            }
        }
    }

    /// Packets of the clients, packets to them, and pieces of audio to the servers so far.
    pub(crate) fn passed(&self) -> (usize, usize, usize) {
        let sum = |of: fn(&Peer) -> usize| self.peers.iter().map(of).sum();
        (
            sum(|peer| peer.spoken as usize),
            sum(|peer| peer.heard),
            sum(|peer| peer.told),
        )
    }

    fn step(&mut self, turn: &mut dyn FnMut(&mut Turn<'_>)) {
        self.now += STEP;
        self.steps += 1;
        for peer in &mut self.peers {
            if peer.connected && self.steps % 20 == peer.phase {
                peer.speak(&self.speech, self.now);
            }
            let due = Input::Timeout(self.now);
            peer.rtc.handle_input(due).expect("a timeout");
            peer.drain(&mut self.up);
        }
        let records = std::mem::take(&mut self.up);
        let datagrams = self.pack(&records);
        let mut sent = Vec::new();
        turn(&mut Turn {
            core: &mut self.core,
            wakes: &mut self.wakes,
            from: self.relay,
            datagrams: &datagrams,
            sent: &mut sent,
            stats: &self.stats,
            now: self.now,
        });
        for datagram in &sent {
            let opened = trunk::open(&self.keyring, datagram).expect("authentic");
            for record in opened.records() {
                let to = record.header.session;
                let peer = self.peers.iter_mut().find(|peer| peer.session == to);
                let peer = peer.expect("one of them");
                let received =
                    Receive::new(Protocol::Udp, self.ingress, peer.address, record.payload);
                let received = received.expect("a packet of WebRTC");
                let input = Input::Receive(self.now, received);
                peer.rtc.handle_input(input).expect("received");
                // What it answers leaves with the next step.
                peer.drain(&mut self.up);
            }
        }
        for peer in &mut self.peers {
            while peer.line.messages.try_recv().is_ok() {
                peer.told += 1;
            }
        }
    }

    /// A datagram for each packet: clients do not send at the same moment.
    fn pack(&mut self, records: &[(RecordHeader, Vec<u8>)]) -> Vec<Vec<u8>> {
        let pack = |(header, payload): &(RecordHeader, Vec<u8>)| {
            let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
            assert!(builder.push(header, payload));
            self.sequence += 1;
            let key = self.keyring.active();
            builder
                .finish(key, SHARD, BootId(5), self.sequence)
                .to_vec()
        };
        records.iter().map(pack).collect()
    }
}

impl Peer {
    fn tell(&self, event: FromServer) {
        let told = self.line.teller.tell(event).now_or_never();
        assert_eq!(told, Some(true), "the session takes it at once");
    }

    fn speak(&mut self, speech: &Speech, now: Instant) {
        let pt = *self.pt.get_or_insert_with(|| {
            let media = self.rtc.media(self.mid).expect("an audio section");
            *media.remote_pts().first().expect("a payload type")
        });
        let payload = speech.client[self.spoken as usize % speech.client.len()].clone();
        let mut api = self.rtc.direct_api();
        let stream = api.stream_tx_by_mid(self.mid, None).expect("a stream");
        let timestamp = speech.codec.clock_rate() / 50 * self.spoken as u32;
        stream.write_rtp(RtpWrite::new(
            pt,
            (1_000 + self.spoken).into(),
            timestamp,
            now,
            payload,
        ));
        self.spoken += 1;
    }

    fn drain(&mut self, records: &mut Vec<(RecordHeader, Vec<u8>)>) {
        loop {
            match self.rtc.poll_output().expect("output") {
                Output::Timeout(_) => return,
                Output::Transmit(transmit) => {
                    let header = RecordHeader {
                        kind: RecordKind::Packet,
                        client: ClientAddr::new(self.address),
                        tcp: false,
                        proven: false,
                        ingress: IngressId(0),
                        session: self.session,
                        handle: FlowHandle(self.session.0),
                        owner: None,
                        payload_len: 0,
                    };
                    records.push((header, transmit.contents.into()));
                }
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(Event::ChannelOpen(..)) => self.channel = true,
                Output::Event(Event::RtpPacket(_)) => self.heard += 1,
                Output::Event(_) => {}
            }
        }
    }
}
