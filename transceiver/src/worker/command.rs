//! What the control server asks of a worker, and the directory by which it finds the right one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use firsthop_shared::address::{Restart, SessionId, ShardId};
use firsthop_shared::control::{CallKind, ControlError, IceCredentials};
use tokio::sync::{Notify, oneshot};

use super::endings::CallReport;
use crate::session::{Advertised, Credentials, Sideband, SidebandId};
use crate::traces::CallTrace;

/// A session to make. The control server has checked the ufrag and looked the ingresses up.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// The session's id.
    pub id: SessionId,
    /// When signaling created the call, in milliseconds since the Unix epoch.
    pub created: u64,
    /// The name of the API key, for the log.
    pub client: Option<String>,
    /// Our ICE credentials.
    pub credentials: Credentials,
    /// The client's SDP offer.
    pub offer: String,
    /// The addresses to advertise, best first.
    pub advertised: Vec<Advertised>,
    /// How long the session may take; nothing means our own limit alone.
    pub longest: Option<Duration>,
    /// What kind of call it is.
    pub kind: CallKind,
    /// The application that the call names.
    pub app: Option<String>,
    /// What the session is to be configured with.
    pub config: Option<serde_json::Value>,
    /// Its trace, when it is traced.
    pub trace: Option<Box<CallTrace>>,
}

/// What a client restarts ICE with.
#[derive(Clone, Debug)]
pub enum RestartBy {
    /// A whole offer.
    Offer(String),
    /// Its new credentials alone.
    Ice(IceCredentials),
}

/// An ICE restart.
#[derive(Clone, Debug)]
pub struct RestartSpec {
    /// The session's id.
    pub id: SessionId,
    /// When the call was created: an id that was used again belongs to another call.
    pub created: u64,
    /// How many restarts there were, this one included: above that of the ufrag in use.
    pub restart: Restart,
    /// Our new ICE credentials.
    pub credentials: Credentials,
    /// What the client sent.
    pub by: RestartBy,
    /// The addresses to advertise, best first.
    pub advertised: Vec<Advertised>,
}

/// A command, with the way back for its result.
#[derive(Debug)]
pub enum Command {
    /// Make a session; the result is the SDP answer.
    Create(
        Box<CreateSpec>,
        oneshot::Sender<Result<String, ControlError>>,
    ),
    /// Restart a session's ICE; the result is the SDP answer.
    Restart(
        Box<RestartSpec>,
        oneshot::Sender<Result<String, ControlError>>,
    ),
    /// Look a session up; the result is the `restart` of the ufrag in use, where there is one.
    Look {
        /// The session's id.
        id: SessionId,
        /// When the call was created.
        created: u64,
        /// Told what was found.
        reply: oneshot::Sender<Option<Restart>>,
    },
    /// Tell how a session stands; the result is nothing where there is none. Without a creation time it is whichever has the id.
    Report {
        /// The session's id.
        id: SessionId,
        /// Given what there is to tell.
        reply: oneshot::Sender<Option<Box<CallReport>>>,
    },
    /// Let a sideband join; the result is nothing where there is no such session, and no sideband where there are too many.
    Join {
        /// The session's id.
        id: SessionId,
        /// When the call was created.
        created: u64,
        /// Given the sideband.
        reply: oneshot::Sender<Option<Option<Sideband>>>,
    },
    /// Take a message of a sideband's.
    Say {
        /// The session's id.
        id: SessionId,
        /// When the call was created.
        created: u64,
        /// Whose it is.
        from: SidebandId,
        /// Whether it was sent as binary.
        binary: bool,
        /// The message.
        data: Bytes,
        /// Told when it was taken.
        reply: oneshot::Sender<()>,
    },
    /// End a session; the result says whether there was one.
    HangUp {
        /// The session's id.
        id: SessionId,
        /// When the call was created.
        created: u64,
        /// Told whether the session was there.
        reply: oneshot::Sender<bool>,
    },
}

/// Which worker has which session.
///
/// Touched when a session is made, restarted, hung up or ends, and by no packet.
#[derive(Clone, Debug, Default)]
pub struct Directory(Arc<Entries>);

#[derive(Debug, Default)]
struct Entries {
    shards: Mutex<HashMap<SessionId, ShardId>>,
    /// Told when the last one has left.
    emptied: Notify,
}

impl Directory {
    /// Takes an id for a shard; returns false when the id is taken.
    pub fn reserve(&self, id: SessionId, shard: ShardId) -> bool {
        match self.lock().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(shard);
                true
            }
        }
    }

    /// Gives an id back.
    pub fn release(&self, id: SessionId) {
        let mut shards = self.lock();
        if shards.remove(&id).is_some() && shards.is_empty() {
            self.0.emptied.notify_waiters();
        }
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.lock().len()
    }

    /// Returns when there is no session.
    pub async fn empty(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            if self.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// The shard that has the session.
    #[must_use]
    pub fn shard_of(&self, id: SessionId) -> Option<ShardId> {
        self.lock().get(&id).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, ShardId>> {
        // No code panics while it holds the lock; were it so, the map would still be whole.
        self.0.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
