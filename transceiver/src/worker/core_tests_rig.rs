//! A relay core and the worker that it talks to, for tests.

use firsthop_shared::address::{ClientAddr, ClusterId, FlowHandle, IngressId, OwnerAddr};
use firsthop_shared::control::{CallKind, ControlError};
use firsthop_shared::keyring::Masters;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::stun_write::{Role, binding_request};
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::DatagramBuilder;
use tokio::sync::oneshot;

use super::super::*;
use crate::session::{Advertised, Credentials};
use crate::worker::command::{Command, CreateSpec, RestartBy, RestartSpec};

pub(super) const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n\
    a=fingerprint:sha-256 B4:12:1C:7C:7D:ED:F1:FA:61:07:57:9C:29:BE:58:E3:BC:41:E7:13:8E:7D:D3:9D:1F:94:6E:A5:23:46:94:23\r\n\
    a=setup:actpass\r\na=mid:0\r\na=sendrecv\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n";

pub(super) const CREATED: u64 = 77;

/// A relay core and the worker that it talks to.
pub(super) struct Rig {
    pub(super) core: Core,
    pub(super) keyring: Arc<DataKeyring>,
    pub(super) relay: SocketAddr,
    pub(super) sequence: u32,
    pub(super) now: Instant,
}

pub(super) fn keyring(secret: u8) -> Arc<DataKeyring> {
    Arc::new(DataKeyring::parse(&Masters::new([secret; 32]).data_toml()).expect("a keyring"))
}

pub(super) fn fleet() -> Arc<Fleet> {
    let text = "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"203.0.113.10:3478\"\n";
    Arc::new(Fleet::parse(text).expect("a fleet"))
}

impl Rig {
    pub(super) fn new(capacity: usize) -> Self {
        Self::with_backends(capacity, Box::new(Echoes))
    }

    pub(super) fn with_backends(capacity: usize, backends: Box<dyn Backends>) -> Self {
        let now = Instant::now();
        let keyring = keyring(1);
        let settings = CoreSettings {
            shard: ShardId(3),
            capacity,
            networks: Networks::parse("10.0.0.0/8").expect("networks"),
            lifetimes: Lifetimes::default(),
            opus: OpusMode::default(),
            directory: Directory::default(),
            endings: Endings::default(),
            epoch: now,
        };
        let shared = Shared {
            keyring: Arc::clone(&keyring),
            fleet: fleet(),
        };
        let identity = Identity::process().expect("an identity");
        Self {
            core: Core::new(settings, shared, identity, || 42).with_backends(backends),
            keyring,
            relay: ([10, 0, 0, 9], 4_001).into(),
            sequence: 0,
            now,
        }
    }

    pub(super) fn credentials(&self, id: u32) -> Credentials {
        self.credentials_of(id, 0)
    }

    pub(super) fn credentials_of(&self, id: u32, restart: u8) -> Credentials {
        let route = Route {
            cluster: ClusterId(1),
            owner: OwnerAddr::new(([10, 0, 0, 1], 5_000).into()),
            shard: ShardId(3),
            restart: Restart(restart),
            session: SessionId(id),
        };
        let ufrag = token::mint(self.keyring.active(), &route);
        let password = token::ice_password(&self.keyring, ufrag.as_bytes()).expect("a password");
        Credentials { ufrag, password }
    }

    pub(super) fn create(&mut self, id: u32) -> Result<String, ControlError> {
        self.create_for(id, None)
    }

    pub(super) fn create_for(
        &mut self,
        id: u32,
        app: Option<&str>,
    ) -> Result<String, ControlError> {
        let spec = CreateSpec {
            id: SessionId(id),
            created: CREATED,
            client: None,
            credentials: self.credentials(id),
            offer: OFFER.to_owned(),
            advertised: vec![Advertised {
                ingress: IngressId(0),
                address: ([203, 0, 113, 10], 3_478).into(),
            }],
            longest: None,
            kind: CallKind::Realtime,
            app: app.map(str::to_owned),
            config: None,
            trace: None,
        };
        let (reply, mut result) = oneshot::channel();
        self.core
            .command(Command::Create(Box::new(spec), reply), self.now);
        result.try_recv().expect("answered")
    }

    pub(super) fn restart(&mut self, restart: u8, offer: &str) -> Result<String, ControlError> {
        let spec = RestartSpec {
            id: SessionId(1),
            created: CREATED,
            restart: Restart(restart),
            credentials: self.credentials_of(1, restart),
            by: RestartBy::Offer(offer.to_owned()),
            advertised: Vec::new(),
        };
        let (reply, mut result) = oneshot::channel();
        self.core
            .command(Command::Restart(Box::new(spec), reply), self.now);
        result.try_recv().expect("answered")
    }

    pub(super) fn look(&mut self, id: u32, created: u64) -> Option<Restart> {
        let (reply, mut result) = oneshot::channel();
        let id = SessionId(id);
        self.core
            .command(Command::Look { id, created, reply }, self.now);
        result.try_recv().expect("answered")
    }

    /// Why a session ended, as support is told.
    pub(super) fn ending(&self, id: u32) -> &'static str {
        let found = self.core.settings.endings.find(SessionId(id));
        found.expect("an ended session").1.reason
    }

    pub(super) fn hang_up(&mut self, id: u32, created: u64) -> bool {
        let (reply, mut result) = oneshot::channel();
        let id = SessionId(id);
        self.core
            .command(Command::HangUp { id, created, reply }, self.now);
        result.try_recv().expect("answered")
    }

    /// A client's check as the relay's record.
    pub(super) fn check(&self, id: u32) -> (RecordHeader, Vec<u8>) {
        let credentials = self.credentials(id);
        let mut packet = Vec::new();
        binding_request(
            &mut packet,
            [9; 12],
            &format!("{}:abcd", credentials.ufrag),
            credentials.password.as_bytes(),
            1,
            Role::Controlling(1, true),
        );
        let header = RecordHeader {
            kind: RecordKind::Packet,
            client: ClientAddr::new(([198, 51, 100, 7], 4_000 + id as u16).into()),
            tcp: false,
            proven: false,
            ingress: IngressId(0),
            session: SessionId(id),
            handle: FlowHandle(1_000 + id),
            owner: None,
            payload_len: 0,
        };
        (header, packet)
    }

    pub(super) fn datagram(&mut self, shard: u8, records: &[(RecordHeader, Vec<u8>)]) -> Vec<u8> {
        let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
        for (header, payload) in records {
            assert!(builder.push(header, payload));
        }
        self.sequence += 1;
        builder
            .finish(
                self.keyring.active(),
                ShardId(shard),
                BootId(5),
                self.sequence,
            )
            .to_vec()
    }

    pub(super) fn send(&mut self, records: &[(RecordHeader, Vec<u8>)]) {
        let datagram = self.datagram(3, records);
        self.core.datagram(self.relay, &datagram, self.now);
    }

    /// What the worker sends: the records with their payloads.
    pub(super) fn flush(&mut self) -> Vec<(RecordHeader, Vec<u8>)> {
        let mut records = Vec::new();
        let keyring = Arc::clone(&self.keyring);
        let relay = self.relay;
        self.core.flush(|datagrams| {
            for (hop, bytes) in datagrams {
                assert_eq!(hop.get(), relay);
                let opened = trunk::open(&keyring, bytes).expect("authentic");
                records.extend(opened.records().map(|r| (r.header, r.payload.to_vec())));
            }
        });
        records
    }

    pub(super) fn drops(&mut self, reason: Reason) -> u64 {
        self.core.drops()[reason]
    }

    pub(super) fn answers(&mut self, id: u32) -> usize {
        let check = self.check(id);
        self.send(&[check]);
        self.flush()
            .iter()
            .filter(|(header, payload)| {
                header.session == SessionId(id) && payload.starts_with(&[1, 1])
            })
            .count()
    }
}
