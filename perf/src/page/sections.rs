//! Which kind of results is shown by whom.

use maud::{Markup, html};

use super::metric::Metric;
use super::{calls, capacity, failures, relay, setup, signaling};
use crate::findings::{Findings, FindingsError, Kind, Source};

/// What a section is called.
pub(super) fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Relay => "Relay",
        Kind::Calls => "Calls on a transceiver",
        Kind::Signaling => "Signaling",
        Kind::Setup => "Set-up",
        Kind::Capacity => "Capacity and cost",
        Kind::Testnet => "Failures",
    }
}

/// The figures of a file.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    match source.kind {
        Kind::Relay => relay::metrics(source),
        Kind::Calls => calls::metrics(source),
        Kind::Signaling => signaling::metrics(source),
        Kind::Setup => setup::metrics(source),
        Kind::Capacity => capacity::metrics(source),
        Kind::Testnet => failures::metrics(source),
    }
}

/// Charts and tables of the newest file of a kind, or a line that says how to make one.
pub(super) fn body(findings: &Findings, kind: Kind) -> Result<Markup, FindingsError> {
    let Some(source) = findings.latest(kind) else {
        return Ok(html! {
            p.absent { "Not measured yet: " code { (kind.command()) } " does, and writes " code { (kind.stem()) ".json" } "." }
        });
    };
    let body = match kind {
        Kind::Relay => relay::body(source)?,
        Kind::Calls => calls::body(source)?,
        Kind::Signaling => signaling::body(source)?,
        Kind::Setup => setup::body(source)?,
        Kind::Capacity => capacity::body(source)?,
        Kind::Testnet => failures::body(source)?,
    };
    Ok(html! {
        p.origin { (source.origin) "." @if source.quick { " " strong { "The short form, for a look." } } }
        (body)
    })
}
