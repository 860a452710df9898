//! What the flow cache of an ingress site holds, and how it is spelled there.
//!
//! The cache is a Redis that the relays of one site share. It holds one line of text per proven flow, so that a relay that has
//! lost a flow, or takes over another's address, can route the client's packets before its next request:
//!
//! ```text
//! firsthop:flow:0:udp:203.0.113.9:40000  =  1 1 10.0.0.7:5000 3 2882400001 0
//!               │ │   client                │ │ owner         │ session    │
//!               │ transport                 │ cluster         shard        restart
//!               ingress                     format
//! ```
//!
//! Whoever reaches that Redis can write anything there. So a value is read as a stranger's: it has one spelling, a bounded
//! length, and what it says is a hint (see [`Router::answer`](crate::Router::answer)).

use std::fmt;
use std::net::SocketAddr;

use firsthop_shared::address::{
    ClientAddr, ClusterId, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};

use crate::flows::Transport;

/// The number of the format, which every value begins with. What begins otherwise is no entry: it is not read as one, and the next
/// proof or renewal of the flow takes its place.
pub const FORMAT: &str = "1 ";

/// The longest value that is read, in bytes: more than any route needs.
pub const VALUE_MAX: usize = 96;

/// A flow by its name. As text, the key of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowId {
    /// The ingress that the client uses.
    pub ingress: IngressId,
    /// How its packets travel.
    pub transport: Transport,
    /// The client's canonical address.
    pub client: ClientAddr,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        let Self {
            ingress, client, ..
        } = self;
        write!(f, "firsthop:flow:{ingress}:{transport}:{client}")
    }
}

/// Where the packets of a flow go, as proof once made it. As text, the value of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The owner's cluster.
    pub cluster: ClusterId,
    /// The owner.
    pub owner: OwnerAddr,
    /// The worker there that has the session.
    pub shard: ShardId,
    /// The session.
    pub session: SessionId,
    /// How many ICE restarts the relay had seen of it; 0 when it has only heard of it from the owner.
    pub restart: Restart,
}

/// A value that is no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no entry of this format")]
pub struct NotAnEntry;

impl Entry {
    /// The part of the value that names the session, up to the number of restarts: equal for all entries of one session.
    #[must_use]
    pub fn session_part(&self) -> String {
        let Self {
            cluster,
            owner,
            shard,
            session,
            ..
        } = self;
        format!("{FORMAT}{cluster} {owner} {shard} {session} ")
    }

    /// Reads a value, as anybody may have written it.
    ///
    /// # Errors
    /// It is not exactly what [`Entry`] prints, or names an owner that nobody could reach.
    pub fn parse(value: &[u8]) -> Result<Self, NotAnEntry> {
        if value.len() > VALUE_MAX {
            return Err(NotAnEntry);
        }
        let text = std::str::from_utf8(value).map_err(|_| NotAnEntry)?;
        let entry = Self::read(text).ok_or(NotAnEntry)?;
        let owner = entry.owner;
        let reachable =
            owner.port() != 0 && !owner.ip().is_unspecified() && !owner.ip().is_multicast();
        // Leading zeros, signs, other spellings of an address: a relay has written none of them.
        if reachable && entry.to_string() == text {
            Ok(entry)
        } else {
            Err(NotAnEntry)
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix(FORMAT)?.split(' ');
        let entry = Self {
            cluster: ClusterId(fields.next()?.parse().ok()?),
            owner: OwnerAddr::new(fields.next()?.parse::<SocketAddr>().ok()?),
            shard: ShardId(fields.next()?.parse().ok()?),
            session: SessionId(fields.next()?.parse().ok()?),
            restart: Restart(fields.next()?.parse().ok()?),
        };
        fields.next().is_none().then_some(entry)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.session_part(), self.restart)
    }
}

/// What has become of a flow that the cache holds, or shall hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// Its session has been proven at its address just now: the entry is this one, whatever was there.
    Proven,
    /// It is still alive: the entry lives on, unless another session has been proven at its address since, by another relay.
    Alive,
    /// Its owner has ended the session or does not know it: the entry goes, if it is still this session's.
    Closed,
}

/// A change that the cache shall learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The flow.
    pub flow: FlowId,
    /// Its session. What ends a session knows nothing of its restarts.
    pub entry: Entry,
    /// What has become of it.
    pub kind: ChangeKind,
}

/// What the cache answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It holds nothing for the flow.
    Nothing,
    /// It holds something that is no entry.
    Nonsense,
    /// It holds an entry.
    Entry(Entry),
}

impl Found {
    /// Reads what the cache holds. Nothing is an empty value.
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        if value.is_empty() {
            Self::Nothing
        } else {
            Entry::parse(value).map_or(Self::Nonsense, Self::Entry)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn entry(owner: &str) -> Entry {
        Entry {
            cluster: ClusterId(1),
            owner: OwnerAddr::new(owner.parse().expect("an address")),
            shard: ShardId(3),
            session: SessionId(2_882_400_001),
            restart: Restart(0),
        }
    }

    fn id(client: &str) -> String {
        let flow = FlowId {
            ingress: IngressId(0),
            transport: Transport::Udp,
            client: ClientAddr::new(client.parse().expect("an address")),
        };
        flow.to_string()
    }

    #[test]
    fn entries_are_spelled_as_the_format_says() {
        assert_eq!(
            id("203.0.113.9:40000"),
            "firsthop:flow:0:udp:203.0.113.9:40000"
        );
        assert_eq!(
            id("[2001:DB8::9]:40000"),
            "firsthop:flow:0:udp:[2001:db8::9]:40000"
        );
        let four = entry("10.0.0.7:5000");
        assert_eq!(four.to_string(), "1 1 10.0.0.7:5000 3 2882400001 0");
        assert_eq!(four.session_part(), "1 1 10.0.0.7:5000 3 2882400001 ");
        let six = entry("[fd00::7]:5000");
        assert_eq!(six.to_string(), "1 1 [fd00::7]:5000 3 2882400001 0");
    }

    /// Fault 3: one client has one key, however a socket spelled its address.
    #[test]
    fn a_mapped_address_has_the_key_of_the_plain_one() {
        assert_eq!(id("[::ffff:203.0.113.9]:40000"), id("203.0.113.9:40000"));
    }

    #[test]
    fn what_no_relay_writes_is_refused() {
        let good = "1 1 10.0.0.7:5000 3 2882400001 0";
        assert_eq!(Entry::parse(good.as_bytes()), Ok(entry("10.0.0.7:5000")));
        for bad in [
            "",
            "1",
            "1 ",
            "nonsense",
            "2 1 10.0.0.7:5000 3 2882400001 0",
            "1 65536 10.0.0.7:5000 3 2882400001 0",
            "1 01 10.0.0.7:5000 3 2882400001 0",
            "1 +1 10.0.0.7:5000 3 2882400001 0",
            "1 -1 10.0.0.7:5000 3 2882400001 0",
            "1 1 10.0.0.7 3 2882400001 0",
            "1 1 10.0.0.7:0 3 2882400001 0",
            "1 1 0.0.0.0:5000 3 2882400001 0",
            "1 1 224.0.0.1:5000 3 2882400001 0",
            "1 1 [::]:5000 3 2882400001 0",
            "1 1 [ff02::1]:5000 3 2882400001 0",
            "1 1 [::ffff:10.0.0.7]:5000 3 2882400001 0",
            "1 1 [fd00:0::7]:5000 3 2882400001 0",
            "1 1 [FD00::7]:5000 3 2882400001 0",
            "1 1 [fd00::7%1]:5000 3 2882400001 0",
            "1 1 owner.example:5000 3 2882400001 0",
            "1 1 10.0.0.7:5000 256 2882400001 0",
            "1 1 10.0.0.7:5000 3 4294967296 0",
            "1 1 10.0.0.7:5000 3 2882400001",
            "1 1 10.0.0.7:5000 3 2882400001 ",
            "1 1 10.0.0.7:5000 3 2882400001 256",
            "1 1 10.0.0.7:5000 3 2882400001 0 ",
            "1 1 10.0.0.7:5000 3 2882400001 0\n",
            "1 1 10.0.0.7:5000 3 2882400001 0 0",
            "1  1 10.0.0.7:5000 3 2882400001 0",
            " 1 1 10.0.0.7:5000 3 2882400001 0",
            "1\t1 10.0.0.7:5000 3 2882400001 0",
        ] {
            assert_eq!(Entry::parse(bad.as_bytes()), Err(NotAnEntry), "{bad:?}");
        }
        assert_eq!(Entry::parse(b"1 1 \xff"), Err(NotAnEntry));
        assert_eq!(Found::read(b""), Found::Nothing);
        assert_eq!(Found::read(b" "), Found::Nonsense);
        let read = Found::read(good.as_bytes());
        assert_eq!(read, Found::Entry(entry("10.0.0.7:5000")));
    }

    /// An owner that a relay may have: no address that nobody could send to.
    fn owners() -> impl Strategy<Value = SocketAddr> {
        let ip = prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
            any::<u128>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        ];
        (ip, 1u16..)
            .prop_map(SocketAddr::from)
            .prop_filter("reachable", |owner| {
                let ip = OwnerAddr::new(*owner).ip();
                !ip.is_unspecified() && !ip.is_multicast()
            })
    }

    fn entries() -> impl Strategy<Value = Entry> {
        let numbers = (any::<u16>(), any::<u8>(), any::<u32>(), any::<u8>());
        (owners(), numbers).prop_map(|(owner, (cluster, shard, session, restart))| Entry {
            cluster: ClusterId(cluster),
            owner: OwnerAddr::new(owner),
            shard: ShardId(shard),
            session: SessionId(session),
            restart: Restart(restart),
        })
    }

    proptest! {
        #[test]
        fn every_entry_reads_as_it_was_written(entry in entries()) {
            let text = entry.to_string();
            prop_assert!(text.len() <= VALUE_MAX);
            prop_assert_eq!(Entry::parse(text.as_bytes()), Ok(entry));
            prop_assert!(text.starts_with(&entry.session_part()));
        }

        /// Whatever stands in Redis is no entry or has one spelling.
        #[test]
        fn any_bytes_are_refused_or_spelled_as_they_are(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
            if let Ok(entry) = Entry::parse(&bytes) {
                prop_assert_eq!(entry.to_string().into_bytes(), bytes);
            }
        }

        /// The same near what a relay writes: entries with bytes changed, inserted, removed and cut.
        #[test]
        fn altered_entries_are_refused_or_spelled_as_they_are(
            entry in entries(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 1..4),
        ) {
            let mut bytes = entry.to_string().into_bytes();
            for (at, edit, byte) in edits {
                if bytes.is_empty() {
                    break;
                }
                let at = at.index(bytes.len());
                match edit {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at),
                }
            }
            if let Ok(read) = Entry::parse(&bytes) {
                prop_assert_eq!(read.to_string().into_bytes(), bytes);
            }
        }
    }
}
