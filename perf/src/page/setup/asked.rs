//! What is asked of set-ups, as files of all ages have it.

use serde::Deserialize;

use crate::setup::results::Channel;
use crate::setup::targets::{Figure as Which, Key};

/// A target, and what was found.
#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) name: String,
    /// Older files have names alone.
    pub(super) key: Option<Key>,
    pub(super) found: f64,
    pub(super) must: f64,
    #[serde(default)]
    pub(super) how: String,
}

/// What a target is of. Files from before targets had keys have names of these forms.
pub(super) fn key(asked: &Asked) -> Option<Key> {
    if asked.key.is_some() {
        return asked.key;
    }
    let channel = |words: &str| {
        let all = [Channel::Without, Channel::Handshake, Channel::Snap];
        all.into_iter().find(|channel| channel.name() == words)
    };
    let on = |words: &'_ str| {
        let (rtt, rest) = words.split_once(" ms, ")?;
        Some((rtt.parse::<f64>().ok()?, rest.to_owned()))
    };
    if let Some(words) = asked.name.strip_prefix("the same on a line of ") {
        let (rtt_ms, rest) = on(words)?;
        let channel = channel(rest.strip_prefix("in all, ")?)?;
        return Some(Key::Audio { rtt_ms, channel });
    }
    let words = asked
        .name
        .strip_prefix("set-up through the relay / direct, ")?;
    let (rtt_ms, rest) = on(words)?;
    if let Some(which) = rest.strip_prefix("beside calls that are up, ") {
        let all = [Which::Median, Which::P99];
        let figure = all.into_iter().find(|figure| figure.name() == which)?;
        return Some(Key::RelayOverDirectLoaded { rtt_ms, figure });
    }
    let channel = channel(&rest)?;
    Some(Key::RelayOverDirect { rtt_ms, channel })
}

/// Whether it is of the slope of a line, which older files held against what is asked: it describes, and no more.
pub(super) fn is_slope(asked: &Asked) -> bool {
    asked.key.is_none()
        && asked
            .name
            .starts_with("round trips from POST to first audio back, ")
}

/// A target's name as it is said by itself.
pub(super) fn stands_alone(asked: &Asked) -> String {
    match key(asked) {
        // As what was measured without a line is called: see [`super::capacity`].
        Some(Key::RelayOverDirectLoaded { rtt_ms, figure }) => format!(
            "set-up through the relay / direct, {}, at half load, on a line of {rtt_ms:.0} ms",
            figure.name()
        ),
        Some(key) => key.name(),
        None => asked.name.clone(),
    }
}
