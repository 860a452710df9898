//! The trunks and flows of a file, each in a record of fixed length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firsthop_shared::address::{ClusterId, FlowHandle, OwnerAddr, Restart, SessionId, ShardId};

use crate::flows::{Back, Claim, ClaimImage, FlowImage, FlowKey};
use crate::limits::CLAIMS_PER_FLOW;
use crate::peers::Lane;
use crate::trunks::{Lead, Target, TrunkId};

/// A trunk that claims name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TrunkRecord {
    pub(super) target: Target,
}

const TRUNK_LEN: usize = 26;

const STRAIGHT: u8 = 0;
const BACK: u8 = 1;
const BEYOND: u8 = 2;

impl TrunkRecord {
    pub(super) fn to_bytes(self) -> [u8; TRUNK_LEN] {
        let Target {
            address,
            shard,
            lead,
        } = self.target;
        let mut bytes = [0; TRUNK_LEN];
        bytes[1] = shard.0;
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address.ip() {
            IpAddr::V4(ip) => {
                bytes[0] = 4;
                bytes[4..8].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[0] = 6;
                bytes[4..20].copy_from_slice(&ip.octets());
            }
        }
        match lead {
            Lead::Straight => bytes[20] = STRAIGHT,
            Lead::Back => bytes[20] = BACK,
            Lead::Beyond(lane) => {
                bytes[20] = BEYOND;
                bytes[22..24].copy_from_slice(&lane.cluster.0.to_be_bytes());
                bytes[24..].copy_from_slice(&lane.core.to_be_bytes());
            }
            Lead::Lane(_) => unreachable!("no claim names a lane"),
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; TRUNK_LEN]) -> Option<Self> {
        let address: [u8; 16] = array(bytes, 4);
        let ip = match bytes[0] {
            4 => IpAddr::V4(Ipv4Addr::from_octets(array(bytes, 4))),
            6 => IpAddr::V6(Ipv6Addr::from_octets(address)),
            _ => return None,
        };
        let lead = match bytes[20] {
            STRAIGHT => Lead::Straight,
            BACK => Lead::Back,
            BEYOND => Lead::Beyond(Lane {
                cluster: ClusterId(u16::from_be_bytes(array(bytes, 22))),
                core: u16::from_be_bytes(array(bytes, 24)),
            }),
            _ => return None,
        };
        let port = u16::from_be_bytes(array(bytes, 2));
        let record = Self {
            target: Target {
                address: OwnerAddr::new(SocketAddr::new(ip, port)),
                shard: ShardId(bytes[1]),
                lead,
            },
        };
        // An address has one form: what would be written otherwise was not written by a relay.
        (record.to_bytes() == *bytes).then_some(record)
    }
}

/// A flow, whose claims name their trunks by the number in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlowRecord {
    pub(super) slot: u32,
    pub(super) generation: u16,
    pub(super) key: FlowKey,
    pub(super) claims: [Option<ClaimRecord>; CLAIMS_PER_FLOW],
    pub(super) second_is_older: bool,
    pub(super) age: u32,
    pub(super) check_age: u32,
}

/// A claim, with the number of its trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClaimRecord {
    pub(super) session: SessionId,
    pub(super) trunk: u16,
    pub(super) proven: bool,
    pub(super) restart: Restart,
    pub(super) mark: u32,
    /// The way back to another relay: the number of its trunk, and the flow's handle there.
    pub(super) back: Option<(u16, FlowHandle)>,
}

impl ClaimRecord {
    /// The claim as the table takes it, over the trunks that this router has for it.
    pub(super) fn image(&self, trunk: TrunkId, back: Option<Back>) -> ClaimImage {
        ClaimImage {
            claim: Claim {
                session: self.session,
                trunk,
            },
            proven: self.proven,
            restart: self.restart,
            mark: self.mark,
            back,
        }
    }
}

const FLOW_LEN: usize = 76;
const CLAIM_LEN: usize = 20;
const CLAIMS_AT: usize = FLOW_LEN - CLAIMS_PER_FLOW * CLAIM_LEN;

const LIVE: [u8; CLAIMS_PER_FLOW] = [1, 2];
const PROVEN: [u8; CLAIMS_PER_FLOW] = [4, 8];
const SECOND_IS_OLDER: u8 = 16;
const RELAYED: [u8; CLAIMS_PER_FLOW] = [32, 64];

impl FlowRecord {
    pub(super) fn to_bytes(self) -> [u8; FLOW_LEN] {
        let mut bytes = [0; FLOW_LEN];
        bytes[..4].copy_from_slice(&self.slot.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.generation.to_be_bytes());
        bytes[8..28].copy_from_slice(&self.key.to_bytes());
        bytes[28..32].copy_from_slice(&self.age.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.check_age.to_be_bytes());
        let mut flags = if self.second_is_older {
            SECOND_IS_OLDER
        } else {
            0
        };
        let places = bytes[CLAIMS_AT..].chunks_exact_mut(CLAIM_LEN);
        for ((i, claim), place) in self.claims.iter().enumerate().zip(places) {
            let Some(claim) = claim else { continue };
            flags |= LIVE[i] | if claim.proven { PROVEN[i] } else { 0 };
            place[..4].copy_from_slice(&claim.session.0.to_be_bytes());
            place[4..6].copy_from_slice(&claim.trunk.to_be_bytes());
            place[6] = claim.restart.0;
            place[8..12].copy_from_slice(&claim.mark.to_be_bytes());
            if let Some((trunk, handle)) = claim.back {
                flags |= RELAYED[i];
                place[12..16].copy_from_slice(&handle.0.to_be_bytes());
                place[16..18].copy_from_slice(&trunk.to_be_bytes());
            }
        }
        bytes[6] = flags;
        bytes
    }

    /// The record of a flow. `number` is the number of a trunk in the file.
    pub(super) fn new(image: &FlowImage, number: impl Fn(TrunkId) -> u16) -> Self {
        Self {
            slot: image.slot,
            generation: image.generation,
            key: image.key,
            claims: image.claims.map(|claim| {
                claim.map(|image| ClaimRecord {
                    session: image.claim.session,
                    trunk: number(image.claim.trunk),
                    proven: image.proven,
                    restart: image.restart,
                    mark: image.mark,
                    back: image.back.map(|back| (number(back.trunk), back.handle)),
                })
            }),
            second_is_older: image.second_is_older,
            age: image.age,
            check_age: image.check_age,
        }
    }

    pub(super) fn parse(bytes: &[u8; FLOW_LEN]) -> Result<Self, &'static str> {
        let flags = bytes[6];
        let claims = std::array::from_fn(|i| {
            let at = CLAIMS_AT + i * CLAIM_LEN;
            (flags & LIVE[i] != 0).then(|| ClaimRecord {
                session: SessionId(u32::from_be_bytes(array(bytes, at))),
                trunk: u16::from_be_bytes(array(bytes, at + 4)),
                proven: flags & PROVEN[i] != 0,
                restart: Restart(bytes[at + 6]),
                mark: u32::from_be_bytes(array(bytes, at + 8)),
                back: (flags & RELAYED[i] != 0).then(|| {
                    let handle = u32::from_be_bytes(array(bytes, at + 12));
                    (
                        u16::from_be_bytes(array(bytes, at + 16)),
                        FlowHandle(handle),
                    )
                }),
            })
        });
        let record = Self {
            slot: u32::from_be_bytes(array(bytes, 0)),
            generation: u16::from_be_bytes(array(bytes, 4)),
            key: FlowKey::from_bytes(array(bytes, 8)).ok_or("a flow has no valid key")?,
            claims,
            second_is_older: flags & SECOND_IS_OLDER != 0,
            age: u32::from_be_bytes(array(bytes, 28)),
            check_age: u32::from_be_bytes(array(bytes, 32)),
        };
        if record.to_bytes() == *bytes {
            Ok(record)
        } else {
            Err("a flow has flags or fields that mean nothing")
        }
    }
}

/// `N` bytes from `at` on, which lie inside.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is accepted is written again as it was: no two files mean the same, and no byte is ignored.
        #[test]
        fn any_bytes_are_refused_or_come_back(
            bytes in prop::collection::vec(any::<u8>(), FLOW_LEN),
            family in prop::sample::select(vec![0u8, 4, 6, 7]),
            lead in 0u8..4,
        ) {
            let flow: [u8; FLOW_LEN] = array(&bytes, 0);
            if let Ok(record) = FlowRecord::parse(&flow) {
                prop_assert_eq!(record.to_bytes(), flow);
            }
            let mut trunk: [u8; TRUNK_LEN] = array(&bytes, 0);
            trunk[0] = family;
            if family == 4 {
                trunk[8..20].fill(0);
            }
            (trunk[20], trunk[21]) = (lead, 0);
            if lead != BEYOND {
                trunk[22..].fill(0);
            }
            let parsed = TrunkRecord::parse(&trunk);
            prop_assert_eq!(parsed.is_some(), (family == 4 || family == 6) && lead < 3);
            prop_assert!(parsed.is_none_or(|record| record.to_bytes() == trunk));
        }

        #[test]
        fn a_flow_comes_back_as_it_went(
            slot: u32, generation: u16, age: u32, check_age: u32, second_is_older: bool,
            ip: u32, tail: [u8; 3],
            claims: [Option<(u32, u16, bool, u8, u32, Option<(u16, u32)>)>; CLAIMS_PER_FLOW],
        ) {
            let mut key = [0; 20];
            key[..4].copy_from_slice(&ip.to_be_bytes());
            key[16..19].copy_from_slice(&tail);
            let record = FlowRecord {
                slot,
                generation,
                key: FlowKey::from_bytes(key).expect("an IPv4 key"),
                claims: claims.map(|claim| claim.map(|(session, trunk, proven, restart, mark, back)| ClaimRecord {
                    session: SessionId(session),
                    trunk,
                    proven,
                    restart: Restart(restart),
                    mark,
                    back: back.map(|(trunk, handle)| (trunk, FlowHandle(handle))),
                })),
                second_is_older,
                age,
                check_age,
            };
            prop_assert_eq!(FlowRecord::parse(&record.to_bytes()).expect("ours"), record);
        }
    }
}
