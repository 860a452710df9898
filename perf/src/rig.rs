//! Clients and owners around one program under test, played by this one thread.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_shared::address::ClusterId;
use firsthop_shared::keyring::DataKeyring;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::crowd::{Crowd, CrowdPlan, HELLO};
use crate::owners::Owners;
use crate::packet::{Sizes, Stamp};
use crate::wire::Wire;

/// Which way media goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From clients to owners.
    Up,
    /// From owners to clients.
    Down,
    /// Both at once, as many each way.
    Both,
}

impl Direction {
    /// Whether clients send.
    #[must_use]
    pub fn up(self) -> bool {
        self != Self::Down
    }

    /// Whether owners send.
    #[must_use]
    pub fn down(self) -> bool {
        self != Self::Up
    }
}

/// What to put around a program.
#[derive(Clone)]
pub struct RigPlan {
    /// What it speaks.
    pub wire: Wire,
    /// Where clients reach it.
    pub target: SocketAddrV4,
    /// The fleet's keys.
    pub keyring: Arc<DataKeyring>,
    /// The relay's cluster.
    pub cluster: ClusterId,
    /// Flows.
    pub flows: u32,
    /// Owners, to which the flows belong in turn.
    pub owners: u16,
    /// The largest trunk datagram that owners write, in bytes.
    pub datagram_len: usize,
    /// How large media packets are.
    pub sizes: Sizes,
}

/// Why a measurement did not take place.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// A socket or a program failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not every flow came through.
    #[error(
        "only {known} of {flows} flows were set up: is the relay there, with this keyring and cluster?"
    )]
    SetUp {
        /// How many did.
        known: u32,
        /// How many there are.
        flows: u32,
    },
    /// What was to be measured was not there.
    #[error("the relay has {there} of {flows} flows")]
    Missing {
        /// How many flows it says it has.
        there: u64,
        /// How many it should have.
        flows: u32,
    },
    /// Too much was lost for the rest to say what was to be measured.
    #[error("{:.2} % of {packets} packets were lost", 100.0 * lost)]
    Lossy {
        /// The share that was lost.
        lost: f64,
        /// How many packets were sent.
        packets: u64,
    },
    /// Flows were not forgotten when they should have been.
    #[error("{flows} flows were forgotten {when}")]
    Forgotten {
        /// How many were.
        flows: u64,
        /// When.
        when: &'static str,
    },
    /// A setting that makes no measurement.
    #[error("{0}")]
    Setting(&'static str),
}

/// Clients, owners, and the order in which flows take their turns.
pub struct Rig {
    /// What the program under test speaks.
    pub wire: Wire,
    /// The clients.
    pub crowd: Crowd,
    /// The owners.
    pub owners: Owners,
    /// How large media packets are.
    pub sizes: Sizes,
    /// All flows, shuffled once: no two packets of one flow in a row, and no order that a cache could guess.
    pub order: Vec<u32>,
    /// The zero of the packets' time.
    pub start: Instant,
    /// How long it took to [restore](Self::restore) the flows, if that was done.
    pub restored_in: Duration,
}

/// Packets that arrived in one look.
#[derive(Clone, Copy, Default, Debug)]
pub struct Arrived {
    /// At owners.
    pub up: u64,
    /// At clients.
    pub down: u64,
    /// Datagrams of any kind.
    pub datagrams: u64,
}

/// How often an unanswered greeting is sent again.
const HELLO_INTERVAL: Duration = Duration::from_millis(300);

/// How many greetings are under way at a time, so that they fit every buffer on the way.
const HELLO_GROUP: usize = 64;

/// How many records that restore flows are under way at a time.
const RESTORE_GROUP: usize = 2_048;

/// When none of them has come through for so long, the missing ones are lost, and sent again later.
const RESTORE_QUIET: Duration = Duration::from_millis(20);

impl Rig {
    /// Opens all sockets. Nothing is sent yet.
    ///
    /// # Errors
    /// A setting makes no sense, or a socket cannot be had.
    pub fn open(plan: &RigPlan) -> Result<Self, RigError> {
        if plan.flows == 0 || plan.owners == 0 {
            return Err(RigError::Setting("flows and owners are at least 1"));
        }
        if plan.owners > crate::place::OWNERS_MAX {
            return Err(RigError::Setting("more owners than there are addresses"));
        }
        let owners = Owners::open(
            plan.wire,
            plan.owners,
            plan.flows,
            plan.datagram_len,
            Arc::clone(&plan.keyring),
        )?;
        let crowd = Crowd::open(CrowdPlan {
            wire: plan.wire,
            flows: plan.flows,
            owners: plan.owners,
            owner_port: owners.port(),
            target: plan.target,
            keyring: Arc::clone(&plan.keyring),
            cluster: plan.cluster,
        })?;
        let mut order: Vec<u32> = (0..plan.flows).collect();
        // The same order in every run: what is compared does the same work.
        order.shuffle(&mut StdRng::seed_from_u64(1));
        Ok(Self {
            wire: plan.wire,
            crowd,
            owners,
            sizes: plan.sizes,
            order,
            start: Instant::now(),
            restored_in: Duration::ZERO,
        })
    }

    /// Brings every flow up: greetings, checks, answers and proof, until every owner knows its clients.
    ///
    /// # Errors
    /// Sockets fail, or not every flow is there after `patience`.
    pub fn set_up(&mut self, patience: Duration) -> Result<Duration, RigError> {
        let begin = Instant::now();
        let flows = self.crowd.flows();
        while self.owners.known() < flows {
            if begin.elapsed() > patience {
                let known = self.owners.known();
                return Err(RigError::SetUp { known, flows });
            }
            let order = std::mem::take(&mut self.order);
            for group in order.chunks(HELLO_GROUP) {
                let mut any = false;
                for &flow in group {
                    if !self.owners.knows(flow) {
                        self.crowd.hello(flow)?;
                        any = true;
                    }
                }
                if any {
                    self.crowd.flush()?;
                    self.settle(Duration::from_micros(500))?;
                }
            }
            self.order = order;
            let again = Instant::now() + HELLO_INTERVAL;
            while self.owners.known() < flows && Instant::now() < again {
                self.poll(|_| {}, |_| {})?;
            }
        }
        // What is still on its way belongs to the set-up.
        self.settle(Duration::from_millis(50))?;
        Ok(begin.elapsed())
    }

    /// Makes the relay restore every flow from a downlink record, the way it heals after a restart. A record that does not come
    /// through to its client is sent again: a socket on the way may have had no room for it while a program stood still.
    ///
    /// A quarter of the flows stays provisional: that much of a relay's table takes no others.
    ///
    /// # Errors
    /// Sockets fail, or not every client has heard of its owner after `patience`.
    pub fn restore(
        &mut self,
        internal: SocketAddrV4,
        patience: Duration,
    ) -> Result<Duration, RigError> {
        let begin = Instant::now();
        let flows = self.crowd.flows();
        let mut reached = vec![false; flows as usize];
        let mut missing = self.order.clone();
        while !missing.is_empty() {
            for group in missing.chunks(RESTORE_GROUP) {
                if begin.elapsed() > patience {
                    let known = reached.iter().filter(|&&reached| reached).count() as u32;
                    return Err(RigError::SetUp { known, flows });
                }
                for &flow in group {
                    // Anew each time: a record says but once that its flow is proven.
                    let client = self.crowd.address(flow);
                    self.owners.adopt(flow, client, internal, flow % 4 != 0);
                    self.owners.media(flow, HELLO, 0, 0)?;
                }
                self.owners.flush()?;
                self.hear_hellos(&mut reached, group.len())?;
            }
            missing.retain(|&flow| !reached[flow as usize]);
        }
        self.restored_in = begin.elapsed();
        Ok(self.restored_in)
    }

    /// Marks the flows whose clients a greeting has reached, until so many more have been, or nothing has come for a while.
    fn hear_hellos(&mut self, reached: &mut [bool], mut more: usize) -> io::Result<()> {
        let mut last = Instant::now();
        while more > 0 && last.elapsed() < RESTORE_QUIET {
            let arrived = self.crowd.receive(|stamp| {
                if stamp.sequence == HELLO
                    && let Some(reached) = reached.get_mut(stamp.flow as usize)
                {
                    more = more.saturating_sub(usize::from(!*reached));
                    *reached = true;
                }
            })?;
            if arrived > 0 {
                last = Instant::now();
            }
        }
        Ok(())
    }

    /// Takes what arrived, until nothing has for `quiet`.
    fn settle(&mut self, quiet: Duration) -> io::Result<()> {
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            if self.poll(|_| {}, |_| {})?.datagrams > 0 {
                last = Instant::now();
            }
        }
        Ok(())
    }

    /// Takes one batch at every socket, and hands the stamps of media packets on. Greetings are not media.
    ///
    /// # Errors
    /// Sockets fail.
    pub fn poll(
        &mut self,
        mut up: impl FnMut(Stamp),
        mut down: impl FnMut(Stamp),
    ) -> io::Result<Arrived> {
        let mut arrived = Arrived::default();
        arrived.datagrams += self.owners.receive(|stamp| {
            if stamp.sequence != HELLO {
                arrived.up += 1;
                up(stamp);
            }
        })? as u64;
        arrived.datagrams += self.crowd.receive(|stamp| {
            if stamp.sequence != HELLO {
                arrived.down += 1;
                down(stamp);
            }
        })? as u64;
        // Answers to checks do not wait for company.
        self.crowd.flush()?;
        Ok(arrived)
    }
}
