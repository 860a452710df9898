//! A closed datagram, and where its bytes lie.

use std::ops::Range;

use firsthop_shared::address::OwnerAddr;
use firsthop_shared::trunk::DATAGRAM_HEADER_LEN;

#[cfg(doc)]
use crate::limits::RECORDS_PER_DATAGRAM;

/// The pump's own name for a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BufferId(pub u32);

/// A run of bytes in a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Offset of the first byte in the frame.
    pub start: u16,
    /// How many bytes.
    pub len: u16,
}

impl Span {
    /// A run of a frame of 65,535 bytes at most.
    pub(crate) fn of(range: &Range<usize>) -> Self {
        Self {
            start: range.start as u16,
            len: range.len() as u16,
        }
    }

    /// The run as a range of offsets.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        let start = usize::from(self.start);
        start..start + usize::from(self.len)
    }
}

/// One record of a datagram: where its bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// The receive buffer.
    pub buffer: BufferId,
    /// A record header apart from its payload, to be sent before `body`. Empty (`len` 0) when the header stands in `body`.
    pub side: Span,
    /// The record header and the payload, or the payload alone.
    pub body: Span,
}

impl Piece {
    /// A record whose header and payload lie there. A header that stands right before its payload is one run with it.
    pub(crate) fn of(buffer: BufferId, header: Span, payload: Span) -> Self {
        let (side, body) = if header.start + header.len == payload.start {
            let len = header.len + payload.len;
            (Span::default(), Span { len, ..header })
        } else {
            (header, payload)
        };
        Self { buffer, side, body }
    }
}

/// A closed datagram, for the pump to send: its header and then the pieces that
/// [`Router::pieces`](crate::Router::pieces) lists.
#[derive(Debug)]
#[must_use = "its records stay taken until it is released"]
pub struct Datagram {
    /// Where it goes.
    pub destination: OwnerAddr,
    /// The header, tag included.
    pub header: [u8; DATAGRAM_HEADER_LEN],
    /// Length of the UDP payload, header included.
    pub len: u16,
    /// How many records, 1 to [`RECORDS_PER_DATAGRAM`].
    pub records: u16,
    /// The first to its owner since a trunk leads there: the pump may ask for the path's MTU now.
    pub first: bool,
    pub(super) first_node: u32,
    pub(super) last_node: u32,
}
