//! What one core leaves to the core of its number in a successor process: its flows, and what it needs to serve them on.
//!
//! Hot restart keeps the sockets, so only this state would be lost. It goes over as one flat file, written when the core has
//! forwarded all that it received, and read before the successor's core receives the first packet. The successor then
//! decides about each further packet as its predecessor would have: claims with what is proven, the order in which
//! provisional ones give way, idle times, handles that owners echo, ufrag marks, and the replay windows of owners.
//!
//! What does not go over, and why nothing is lost by it: the core's boot id and trunk sequence (a successor is a sender of
//! its own, so owners' replay windows hold), what is known of other clusters' relays (they are asked anew), counters (they
//! begin at zero, as after any restart), path sizes (learned anew with the first datagram to each owner), the budget of
//! verifications (it begins full), the keyring (a file).
//!
//! The file is versioned and checked: it comes from another process, perhaps of another version. Numbers are big-endian, as
//! everywhere here. In this order:
//!
//! ```text
//! header    64   magic "FHFLOWS" and a zero, format u16, header length u16, capacity u32, flows u32, provisional claims u32,
//!                trunks u32, senders u32, two keys of the flow table's hash u64, reserved u64, SipHash-2-4 of all before
//! trunks    26   each: family u8 (4, 6), shard u8, port u16, address 16, lead u8 (0 straight to the owner, 1 back to another
//!                relay, 2 to an owner of another cluster), zero, that cluster u16, the core there u16
//! flows     76   each: slot u32, generation u16, flags u8, zero, key 20, age u32, age of the last free check u32,
//!                twice session u32, trunk u16, restart u8, zero, mark u32, the flow's handle at the other relay u32, trunk
//!                back there u16, zero u16
//! order      4   each: a provisional claim, oldest first: twice the slot, and 1 for a flow's second claim
//! senders  140   each: boot id u32, highest sequence u32, idle seconds u32, the window's bits 128
//! ```

mod header;
mod records;

use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};

use firsthop_shared::address::Hop;
use firsthop_shared::replay::SenderState;

use crate::flows::{Back, FlowImage};
use crate::limits::{CLAIMS_PER_FLOW, HANDOVER_BUFFER};
use crate::router::{Router, path_bit};
use crate::time::Micros;
use crate::trunks::{Lead, Target};
use header::Header;
use records::{FlowRecord, TrunkRecord};

/// The format that this version writes and reads. Another meaning of any byte is another format.
pub const FORMAT: u16 = 2;

/// What a core took over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Inherited {
    /// Flows that it serves on.
    pub flows: u32,
    /// Flows that its own settings do not let it serve: owners or clients outside of what is allowed now.
    pub left_out: u32,
}

/// Why a file of flows cannot be taken over. The router is then of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Neither this version nor another wrote it, or its header was altered.
    #[error("the header of the flows is damaged")]
    Header,
    /// Another version wrote it.
    #[error("the flows are in format {0}, and this relay reads format {FORMAT}")]
    Format(u16),
    /// It holds more than this router has room for.
    #[error("there are more {0} than this relay has room for")]
    Room(&'static str),
    /// It contradicts itself.
    #[error("the flows contradict themselves: {0}")]
    Inconsistent(&'static str),
    /// It ends too early.
    #[error("the flows end too early")]
    Truncated,
    /// It goes on where it should end.
    #[error("the flows do not end where they should")]
    Excess,
    /// It cannot be read.
    #[error("the flows cannot be read: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

impl Router {
    /// Writes what a successor needs. No record may be waiting: [flush](Router::flush), and send what is ready, before.
    ///
    /// # Errors
    /// What the writer says.
    pub fn export(&self, now: Micros, out: &mut impl Write) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(HANDOVER_BUFFER, out);
        let trunks: Vec<(usize, Target)> = self.trunks.claimed().collect();
        let numbers = numbers(&trunks);
        let counts = self.flows.counts();
        let senders = self.replay.senders();
        let header = Header {
            capacity: self.flows.capacity(),
            flows: counts.flows,
            provisional: counts.provisional,
            trunks: trunks.len() as u32,
            senders: senders as u32,
            hash: self.flows.hash_keys(),
        };
        out.write_all(&header.to_bytes())?;
        for &(_, target) in &trunks {
            out.write_all(&TrunkRecord { target }.to_bytes())?;
        }
        for image in self.flows.images(now.ticks()) {
            let number = |trunk| numbers[self.trunks.slot_of(trunk)];
            out.write_all(&FlowRecord::new(&image, number).to_bytes())?;
        }
        for node in self.flows.order() {
            out.write_all(&node.to_be_bytes())?;
        }
        for sender in self.replay.states(now.secs()) {
            out.write_all(&sender.to_bytes())?;
        }
        out.flush()
    }

    /// Takes over what a predecessor has written. The router must be fresh: it knows no flow and has heard no owner.
    ///
    /// # Errors
    /// The file is not whole, not of this format, or does not fit. Nothing of the router may be used then.
    pub fn import(&mut self, now: Micros, file: &mut impl Read) -> Result<Inherited, ImportError> {
        let mut file = BufReader::with_capacity(HANDOVER_BUFFER, file);
        let header = Header::parse(&read::<{ Header::LEN }>(&mut file)?)?;
        self.has_room(&header)?;
        let mut trunks = Vec::with_capacity(header.trunks as usize);
        for _ in 0..header.trunks {
            trunks.push(TrunkRecord::parse(&read(&mut file)?).ok_or(BAD_TRUNK)?);
        }
        let inherited = self.import_flows(now, &header, &trunks, &mut file)?;
        for _ in 0..header.senders {
            let state = SenderState::from_bytes(&read(&mut file)?);
            if !self.replay.restore(&state, now.secs()) {
                return Err(ImportError::Inconsistent("a sender stands there twice"));
            }
        }
        if file.fill_buf()?.is_empty() {
            Ok(inherited)
        } else {
            Err(ImportError::Excess)
        }
    }

    fn has_room(&self, header: &Header) -> Result<(), ImportError> {
        let full = |what| Err(ImportError::Room(what));
        if header.capacity > self.flows.capacity() || header.flows > header.capacity {
            full("flows")
        } else if header.provisional > self.flows.provisional_max() {
            full("provisional claims")
        } else if header.trunks > u32::from(self.trunks.capacity()) {
            full("trunks")
        } else if header.senders as usize > self.replay.capacity() {
            full("owners' workers")
        } else {
            Ok(())
        }
    }

    /// Whether this router may send where a predecessor did.
    fn allows(&self, trunk: &TrunkRecord) -> bool {
        let address = trunk.target.address;
        match trunk.target.lead {
            Lead::Straight => self.internal.contains(address.ip()),
            Lead::Beyond(lane) => self.relays_away && self.peers.lead_to(lane.cluster),
            Lead::Back => {
                self.takes_relayed && self.peers.cluster_of(Hop::new(address.get())).is_some()
            }
            Lead::Lane(_) => false,
        }
    }

    fn import_flows(
        &mut self,
        now: Micros,
        header: &Header,
        trunks: &[TrunkRecord],
        file: &mut impl Read,
    ) -> Result<Inherited, ImportError> {
        let mut inherited = Inherited::default();
        // Owners and relays that today's settings do not allow are as if they had ended their sessions.
        let allowed: Vec<bool> = trunks.iter().map(|trunk| self.allows(trunk)).collect();
        let (serves, paths) = (self.allow_internal_clients, &self.paths);
        let internal = &self.internal;
        let mut restoring = self.flows.restoring(header.hash);
        for _ in 0..header.flows {
            let record = FlowRecord::parse(&read(file)?).map_err(ImportError::Inconsistent)?;
            if record.slot >= header.capacity {
                return Err(ImportError::Inconsistent("a slot is out of range"));
            }
            let (mut served, mut relayed) = (true, false);
            for claim in record.claims.iter().flatten() {
                for (number, back) in [(Some(claim.trunk), false), (claim.back.map(|b| b.0), true)]
                {
                    let Some(number) = number else { continue };
                    let trunk = trunks.get(usize::from(number)).ok_or(BAD_TRUNK)?;
                    if (trunk.target.lead == Lead::Back) != back {
                        return Err(BAD_TRUNK);
                    }
                    served &= allowed[usize::from(number)];
                    relayed |= back;
                }
            }
            let id = record.key.id();
            let path = path_bit(id.transport, id.client.is_ipv6());
            served &= serves || !internal.contains(id.client.ip());
            served &= relayed || paths[usize::from(id.ingress.0)] & path != 0;
            if !served {
                restoring
                    .leave_out(record.slot)
                    .map_err(ImportError::Inconsistent)?;
                inherited.left_out += 1;
                continue;
            }
            let mut claims = [None; CLAIMS_PER_FLOW];
            for (place, claim) in claims.iter_mut().zip(&record.claims) {
                let Some(claim) = claim else { continue };
                let mut acquire = |number| {
                    let trunk = self.trunks.acquire(trunks[usize::from(number)].target);
                    trunk.ok_or(ImportError::Room("trunks"))
                };
                let trunk = acquire(claim.trunk)?;
                let back = match claim.back {
                    None => None,
                    Some((number, handle)) => Some(Back {
                        trunk: acquire(number)?,
                        handle,
                    }),
                };
                *place = Some(claim.image(trunk, back));
            }
            let image = FlowImage {
                slot: record.slot,
                generation: record.generation,
                key: record.key,
                claims,
                second_is_older: record.second_is_older,
                age: record.age,
                check_age: record.check_age,
            };
            restoring
                .put(now.ticks(), &image)
                .map_err(ImportError::Inconsistent)?;
            inherited.flows += 1;
        }
        for _ in 0..header.provisional {
            let node = u32::from_be_bytes(read(file)?);
            restoring
                .queue(now.ticks(), node)
                .map_err(ImportError::Inconsistent)?;
        }
        restoring.finish().map_err(ImportError::Inconsistent)?;
        Ok(inherited)
    }
}

const BAD_TRUNK: ImportError = ImportError::Inconsistent("a trunk leads nowhere");

/// The number of each trunk in the file, by its slot here.
fn numbers(trunks: &[(usize, Target)]) -> Vec<u16> {
    let slots = trunks.last().map_or(0, |&(slot, ..)| slot + 1);
    let mut numbers = vec![0; slots];
    for (number, &(slot, ..)) in trunks.iter().enumerate() {
        numbers[slot] = number as u16;
    }
    numbers
}

fn read<const N: usize>(file: &mut impl Read) -> Result<[u8; N], ImportError> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
