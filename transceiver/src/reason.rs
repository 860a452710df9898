//! Why a record, a packet or a datagram goes no further. Each reason is one counter; nothing is dropped without one.

use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firsthop_shared::trunk::TrunkError;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// A reason to drop.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason, in the order of their counters.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$name),*];

            /// The name under which metrics show it.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// The datagram's sender is not in the internal networks.
    ForeignSender = "foreign_sender",
    /// Not the length of a trunk datagram.
    TrunkLength = "trunk_length",
    /// Not a trunk datagram of this version.
    TrunkMagic = "trunk_magic",
    /// The datagram's key is not in the keyring.
    TrunkKey = "trunk_key",
    /// The datagram's tag does not verify.
    TrunkTag = "trunk_tag",
    /// A record in the datagram is malformed.
    TrunkRecord = "trunk_record",
    /// An owner wrote the datagram, not a relay: somebody sent it back.
    Reflected = "reflected",
    /// The datagram was seen before, or is older than the replay window.
    Replay = "replay",
    /// The datagram is for another worker.
    ForeignShard = "foreign_shard",
    /// A record of a type that a relay does not send to an owner.
    RecordKind = "record_kind",
    /// A record that names an owner: it was on its way from one relay to another, and did not come here by them.
    RecordOwner = "record_owner",
    /// There is no such session.
    UnknownSession = "unknown_session",
    /// The record's ingress was not advertised to this session.
    UnknownIngress = "unknown_ingress",
    /// The packet is empty or of no protocol that is served.
    NotWebrtc = "not_webrtc",
    /// The STUN message is malformed, or of a method or class that is not served.
    StunOther = "stun_other",
    /// The request's user name or MESSAGE-INTEGRITY is not this session's.
    StunUnverified = "stun_unverified",
    /// The response answers no check that we sent there, or is not signed with the client's password.
    StunUnmatched = "stun_unmatched",
    /// The session has brought up too many paths since its last ICE restart.
    TooManyPaths = "too_many_paths",
    /// DTLS, RTP or RTCP from an address that ICE has not validated.
    Unvalidated = "unvalidated",
    /// A DTLS alert that is not encrypted, during the handshake.
    ClearAlert = "clear_alert",
    /// RTCP above its rate, or a report on audio that we have not sent yet.
    RtcpRate = "rtcp_rate",
    /// The engine could not parse the packet.
    Unparsable = "unparsable",
    /// The engine opened no RTP or RTCP in the packet: it was forged, came before the keys, or is of a stream or a format that was not agreed
    /// on; or it is RTP that came twice.
    MediaRefused = "media_refused",
    /// The session has ended.
    Ended = "ended",
    /// No hop is known to where the packet should go.
    NoHop = "no_hop",
    /// The client has not answered our checks of that path for too long.
    NoConsent = "no_consent",
    /// The socket took no more.
    SocketFull = "socket_full",
    /// The packet fits no trunk datagram.
    TooLarge = "too_large",
    /// A channel message that was too large, not text, too frequent, or on a channel that is not served.
    ChannelMessage = "channel_message",
    /// An event was larger than the client takes.
    ChannelOversize = "channel_oversize",
    /// An event was given up: the client's channel had taken nothing for long.
    ChannelStalled = "channel_stalled",
    /// A sideband did not take its events, and was cut off.
    SidebandSlow = "sideband_slow",
    /// A message of a sideband's that was not text, or too frequent.
    SidebandMessage = "sideband_message",
}

impl From<TrunkError> for Reason {
    fn from(error: TrunkError) -> Self {
        match error {
            TrunkError::Length => Self::TrunkLength,
            TrunkError::Magic => Self::TrunkMagic,
            TrunkError::UnknownKey => Self::TrunkKey,
            TrunkError::Tag => Self::TrunkTag,
            TrunkError::Record => Self::TrunkRecord,
        }
    }
}

/// One plain counter per reason.
#[derive(Clone, Debug)]
pub struct Drops([u64; Reason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; Reason::ALL.len()])
    }
}

impl Drops {
    /// Counts one drop.
    pub fn count(&mut self, reason: Reason) {
        self[reason] += 1;
    }
}

impl Index<Reason> for Drops {
    type Output = u64;

    fn index(&self, reason: Reason) -> &u64 {
        &self.0[reason as usize]
    }
}

impl IndexMut<Reason> for Drops {
    fn index_mut(&mut self, reason: Reason) -> &mut u64 {
        &mut self.0[reason as usize]
    }
}

/// The same counters, as another thread may read them.
#[derive(Debug)]
pub struct SharedDrops([AtomicU64; Reason::ALL.len()]);

impl Default for SharedDrops {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Reason::ALL.len()])
    }
}

impl SharedDrops {
    /// Makes the counters visible.
    pub fn publish(&self, drops: &Drops) {
        for (to, from) in self.0.iter().zip(drops.0) {
            to.store(from, Relaxed);
        }
    }
}

impl Index<Reason> for SharedDrops {
    type Output = AtomicU64;

    fn index(&self, reason: Reason) -> &AtomicU64 {
        &self.0[reason as usize]
    }
}
