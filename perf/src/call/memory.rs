//! What a session holds in memory while nobody speaks: at a transceiver, and of that the WebRTC engine alone.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use str0m::change::SdpOffer;
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Output, Rtc, RtcConfig};

use super::client::{Client, ClientError};
use super::identity::Identity;
use super::load::{self, Ending, LoadError, LoadPlan, Progress};
use super::manner::Manner;
use super::recording::Codec;
use super::stack::{Backend, Stack, StackPlan};
use super::watch;

/// Calls that pay for what is made once.
const WARM: u32 = 50;

/// Bytes per session.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Sessions that were measured.
    pub sessions: u32,
    /// A transceiver's growth per session that is live and silent.
    pub bytes_per_session: f64,
    /// The same for engines alone, with the same settings.
    pub engine_bytes: f64,
}

impl Memory {
    /// What a session holds beyond the engine's own.
    #[must_use]
    pub fn beyond_engine(&self) -> f64 {
        self.bytes_per_session - self.engine_bytes
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// The folder with the programs.
    pub programs: PathBuf,
    /// Where files and logs go.
    pub directory: PathBuf,
    /// The processor that the transceiver runs on.
    pub processor: usize,
    /// How many sessions.
    pub sessions: u32,
}

/// Measures a transceiver; `engine_bytes` is what [`engines`] found in a process of its own.
///
/// # Errors
/// Programs do not start, or see [`LoadError`].
pub fn transceiver(plan: &MemoryPlan, engine_bytes: f64) -> Result<Memory, LoadError> {
    let stack = Stack::start(StackPlan {
        programs: plan.programs.clone(),
        directory: plan.directory.clone(),
        number: 21,
        processor: plan.processor,
        backend: Backend::Echo,
        whole: false,
    })?;
    const RAMP: f64 = 100.0;
    let silent = |calls: u32, counted: Duration| {
        let settle = Duration::from_secs(2);
        LoadPlan {
            desk: stack.control_desk(),
            way: stack.direct(),
            calls,
            ramp: RAMP,
            hold: Duration::from_secs_f64(f64::from(calls) / RAMP) + settle + counted,
            settle,
            codec: Codec::Opus,
            silent: true,
            ending: Ending::Close,
            threads: 1,
            watch: vec![stack.transceiver.id()],
            manner: Manner::default(),
        }
    };
    let progress = Arc::new(Progress::default());
    load::run(&silent(WARM, Duration::from_secs(1)), &progress)?;
    let report = load::run(&silent(plan.sessions, Duration::from_secs(2)), &progress)?;
    if report.connected < u64::from(plan.sessions) {
        return Err(io::Error::other(format!(
            "{} of {} calls connected: {:?}",
            report.connected, plan.sessions, report.failures
        ))
        .into());
    }
    let watched = &report.watched[0];
    let grown = watched.during.resident as f64 - watched.before.resident as f64;
    Ok(Memory {
        sessions: plan.sessions,
        // What the warm calls left behind is used again: it belongs to as many sessions.
        bytes_per_session: grown / f64::from(plan.sessions - WARM),
        engine_bytes,
    })
}

/// Connects so many engines in memory, with the settings of a transceiver's, and returns what this process has grown by per engine.
///
/// # Errors
/// The engines do not connect.
pub fn engines(count: u32) -> Result<f64, ClientError> {
    let identity = Identity::new().map_err(|error| ClientError::Answer(error.to_string()))?;
    let mut kept = Vec::new();
    let mut before = 0;
    for n in 0..WARM + count {
        kept.push(connected(&identity)?);
        if n + 1 == WARM {
            before = resident();
        }
    }
    let grown = resident().saturating_sub(before) as f64;
    drop(kept);
    Ok(grown / f64::from(count))
}

fn resident() -> u64 {
    watch::look(std::process::id()).map_or(0, |held| held.resident)
}

/// A server's engine that is connected to a client, which has then gone.
fn connected(identity: &Identity) -> Result<Rtc, ClientError> {
    let (here, there) = (
        SocketAddr::from(([198, 51, 100, 7], 40_000)),
        SocketAddr::from(([203, 0, 113, 1], 3_478)),
    );
    let refused = |error: String| ClientError::Answer(error);
    let mut now = Instant::now();
    let end = now + Duration::from_secs(10);
    let (mut client, offer) = Client::offer(identity, Codec::Opus, None, here, now)?;
    let mut config = RtcConfig::new()
        .set_crypto_provider(identity.provider())
        .set_dtls_cert(identity.certificate())
        .set_rtp_mode(true)
        .clear_codecs()
        .clear_extension_map()
        .set_extension(4, str0m::rtp::Extension::RtpMid);
    config.codec_config().enable_opus(true, false);
    let mut rtc = config.build(now);
    rtc.add_local_candidate(
        Candidate::host(there, "udp").map_err(|error| refused(error.to_string()))?,
    );
    let offer = SdpOffer::from_sdp_string(&offer).map_err(|error| refused(error.to_string()))?;
    let answer = rtc
        .sdp_api()
        .accept_offer(offer)
        .map_err(|error| refused(error.to_string()))?;
    let mut up: Vec<Vec<u8>> = Vec::new();
    client.accept(&answer.to_sdp_string(), now, &mut |_, packet| {
        up.push(packet.to_vec());
    })?;
    while client.times().channel.is_none() {
        if now > end {
            return Err(refused("the engines did not connect".to_owned()));
        }
        let mut down: Vec<Vec<u8>> = Vec::new();
        rtc.handle_input(Input::Timeout(now))?;
        drain(&mut rtc, &mut down)?;
        for packet in up.drain(..) {
            if let Ok(received) = Receive::new(Protocol::Udp, here, there, &packet) {
                rtc.handle_input(Input::Receive(now, received))?;
                drain(&mut rtc, &mut down)?;
            }
        }
        for packet in down {
            client.receive(there, &packet, 0, now, &mut |_| {}, &mut |_, packet| {
                up.push(packet.to_vec());
            })?;
        }
        client.poll(now, &mut |_, packet| up.push(packet.to_vec()))?;
        now += Duration::from_millis(5);
    }
    Ok(rtc)
}

fn drain(rtc: &mut Rtc, down: &mut Vec<Vec<u8>>) -> Result<(), ClientError> {
    loop {
        match rtc.poll_output()? {
            Output::Timeout(_) => return Ok(()),
            Output::Transmit(transmit) => down.push(transmit.contents.to_vec()),
            Output::Event(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_connect_and_hold_some_memory() {
        let bytes = engines(100).expect("connected");
        // The order of magnitude: other tests of the process share its memory.
        assert!((5_000.0..2_000_000.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_is_beyond_the_engine_is_the_difference() {
        let memory = Memory {
            sessions: 1,
            bytes_per_session: 100.0,
            engine_bytes: 60.0,
        };
        assert_eq!(memory.beyond_engine(), 40.0);
    }
}
