//! Which kinds of files of results there are.

use std::path::Path;

use serde::Serialize;

/// What a file of results is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What a packet costs the relay, beside floors and peers.
    Relay,
    /// How many calls a transceiver carries, and what a session holds.
    Calls,
    /// How many calls a second signaling makes.
    Signaling,
    /// How long a call takes to be set up, on paths of several lengths.
    Setup,
    /// How many calls all programs carry together, and what each costs.
    Capacity,
    /// What each failure costs the calls that are up.
    Testnet,
}

impl Kind {
    /// All of them, in the order that people are told of them.
    pub const ALL: [Self; 6] = [
        Self::Relay,
        Self::Calls,
        Self::Signaling,
        Self::Setup,
        Self::Capacity,
        Self::Testnet,
    ];

    /// How names of its files begin.
    #[must_use]
    pub fn stem(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Calls => "calls",
            Self::Signaling => "signaling",
            Self::Setup => "setup",
            Self::Capacity => "capacity",
            Self::Testnet => "testnet",
        }
    }

    /// The command that makes its files.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Relay => "scripts/bench relay",
            Self::Calls | Self::Capacity => "scripts/bench calls",
            Self::Signaling => "scripts/bench signaling",
            Self::Setup => "scripts/bench setup",
            Self::Testnet => "scripts/testnet",
        }
    }

    /// That of a file, by its name; nothing when it does not say.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        let named = |kind: &Self| {
            let rest = name.strip_prefix(kind.stem());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        Self::ALL.into_iter().find(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_kind() {
        let of = |name: &str| Kind::of(Path::new(name));
        assert_eq!(of("results/relay.json"), Some(Kind::Relay));
        assert_eq!(of("calls-2026-11-30.json"), Some(Kind::Calls));
        for name in ["relayed.json", "relay.txt", "plan.json", "relay"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
