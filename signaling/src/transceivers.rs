//! The transceivers that calls are placed on: found, polled for their status, and reserved.
//!
//! Once a second every transceiver is asked for its status, all of them at once, so that a slow one delays nobody.
//!
//! A URL with a name stands for every address that the name has, and is resolved anew for each round: a Kubernetes headless
//! service is one URL.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use firsthop_service::server::Complaints;
use firsthop_shared::address::canonical;
use firsthop_shared::url_port;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::changes::Changes;
use crate::limits::{POLL_INTERVAL, TRANSCEIVERS_MAX};
use crate::metrics::Metrics;
use crate::names::Names;
use crate::owner::{OwnerClient, OwnerError};
use crate::placement::{Outcome, Place, Placement, Standing};

/// Where transceivers are to be found: the host and port of a control URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// One transceiver.
    Address(SocketAddr),
    /// One at each address of the name.
    Name {
        /// The name to resolve.
        host: String,
        /// The control port of all of them.
        port: u16,
    },
}

/// A text that is no control URL.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a control URL")]
pub struct SourceError(String);

impl FromStr for Source {
    type Err = SourceError;

    /// Reads `http://host:port`, with nothing after the port but an optional slash.
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let error = || SourceError(text.to_owned());
        url_port::check(text).map_err(|_| error())?;
        let url = reqwest::Url::parse(text).map_err(|_| error())?;
        let plain = url.scheme() == "http"
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        let host = url.host_str().filter(|_| plain).ok_or_else(error)?;
        // The parser takes more slashes, or fewer, for the two before the host.
        let port = url.port_or_known_default().filter(|port| *port != 0);
        let port = port.ok_or_else(error)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        Ok(match bare.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => return Err(error()),
            Ok(ip) => Self::Address(canonical(SocketAddr::from((ip, port)))),
            Err(_) => Self::Name {
                host: host.to_owned(),
                port,
            },
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "http://{address}"),
            Self::Name { host, port } => write!(f, "http://{host}:{port}"),
        }
    }
}

/// The transceivers of this cluster.
pub struct Transceivers {
    sources: Vec<Source>,
    names: Names,
    client: OwnerClient,
    table: Mutex<Table>,
}

struct Table {
    placement: Placement,
    changes: Changes,
    complaints: Complaints,
}

impl Transceivers {
    /// Knows where to look, and has asked nobody yet.
    #[must_use]
    pub fn new(sources: Vec<Source>, client: OwnerClient) -> Arc<Self> {
        Self::with_names(sources, Names::of_the_system(), client)
    }

    /// The same, with names that are not this machine's.
    #[must_use]
    pub fn with_names(sources: Vec<Source>, names: Names, client: OwnerClient) -> Arc<Self> {
        let table = Mutex::new(Table {
            placement: Placement::new(client.patience().fresh),
            changes: Changes::default(),
            complaints: Complaints::default(),
        });
        Arc::new(Self {
            sources,
            names,
            client,
            table,
        })
    }

    /// The client for the control ports.
    #[must_use]
    pub fn client(&self) -> &OwnerClient {
        &self.client
    }

    /// Polls once a second, for ever.
    pub async fn poll_forever(self: Arc<Self>, metrics: Arc<Metrics>) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.poll_once().await;
            self.publish(&metrics);
        }
    }

    /// Resolves the names and asks every transceiver for its status, all at once; returns when the last has answered or failed.
    pub async fn poll_once(self: &Arc<Self>) {
        let members = self.resolve().await;
        self.table().placement.set_members(&members);
        let mut polls = JoinSet::new();
        for control in members {
            let this = Arc::clone(self);
            polls.spawn(async move { this.poll(control).await });
        }
        while polls.join_next().await.is_some() {}
    }

    /// Chooses where a call goes and counts it there until the reservation is dropped.
    ///
    /// `except` is left out. Nothing is returned when no other transceiver has room.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, except: Option<SocketAddr>) -> Option<Reservation> {
        let place = self
            .table()
            .placement
            .place(Instant::now(), except, &mut rand::rng())?;
        Some(Reservation {
            transceivers: Arc::clone(self),
            place,
            outcome: Outcome::Kept,
        })
    }

    /// Places nothing on a transceiver until its next good status.
    pub fn doubt(&self, control: SocketAddr) {
        self.table().placement.doubt(control);
    }

    /// Whether a call could be placed now.
    #[must_use]
    pub fn placeable(&self) -> bool {
        self.table()
            .placement
            .count(Standing::Ready, Instant::now())
            > 0
    }

    /// How each transceiver stands.
    #[must_use]
    pub fn standings(&self) -> Vec<(SocketAddr, Standing)> {
        let table = self.table();
        let now = Instant::now();
        table
            .placement
            .members()
            .filter_map(|control| Some((control, table.placement.standing(control, now)?)))
            .collect()
    }

    /// Sets the gauges.
    pub fn publish(&self, metrics: &Metrics) {
        let table = self.table();
        let now = Instant::now();
        for standing in Standing::ALL {
            metrics.transceivers(standing, table.placement.count(standing, now));
        }
    }

    /// All addresses, in the order of the settings, each once. Names are looked up all at once: a round must not take longer than a status counts
    /// as recent, however many of them have a name server that is silent.
    async fn resolve(self: &Arc<Self>) -> Vec<SocketAddr> {
        let mut looking_up = JoinSet::new();
        for (index, source) in self.sources.iter().enumerate() {
            if let Source::Name { host, port } = source {
                let (this, host, port) = (Arc::clone(self), host.clone(), *port);
                looking_up.spawn(async move { (index, this.names.addresses(&host, port).await) });
            }
        }
        let mut found = HashMap::new();
        while let Some(done) = looking_up.join_next().await {
            found.extend(done);
        }
        let mut seen = HashSet::new();
        let mut members = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let addresses = match source {
                Source::Address(address) => vec![*address],
                Source::Name { .. } => found.remove(&index).unwrap_or_default(),
            };
            members.extend(addresses.into_iter().filter(|a| seen.insert(*a)));
        }
        if members.len() > TRANSCEIVERS_MAX {
            let due = self.table().complaints.due(Instant::now());
            if due.is_some() {
                tracing::warn!(
                    found = members.len(),
                    used = TRANSCEIVERS_MAX,
                    "more transceivers than are polled; the others get no calls"
                );
            }
            members.truncate(TRANSCEIVERS_MAX);
        }
        members
    }

    async fn poll(&self, control: SocketAddr) {
        self.table().placement.poll_started(control);
        let result = self.client.status(control).await;
        let now = Instant::now();
        let mut table = self.table();
        match &result {
            Ok(status) if status.owner.ip().is_unspecified() || status.owner.port() == 0 => {
                table.placement.doubt(control);
            }
            Ok(status) => table.placement.observe(control, status, now),
            // One late answer is no verdict: the last status stays good for a while.
            Err(OwnerError::TimedOut) => {}
            Err(_) => table.placement.doubt(control),
        }
        if let Some(standing) = table.placement.standing(control, now) {
            let error = result.as_ref().err();
            table.changes.log(control, standing, error, now);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is complete in itself, so a panic elsewhere leaves nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Transceivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.sources).finish()
    }
}

/// A place that is counted for a call until this is dropped.
///
/// Dropped without a word, the call counts as kept: when a client goes away in the middle, its owner may have the session.
#[derive(Debug)]
pub struct Reservation {
    transceivers: Arc<Transceivers>,
    place: Place,
    outcome: Outcome,
}

impl Reservation {
    /// Where.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Ends it: the owner does not have the call.
    pub fn refused(mut self) {
        self.outcome = Outcome::Refused;
    }

    /// The same, and the owner has no such worker: nothing is placed there until its next status.
    pub fn no_such_shard(mut self) {
        self.outcome = Outcome::NoSuchShard;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.transceivers
            .table()
            .placement
            .settle(&self.place, self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_urls_name_one_address_or_a_name() {
        let address = |text: &str| Source::Address(text.parse().expect("an address"));
        for (text, expected) in [
            ("http://10.0.0.1:5080", address("10.0.0.1:5080")),
            ("http://10.0.0.1:5080/", address("10.0.0.1:5080")),
            ("http://[fd00::1]:5080", address("[fd00::1]:5080")),
            ("http://[::ffff:10.0.0.1]:5080", address("10.0.0.1:5080")),
            ("http://10.0.0.1", address("10.0.0.1:80")),
            (
                "http://media.example:5080",
                Source::Name {
                    host: "media.example".into(),
                    port: 5080,
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_urls_are_refused_by_name() {
        for text in [
            "",
            "10.0.0.1:5080",
            "https://10.0.0.1:5080",
            "http://10.0.0.1:5080/v1",
            "http://user@10.0.0.1:5080",
            "http://10.0.0.1:5080?x=1",
            "http://0.0.0.0:5080",
            "http://[::]:5080",
            "http://10.0.0.1:0",
            "http:///10.0.0.1:0",
            "http:/10.0.0.1:0",
            "http://10.0.0.1:99999",
            "http://10.0.0.1:",
            "http://media.example:/",
        ] {
            assert_eq!(
                text.parse::<Source>(),
                Err(SourceError(text.into())),
                "{text}"
            );
        }
    }
}
