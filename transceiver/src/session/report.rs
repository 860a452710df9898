//! How a session stands, for whoever has to find out why a call went as it did: no secret, no media, and nothing that was said.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::control::CallKind;
use serde::Serialize;
use str0m::crypto::dtls::SrtpProfile;

use super::{LastReport, QualitySummary, Session};
use crate::audio::{BackendReport, Codec};
use crate::life::{Phase, Step};
use crate::sdp::Offer;

/// A session as support sees it. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// Its id: what logs call `session`.
    pub session: u32,
    /// When signaling created the call, in milliseconds since the Unix epoch.
    pub created: u64,
    /// What kind of client made the call.
    pub kind: CallKind,
    /// Where it stands: `created`, `connecting`, `live`, `interrupted` or `ended`.
    pub state: &'static str,
    /// How long it has lived since its answer.
    pub age_ms: u64,
    /// The first step of its life and the last ones, in order.
    pub steps: Vec<Step>,
    /// When it reached each phase of its set-up, from the answer on; null where it did not.
    pub setup_ms: BTreeMap<&'static str, Option<u64>>,
    /// How often ICE was restarted.
    pub ice_restarts: u64,
    /// How often the client was not heard for so long that it counted as lost.
    pub interruptions: u32,
    /// How often media has moved to another path.
    pub path_moves: u32,
    /// Where the client was heard, and how it is reached there. Empty once the session has ended: where a client was is kept no longer.
    pub paths: Vec<PathReport>,
    /// How DTLS and SRTP protect it; nothing before the handshake.
    pub dtls: DtlsReport,
    /// Its audio.
    pub audio: AudioReport,
    /// What RTCP says of the path: means, and sums.
    pub rtcp: QualitySummary,
    /// What the client's last report said.
    pub last_report: LastReport,
    /// Its channel.
    pub events: EventReport,
    /// What it has to do with a model server.
    pub backend: BackendReport,
    /// Packets and messages that were dropped, for whatever reason; the metrics page has them by reason.
    pub drops: u64,
}

/// A path to the client.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PathReport {
    /// The client's address, as the relay saw it.
    pub client: SocketAddr,
    /// The id of the ingress that it used.
    pub ingress: u8,
    /// The address of that, as the client was told it.
    pub advertised: Option<SocketAddr>,
    /// Whether it came by TCP.
    pub tcp: bool,
    /// The relay core that it came by: its internal address.
    pub hop: SocketAddr,
    /// Whether media takes it: the selected pair is this client and this advertised address.
    pub selected: bool,
    /// Whether the client has nominated it.
    pub nominated: bool,
    /// Whether a check of ours was answered there of late.
    pub consent: bool,
    /// How long ago something that authenticates came from there.
    pub heard_ms_ago: u64,
}

/// What the handshake has agreed on.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DtlsReport {
    /// The version of DTLS.
    pub version: Option<&'static str>,
    /// The SRTP profile, by its name in the registry of RFC 5764.
    pub srtp_profile: Option<&'static str>,
}

/// The audio of a session.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AudioReport {
    /// The codec; nothing in a call without audio.
    pub codec: Option<&'static str>,
    /// RTP packets of the client's.
    pub packets_in: u64,
    /// RTP packets to it.
    pub packets_out: u64,
    /// Of the client's packets, those that never came.
    pub missing: u64,
    /// Those that came when they had been given up.
    pub late: u64,
    /// Packets that wait behind a hole now.
    pub reorder_waiting: usize,
    /// The backend's audio that waits to be sent now.
    pub playout_ms: u64,
    /// How often that queue ran dry in the middle of something.
    pub underruns: u64,
    /// Audio that was made up for what was missing.
    pub concealed_ms: u64,
    /// Packets in a hundred that the encoder expects to be lost.
    pub expected_loss_percent: u8,
}

/// What passed the channel.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EventReport {
    /// Whether a channel is open.
    pub open: bool,
    /// Events of the client's that were taken.
    pub received: u64,
    /// Events that were written to the channel.
    pub sent: u64,
    /// Events that did not reach the client.
    pub lost: u64,
}

/// Samples that the counters of the uplink count in a millisecond.
const SAMPLES_PER_MS: u64 = 24;

impl Session {
    /// How it stands at `now`.
    pub fn report(&mut self, now: Instant) -> SessionReport {
        #[cfg(test)]
        self.fault("report");
        let summary = self.summary(now);
        let setup = Phase::ALL.map(|phase| (phase.label(), summary.life.setup.of(phase)));
        let uplink = &summary.audio.uplink;
        let (queued, reorder_waiting) = self.voice.waiting();
        let version = self.rtc.direct_api().dtls_protocol_version();
        SessionReport {
            session: self.id.0,
            created: self.created,
            kind: self.kind,
            state: self.life.state().label(),
            age_ms: summary.life.duration_ms,
            steps: self.life.steps(),
            setup_ms: setup.into_iter().collect(),
            ice_restarts: summary.restarts,
            interruptions: summary.life.interruptions,
            path_moves: summary.moves,
            paths: self.path_reports(now),
            dtls: DtlsReport {
                version: version.map(version_name),
                srtp_profile: self.srtp.map(profile_name),
            },
            audio: AudioReport {
                codec: self.offer.as_ref().and_then(Offer::codec).map(Codec::label),
                packets_in: uplink.received,
                packets_out: summary.quality.sent,
                missing: uplink.reorder.missing,
                late: uplink.reorder.late,
                reorder_waiting,
                playout_ms: millis(queued),
                underruns: summary.audio.playout.underruns,
                concealed_ms: uplink.concealed / SAMPLES_PER_MS,
                expected_loss_percent: summary.expected_loss,
            },
            rtcp: summary.quality,
            last_report: self.quality.last(),
            events: EventReport {
                open: self.channel.id().is_some(),
                received: self.events_in,
                sent: self.events_out,
                lost: summary.audio.dropped_events,
            },
            backend: summary.backend,
            drops: summary.drops,
        }
    }

    fn path_reports(&self, now: Instant) -> Vec<PathReport> {
        let chosen = self.paths.chosen();
        let told = |ingress, v6| {
            self.advertised
                .iter()
                .find(|a| a.ingress == ingress && a.address.is_ipv6() == v6)
                .map(|a| a.address)
        };
        self.paths
            .views(now)
            .map(|path| PathReport {
                client: path.key.client.get(),
                ingress: path.key.ingress.0,
                advertised: told(path.key.ingress, path.key.client.is_ipv6()),
                tcp: path.key.tcp,
                hop: path.hop.get(),
                selected: chosen == Some(path.key),
                nominated: path.nominated,
                consent: path.consent,
                heard_ms_ago: millis(now.saturating_duration_since(path.heard)),
            })
            .collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn version_name(version: str0m::crypto::dtls::ProtocolVersion) -> &'static str {
    use str0m::crypto::dtls::ProtocolVersion;
    match version {
        ProtocolVersion::DTLS1_2 => "DTLS 1.2",
        ProtocolVersion::DTLS1_3 => "DTLS 1.3",
        _ => "another",
    }
}

fn profile_name(profile: SrtpProfile) -> &'static str {
    match profile {
        SrtpProfile::AES128_CM_SHA1_80 => "SRTP_AES128_CM_HMAC_SHA1_80",
        SrtpProfile::AEAD_AES_128_GCM => "SRTP_AEAD_AES_128_GCM",
        SrtpProfile::AEAD_AES_256_GCM => "SRTP_AEAD_AES_256_GCM",
        _ => "another",
    }
}
