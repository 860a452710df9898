//! A real relay process on loopback, with what it needs around it: files, clients, and owners that speak the trunk format.
//!
//! Every testbed has a block of loopback addresses of its own, so that tests run side by side on fixed ports. The lower half
//! of the block is the internal network, the upper half is where clients and public addresses are.

pub(crate) mod owner;
pub(crate) mod process;
pub(crate) mod redis;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use firsthop_shared::address::{ClusterId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token::{self, Route};

use process::RelayProcess;

/// How long anything that must happen may take. Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A block of addresses, and the files of one fleet.
pub(crate) struct Testbed {
    directory: PathBuf,
    block: [u8; 3],
    /// Says to other testbeds, of whatever process, that the block is taken.
    _claim: UdpSocket,
    keyring: DataKeyring,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let (block, claim) = claim_block(pid * 16 + number);
        let directory = std::env::temp_dir().join(format!("firsthop-relay-{pid}-{number}"));
        // Keys are in it: a folder that others can look into is warned of.
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private
            .create(&directory)
            .expect("a directory for the test");
        let testbed = Self {
            directory,
            block,
            _claim: claim,
            keyring: keyring(7),
        };
        testbed.write_keyring(7);
        fs::write(testbed.fleet_file(), testbed.fleet_text()).expect("the fleet file");
        testbed
    }

    /// An address of the block. Below 128: internal.
    pub(crate) fn ip(&self, last: u8) -> IpAddr {
        let [a, b, c] = self.block;
        IpAddr::V4(Ipv4Addr::new(a, b, c, last))
    }

    pub(crate) fn internal_networks(&self) -> String {
        format!("{}/25", self.ip(0))
    }

    /// Public address number `ingress`, which the fleet file lists under that id: 0 to 3.
    pub(crate) fn public(&self, ingress: u8) -> SocketAddr {
        SocketAddr::new(self.ip(128 + ingress), 3478)
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        SocketAddr::new(self.ip(1), 9101)
    }

    /// Where a test's own Redis listens.
    pub(crate) fn redis(&self) -> SocketAddr {
        SocketAddr::new(self.ip(2), 6379)
    }

    pub(crate) fn relay_internal(&self, core: u16) -> SocketAddr {
        SocketAddr::new(self.ip(1), 4000 + core)
    }

    pub(crate) fn owner_address(&self, number: u8) -> SocketAddr {
        SocketAddr::new(self.ip(10 + number), 5000)
    }

    pub(crate) fn keyring(&self) -> &DataKeyring {
        &self.keyring
    }

    pub(crate) fn keyring_file(&self) -> PathBuf {
        self.directory.join("data.toml")
    }

    pub(crate) fn fleet_file(&self) -> PathBuf {
        self.directory.join("fleet.toml")
    }

    /// A file of this test's own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Replaces the keyring file by one that derives from another secret.
    pub(crate) fn write_keyring(&self, secret: u8) {
        let text = Masters::new([secret; 32]).data_toml();
        let fresh = self.directory.join("data.toml.new");
        fs::write(&fresh, text.as_bytes()).expect("the keyring file");
        fs::rename(fresh, self.keyring_file()).expect("the keyring file in place");
    }

    /// Replaces the fleet file by one with these relays in cluster 1, and with these clusters besides.
    pub(crate) fn write_fleet(&self, relays: &str, others: &str) {
        let own = "name = \"test\"\n";
        let text = self.fleet_text().replace(own, &format!("{own}{relays}\n"));
        let fresh = self.directory.join("fleet.toml.new");
        fs::write(&fresh, text + others).expect("the fleet file");
        fs::rename(fresh, self.fleet_file()).expect("the fleet file in place");
    }

    fn fleet_text(&self) -> String {
        let mut text = "[[cluster]]\nid = 1\nname = \"test\"\n".to_owned();
        for id in 0..4 {
            text += &format!(
                "[[ingress]]\nid = {id}\nname = \"i{id}\"\nipv4 = \"{}\"\n",
                self.public(id)
            );
        }
        text + "[[ingress]]\nid = 9\nname = \"v6\"\nipv6 = \"[::1]:3478\"\n"
    }

    /// The settings that every relay of this testbed has, public address 0 included.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--keyring", self.keyring_file().display().to_string()),
            ("--fleet", self.fleet_file().display().to_string()),
            ("--cluster", "1".to_owned()),
            ("--listen", self.public(0).to_string()),
            ("--internal", self.ip(1).to_string()),
            ("--internal-networks", self.internal_networks()),
            ("--admin", self.admin().to_string()),
            ("--log-format", "text".to_owned()),
            // A test that means to drain says so.
            ("--drain", "0".to_owned()),
        ]
    }

    /// Starts a relay, with settings that replace or follow the usual ones, and waits until it is ready.
    pub(crate) fn relay(&self, settings: &[(&'static str, String)]) -> RelayProcess {
        RelayProcess::ready(
            process::command(&self.with_settings(settings)),
            self.admin(),
        )
    }

    /// The settings that a relay of this testbed has with these, which replace or follow the usual ones.
    pub(crate) fn with_settings(
        &self,
        settings: &[(&'static str, String)],
    ) -> Vec<(&'static str, String)> {
        let mut all = self.settings();
        for (name, value) in settings {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some(slot) => slot.1.clone_from(value),
                None => all.push((name, value.clone())),
            }
        }
        all
    }

    /// A client's socket on an address of the upper half.
    pub(crate) fn client(&self, number: u8) -> Client {
        Client::new(SocketAddr::new(self.ip(140 + number % 100), 0))
    }

    /// A ufrag that names a session of an owner.
    pub(crate) fn ufrag(&self, owner: SocketAddr, shard: u8, session: u32) -> token::Ufrag {
        self.ufrag_in(1, owner, shard, session)
    }

    fn ufrag_in(&self, cluster: u16, owner: SocketAddr, shard: u8, session: u32) -> token::Ufrag {
        token::mint(
            self.keyring.active(),
            &Route {
                cluster: ClusterId(cluster),
                owner: OwnerAddr::new(owner),
                shard: ShardId(shard),
                restart: Restart(0),
                session: SessionId(session),
            },
        )
    }

    /// A valid check for a session.
    pub(crate) fn check(&self, owner: SocketAddr, shard: u8, session: u32) -> Vec<u8> {
        self.check_in(1, owner, shard, session)
    }

    /// A valid check for a session in another cluster.
    pub(crate) fn check_in(
        &self,
        cluster: u16,
        owner: SocketAddr,
        shard: u8,
        session: u32,
    ) -> Vec<u8> {
        let ufrag = self.ufrag_in(cluster, owner, shard, session);
        let password = token::ice_password(&self.keyring, ufrag.as_bytes()).expect("our own token");
        check_with(ufrag.as_str(), password.as_bytes())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Blocks of addresses: 127.64.0 to 127.127.255.
const BLOCKS: u32 = 1 << 14;

/// Takes the first block from this number on that no other testbed has. A process id does not fit into its number, so that
/// two processes may begin at the same one.
fn claim_block(from: u32) -> ([u8; 3], UdpSocket) {
    (0..BLOCKS)
        .find_map(|tried| {
            let number = from.wrapping_add(tried) % BLOCKS;
            let block = [127, 64 + (number >> 8) as u8, number as u8];
            let [a, b, c] = block;
            // The last address of the internal half, which nothing else uses.
            let claim = UdpSocket::bind((Ipv4Addr::new(a, b, c, 127), 3478)).ok()?;
            Some((block, claim))
        })
        .expect("a block of addresses that no other testbed has")
}

/// The data keyring that derives from a secret of one repeated byte.
pub(crate) fn keyring(secret: u8) -> DataKeyring {
    DataKeyring::parse(&Masters::new([secret; 32]).data_toml()).expect("a keyring")
}

/// A check with any ufrag and password.
pub(crate) fn check_with(ufrag: &str, password: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let username = format!("{ufrag}:peer");
    binding_request(
        &mut out,
        *b"transaction!",
        &username,
        password,
        1,
        Role::Controlling(1, true),
    );
    out
}

/// A success response, as a full ICE peer sends it to our check: it has no USERNAME.
pub(crate) fn stun_response() -> Vec<u8> {
    let mut out = Vec::new();
    let mapped = "192.0.2.1:1".parse().expect("an address");
    binding_success(&mut out, *b"transaction!", mapped, b"password");
    out
}

/// A packet that looks like RTP, with `number` in its payload.
pub(crate) fn rtp(number: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 111];
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.resize(92, 0x55);
    packet
}

/// The number in a packet made by [`rtp`].
pub(crate) fn rtp_number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[12..16].try_into().expect("an RTP packet of ours"))
}

/// A packet that looks like a DTLS handshake record.
pub(crate) fn dtls() -> Vec<u8> {
    let mut packet = vec![22, 0xfe, 0xfd];
    packet.resize(60, 1);
    packet
}

/// A client's UDP socket.
pub(crate) struct Client {
    pub(crate) socket: UdpSocket,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).expect("a client socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Self { socket }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("the socket's address")
    }

    pub(crate) fn send(&self, to: SocketAddr, packet: &[u8]) {
        let sent = self.socket.send_to(packet, to).expect("sent");
        assert_eq!(sent, packet.len());
    }

    /// The next packet, and where it came from.
    pub(crate) fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = [0; 2048];
        let (len, from) = receive_from(&self.socket, &mut buffer)
            .unwrap_or_else(|error| panic!("client {} got nothing: {error}", self.address()));
        (from, buffer[..len].to_vec())
    }

    /// Whether nothing lies in the socket.
    pub(crate) fn is_empty(&self) -> bool {
        self.socket.set_nonblocking(true).expect("non-blocking");
        let mut buffer = [0; 2048];
        let nothing = self.socket.recv_from(&mut buffer).is_err();
        self.socket.set_nonblocking(false).expect("blocking");
        nothing
    }
}

/// Sends a process a signal by name, such as `STOP`.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success());
}

/// Receives one datagram within the socket's time-out.
///
/// A wait with a time-out is not begun anew by the kernel when a signal or an io_uring that this thread once used ends it.
pub(crate) fn receive_from(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Fails on a machine with one processor.
pub(crate) fn need_two_processors() {
    assert!(
        firsthop_relay::system::processors().len() >= 2,
        "this test needs two processors: skip it by name where there is one"
    );
}

/// Asks again until `question` has an answer.
pub(crate) fn until<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
