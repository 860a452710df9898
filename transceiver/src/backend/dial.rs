//! Makes a call's backend, and starts its connection.

use std::sync::Arc;
use std::time::Instant;

use firsthop_shared::address::SessionId;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;

use super::apps::{App, Apps, Kind};
use super::connection::{self, Target};
use super::link::{Linked, Waker};
use super::outage::{self, Outages};
use super::pipecat::{Pipecat, PipecatSettings};
use super::realtime::{Format, Realtime, RealtimeSettings, merge};
use super::stats::BackendStats;
use super::unreadable::Peer;
use crate::audio::{Backend, Codec, Echo, PlayoutSettings};

/// What a call says of the backend that it wants.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The session.
    pub session: SessionId,
    /// The configuration of its session, an object in the GA shape.
    pub config: Option<&'a Value>,
    /// The codec of the call.
    pub codec: Codec,
    /// Event ids follow from it.
    pub seed: u64,
}

/// The backend of one session, and the playout that it needs.
pub struct Opened {
    /// What speaks to the user.
    pub backend: Box<dyn Backend>,
    /// The queue towards the client.
    pub playout: PlayoutSettings,
}

impl Opened {
    /// An echo.
    #[must_use]
    pub fn echo(seed: u64) -> Self {
        Self {
            backend: Box::new(Echo::new(seed)),
            playout: Echo::playout_settings(),
        }
    }
}

/// There is no application of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no application '{0}' here")]
pub struct NoSuchApp(pub String);

/// Makes backends for a worker's calls.
pub trait Backends: Send {
    /// The application of a call that names this one, or none.
    ///
    /// # Errors
    /// It is not there.
    fn find(&self, name: Option<&str>) -> Result<Arc<App>, NoSuchApp>;

    /// The backend of a new session. Its connection, if it needs one, begins at once: while ICE runs.
    fn open(&self, app: &App, wanted: Wanted<'_>, now: Instant) -> Opened;
}

/// Echoes alone.
#[derive(Debug, Clone, Copy)]
pub struct Echoes;

impl Backends for Echoes {
    fn find(&self, _name: Option<&str>) -> Result<Arc<App>, NoSuchApp> {
        Ok(Arc::default())
    }

    fn open(&self, _app: &App, wanted: Wanted<'_>, _now: Instant) -> Opened {
        Opened::echo(wanted.seed)
    }
}

/// Backends by application. To be used inside the worker's runtime, on which the connections run.
pub struct Dialer {
    /// The applications, as they are now.
    pub apps: watch::Receiver<Arc<Apps>>,
    /// TLS towards servers.
    pub tls: Arc<ClientConfig>,
    /// Where the worker hears of sessions whose server has said something.
    pub wakes: mpsc::UnboundedSender<SessionId>,
    /// What is counted.
    pub stats: Arc<BackendStats>,
    /// The servers that are out, of all workers.
    pub outages: Arc<Outages>,
    /// Each connection holds one until it has said goodbye.
    pub alive: mpsc::Sender<()>,
}

impl Backends for Dialer {
    fn find(&self, name: Option<&str>) -> Result<Arc<App>, NoSuchApp> {
        let found = self.apps.borrow().find(name);
        found.ok_or_else(|| NoSuchApp(name.unwrap_or_default().to_owned()))
    }

    fn open(&self, app: &App, wanted: Wanted<'_>, now: Instant) -> Opened {
        let config = wanted.config.and_then(Value::as_object);
        let asked = config.and_then(|config| config.get("model")?.as_str());
        let backend: Box<dyn Backend> = match (app.kind, app.target(asked, &self.tls)) {
            (Kind::Realtime, Some(target)) => {
                let protocol = realtime(app, config, wanted).named(peer(wanted, &target));
                Box::new(self.dial(wanted, protocol, target, now))
            }
            (Kind::Pipecat, Some(target)) => {
                let protocol = pipecat(app, config, wanted).named(peer(wanted, &target));
                Box::new(self.dial(wanted, protocol, target, now))
            }
            (Kind::Echo, _) | (_, None) => return Opened::echo(wanted.seed),
        };
        Opened {
            backend,
            playout: PlayoutSettings::default(),
        }
    }
}

impl Dialer {
    fn dial<T: super::Translator + 'static>(
        &self,
        wanted: Wanted<'_>,
        translator: T,
        target: Target,
        now: Instant,
    ) -> Linked<T> {
        let waker = Waker::new(wanted.session, self.wakes.clone());
        let (linked, line) = Linked::new(translator, waker, Arc::clone(&self.stats), now);
        let alive = self.alive.clone();
        let outages = Arc::clone(&self.outages);
        tokio::spawn(async move {
            connection::serve(wanted.session.0, target, line, outages).await;
            drop(alive);
        });
        linked
    }
}

fn peer(wanted: Wanted<'_>, target: &Target) -> Peer {
    Peer {
        session: wanted.session.0,
        server: outage::name(&target.url),
    }
}

/// What the application configures, and then the client.
fn configured(app: &App, config: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut session = app.session.clone();
    if let Some(config) = config {
        merge(&mut session, config);
    }
    session
}

fn pipecat(app: &App, config: Option<&Map<String, Value>>, wanted: Wanted<'_>) -> Pipecat {
    Pipecat::new(PipecatSettings {
        session: configured(app, config),
        rate: app.rate.unwrap_or_default(),
        seed: wanted.seed,
    })
}

fn realtime(app: &App, config: Option<&Map<String, Value>>, wanted: Wanted<'_>) -> Realtime {
    // A server that takes what the client speaks is given just that.
    let law = app.format.and_then(Format::law);
    Realtime::new(RealtimeSettings {
        session: configured(app, config),
        format: app.format,
        passed: law.filter(|law| wanted.codec.law() == Some(*law)),
        seed: wanted.seed,
    })
}
