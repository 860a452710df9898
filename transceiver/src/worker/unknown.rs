//! Which relays are told that a session is not here, and how often.
//!
//! A client goes on for a moment when its session has ended, and the last check that it sends makes a flow at the relay anew. Unless the relay
//! hears that the session is not here, that flow stands until it has been idle for its time. So every such flow is to be told of, and a
//! bounded number a second: of a flow that is told already, the other packets under way need no word.

use std::collections::HashSet;

use firsthop_shared::address::{FlowHandle, Hop, SessionId};

use crate::limits;

/// What relays were told in this second.
#[derive(Default)]
pub(super) struct Told {
    second: u32,
    /// A relay core names each flow that it makes anew by another handle.
    flows: HashSet<(Hop, FlowHandle, SessionId)>,
}

impl Told {
    /// Whether a relay core is to be told, in this second, that the session of one of its flows is not here; then it has been.
    pub(super) fn tell(
        &mut self,
        hop: Hop,
        flow: FlowHandle,
        session: SessionId,
        second: u32,
    ) -> bool {
        if self.second != second {
            self.second = second;
            self.flows.clear();
        }
        self.flows.len() < limits::UNKNOWN_PER_SEC && self.flows.insert((hop, flow, session))
    }
}
