//! Junk at the highest rate that the generator can send, from millions of addresses, beside live calls: what the calls lose,
//! what the relay remembers of it, and what each kind of junk costs.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use firsthop_shared::stun_write::{Role, binding_request};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use crate::burst::{self, BurstPlan, Work, wait_empty};
use crate::crowd::{CLIENT_UFRAG, Crowd, open_socket};
use crate::load::{self, LoadPlan, LoadReport, Way};
use crate::mmsg::{BATCH, Outbox, copy_of};
use crate::process::own_drops;
use crate::rig::{Direction, Rig};
use crate::subject::Subject;

/// What is thrown at a relay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Junk {
    /// Bytes without meaning.
    Random,
    /// Datagrams without payload.
    Empty,
    /// Well-formed checks whose ufrag nobody minted.
    ForgedUfrag,
    /// Checks with a valid ufrag, made without its password.
    WrongIntegrity,
    /// Copies of live calls' valid checks, from other addresses.
    Replayed,
}

impl Junk {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Random,
        Self::Empty,
        Self::ForgedUfrag,
        Self::WrongIntegrity,
        Self::Replayed,
    ];

    /// The kind in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random bytes",
            Self::Empty => "empty datagrams",
            Self::ForgedUfrag => "forged ufrags",
            Self::WrongIntegrity => "wrong integrity",
            Self::Replayed => "replayed checks",
        }
    }

    /// The name of the ratio of its cost to that of forwarding.
    #[must_use]
    pub fn ratio(self) -> &'static str {
        match self {
            Self::Random => "junk_random_vs_forwarding",
            Self::Empty => "junk_empty_vs_forwarding",
            Self::ForgedUfrag => "junk_forged_ufrag_vs_forwarding",
            Self::WrongIntegrity => "junk_wrong_integrity_vs_forwarding",
            Self::Replayed => "junk_replayed_vs_forwarding",
        }
    }

    /// Whether it may cost no more than a packet that is forwarded. A check must be verified before its integrity is known to be wrong;
    /// that is bounded by a budget of checks a millisecond, and not by the cost of each.
    #[must_use]
    pub fn is_judged(self) -> bool {
        self != Self::WrongIntegrity
    }
}

/// Different packets of one kind that a flood repeats.
const POOL: usize = 512;

/// Sends one kind of junk.
pub struct Flood {
    socket: UdpSocket,
    target: SocketAddrV4,
    outbox: Outbox,
    pool: Vec<Vec<u8>>,
    position: usize,
    /// Source addresses that it uses in turn.
    sources: u32,
    sent: u64,
}

impl Flood {
    /// Prepares a flood against the relay that a crowd's calls go through.
    ///
    /// # Errors
    /// A socket cannot be had.
    pub fn new(junk: Junk, crowd: &Crowd, target: SocketAddrV4, sources: u32) -> io::Result<Self> {
        let mut rng = StdRng::seed_from_u64(3);
        let (socket, _) = open_socket()?;
        let pool = (0..POOL as u32)
            .map(|i| packet(junk, crowd, i % crowd.flows(), &mut rng))
            .collect();
        Ok(Self {
            socket,
            target,
            outbox: Outbox::new(512),
            pool,
            position: 0,
            sources,
            sent: 0,
        })
    }

    /// Sends one batch, each packet from another address.
    ///
    /// # Errors
    /// What the socket says.
    pub fn batch(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let number = self.position as u32 % self.sources;
            // The upper half of the loopback network, where no client of the crowd is.
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 128, 0, 1)) + number);
            let packet = &self.pool[self.position % POOL];
            self.outbox.push(self.target, Some(from), copy_of(packet));
            self.position += 1;
        }
        self.sent += self.outbox.send(&self.socket)? as u64;
        Ok(())
    }
}

fn packet(junk: Junk, crowd: &Crowd, flow: u32, rng: &mut StdRng) -> Vec<u8> {
    let mut out = Vec::new();
    match junk {
        Junk::Empty => {}
        Junk::Random => {
            out.resize(100, 0);
            rng.fill(&mut out[..]);
        }
        Junk::Replayed => crowd.check(flow, &mut out),
        Junk::ForgedUfrag | Junk::WrongIntegrity => {
            let (ufrag, password) = crowd.credentials(flow);
            let mut name = format!("{ufrag}:{CLIENT_UFRAG}");
            let mut password = password.as_bytes().to_vec();
            if junk == Junk::ForgedUfrag {
                // Another letter in the middle of the seal.
                let letter = if name.as_bytes()[20] == b'A' {
                    "B"
                } else {
                    "A"
                };
                name.replace_range(20..21, letter);
            } else {
                password[0] ^= 1;
            }
            let role = Role::Controlling(1, true);
            binding_request(&mut out, [5; 12], &name, &password, 1, role);
        }
    }
    out
}

/// What a flood did.
#[derive(Clone, Debug, Serialize)]
pub struct FloodReport {
    /// What was thrown.
    pub junk: Junk,
    /// How much of it per second.
    pub rate: f64,
    /// Processor time per junk packet of a relay that does nothing else, in nanoseconds.
    pub nanos: f64,
    /// Processor time per packet that the same relay forwards up, right before: packets and backlogs alike.
    pub forwarding: f64,
    /// Share of the live calls' packets that were lost on the way up.
    pub lost_up: f64,
    /// Share that was lost on the way down.
    pub lost_down: f64,
    /// How many packets both shares are.
    pub lost: u64,
    /// Datagrams that found no room in the sockets of this program, which takes the calls' packets too.
    pub own_drops: u64,
    /// By how much the relay's memory grew, in bytes.
    pub memory_growth: i64,
    /// What the relay says it dropped, by reason; what its sockets had no room for under `kernel_` and their name.
    pub drops: BTreeMap<String, u64>,
}

/// How hard to flood.
#[derive(Clone, Copy, Debug)]
pub struct FloodPlan {
    /// Different source addresses.
    pub sources: u32,
    /// Junk packets per second; infinite: as many as this thread can send beside the calls.
    pub junk_rate: f64,
    /// Packets per second and live call, each way.
    pub live_rate: f64,
    /// For how long.
    pub duration: Duration,
    /// Backlogs of junk alone, to find the cost.
    pub rounds: u32,
}

/// Junk packets of one backlog.
const BACKLOG: usize = 4_096;

/// How long stragglers among the live calls' packets are waited for: what comes late in a flood was not lost.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// Floods a relay while the rig's calls are live, then measures the junk alone.
///
/// # Errors
/// The relay ended, or sockets fail.
pub fn run(
    rig: &mut Rig,
    subject: &mut Subject,
    junk: Junk,
    plan: &FloodPlan,
) -> io::Result<FloodReport> {
    let before = subject.published()?;
    let own_before = own_drops()?;
    let memory = subject.process.usage()?.resident;
    let mut flood = Flood::new(junk, &rig.crowd, subject.place.public, plan.sources)?;
    let load = LoadPlan {
        direction: Direction::Both,
        rate: plan.live_rate * f64::from(rig.crowd.flows()),
        duration: plan.duration,
        stragglers: STRAGGLERS,
    };
    let begin = Instant::now();
    let live: LoadReport = load::run_beside(rig, None, &load, || {
        if (flood.sent as f64) < plan.junk_rate * begin.elapsed().as_secs_f64() {
            flood.batch()?;
        }
        Ok(())
    })?;
    let rate = flood.sent as f64 / plan.duration.as_secs_f64();
    let own_drops = own_drops()?.saturating_sub(own_before);
    let forwarding = BurstPlan {
        work: Work::Forward(Direction::Up),
        packets: BACKLOG as u32,
        rounds: plan.rounds,
        asleep: false,
    };
    let forwarding = burst::run(rig, &mut subject.process, &forwarding)?.nanos;
    let nanos = cost(&mut flood, subject, rig, plan.rounds)?;
    let after = subject.published()?;
    let (up, down) = (live.up.unwrap_or_default(), live.down.unwrap_or_default());
    let lost = |way: &Way| way.sent.saturating_sub(way.received);
    Ok(FloodReport {
        junk,
        rate,
        nanos,
        forwarding,
        lost_up: up.lost(),
        lost_down: down.lost(),
        lost: lost(&up) + lost(&down),
        own_drops,
        memory_growth: subject.process.usage()?.resident as i64 - memory as i64,
        drops: after.drops_since(&before),
    })
}

/// Works off backlogs of junk; the median cost of one packet.
fn cost(flood: &mut Flood, subject: &mut Subject, rig: &mut Rig, rounds: u32) -> io::Result<f64> {
    let mut costs = Vec::new();
    for _ in 0..=rounds {
        subject.process.halt()?;
        let sent = flood.sent;
        for _ in 0..BACKLOG / BATCH {
            flood.batch()?;
        }
        let start = subject.process.usage()?.cpu_nanos;
        subject.process.go_on()?;
        wait_empty(SocketAddr::V4(subject.place.public))?;
        subject.process.halt()?;
        let nanos = subject.process.usage()?.cpu_nanos - start;
        costs.push(nanos as f64 / (flood.sent - sent) as f64);
        subject.process.go_on()?;
        // What replayed checks bring to owners must not fill their socket.
        while rig.poll(|_| {}, |_| {})?.datagrams > 0 {}
    }
    costs.remove(0);
    costs.sort_by(f64::total_cmp);
    Ok(costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN))
}
