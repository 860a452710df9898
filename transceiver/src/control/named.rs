//! What a request names, looked up and checked: workers, sessions, ufrags, ingress points.

use std::sync::Arc;

use firsthop_shared::address::{IngressId, Restart, SessionId, ShardId};
use firsthop_shared::control::ControlCode;
use firsthop_shared::limits::INGRESSES_PER_ANSWER_MAX;
use firsthop_shared::token::{self, Route, Ufrag};

use super::refusal::{Refusal, unknown_session};
use super::{Control, WorkerHandle};
use crate::session::{Advertised, Credentials};

impl Control {
    pub(crate) fn worker(&self, shard: ShardId) -> Result<&WorkerHandle, Refusal> {
        self.workers.get(usize::from(shard.0)).ok_or_else(|| {
            Refusal::new(
                ControlCode::NoSuchShard,
                format!("there are {} workers", self.workers.len()),
            )
        })
    }

    pub(crate) fn find(&self, id: &str) -> Result<(SessionId, ShardId), Refusal> {
        let id = SessionId(id.parse().map_err(|_| unknown_session())?);
        let shard = self.directory.shard_of(id).ok_or_else(unknown_session)?;
        Ok((id, shard))
    }

    /// Opens the ufrag, and checks that it is for this owner and this session: a relay will believe it.
    pub(super) fn credentials(
        &self,
        ufrag: &str,
        session: SessionId,
        shard: ShardId,
        restart: Restart,
    ) -> Result<Credentials, Refusal> {
        let bad = |message: String| Refusal::new(ControlCode::BadUfrag, message);
        let keyring = Arc::clone(&self.shared.borrow().keyring);
        let ufrag = Ufrag::parse(ufrag).map_err(|e| bad(e.to_string()))?;
        let route = token::open(&keyring, ufrag.as_bytes()).map_err(|e| bad(e.to_string()))?;
        let ours = Route {
            cluster: self.cluster,
            owner: self.owner,
            shard,
            restart,
            session,
        };
        if route != ours {
            return Err(bad(format!(
                "the ufrag is for session {} at {} shard {} restart {} of cluster {}, not for session {session} at {} \
                 shard {shard} restart {restart} of cluster {}",
                route.session,
                route.owner,
                route.shard,
                route.restart,
                route.cluster,
                self.owner,
                self.cluster,
            )));
        }
        let password =
            token::ice_password(&keyring, ufrag.as_bytes()).map_err(|e| bad(e.to_string()))?;
        Ok(Credentials { ufrag, password })
    }

    pub(super) fn advertised(&self, ids: &[u8]) -> Result<Vec<Advertised>, Refusal> {
        let bad = |message: String| Refusal::new(ControlCode::BadRequest, message);
        let fleet = Arc::clone(&self.shared.borrow().fleet);
        let mut advertised = Vec::new();
        for id in ids {
            let ingress = IngressId(*id);
            let entry = fleet
                .ingress(ingress)
                .ok_or_else(|| bad(format!("ingress {id} is not in the fleet file")))?;
            advertised.extend(
                entry
                    .addresses()
                    .map(|address| Advertised { ingress, address }),
            );
        }
        if advertised.is_empty() || advertised.len() > INGRESSES_PER_ANSWER_MAX {
            return Err(bad(format!(
                "an answer advertises 1 to {INGRESSES_PER_ANSWER_MAX} addresses, not {}",
                advertised.len()
            )));
        }
        Ok(advertised)
    }
}
