//! What operations on the flow table did.

use firsthop_shared::address::FlowHandle;

use super::{Back, Claim};

/// A claim that is gone, with all that holds a trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// The claim.
    pub(crate) claim: Claim,
    /// Its way back to another relay.
    pub(crate) back: Option<Back>,
}

/// What an operation removed besides what it was asked for: at most one each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Removed {
    /// Made room in the full queue of provisional claims.
    pub(crate) evicted: Option<Ended>,
    /// Gave way at the same flow.
    pub(crate) displaced: Option<Ended>,
    /// The way back that the claim had before.
    pub(crate) back: Option<Back>,
}

/// What became of a request for a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    /// The flow.
    pub(crate) handle: FlowHandle,
    /// Whether the claim is new; else it was there and has been renewed.
    pub(crate) added: bool,
    /// What had to go.
    pub(crate) removed: Removed,
}

/// What became of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Proof {
    /// Whether the claim has become proven by it: it was not, and the table had room for one more.
    pub(crate) promoted: bool,
    /// Whether it stays provisional, because as many flows are proven as the table keeps room for.
    pub(crate) refused: bool,
    /// The other claim of the flow, which is gone.
    pub(crate) displaced: Option<Ended>,
}

/// What became of a restored flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restored {
    /// Whether it had to be made provisional although its record was proven.
    pub(crate) refused: bool,
    /// What made room in the full queue of provisional claims.
    pub(crate) evicted: Option<Ended>,
}
