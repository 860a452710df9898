//! Placement: which transceiver, and which of its workers, gets the next call.
//!
//! The less loaded of two random choices: almost as even as always taking the emptiest one, and without the herd that forms
//! when several replicas see the same emptiest one in the same second. It is applied twice, to the transceivers with room and
//! then to the workers with room of the one that won. Load is a share of capacity, so that large and small ones fill alike.
//!
//! A status is up to a second old. So that a burst spreads, the table adds what this replica placed itself and the status
//! cannot know yet: calls being created, and calls created after the status was asked for. Others' placements show up with the
//! next status.
//!
//! The module is pure: it reads no clock and no random source; both are passed in.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::{BootId, OwnerAddr, ShardId};
use firsthop_shared::control::Status;
use firsthop_shared::limits::SHARDS_MAX;
use rand::{Rng, RngExt as _};

/// Where a call was placed. Hand it back to [`Placement::settle`] when the owner has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The owner's control address.
    pub control: SocketAddr,
    /// The owner's trunk address, as it is minted into the ufrag.
    pub owner: OwnerAddr,
    /// The owner's worker.
    pub shard: ShardId,
    boot: BootId,
}

/// What became of a placed call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The owner has it, or may have it.
    Kept,
    /// The owner does not have it.
    Refused,
    /// The owner does not have it, nor such a worker.
    NoSuchShard,
}

/// How a transceiver stands, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// Takes calls.
    Ready,
    /// Healthy, and has no room.
    Full,
    /// Healthy, and takes no new calls.
    Draining,
    /// Without a recent good status.
    Away,
    /// Another address of a transceiver that is known by one already, which counts.
    Repeated,
}

impl Standing {
    /// Every way to stand.
    pub const ALL: [Self; 5] = [
        Self::Ready,
        Self::Full,
        Self::Draining,
        Self::Away,
        Self::Repeated,
    ];

    /// The word for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::Away => "away",
            Self::Repeated => "repeated",
        }
    }
}

/// The transceivers that this replica knows, and their load.
#[derive(Debug)]
pub struct Placement {
    owners: Vec<Owner>,
    fresh: Duration,
}

#[derive(Debug)]
struct Owner {
    control: SocketAddr,
    report: Option<Report>,
    /// Set when something failed that the next good status must clear first.
    doubted: bool,
    /// Whether another address led to the same process when this one last had a good status.
    repeated: bool,
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Report {
    /// Until then it counts as recent.
    fresh_until: Instant,
    boot: BootId,
    owner: OwnerAddr,
    draining: bool,
}

/// One worker. Of the calls that this replica placed there, the status knows those that were settled before it was asked for.
#[derive(Clone, Debug, Default)]
struct Shard {
    sessions: u32,
    capacity: u32,
    /// Placed, not settled.
    in_flight: u32,
    /// Settled before the poll that is under way.
    before_poll: u32,
    /// Settled since.
    since_poll: u32,
    /// The owner said that there is no such worker; its next status tells.
    gone: bool,
}

impl Placement {
    /// A table without transceivers, where each good status counts as recent for as long as `fresh`.
    #[must_use]
    pub fn new(fresh: Duration) -> Self {
        Self {
            owners: Vec::new(),
            fresh,
        }
    }

    /// Sets which transceivers there are, by control address; those that stay keep what is known of them.
    pub fn set_members(&mut self, controls: &[SocketAddr]) {
        self.owners
            .retain(|owner| controls.contains(&owner.control));
        for control in controls {
            if self.find(*control).is_none() {
                self.owners.push(Owner {
                    control: *control,
                    report: None,
                    doubted: false,
                    repeated: false,
                    shards: Vec::new(),
                });
            }
        }
    }

    /// The control addresses of all transceivers, in the order in which they became known.
    pub fn members(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.owners.iter().map(|owner| owner.control)
    }

    /// Notes that a status is being asked for: what is settled from now on may not be in it.
    pub fn poll_started(&mut self, control: SocketAddr) {
        for shard in self.find(control).into_iter().flat_map(|o| &mut o.shards) {
            shard.before_poll += shard.since_poll;
            shard.since_poll = 0;
        }
    }

    /// Takes a status that arrived at `now`.
    pub fn observe(&mut self, control: SocketAddr, status: &Status, now: Instant) {
        let fresh_until = now + self.fresh;
        let boot = BootId(status.boot);
        let trunk = OwnerAddr::new(status.owner);
        // A name may have addresses of both families for one transceiver. Its room is there once.
        let repeated = self.owners.iter().any(|other| {
            let same = |report: &Report| report.boot == boot && report.owner == trunk;
            other.control != control
                && other.report.as_ref().is_some_and(same)
                && !matches!(other.standing(now), Standing::Away | Standing::Repeated)
        });
        let Some(owner) = self.find(control) else {
            return;
        };
        if owner
            .report
            .as_ref()
            .is_some_and(|known| known.boot != boot)
        {
            // A new process: whatever was placed with the old one is gone.
            owner.shards.clear();
        }
        owner.report = Some(Report {
            fresh_until,
            boot,
            owner: trunk,
            draining: status.draining,
        });
        owner.doubted = false;
        owner.repeated = repeated;
        owner
            .shards
            .resize(status.shards.len().min(SHARDS_MAX), Shard::default());
        for (shard, told) in owner.shards.iter_mut().zip(&status.shards) {
            shard.sessions = told.sessions;
            shard.capacity = told.capacity;
            shard.gone = false;
            shard.before_poll = 0;
        }
    }

    /// Places nothing on a transceiver until its next good status: it refused a connection, or what it said made no sense.
    pub fn doubt(&mut self, control: SocketAddr) {
        if let Some(owner) = self.find(control) {
            owner.doubted = true;
        }
    }

    /// Chooses a transceiver and a worker, and counts the call as being created there.
    ///
    /// `except` is left out: the second try of a call goes elsewhere. Nothing is returned when no other has room.
    pub fn place(
        &mut self,
        now: Instant,
        except: Option<SocketAddr>,
        random: &mut impl Rng,
    ) -> Option<Place> {
        let open: Vec<usize> = (0..self.owners.len())
            .filter(|at| {
                let owner = &self.owners[*at];
                Some(owner.control) != except && owner.standing(now) == Standing::Ready
            })
            .collect();
        let chosen = less_loaded_of_two(&open, random, |at| self.owners[*at].load())?;
        let owner = &mut self.owners[*chosen];
        let report = owner.report.as_ref()?;
        let open: Vec<usize> = (0..owner.shards.len())
            .filter(|at| owner.shards[*at].has_room())
            .collect();
        let at = *less_loaded_of_two(&open, random, |at| owner.shards[*at].load())?;
        owner.shards[at].in_flight += 1;
        Some(Place {
            control: owner.control,
            owner: report.owner,
            shard: ShardId(u8::try_from(at).ok()?),
            boot: report.boot,
        })
    }

    /// Ends what [`Placement::place`] began.
    pub fn settle(&mut self, place: &Place, outcome: Outcome) {
        let Some(owner) = self.find(place.control) else {
            return;
        };
        if owner.report.as_ref().is_none_or(|r| r.boot != place.boot) {
            return;
        }
        let at = usize::from(place.shard.0);
        if let Some(shard) = owner.shards.get_mut(at) {
            shard.in_flight = shard.in_flight.saturating_sub(1);
            if outcome == Outcome::Kept {
                shard.since_poll += 1;
            }
        }
        if outcome == Outcome::NoSuchShard {
            // Another process is there than the last status was of, with fewer workers. They are numbered without gaps: those before this one
            // may be there, and take calls meanwhile.
            for shard in owner.shards.iter_mut().skip(at) {
                shard.gone = true;
            }
        }
    }

    /// How a transceiver stands; nothing when it is not a member.
    #[must_use]
    pub fn standing(&self, control: SocketAddr, now: Instant) -> Option<Standing> {
        self.owners
            .iter()
            .find(|owner| owner.control == control)
            .map(|owner| owner.standing(now))
    }

    /// How many transceivers stand like this.
    #[must_use]
    pub fn count(&self, standing: Standing, now: Instant) -> usize {
        self.owners
            .iter()
            .filter(|owner| owner.standing(now) == standing)
            .count()
    }

    fn find(&mut self, control: SocketAddr) -> Option<&mut Owner> {
        self.owners
            .iter_mut()
            .find(|owner| owner.control == control)
    }
}

impl Owner {
    fn standing(&self, now: Instant) -> Standing {
        match &self.report {
            Some(report) if !self.doubted && now <= report.fresh_until => {
                if self.repeated {
                    Standing::Repeated
                } else if report.draining {
                    Standing::Draining
                } else if self.shards.iter().any(Shard::has_room) {
                    Standing::Ready
                } else {
                    Standing::Full
                }
            }
            _ => Standing::Away,
        }
    }

    fn load(&self) -> Load {
        self.shards.iter().map(Shard::load).fold(
            Load {
                sessions: 0,
                capacity: 0,
            },
            |sum, one| Load {
                sessions: sum.sessions + one.sessions,
                capacity: sum.capacity + one.capacity,
            },
        )
    }
}

impl Shard {
    fn has_room(&self) -> bool {
        let load = self.load();
        load.sessions < load.capacity
    }

    fn load(&self) -> Load {
        let own = [self.in_flight, self.before_poll, self.since_poll];
        Load {
            sessions: u64::from(self.sessions) + own.into_iter().map(u64::from).sum::<u64>(),
            capacity: if self.gone { 0 } else { self.capacity.into() },
        }
    }
}

/// Sessions against capacity: a fraction that is compared without dividing.
#[derive(Clone, Copy)]
struct Load {
    sessions: u64,
    capacity: u64,
}

impl Load {
    fn is_less_than(self, other: Self) -> bool {
        u128::from(self.sessions) * u128::from(other.capacity)
            < u128::from(other.sessions) * u128::from(self.capacity)
    }
}

/// Draws two different ones and returns the less loaded; the first drawn of two equal ones.
fn less_loaded_of_two<'a, T>(
    choices: &'a [T],
    random: &mut impl Rng,
    load: impl Fn(&T) -> Load,
) -> Option<&'a T> {
    let first = match choices {
        [] => return None,
        [only] => return Some(only),
        _ => random.random_range(0..choices.len()),
    };
    let step = random.random_range(1..choices.len());
    let second = (first + step) % choices.len();
    let (first, second) = (&choices[first], &choices[second]);
    Some(if load(second).is_less_than(load(first)) {
        second
    } else {
        first
    })
}
