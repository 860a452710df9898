//! What passes between a backend and its client, for those who look on: the idle cap, and sidebands.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde::Deserialize;

use super::waiting::MAX_EVENTS;

/// Notes what passes, and copies events while somebody looks on.
#[derive(Debug, Default)]
pub struct Tap {
    watched: bool,
    copies: VecDeque<Arc<str>>,
    lost: bool,
    created: Option<Arc<str>>,
    updated: Option<Arc<str>>,
    active: bool,
    speaking: bool,
}

impl Tap {
    /// The backend said this.
    pub(super) fn said(&mut self, event: &str) {
        self.active = true;
        // Only what looks like one of these is parsed.
        let noted = [
            "session.created",
            "session.updated",
            ".speech_st",
            "backend_disconnected",
        ];
        let kind = noted
            .iter()
            .any(|name| event.contains(name))
            .then(|| kind(event))
            .flatten();
        match kind.as_deref() {
            Some("session.created") if self.created.is_none() => {
                self.created = Some(event.into());
            }
            Some("session.updated") => self.updated = Some(event.into()),
            Some("input_audio_buffer.speech_started") => self.speaking = true,
            // Whoever said that the user speaks may be gone, and then nobody says that the user does not.
            Some("input_audio_buffer.speech_stopped") => self.speaking = false,
            Some("error") => self.speaking &= !event.contains("backend_disconnected"),
            _ => {}
        }
        self.copy(event);
    }

    /// Audio of an item of the backend's was played.
    pub(super) fn played(&mut self) {
        self.active = true;
    }

    /// Passes an event on to those who look on, if there are any.
    pub fn copy(&mut self, event: &str) {
        if !self.watched {
            return;
        }
        if self.copies.len() < MAX_EVENTS {
            self.copies.push_back(event.into());
        } else {
            self.lost = true;
        }
    }

    /// From here on events are copied, or no longer.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
        if !watched {
            self.copies.clear();
            self.lost = false;
        }
    }

    /// The next event that was copied.
    pub fn poll(&mut self) -> Option<Arc<str>> {
        self.copies.pop_front()
    }

    /// Whether more was said at once than is copied: who looks on has missed something.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// What somebody who comes late has to know: the first `session.created`, and the last `session.updated`.
    pub fn snapshot(&self) -> impl Iterator<Item = Arc<str>> + use<> {
        [self.created.clone(), self.updated.clone()]
            .into_iter()
            .flatten()
    }

    /// Whether the backend has said or played anything since the last call.
    pub fn take_active(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// Whether the backend hears the user speak.
    pub fn is_speaking(&self) -> bool {
        self.speaking
    }
}

fn kind(event: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    let head: Head<'_> = serde_json::from_str(event).ok()?;
    Some(head.kind.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tap: &Tap) -> Vec<String> {
        tap.snapshot().map(|event| event.to_string()).collect()
    }

    #[test]
    fn who_comes_late_learns_the_session_as_it_is() {
        let mut tap = Tap::default();
        let created = r#"{"event_id":"e","type":"session.created","session":{"id":"s"}}"#;
        tap.said(created);
        tap.said(r#"{"type":"response.done","text":"session.updated"}"#);
        assert_eq!(texts(&tap), [created]);
        tap.said(r#"{"type":"session.updated","n":1}"#);
        tap.said(r#"{"type":"session.updated","n":2}"#);
        assert_eq!(
            texts(&tap),
            [created, r#"{"type":"session.updated","n":2}"#]
        );
    }

    #[test]
    fn events_are_copied_only_while_somebody_looks_on() {
        let mut tap = Tap::default();
        tap.said("{}");
        assert_eq!(tap.poll(), None);
        tap.watch(true);
        tap.said("{}");
        assert_eq!(tap.poll().as_deref(), Some("{}"));
        for _ in 0..MAX_EVENTS {
            tap.said("{}");
        }
        assert!(!tap.take_lost());
        tap.said("{}");
        assert!(tap.take_lost());
        tap.watch(false);
        assert_eq!(tap.poll(), None);
    }

    #[test]
    fn speech_lasts_from_its_start_to_its_end() {
        let mut tap = Tap::default();
        assert!(!tap.take_active());
        tap.said(r#"{"type":"input_audio_buffer.speech_started"}"#);
        assert!(tap.is_speaking() && tap.take_active() && !tap.take_active());
        tap.said(r#"{"type":"input_audio_buffer.speech_stopped"}"#);
        assert!(!tap.is_speaking());
        // It ends with the backend, too, that would have said so.
        tap.said(r#"{"type":"input_audio_buffer.speech_started"}"#);
        tap.said(r#"{"type":"error","error":{"code":"rate_limit_exceeded"}}"#);
        assert!(tap.is_speaking());
        tap.said(r#"{"type":"error","error":{"code":"backend_disconnected"}}"#);
        assert!(!tap.is_speaking());
    }
}
