//! Two hosts and the line between them: network namespaces whose interfaces this program joins.
//!
//! A namespace belongs to a thread: what is opened or started on a thread that has entered one stays there, wherever it is used later.

#![allow(unsafe_code)] // `setns` has no safe wrapper.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::impair::fate::Line;
use crate::impair::link::Link;
use crate::impair::{Impaired, Late};
use crate::place::Place;

/// What clients reach the server by, and their own address on that network.
const PUBLIC: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 77, 1, 2), Ipv4Addr::new(10, 77, 1, 1));

/// The same of the network that only relays and transceivers are on; a generator that plays a relay is on it, too.
const INTERNAL: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 77, 2, 2), Ipv4Addr::new(10, 77, 2, 1));

/// The interface of each host, and its hardware address.
const INTERFACE: &str = "line";
const SERVER_MAC: &str = "02:00:00:00:77:02";
const CLIENT_MAC: &str = "02:00:00:00:77:01";

/// A network namespace that is there until it is dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
}

impl Host {
    fn make(name: String) -> io::Result<Self> {
        ip(&["netns", "add", &name])?;
        let host = Self { name };
        host.ip(&["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// Does something in the namespace: what it opens and starts stays there.
    ///
    /// # Errors
    /// The namespace cannot be entered; what `work` says.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter()?;
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves this thread into the namespace, for good.
    fn enter(&self) -> io::Result<()> {
        let namespace = File::open(format!("/run/netns/{}", self.name))?;
        // SAFETY: the descriptor is open; no memory is involved.
        match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn ip(&self, words: &[&str]) -> io::Result<()> {
        let mut all = vec!["-n", &self.name];
        all.extend(words);
        ip(&all)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A namespace that is left behind does no harm.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Two hosts and the line between them.
pub struct World {
    // The line ends before the interfaces that it joins.
    line: Impaired,
    /// Where clients are.
    pub client: Host,
    /// Where programs are.
    pub server: Host,
    _middle: Host,
}

impl World {
    /// Makes the hosts, and joins them by a line that takes no time yet.
    ///
    /// # Errors
    /// This is not root, or `ip` is missing; the message says which.
    pub fn make() -> io::Result<Self> {
        // As the end-to-end tests name theirs: whoever clears stale ones away sees that this process is there.
        let name = |part: &str| format!("firsthop-{}-setup-{part}", std::process::id());
        let middle = Host::make(name("middle"))?;
        let client = Host::make(name("client"))?;
        let server = Host::make(name("server"))?;
        for (end, host, mac, other_mac, mine) in [
            ("left", &client, CLIENT_MAC, SERVER_MAC, 1),
            ("right", &server, SERVER_MAC, CLIENT_MAC, 0),
        ] {
            let peer = ["type", "veth", "peer", "name", INTERFACE, "netns"];
            let mut words = vec!["link", "add", end];
            words.extend(peer);
            words.push(&host.name);
            middle.ip(&words)?;
            middle.ip(&["link", "set", end, "up"])?;
            host.ip(&["link", "set", INTERFACE, "address", mac, "up"])?;
            for network in [PUBLIC, INTERNAL] {
                let addresses = [network.0, network.1];
                let own = format!("{}/24", addresses[mine]);
                host.ip(&["addr", "add", &own, "dev", INTERFACE])?;
                // Nobody waits for an address to be resolved.
                let other = addresses[1 - mine].to_string();
                let mut words = vec!["neigh", "replace", &other, "lladdr", other_mac];
                words.extend(["dev", INTERFACE, "nud", "permanent"]);
                host.ip(&words)?;
            }
        }
        let line = middle.within(|| {
            let links = [Link::open("left")?, Link::open("right")?];
            Impaired::start(links, line(Duration::ZERO, 0.0), 1)
        })?;
        Ok(Self {
            line,
            client,
            server,
            _middle: middle,
        })
    }

    /// Gives the line a length, and has it lose a share of the frames each way.
    ///
    /// # Errors
    /// The line has ended.
    pub fn set(&mut self, round_trip: Duration, loss: f64) -> io::Result<()> {
        self.line.set(line(round_trip, loss))
    }

    /// How much later than due the line sent frames on since this was asked last.
    ///
    /// # Errors
    /// The line has ended.
    pub fn late(&mut self) -> io::Result<Late> {
        Ok(self.line.measure()?.late_us)
    }

    /// Where programs stand on the server.
    #[must_use]
    pub fn place() -> Place {
        Place {
            public: SocketAddrV4::new(PUBLIC.0, 3478),
            internal: SocketAddrV4::new(INTERNAL.0, 4000),
            admin: SocketAddrV4::new(INTERNAL.0, 9101),
        }
    }

    /// The address of the clients.
    #[must_use]
    pub fn client_address() -> Ipv4Addr {
        PUBLIC.1
    }
}

fn line(round_trip: Duration, loss: f64) -> Line {
    Line {
        delay: round_trip / 2,
        jitter: Duration::ZERO,
        loss,
        cut: false,
    }
}

/// Asks iproute2 for something.
fn ip(words: &[&str]) -> io::Result<()> {
    let said = Command::new("ip")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            io::Error::other(format!(
                "ip (iproute2) makes the network, and cannot be started: {error}"
            ))
        })?;
    if said.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&said.stderr);
    Err(io::Error::other(format!(
        "ip {}: {}; the network is made as root",
        words.join(" "),
        text.trim()
    )))
}
