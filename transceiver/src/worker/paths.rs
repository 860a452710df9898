//! How large datagrams to each hop may be: asks the kernel what the worker's egress wants to know, rarely and a bounded number of times.

use std::time::{Duration, Instant};

use firsthop_service::paths::PathSizes;
use firsthop_shared::address::Hop;

use super::egress::{Ask, Egress};
use crate::limits;

/// The paths to a worker's neighbours.
pub(super) struct Paths {
    sizes: PathSizes,
    start: Instant,
    /// When it is looked for old answers again.
    refresh: Duration,
}

impl Paths {
    /// Nothing is known at `start`, but that no path takes more than an `mtu` that is set by hand.
    pub(super) fn new(mtu: Option<u16>, egress: &mut Egress, start: Instant) -> Self {
        // More than the egress knows at a time: a hop that comes back to it costs no system call.
        let sizes = PathSizes::new(limits::HOPS_KNOWN.saturating_mul(4), mtu);
        egress.begin_with(sizes.most());
        Self {
            sizes,
            start,
            refresh: limits::PATHS_REFRESH,
        }
    }

    /// Looks up what the last turn's datagrams have raised, and now and then what is old. Once a turn is enough.
    pub(super) fn look(&mut self, egress: &mut Egress, now: Instant) {
        let now = now.saturating_duration_since(self.start);
        for (hop, ask) in egress.take_asks() {
            let bytes = match ask {
                Ask::New => self.sizes.learn(hop.get(), now),
                Ask::TooLarge => self.sizes.doubt(hop.get(), now),
            };
            if let Some(bytes) = bytes {
                egress.set_limit(hop, bytes);
            }
        }
        if now < self.refresh {
            return;
        }
        self.refresh = now + limits::PATHS_REFRESH;
        for _ in 0..limits::PATHS_PER_REFRESH {
            let in_use = |to| egress.sends_to(Hop::new(to));
            if let Some((to, bytes)) = self.sizes.refresh(now, in_use) {
                egress.set_limit(Hop::new(to), bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use firsthop_service::limits::{PATH_MTU_AGE, PATH_MTU_DOUBT};
    use firsthop_shared::address::{BootId, ClientAddr, FlowHandle, IngressId, SessionId, ShardId};
    use firsthop_shared::keyring::{DataKeyring, Masters};
    use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
    use firsthop_shared::trunk::{RecordHeader, RecordKind};

    use super::*;
    use crate::socket;

    /// Says that the test runs in its namespace already.
    const INSIDE: &str = "FIRSTHOP_TEST_INSIDE";

    /// Runs a test of this program anew, in a network namespace of its own.
    fn run_inside(test: &str) {
        let mut command = Command::new("unshare");
        // Without being root one is it in a namespace of users.
        if std::fs::metadata("/proc/self").expect("metadata").uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        let status = command
            .args(["--net", "--"])
            .arg(std::env::current_exe().expect("this test's own path"))
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .status()
            .expect("unshare (util-linux)");
        assert!(status.success(), "{status}");
    }

    fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split(' ')).status();
        let status = status.expect("ip (iproute2)");
        assert!(status.success(), "ip {arguments}: {status}");
    }

    /// How many fragments of IPv4 packets this namespace has made.
    fn fragments() -> u64 {
        let table = std::fs::read_to_string("/proc/self/net/snmp").expect("procfs");
        let mut lines = table.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let mut columns = names.split(' ').zip(values.split(' '));
        let value = columns.find(|(name, _)| *name == "FragCreates");
        value.expect("a column").1.parse().expect("a number")
    }

    struct Rig {
        egress: Egress,
        paths: Paths,
        socket: std::net::UdpSocket,
        keyring: DataKeyring,
        now: Instant,
    }

    impl Rig {
        /// Sends what many records make; returns the sizes of datagrams, and how many were too large for the path.
        fn send(&mut self, hop: Hop, payload: usize) -> (Vec<usize>, usize) {
            for n in 0..60 {
                let header = RecordHeader {
                    kind: RecordKind::Packet,
                    client: ClientAddr::new(([198, 51, 100, 7], 4_000).into()),
                    tcp: false,
                    proven: false,
                    ingress: IngressId(0),
                    session: SessionId(n),
                    handle: FlowHandle(1),
                    owner: None,
                    payload_len: 0,
                };
                assert!(self.egress.push(hop, &header, &vec![0; payload]));
            }
            let (mut sizes, mut sent) = (Vec::new(), socket::Sent::default());
            let fd = self.socket.as_raw_fd();
            self.egress.flush(
                self.keyring.active(),
                || BootId(0),
                |ready| {
                    let list: Vec<(SocketAddr, &[u8])> = ready
                        .iter()
                        .map(|(hop, bytes)| (hop.get(), *bytes))
                        .collect();
                    sizes = list.iter().map(|(_, bytes)| bytes.len()).collect();
                    sent = socket::send_batch(fd, &list);
                },
            );
            assert_eq!((sent.taken, sent.failed, sent.left), (sizes.len(), 0, 0));
            for to in &sent.oversize {
                self.egress.too_large(Hop::new(*to));
            }
            self.paths.look(&mut self.egress, self.now);
            (sizes, sent.oversize.len())
        }
    }

    #[test]
    fn a_bound_that_is_set_by_hand_holds_from_the_first_datagram_on() {
        let (mut sockets, _) = socket::bind_group(([127, 0, 0, 1], 0).into(), 1).expect("a socket");
        let now = Instant::now();
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let mut rig = Rig {
            paths: Paths::new(Some(1_280), &mut egress, now),
            egress,
            socket: sockets.remove(0),
            keyring: DataKeyring::parse(&Masters::new([1; 32]).data_toml()).expect("a keyring"),
            now,
        };
        // Nothing answers there, and nothing has to: what matters is how it is packed.
        let hop = Hop::new(([127, 0, 0, 1], 9).into());
        let other = Hop::new(([198, 51, 100, 1], 9).into());
        assert_eq!(rig.egress.limit(hop), TRUNK_DATAGRAM_MAX);
        assert_eq!(rig.egress.limit(other), 1_232);
        rig.paths.look(&mut rig.egress, now);
        assert!(rig.egress.limit(other) <= 1_232);
        let (sizes, _) = rig.send(hop, 120);
        assert_eq!(sizes.len(), 1);
    }

    #[test]
    fn datagrams_follow_the_mtu_of_each_path() {
        if std::env::var_os(INSIDE).is_none() {
            return run_inside("worker::paths::tests::datagrams_follow_the_mtu_of_each_path");
        }
        for command in [
            "link add wide type veth peer name far",
            "link set far mtu 9000 up",
            "link set wide mtu 9000 up",
            "addr add 10.9.0.1/16 dev wide",
            "addr add fd09::1/64 dev wide nodad",
            "route add 10.10.1.0/24 via 10.9.0.2 dev wide mtu 1400",
            // Who is there, is there at once: nothing waits for an answer.
            "neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev wide",
            "neigh add fd09::2 lladdr 02:00:00:00:00:02 dev wide",
        ] {
            ip(command);
        }
        let any = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), 0);
        let to = |ip: &str| Hop::new(SocketAddr::new(ip.parse().expect("an address"), 4_000));
        for (own, hop, largest) in [
            ("10.9.0.1", to("10.9.0.2"), 8_960),
            ("10.9.0.1", to("10.10.1.1"), 1_372),
            ("fd09::1", to("fd09::2"), 8_952),
        ] {
            let (mut sockets, _) = socket::bind_group(any(own), 1).expect("a socket");
            let now = Instant::now();
            let mut egress = Egress::new(ShardId(3), BootId(9));
            let mut rig = Rig {
                paths: Paths::new(None, &mut egress, now),
                egress,
                socket: sockets.remove(0),
                keyring: DataKeyring::parse(&Masters::new([1; 32]).data_toml()).expect("a keyring"),
                now,
            };
            // The first ones are as Ethernet takes them; a path that takes less counts them.
            let (first, oversize) = rig.send(hop, 120);
            assert!(first.iter().all(|size| *size <= 1_452));
            assert_eq!(oversize > 0, largest < 1_452, "{hop:?}");
            let (sizes, oversize) = rig.send(hop, 120);
            let most = sizes.iter().max().expect("some");
            assert!(
                *most <= largest && *most + 138 + 60 > largest.min(60 * 138),
                "{hop:?}: {most}"
            );
            assert_eq!(oversize, 0, "{hop:?}");

            // What no datagram of that path takes leaves in fragments, each in two.
            if largest < 1_452 {
                let before = fragments();
                let (sizes, oversize) = rig.send(hop, 1_400);
                assert_eq!((sizes.len(), oversize), (60, 60));
                assert_eq!(fragments() - before, 120);
            }
        }

        // A path that becomes narrow is noticed by the first datagram, and one that becomes wide in time.
        let (mut sockets, _) = socket::bind_group(any("10.9.0.1"), 1).expect("a socket");
        let now = Instant::now();
        let hop = to("10.9.0.2");
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let mut rig = Rig {
            paths: Paths::new(None, &mut egress, now),
            egress,
            socket: sockets.remove(0),
            keyring: DataKeyring::parse(&Masters::new([1; 32]).data_toml()).expect("a keyring"),
            now,
        };
        rig.send(hop, 120);
        assert_eq!(rig.send(hop, 120).0.len(), 1);
        ip("link set wide mtu 1400");
        rig.now += PATH_MTU_DOUBT;
        let (_, oversize) = rig.send(hop, 120);
        assert_eq!(oversize, 1);
        let (sizes, oversize) = rig.send(hop, 120);
        assert_eq!(oversize, 0, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 1_372), "{sizes:?}");
        ip("link set wide mtu 9000");
        rig.now += PATH_MTU_AGE;
        rig.send(hop, 120);
        assert_eq!(rig.send(hop, 120).0.len(), 1);
    }
}
