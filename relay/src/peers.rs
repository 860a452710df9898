//! What the cores know of other clusters' relays, as the admin thread sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use firsthop_relay_core::{PEER_WORDS, PeerList, Router};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::roster::GroupView;

/// One core's view of the relays, published ten times a second.
#[derive(Debug, Default)]
pub struct PublishedPeers {
    /// Which list the bits are of: its address, since all share it.
    list: AtomicU64,
    up: [AtomicU64; PEER_WORDS],
    leads: [AtomicU64; PEER_WORDS],
}

impl PublishedPeers {
    /// Stores what a core knows.
    pub fn publish(&self, router: &Router) {
        let [up, leads] = router.peer_bits();
        for (cells, bits) in [(&self.up, up), (&self.leads, leads)] {
            for (cell, word) in cells.iter().zip(bits) {
                cell.store(word, Ordering::Relaxed);
            }
        }
        self.list.store(name(router.peers()), Ordering::Release);
    }

    /// Whether the core knows this list already; else its bits are of another one.
    fn knows(&self, list: &Arc<PeerList>) -> bool {
        self.list.load(Ordering::Acquire) == name(list)
    }
}

fn name(list: &Arc<PeerList>) -> u64 {
    Arc::as_ptr(list) as u64
}

fn bit(words: &[AtomicU64; PEER_WORDS], at: usize) -> u64 {
    words[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1
}

type Words = fn(&PublishedPeers) -> &[AtomicU64; PEER_WORDS];

/// Writes, for each core, cluster and relay, whether the relay is up and whether it leads to its cluster.
pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    group: &GroupView,
    list: &Arc<PeerList>,
) -> fmt::Result {
    let values: [(&str, &str, Words); 2] = [
        (
            "peer_up",
            "Whether a relay of another cluster answers keepalives",
            |peers| &peers.up,
        ),
        (
            "peer_leads",
            "Whether a relay of another cluster is the one that packets for its cluster go to",
            |peers| &peers.leads,
        ),
    ];
    for (metric, help, words) in values {
        let kind = ConstGauge::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor(metric, help, None, kind)?;
        for (number, core) in group.cores.iter().enumerate() {
            let peers = &core.published.peers;
            if !peers.knows(list) {
                continue;
            }
            for (at, relay) in list.relays().iter().enumerate() {
                let labels = [
                    ("core", number.to_string()),
                    ("cluster", relay.cluster.to_string()),
                    ("relay", relay.entry.core(0).to_string()),
                ];
                let gauge = ConstGauge::new(bit(words(peers), at));
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}
