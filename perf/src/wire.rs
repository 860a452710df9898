//! How client packets are wrapped on both sides of a program under test.

use firsthop_shared::address::{ClientAddr, FlowHandle, IngressId, SessionId};
use firsthop_shared::trunk::{RecordHeader, RecordKind};

/// What a program under test speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// Firsthop's relay: routable ufrags, and trunk datagrams of many records.
    Trunk,
    /// A relay that packs nothing: the same record header, one record per datagram, without the datagram header.
    Record,
    /// A transparent proxy: the bare packet, from a port per client.
    Plain,
    /// A TURN server: ChannelData (RFC 8656 section 12) to clients, the bare packet to owners.
    Channel,
}

/// The record header of a packet to a client, or from it.
#[must_use]
pub fn record(client: ClientAddr, session: u32, payload_len: usize) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Packet,
        client,
        tcp: false,
        proven: false,
        ingress: IngressId(0),
        session: SessionId(session),
        handle: FlowHandle(0),
        owner: None,
        payload_len: payload_len as u16,
    }
}
