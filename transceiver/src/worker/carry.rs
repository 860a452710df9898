//! Carries out what the control server asks of a worker: sessions are made, restarted, looked up and ended here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use firsthop_shared::address::{Restart, SessionId};
use firsthop_shared::control::{ControlCode, ControlError};

use super::command::{Command, CreateSpec, RestartBy, RestartSpec};
use super::core::{Core, Slot};
use super::endings::CallReport;
use crate::backend::Wanted;
use crate::life::{EndReason, State};
use crate::sdp::OfferError;
use crate::session::{NewSession, Session};

impl Core {
    /// Carries a command out, and answers it.
    pub fn command(&mut self, command: Command, now: Instant) {
        match command {
            // Who asked may have gone: then nobody hears the answer, and the session is reaped.
            Command::Create(spec, reply) => {
                let id = spec.id;
                let result = self.create(*spec, now);
                if result.is_err() {
                    self.counters.refused += 1;
                    if !self.sessions.contains_key(&id) {
                        self.settings.directory.release(id);
                    }
                }
                let _ = reply.send(result);
            }
            Command::Restart(spec, reply) => {
                let _ = reply.send(self.restart(&spec, now));
            }
            Command::Look { id, created, reply } => {
                let slot = self.sessions.get(&id);
                let ours = slot.filter(|slot| slot.session.created() == created);
                let _ = reply.send(ours.map(|slot| slot.restart));
            }
            Command::Report { id, reply } => {
                let _ = reply.send(self.report(id, now).map(Box::new));
            }
            Command::Join { id, created, reply } => {
                let joined = self
                    .is_session(id, created)
                    .then(|| self.with(id, now, |session, _| session.join(now)))
                    .flatten();
                let _ = reply.send(joined);
            }
            Command::Say {
                id,
                created,
                from,
                binary,
                data,
                reply,
            } => {
                if self.is_session(id, created) {
                    self.with(id, now, |session, out| {
                        session.said_beside(from, binary, &data, now, out);
                    });
                }
                let _ = reply.send(());
            }
            Command::HangUp { id, created, reply } => {
                let ours = self.is_session(id, created);
                if ours {
                    self.with(id, now, |session, out| {
                        session.end(EndReason::HungUp, now, out);
                    });
                }
                let _ = reply.send(ours);
            }
        }
    }

    fn create(&mut self, spec: CreateSpec, now: Instant) -> Result<String, ControlError> {
        if self.draining.is_some() {
            return Err(ControlError::new(
                ControlCode::Draining,
                "this transceiver takes no new sessions",
            ));
        }
        if self.sessions.len() >= self.settings.capacity {
            return Err(ControlError::new(ControlCode::Full, "the worker is full"));
        }
        if self.sessions.contains_key(&spec.id) {
            return Err(ControlError::new(
                ControlCode::SessionExists,
                "the session id is taken",
            ));
        }
        let seed = (self.random)();
        let app = self
            .backends
            .find(spec.app.as_deref())
            .map_err(|error| ControlError::new(ControlCode::UnknownApp, error.to_string()))?;
        let backends = &self.backends;
        let (session, config) = (spec.id, spec.config.as_ref());
        let open = |codec| {
            let wanted = Wanted {
                session,
                config,
                codec,
                seed,
            };
            backends.open(&app, wanted, now)
        };
        let identity = self.identity;
        let outbox = &mut self.outbox;
        let lifetimes = self.settings.lifetimes;
        let new = NewSession {
            id: spec.id,
            created: spec.created,
            credentials: spec.credentials,
            offer: &spec.offer,
            advertised: spec.advertised,
            seed,
            longest: spec
                .longest
                .map_or(lifetimes.longest, |asked| asked.min(lifetimes.longest)),
            idle: lifetimes.idle,
            kind: spec.kind,
            codec: app.codec(),
            opus: self.settings.opus,
        };
        let made = catch_unwind(AssertUnwindSafe(|| {
            Session::create(identity, new, open, now, outbox)
        }));
        let (session, answer) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(refusal(&error)),
            Err(_) => {
                tracing::error!(session = spec.id.0, "an offer made the engine panic");
                return Err(internal("the offer could not be processed"));
            }
        };
        self.counters.created += 1;
        self.counters.states[State::Created as usize] += 1;
        self.sessions.insert(
            spec.id,
            Slot {
                session,
                client: spec.client,
                app: spec.app,
                backend: app.kind,
                trace: spec.trace,
                restart: Restart(0),
                armed: None,
                state: State::Created,
            },
        );
        self.settle(spec.id, now);
        Ok(answer)
    }

    fn restart(&mut self, spec: &RestartSpec, now: Instant) -> Result<String, ControlError> {
        let gone = || ControlError::new(ControlCode::UnknownSession, "there is no such session");
        if !self.is_session(spec.id, spec.created) {
            return Err(gone());
        }
        // A slower restart must not take the ufrag back that a faster one has told the client.
        let in_use = self.sessions.get(&spec.id).map(|slot| slot.restart);
        if in_use.is_some_and(|in_use| spec.restart.0 <= in_use.0) {
            return Err(ControlError::new(
                ControlCode::StaleRestart,
                "the restart's number is not above that of the ufrag in use",
            ));
        }
        let result = self
            .with(spec.id, now, |session, out| {
                let (ours, addresses) = (spec.credentials, &spec.advertised);
                match &spec.by {
                    RestartBy::Offer(offer) => session.restart(ours, offer, addresses, now, out),
                    RestartBy::Ice(client) => {
                        session.restart_ice(ours, client, addresses, now, out)
                    }
                }
            })
            .ok_or_else(|| internal("the session failed"))?;
        if let Some(slot) = self.sessions.get_mut(&spec.id)
            && slot.session.ufrag() == spec.credentials.ufrag
        {
            slot.restart = spec.restart;
        }
        self.counters.restarts += u64::from(result.is_ok());
        result.map_err(|error| refusal(&error))
    }

    fn report(&mut self, id: SessionId, now: Instant) -> Option<CallReport> {
        let session = self.with(id, now, |session, _| session.report(now))?;
        let slot = self.sessions.get(&id)?;
        Some(slot.report(self.settings.shard, session))
    }

    fn is_session(&self, id: SessionId, created: u64) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|slot| slot.session.created() == created)
    }
}

fn refusal(error: &OfferError) -> ControlError {
    let code = match error {
        OfferError::Malformed(_) => ControlCode::BadOffer,
        OfferError::Unsupported(_) => ControlCode::UnsupportedOffer,
    };
    ControlError::new(code, error.to_string())
}

fn internal(message: &str) -> ControlError {
    ControlError::new(ControlCode::Internal, message)
}
