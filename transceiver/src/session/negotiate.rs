//! Offers and answers: how a session comes into being, and how its ICE restarts.

use std::net::SocketAddr;
use std::time::Instant;

use firsthop_shared::control::IceCredentials;
use str0m::change::SdpOffer;
use str0m::format::{CodecConfig, FormatParams};
use str0m::media::Frequency;
use str0m::{Candidate, Input, RtcConfig, RtcError};

use super::early::Early;
use super::quality::Quality;
use super::sidebands::Sidebands;
use super::voice::Voice;
use super::{Advertised, Credentials, NewSession, Outbox, Session};
use crate::audio::Codec;
use crate::backend::Opened;
use crate::bucket::Bucket;
use crate::channel::Channel;
use crate::dtls::Identity;
use crate::hops::Paths;
use crate::idle::Idle;
use crate::life::{Life, Limit};
use crate::limits;
use crate::proof::Checks;
use crate::sdp::{AnswerParts, Offer, OfferError, Purpose, compose};

impl Session {
    /// Makes a session and the answer to its client's offer. `open` makes what speaks to the client, once the codec
    /// is agreed on.
    ///
    /// # Errors
    /// [`OfferError`] when the offer cannot be served; a fault of ours is a panic, for the worker to catch.
    pub fn create(
        identity: &Identity,
        new: NewSession<'_>,
        open: impl FnOnce(Codec) -> Opened,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(Self, String), OfferError> {
        let purpose = Purpose {
            kind: new.kind,
            codec: new.codec,
        };
        let offer = Offer::parse_for(new.offer, purpose)?;
        let codec = offer.codec().unwrap_or(Codec::Opus);
        let mut config = RtcConfig::new()
            .set_local_ice_credentials(new.credentials.to_engine())
            .set_rtp_mode(true)
            .clear_codecs()
            // Transport-wide congestion control costs a third of a packet's CPU and gives audio nothing.
            .clear_extension_map()
            .set_extension(1, str0m::rtp::Extension::AudioLevel)
            .set_extension(4, str0m::rtp::Extension::RtpMid)
            .set_sctp_max_message_size(limits::CHANNEL_TAKEN_MAX)
            .set_sctp_max_buffered_amount(limits::CHANNEL_BUFFER)
            .set_stats_interval(Some(limits::STATS_INTERVAL));
        if let Some(pt) = offer.payload_type() {
            engine_codec(config.codec_config(), codec, pt);
        }
        let (rtc, hello) = identity.engine(config, now);
        if offer.parts_differ() {
            hello.take_over();
        }
        let channel = Channel::new(offer.channel_message_max(), now);
        let mut session = Self {
            id: new.id,
            created: new.created,
            rtc,
            credentials: new.credentials,
            remote: (String::new(), String::new()),
            advertised: Vec::new(),
            paths: Paths::default(),
            checks: Checks::default(),
            channel,
            voice: Voice::new(open(codec), codec, new.opus, new.seed),
            quality: Quality::new(codec.clock_rate()),
            rtcp: Bucket::full(limits::RTCP_PER_SEC, limits::RTCP_BURST, now),
            life: Life::new(now),
            limit: Limit::new(new.longest.min(limits::SESSION_MAX), now),
            ending: None,
            idle: Idle::new(new.idle),
            sidebands: Sidebands::default(),
            engine_deadline: now,
            channel_retry: None,
            early: Early::default(),
            hello,
            hello_to: None,
            said_hello: false,
            sends_begin: 0,
            answers: 0,
            kind: new.kind,
            offer: None,
            drops: 0,
            srtp: None,
            events_in: 0,
            events_out: 0,
            #[cfg(test)]
            panics_in: &[],
        };
        // What the backend says before there can be a channel waits for it.
        session.voice.events_flow(session.channel.is_offered());
        let answer = session.negotiate(&offer, session.credentials, &new.advertised, now, out)?;
        session.offer = Some(offer);
        Ok((session, answer))
    }

    /// Restarts ICE, or renegotiates: gives the engine another offer and returns the answer.
    ///
    /// When the client's credentials did not change, this is no restart: the answer then repeats ours, too
    /// (RFC 8839 section 4.4.3.1.1), and the new ones are not used. `advertised` may differ from what earlier answers said:
    /// those addresses stay good for packets, and are no longer told.
    ///
    /// # Errors
    /// [`OfferError`] when the offer cannot be served; the session goes on as it was.
    pub fn restart(
        &mut self,
        credentials: Credentials,
        offer: &str,
        advertised: &[Advertised],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<String, OfferError> {
        let purpose = Purpose {
            kind: self.kind,
            codec: self.offer.as_ref().and_then(Offer::codec),
        };
        let offer = Offer::parse_for(offer, purpose)?;
        // The engine takes the client's new credentials before it looks at the sections: what it would refuse then must not
        // reach it, or the call would be left between two sets of credentials.
        if let Some(first) = &self.offer {
            if !offer.layout().starts_with(&first.layout()) {
                return Err(OfferError::Malformed(
                    "a later offer keeps the sections of the first in their order, with their mid (RFC 8829 section 5.2.2)"
                        .to_owned(),
                ));
            }
            if offer.codec() != first.codec() || offer.payload_type() != first.payload_type() {
                return Err(OfferError::Malformed(
                    "a later offer keeps the audio codec that was agreed on, and its payload type"
                        .to_owned(),
                ));
            }
        }
        let answer = self.negotiate(&offer, credentials, advertised, now, out)?;
        self.channel.renegotiated(offer.channel_message_max());
        self.offer = Some(offer);
        Ok(answer)
    }

    /// Restarts ICE for a client that sent its new credentials without an offer (RFC 9725 section 4.3.3): its last offer is taken again,
    /// with these in it. DTLS and media go on as they are.
    ///
    /// # Errors
    /// [`OfferError`] when a credential is not one; the session goes on as it was.
    pub fn restart_ice(
        &mut self,
        credentials: Credentials,
        client: &IceCredentials,
        advertised: &[Advertised],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<String, OfferError> {
        let last = self.offer.as_ref().ok_or_else(|| {
            OfferError::Malformed("there is no offer whose ICE could be restarted".to_owned())
        })?;
        let offer = last.with_ice(client)?;
        let answer = self.negotiate(&offer, credentials, advertised, now, out)?;
        self.offer = Some(offer);
        Ok(answer)
    }

    fn negotiate(
        &mut self,
        offer: &Offer,
        credentials: Credentials,
        advertised: &[Advertised],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<String, OfferError> {
        let engine_offer = SdpOffer::from_sdp_string(&offer.for_engine())
            .map_err(|error| OfferError::Malformed(error.to_string()))?;
        self.advertise(advertised)?;
        let before = self.rtc.direct_api().local_ice_credentials();
        let result = self.rtc.sdp_api().accept_offer(engine_offer);
        // On a restart the engine makes up credentials. Ours go in whatever came of the offer: a client that tries again
        // with the same offer must find the ones that it will then be told.
        if self.rtc.direct_api().local_ice_credentials() != before {
            self.credentials = credentials;
            self.rtc
                .direct_api()
                .set_local_ice_credentials(credentials.to_engine());
            self.paths.restarted();
            self.checks.restarted();
        }
        self.remote = (
            offer.ice_ufrag().to_owned(),
            offer.ice_password().to_owned(),
        );
        let answer = result.map_err(|error| refusal(&error))?;
        self.voice.takes_fec(offer.takes_fec());
        self.answers += 1;
        let candidates: Vec<SocketAddr> = advertised.iter().map(|a| a.address).collect();
        let text = compose(
            offer,
            &answer.to_sdp_string(),
            &AnswerParts {
                ufrag: self.credentials.ufrag.as_str(),
                password: self.credentials.password.as_str(),
                // Settled by the first offer for as long as DTLS lasts (RFC 8842 section 5.5).
                active: self.hello.is_active(),
                candidates: &candidates,
                origin: u64::from(self.id.0),
                version: self.answers,
            },
        )?;
        self.feed(Input::Timeout(now), None, now, out);
        Ok(text)
    }

    /// Gives the engine a local candidate for each address that it does not have yet.
    fn advertise(&mut self, advertised: &[Advertised]) -> Result<(), OfferError> {
        for one in advertised {
            if self.advertised.contains(one) {
                continue;
            }
            if self.advertised.len() == limits::ADDRESSES_PER_SESSION {
                return Err(OfferError::Malformed(
                    "the session has been offered too many different addresses".to_owned(),
                ));
            }
            let candidate = Candidate::host(one.address, "udp")
                .map_err(|error| OfferError::Malformed(error.to_string()))?;
            self.rtc.add_local_candidate(candidate);
            self.advertised.push(*one);
        }
        Ok(())
    }
}

/// What the engine has against an offer, in words that name the attribute where the engine's do not.
fn refusal(error: &RtcError) -> OfferError {
    OfferError::Malformed(match error {
        // Of SCTP there is nothing to go wrong yet but the handshake that the offer has in it.
        RtcError::Sctp(error) => format!("a=sctp-init: {error}"),
        error => error.to_string(),
    })
}

/// Tells the engine of the one codec that the call has, under the client's payload type: an answer to a client that only sends would
/// otherwise name the engine's own.
fn engine_codec(config: &mut CodecConfig, codec: Codec, pt: u8) {
    use str0m::format::Codec as EngineCodec;
    let (engine, frequency, channels) = match codec {
        Codec::Opus => (EngineCodec::Opus, Frequency::FORTY_EIGHT_KHZ, Some(2)),
        Codec::Pcmu => (EngineCodec::PCMU, Frequency::EIGHT_KHZ, None),
        Codec::Pcma => (EngineCodec::PCMA, Frequency::EIGHT_KHZ, None),
    };
    let format = match codec {
        Codec::Opus => FormatParams {
            min_p_time: Some(10),
            use_inband_fec: Some(true),
            ..FormatParams::default()
        },
        Codec::Pcmu | Codec::Pcma => FormatParams::default(),
    };
    config.add_config(pt.into(), None, engine, frequency, channels, format);
}
