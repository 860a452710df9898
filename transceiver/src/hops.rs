//! The paths of one session: where its client is, by which hop it is reached, and what of that is proven.
//!
//! A path is a client address at an ingress. It comes into being with a verified STUN request, and its hop (the relay core
//! that the client's last packet came by, with that relay's handle) is followed with every record: a relay may restart, and
//! a balancer may move the flow to another relay at any time.
//!
//! **Which path media takes** is decided here and not by the engine. The engine, as the controlled side, keeps to the pair of
//! the highest priority; after a NAT rebinding the new pair's priority equals the old one's, and media would go to the dead
//! address until its consent expires, 20 s later. Telling the engine to forget the old address works, but the engine then
//! ignores that address for good, and one client that hops between two networks would be lost. So the engine's packets are
//! redirected to the path that the client demonstrably uses now. A path qualifies only when a check of *ours* was answered
//! from there; a replayed or forged request moves nothing.

use std::time::{Duration, Instant};

use firsthop_shared::address::{ClientAddr, FlowHandle, Hop, IngressId};

use crate::limits;

/// A client address at an ingress: what the relay's flow table is keyed by, too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathKey {
    /// The client's address, as the relay saw it.
    pub client: ClientAddr,
    /// The advertised address that it used.
    pub ingress: IngressId,
    /// Whether it came by TCP.
    pub tcp: bool,
}

/// A place in the table, valid until a path is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathIndex(usize);

/// How long the chosen path must be silent before a path that the client has nominated takes over.
///
/// Two voice packets. While both are heard the client's media decides.
const SILENCE_FOR_NOMINATED: Duration = Duration::from_millis(40);

/// The same for a path that lives but was never nominated: some clients nominate once and never again (fault 15).
///
/// Two of a browser's consent intervals.
const SILENCE_FOR_ALIVE: Duration = Duration::from_secs(6);

/// How many media packets in a row, with none on the chosen path, say that the client has moved.
const MEDIA_IN_A_ROW: u8 = 2;

#[derive(Clone, Debug)]
struct Path {
    key: PathKey,
    hop: Hop,
    handle: FlowHandle,
    /// A check of ours was answered from here at this time.
    consent: Option<Instant>,
    /// Proof since the last record that we sent here.
    fresh: bool,
    nominated: bool,
    /// When something that authenticates came from here last.
    heard: Instant,
    media_run: u8,
}

impl Path {
    fn validated(&self) -> bool {
        self.consent.is_some()
    }

    /// Where it is, without its proof.
    fn destination(&self) -> Destination {
        Destination {
            hop: self.hop,
            key: self.key,
            handle: self.handle,
            proven: false,
        }
    }
}

/// What there is to tell of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathView {
    /// The client's address at an ingress.
    pub key: PathKey,
    /// The relay core that its last packet came by.
    pub hop: Hop,
    /// Whether a check of ours was answered from there within [`limits::CONSENT`].
    pub consent: bool,
    /// Whether the client's last nomination was this.
    pub nominated: bool,
    /// When something that authenticates came from there last.
    pub heard: Instant,
}

/// Where a record goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The relay core's internal address.
    pub hop: Hop,
    /// The client.
    pub key: PathKey,
    /// The relay's own name for the flow.
    pub handle: FlowHandle,
    /// Whether there is fresh proof that the client is there.
    pub proven: bool,
}

/// The paths of one session, bounded.
#[derive(Debug, Default)]
pub struct Paths {
    paths: Vec<Path>,
    admitted: usize,
    chosen: Option<PathKey>,
    engine: Option<PathKey>,
    /// The path that made room last.
    evicted: Option<Destination>,
    moves: u32,
}

impl Paths {
    /// Looks a path up, and notes that a packet came by this hop.
    ///
    /// The hop comes from an authenticated trunk record and is believed. The packet is not yet: that the client was heard is
    /// for [`Paths::requested`], [`Paths::answered`] and [`Paths::authenticated`] to say.
    pub fn arrived(&mut self, key: &PathKey, hop: Hop, handle: FlowHandle) -> Option<PathIndex> {
        let index = self.paths.iter().position(|path| path.key == *key)?;
        let path = &mut self.paths[index];
        path.hop = hop;
        path.handle = handle;
        Some(PathIndex(index))
    }

    /// Takes a path in, on the strength of a verified request.
    ///
    /// Returns nothing when the session has brought up [`limits::PATHS_PER_GENERATION`] since its last restart. When the
    /// table is full the least valuable path makes room: never validated before validated, then the one silent longest.
    pub fn admit(
        &mut self,
        key: PathKey,
        hop: Hop,
        handle: FlowHandle,
        now: Instant,
    ) -> Option<PathIndex> {
        if self.admitted == limits::PATHS_PER_GENERATION {
            return None;
        }
        self.admitted += 1;
        let path = Path {
            key,
            hop,
            handle,
            consent: None,
            fresh: false,
            nominated: false,
            heard: now,
            media_run: 0,
        };
        if self.paths.len() < limits::PATHS_PER_SESSION {
            self.paths.push(path);
            return Some(PathIndex(self.paths.len() - 1));
        }
        let chosen = self.chosen;
        let (index, place) = self
            .paths
            .iter_mut()
            .enumerate()
            .filter(|(_, path)| Some(path.key) != chosen)
            .min_by_key(|(_, path)| (path.validated(), path.heard))?;
        self.evicted = Some(std::mem::replace(place, path).destination());
        Some(PathIndex(index))
    }

    /// The path that the last [`Paths::admit`] gave up: its relay still knows the session there, and has to be told.
    pub fn take_evicted(&mut self) -> Option<Destination> {
        self.evicted.take()
    }

    /// An ICE restart: the count of paths starts anew. Known paths stay, so that media goes on meanwhile.
    pub fn restarted(&mut self) {
        self.admitted = 0;
        for path in &mut self.paths {
            path.nominated = false;
        }
    }

    /// Whether DTLS and RTP from the path may reach the engine.
    #[must_use]
    pub fn is_validated(&self, index: PathIndex) -> bool {
        self.paths[index.0].validated()
    }

    /// A check of ours was answered from the path.
    pub fn answered(&mut self, index: PathIndex, now: Instant) {
        let path = &mut self.paths[index.0];
        path.heard = now;
        path.consent = Some(now);
        path.fresh = true;
        self.reconsider(index, now);
    }

    /// A verified request came by the path; `nominates` when it carried USE-CANDIDATE.
    ///
    /// The last nomination counts alone (RFC 8445 section 8.1.1): a path that the client has left for another still answers
    /// its checks, and must not draw media back whenever the client is silent.
    pub fn requested(&mut self, index: PathIndex, nominates: bool, now: Instant) {
        self.paths[index.0].heard = now;
        if nominates {
            for (place, path) in self.paths.iter_mut().enumerate() {
                path.nominated = place == index.0;
            }
        }
        self.reconsider(index, now);
    }

    /// A packet from the path authenticated under DTLS or SRTP; `media` when it was RTP.
    pub fn authenticated(&mut self, index: PathIndex, media: bool, now: Instant) {
        let path = &mut self.paths[index.0];
        let key = path.key;
        path.heard = now;
        path.fresh = true;
        if media {
            if self.chosen == Some(key) {
                for path in &mut self.paths {
                    path.media_run = 0;
                }
                return;
            }
            let path = &mut self.paths[index.0];
            path.media_run = path.media_run.saturating_add(1);
        }
        self.reconsider(index, now);
    }

    /// The engine addressed a DTLS or SRTP packet to this path.
    ///
    /// Its first choice is ours, and so is each later change of its mind: it then follows a nomination of higher priority.
    pub fn engine_chose(&mut self, key: PathKey) {
        if self.engine != Some(key) {
            self.engine = Some(key);
            self.choose(key);
        }
    }

    /// Whether media should move to the path, on which something was just heard.
    fn reconsider(&mut self, index: PathIndex, now: Instant) {
        // Until the engine has chosen, ICE is still under way, and its priorities rule.
        let Some(chosen) = self.chosen else {
            return;
        };
        let candidate = &self.paths[index.0];
        if candidate.key == chosen || !self.has_consent(index, now) {
            return;
        }
        let silent = self
            .paths
            .iter()
            .find(|path| path.key == chosen)
            .map(|path| now.saturating_duration_since(path.heard));
        let quiet = |time: Duration| silent.is_none_or(|silent| silent >= time);
        if candidate.media_run >= MEDIA_IN_A_ROW
            || (candidate.nominated && quiet(SILENCE_FOR_NOMINATED))
            || quiet(SILENCE_FOR_ALIVE)
        {
            self.choose(candidate.key);
        }
    }

    fn choose(&mut self, key: PathKey) {
        if self.chosen.is_some_and(|chosen| chosen != key) {
            self.moves += 1;
        }
        self.chosen = Some(key);
        for path in &mut self.paths {
            path.media_run = 0;
        }
    }

    fn has_consent(&self, index: PathIndex, now: Instant) -> bool {
        self.paths[index.0]
            .consent
            .is_some_and(|at| now.saturating_duration_since(at) < limits::CONSENT)
    }

    /// The path that media takes.
    #[must_use]
    pub fn chosen(&self) -> Option<PathKey> {
        self.chosen
    }

    /// How often media has moved to another path.
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.moves
    }

    /// Whether we may send media to the path: it is known, and a check of ours was answered within [`limits::CONSENT`].
    #[must_use]
    pub fn may_send(&self, key: &PathKey, now: Instant) -> bool {
        self.paths
            .iter()
            .position(|path| path.key == *key)
            .is_some_and(|index| self.has_consent(PathIndex(index), now))
    }

    /// Where a packet for this path goes; takes the fresh proof along. Nothing when no hop is known.
    pub fn send_to(&mut self, key: &PathKey) -> Option<Destination> {
        let path = self.paths.iter_mut().find(|path| path.key == *key)?;
        Some(Destination {
            hop: path.hop,
            key: path.key,
            handle: path.handle,
            proven: std::mem::take(&mut path.fresh),
        })
    }

    /// Every known path, for whoever asks how the session stands.
    pub fn views(&self, now: Instant) -> impl Iterator<Item = PathView> + '_ {
        self.paths
            .iter()
            .enumerate()
            .map(move |(index, path)| PathView {
                key: path.key,
                hop: path.hop,
                consent: self.has_consent(PathIndex(index), now),
                nominated: path.nominated,
                heard: path.heard,
            })
    }

    /// Every known path, to close the session there.
    pub fn all(&self) -> impl Iterator<Item = Destination> + '_ {
        self.paths.iter().map(Path::destination)
    }
}

#[cfg(test)]
#[path = "hops_tests.rs"]
mod tests;
