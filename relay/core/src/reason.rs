//! Why a packet or a record went no further, and the plain counters of a core.
//!
//! A packet's fate is a value, not an error: each refusal has exactly one [`Reason`], which is the index of its counter and
//! the label of its metric. Counters are plain integers of one core; whoever publishes them copies the struct now and then.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Why a packet, a record or a datagram was dropped. One counter each.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason, in the order of [`Reason::index`].
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// How many reasons there are.
            pub const COUNT: usize = Reason::ALL.len();

            /// The label of the reason in metrics. Stable: dashboards name it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $label,)*
                }
            }

            /// The place of the reason's counter, below [`Reason::COUNT`].
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

reasons! {
    /// A datagram without payload on a public socket.
    Empty = "empty",
    /// The first byte is in no range of RFC 7983 that is served.
    UnknownClass = "unknown_class",
    /// A client packet above the limit, or cut by the receive buffer; between relays either way.
    Oversize = "oversize",
    /// The first byte says STUN, the rest does not parse.
    StunMalformed = "stun_malformed",
    /// STUN, but not Binding: TURN and others are not served.
    StunMethod = "stun_method",
    /// A request without a USERNAME that names a local ufrag.
    StunNoUfrag = "stun_no_ufrag",
    /// A request without MESSAGE-INTEGRITY.
    StunNoIntegrity = "stun_no_integrity",
    /// The FINGERPRINT does not match the packet.
    StunFingerprint = "stun_fingerprint",
    /// A request, when too many came lately to verify them all; a proven flow's are exempt, one per tick.
    VerifyBudget = "verify_budget",
    /// The ufrag has not the length of a routable one.
    UfragLength = "ufrag_length",
    /// The ufrag holds a character that ICE does not allow.
    UfragAlphabet = "ufrag_alphabet",
    /// The ufrag has an unknown format.
    UfragFormat = "ufrag_format",
    /// The ufrag names a key that the keyring does not hold.
    UfragUnknownKey = "ufrag_unknown_key",
    /// The ufrag was not minted by this fleet.
    UfragForged = "ufrag_forged",
    /// The ufrag names another cluster than this relay's, to which no relay leads.
    ForeignCluster = "foreign_cluster",
    /// The ufrag names an owner outside of the internal networks.
    OwnerOutside = "owner_outside",
    /// The client's address is inside the internal networks.
    ClientInside = "client_inside",
    /// A request from port 0, where nothing can be sent.
    ClientPort = "client_port",
    /// MESSAGE-INTEGRITY does not verify under the ufrag's password.
    StunIntegrity = "stun_integrity",
    /// DTLS from an address without a flow.
    NoFlowDtls = "no_flow_dtls",
    /// RTP or RTCP from an address without a flow.
    NoFlowRtp = "no_flow_rtp",
    /// A STUN response or indication from an address without a flow.
    NoFlowStun = "no_flow_stun",
    /// A packet that waited for the flow cache, which had nothing for its sender.
    CacheMiss = "cache_miss",
    /// A packet that waited for the flow cache, which did not answer in time.
    CacheLate = "cache_late",
    /// A packet that waited for the flow cache, whose answer cannot be used.
    CacheRefused = "cache_refused",
    /// A packet that would have waited for the flow cache, when too many did.
    CacheFull = "cache_full",
    /// A verified request for an owner worker that no trunk was left for.
    TrunkTableFull = "trunk_table_full",
    /// A record that found no room among the waiting records.
    TrunkFull = "trunk_full",
    /// A record whose trunk had been given to another owner in the meantime.
    TrunkGone = "trunk_gone",
    /// A datagram on the internal socket from outside of the internal networks.
    TrunkSource = "trunk_source",
    /// An internal datagram of an impossible length.
    TrunkLength = "trunk_length",
    /// An internal datagram without the magic, or of another version.
    TrunkMagic = "trunk_magic",
    /// An internal datagram under a key that the keyring does not hold.
    TrunkUnknownKey = "trunk_unknown_key",
    /// An internal datagram whose tag does not verify.
    TrunkTag = "trunk_tag",
    /// An internal datagram that this core itself wrote: somebody sent it back.
    TrunkReflected = "trunk_reflected",
    /// An internal datagram of a relay that the fleet does not list for another cluster, or a record for a client of one that it
    /// lists no more.
    PeerUnknown = "peer_unknown",
    /// An internal datagram of another relay, to one that takes none (`--role ingress`).
    PeerRole = "peer_role",
    /// An internal datagram that was seen before, or is too old to tell.
    TrunkReplay = "trunk_replay",
    /// An internal datagram with a record that does not parse, a packet record without a packet, or one of a kind that does not go
    /// that way.
    RecordMalformed = "record_malformed",
    /// A record that names an ingress this relay does not serve for the client's family and transport, and no other relay brought
    /// that client's packets lately.
    RecordIngress = "record_ingress",
    /// A record for a client inside the internal networks.
    RecordClientInside = "record_client_inside",
    /// A record with an owner extension from somebody who is no relay of another cluster.
    RecordRelayed = "record_relayed",
    /// A keepalive record that answers no question of ours.
    RecordKeepalive = "record_keepalive",
    /// A record of another relay that does not say for which owner it is.
    RecordNoOwner = "record_no_owner",
    /// A record of another relay for an owner outside of the internal networks.
    RecordOwnerOutside = "record_owner_outside",
    /// A record of another relay for an owner that is a relay, or for a session that this relay itself relays away.
    RecordLoop = "record_loop",
    /// A record for an owner whose cluster has no relays in the fleet any more.
    RelayGone = "relay_gone",
    /// The public socket took no more (EAGAIN).
    SendRefusedClient = "send_refused_client",
    /// The internal socket took no more (EAGAIN).
    SendRefusedTrunk = "send_refused_trunk",
    /// The kernel answered a send to a client with another error.
    SendErrorClient = "send_error_client",
    /// The kernel answered a send on a trunk with another error.
    SendErrorTrunk = "send_error_trunk",
    /// No send slot or submission entry was free.
    SendQueueFull = "send_queue_full",
    /// A receive that the kernel reported as failed.
    ReceiveError = "receive_error",
    /// A record that was to be noted by another core whose channel was full.
    NoteRefused = "note_refused",
}

/// What one core has done, as plain integers since its start.
///
/// Packets and bytes count client packets (payload, without any header of ours); datagrams and records count the trunk, so
/// that `records / datagrams` is the packing factor.
#[derive(Clone, Debug)]
pub struct Counters {
    drops: [u64; Reason::COUNT],
    /// Client packets accepted for at least one owner.
    pub uplink_packets: u64,
    /// Bytes of these packets.
    pub uplink_bytes: u64,
    /// Requests among them whose token and integrity verified.
    pub requests_verified: u64,
    /// Records packed for owners; more than packets while two sessions claim an address.
    pub uplink_records: u64,
    /// Those among them that go to a relay, because their owner is in another cluster.
    pub beyond_records: u64,
    /// Datagrams closed for owners, or for relays that lead to them.
    pub uplink_datagrams: u64,
    /// Datagrams among them that exceed the path and leave as fragments.
    pub uplink_oversize: u64,
    /// Packets accepted for clients.
    pub downlink_packets: u64,
    /// Bytes of these packets.
    pub downlink_bytes: u64,
    /// Records of every kind read from accepted internal datagrams.
    pub downlink_records: u64,
    /// Those among them that came by a relay, because their owner is in another cluster.
    pub beyond_downlink_records: u64,
    /// Internal datagrams accepted from owners, or from relays that speak for them.
    pub downlink_datagrams: u64,
    /// Internal datagrams accepted from relays of clients.
    pub relayed_datagrams: u64,
    /// Packets of other relays' clients accepted for owners.
    pub relayed_packets: u64,
    /// Owners' records packed for the relays that their clients are at.
    pub back_records: u64,
    /// Datagrams closed for these relays.
    pub back_datagrams: u64,
    /// Keepalives sent to relays of other clusters.
    pub peers_asked: u64,
    /// Answers to them.
    pub peers_answered: u64,
    /// Answers made to keepalives of other relays. One that finds no room to be sent is counted by its drop, too.
    pub keepalives_answered: u64,
    /// Times that a relay took over from one that had answered, or the preferred one came back.
    pub fail_overs: u64,
    /// Claims made by a verified request.
    pub claims_bound: u64,
    /// Claims made by another relay's record.
    pub claims_relayed: u64,
    /// Claims made by a downlink record.
    pub claims_restored: u64,
    /// Claims made by an entry of the flow cache.
    pub claims_recalled: u64,
    /// Provisional claims that became proven. One that is proven again, or restored as proven, is none of them.
    pub claims_proven: u64,
    /// Proofs that could not be kept, because as many flows are proven as the table keeps room for.
    pub proofs_refused: u64,
    /// Claims that gave way: to a third session at their address, or to the fresh proof of another.
    pub claims_displaced: u64,
    /// Provisional claims that made room: the oldest in their full queue, or one that had a trunk for itself when all were taken.
    pub claims_evicted: u64,
    /// Claims removed by a close or an unknown-session record.
    pub claims_closed: u64,
    /// Flows forgotten after their idle time.
    pub flows_expired: u64,
    /// Downlink records whose flow was not restored because no trunk was left.
    pub restores_refused: u64,
}

impl Counters {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            drops: [0; Reason::COUNT],
            uplink_packets: 0,
            uplink_bytes: 0,
            requests_verified: 0,
            uplink_records: 0,
            beyond_records: 0,
            uplink_datagrams: 0,
            uplink_oversize: 0,
            downlink_packets: 0,
            downlink_bytes: 0,
            downlink_records: 0,
            beyond_downlink_records: 0,
            downlink_datagrams: 0,
            relayed_datagrams: 0,
            relayed_packets: 0,
            back_records: 0,
            back_datagrams: 0,
            peers_asked: 0,
            peers_answered: 0,
            keepalives_answered: 0,
            fail_overs: 0,
            claims_bound: 0,
            claims_relayed: 0,
            claims_restored: 0,
            claims_recalled: 0,
            claims_proven: 0,
            proofs_refused: 0,
            claims_displaced: 0,
            claims_evicted: 0,
            claims_closed: 0,
            flows_expired: 0,
            restores_refused: 0,
        }
    }

    /// Counts one drop.
    pub fn drop(&mut self, reason: Reason) {
        self.drops[reason.index()] += 1;
    }

    /// How often something was dropped for this reason.
    #[must_use]
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops[reason.index()]
    }

    /// Drops for any reason.
    #[must_use]
    pub fn drops_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn labels_are_unique_and_fit_for_metrics() {
        let names: HashSet<_> = Reason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Reason::COUNT);
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        }
    }

    #[test]
    fn each_reason_counts_in_its_own_place() {
        let mut counters = Counters::new();
        for (i, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
            counters.drop(*reason);
        }
        assert!(Reason::ALL.iter().all(|r| counters.drops(*r) == 1));
        assert_eq!(counters.drops_total(), Reason::COUNT as u64);
    }
}
