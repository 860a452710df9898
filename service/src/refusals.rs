//! What a server turned away before there was a request that a handler could answer, by reason.
//!
//! Such a client gets at most a status without a body, which hyper writes by itself, so the count is where an operator sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// Why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its address holds as many connections as it may: closed unheard.
    Address,
    /// It was idle longest when all places were taken, and made room for another.
    Room,
    /// A request head above what the server parses: answered with a bare 431, or 414 for its URL.
    HeadTooLarge,
    /// What came is no HTTP/1.1: answered with a bare 400, or not at all when it is the beginning of HTTP/2.
    Malformed,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 4] = [
        Self::Address,
        Self::Room,
        Self::HeadTooLarge,
        Self::Malformed,
    ];

    /// The word for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Room => "room",
            Self::HeadTooLarge => "head_too_large",
            Self::Malformed => "malformed",
        }
    }

    /// Why hyper ended a connection, when it refused to read on.
    pub(crate) fn of(error: &hyper::Error) -> Option<Self> {
        if error.is_parse_too_large() {
            Some(Self::HeadTooLarge)
        } else {
            error.is_parse().then_some(Self::Malformed)
        }
    }
}

/// How often there was each.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Refusal::ALL.len()]);

impl Refusals {
    /// There was one more.
    pub fn count(&self, why: Refusal) {
        self.0[why as usize].fetch_add(1, Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn of(&self, why: Refusal) -> u64 {
        self.0[why as usize].load(Relaxed)
    }
}

/// The counts on a metrics page.
#[derive(Clone, Debug)]
pub struct RefusalsShown(pub Arc<Refusals>);

impl Collector for RefusalsShown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Connections closed without an answer that was due, by reason: address for more than one client address may hold, room for idle ones that gave way to others, malformed for what is no HTTP/1.1, head_too_large";
        let mut family =
            encoder.encode_descriptor("connections_refused", help, None, MetricType::Counter)?;
        for why in Refusal::ALL {
            let labels = [("reason", why.name())];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(self.0.of(why)).encode(metric)?;
        }
        Ok(())
    }
}
