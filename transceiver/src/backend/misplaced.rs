//! Which settings a kind of backend does not have: given all the same, they would do nothing.

use super::apps::Kind;
use super::pipecat::Rate;
use super::realtime::Format;

/// A setting that this kind of backend does not have: its name, and what to do.
pub(super) fn misplaced(
    kind: Kind,
    format: Option<Format>,
    rate: Option<Rate>,
    model: Option<&str>,
) -> Option<(&'static str, &'static str)> {
    let model = model.is_some_and(|model| !model.is_empty());
    if model && kind == Kind::Pipecat {
        return Some((
            "model",
            "a Pipecat bot has its model in its own pipeline; leave it out",
        ));
    }
    if model && kind == Kind::Echo {
        return Some(("model", "an echo has no model; leave it out"));
    }
    if rate.is_some() && kind != Kind::Pipecat {
        return Some((
            "rate",
            "only a Pipecat bot is sent sound at a rate of its own; leave it out",
        ));
    }
    if format.is_some() && kind == Kind::Pipecat {
        return Some((
            "format",
            "a Pipecat bot takes PCM alone; leave it out, and give rate instead",
        ));
    }
    None
}
