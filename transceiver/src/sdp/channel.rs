//! What an offer says of its data channel, and who begins SCTP.
//!
//! DTLS and SCTP each have a handshake. Who begins DTLS is agreed on; SCTP either side may begin, or both at once, whatever its part in DTLS is
//! (RFC 8831, RFC 8841). But some clients begin it only as clients of DTLS, and wait for it otherwise.

use super::offer::Offer;
use super::section::{Role, attribute};
use crate::limits;

/// What Firefox's offers have for the user's name; its version follows (`JsepSessionImpl::CreateGenericSDP`).
const FIREFOX: &str = "mozilla...THIS_IS_SDPARTA";

/// What libwebrtc's offers have for the user's name, and where they say they come from (`kSessionOrigin…` in `pc/webrtc_sdp.cc`).
const LIBWEBRTC: (&str, &str) = ("- ", " IN IP4 127.0.0.1");

/// Whether an offer comes from a client of which we know that it begins SCTP as soon as DTLS is up, also as server of DTLS. `origin` is the
/// value of its line `o=`, `session` are its session's attributes.
///
/// - Firefox calls `usrsctp_connect` when its transport is open, its part in DTLS only numbers the streams (`DataChannelConnection`).
/// - libwebrtc (Chromium, Safari, Edge, the mobile SDKs, and what embeds it) calls `Connect` when its transport is writable
///   (`DcSctpTransport::MaybeConnectSocket`); so did the usrsctp that it had before. Its origin alone is not rare; together with
///   the `msid-semantic` that it writes with a space, and with `extmap-allow-mixed`, it is its own.
///
/// Who is not recognised begins DTLS, as ever: that costs a round trip. Who is recognised wrongly would have no channel.
pub(super) fn begins_sctp(origin: &str, session: &[String]) -> bool {
    let (user, address) = LIBWEBRTC;
    let libwebrtc = || {
        origin.starts_with(user)
            && origin.ends_with(address)
            && attribute(session, "extmap-allow-mixed").is_some()
            && attribute(session, "msid-semantic").is_some_and(|value| value.starts_with(" WMS"))
    };
    origin.starts_with(FIREFOX) || libwebrtc()
}

impl Offer {
    /// Whether the offer has a data channel section that is served.
    #[must_use]
    pub fn has_channel(&self) -> bool {
        self.section(Role::Channel).is_some()
    }

    /// What the client lets us send in one message on the channel, in bytes; nothing when it offers no channel.
    #[must_use]
    pub fn channel_message_max(&self) -> Option<usize> {
        let section = self.section(Role::Channel)?;
        Some(match section.attribute("max-message-size") {
            Some(text) => match text.trim().parse() {
                // Zero means any size.
                Ok(0) | Err(_) => limits::CHANNEL_MESSAGE_MAX as usize,
                Ok(size) => size,
            },
            None => limits::CHANNEL_REMOTE_MESSAGE_DEFAULT,
        })
    }

    /// Whether we begin DTLS while the client begins SCTP. The engine has one part in both: it is told that the client begins DTLS.
    #[must_use]
    pub fn parts_differ(&self) -> bool {
        self.begins_sctp && self.leaves_dtls_to_us() && self.shakes_hands_for_sctp()
    }

    /// Whether SCTP has a handshake of its own, because the offer does not have it in it (draft-hancke-tsvwg-snap).
    pub(super) fn shakes_hands_for_sctp(&self) -> bool {
        self.section(Role::Channel)
            .is_some_and(|section| section.attribute("sctp-init").is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHROMIUM: &str = include_str!("../../tests/offers/chromium-data.sdp");
    const FIREFOX: &str = include_str!("../../tests/offers/firefox-data.sdp");

    fn differ(offer: &str) -> bool {
        Offer::parse(offer).expect("an offer").parts_differ()
    }

    #[test]
    fn browsers_are_recognised_by_what_their_offers_alone_have() {
        for offer in [
            CHROMIUM,
            FIREFOX,
            include_str!("../../tests/offers/chromium-pcmu.sdp"),
            include_str!("../../tests/offers/chromium-video.sdp"),
            include_str!("../../tests/offers/firefox-video.sdp"),
            // A page without a stream, and a later offer.
            &CHROMIUM.replace(" WMS 74266fa8-c688-4c02-bbb7-5799a10e8856", " WMS"),
            &CHROMIUM.replace("653 2 IN", "653 3 IN"),
        ] {
            assert!(differ(offer), "{offer}");
        }
        for offer in [
            include_str!("../../tests/offers/aiortc.sdp"),
            include_str!("../../tests/offers/pcma.sdp"),
            &CHROMIUM.replace("IN IP4 127.0.0.1", "IN IP4 0.0.0.0"),
            &CHROMIUM.replace("o=-", "o=me"),
            &CHROMIUM.replacen("a=extmap-allow-mixed\n", "", 1),
            &CHROMIUM.replace("msid-semantic: WMS", "msid-semantic:WMS"),
            &FIREFOX.replace("mozilla...", ""),
        ] {
            assert!(!differ(offer), "{offer}");
        }
    }

    #[test]
    fn a_browser_without_a_handshake_of_sctp_or_without_the_choice_is_answered_as_anyone() {
        let snap = "a=sctp-port:5000\na=sctp-init:AQAAFA==\n";
        for offer in [
            include_str!("../../tests/offers/chromium-audio.sdp"),
            &CHROMIUM.replace("a=sctp-port:5000\n", snap),
            &CHROMIUM.replace("setup:actpass", "setup:active"),
            &CHROMIUM.replace("setup:actpass", "setup:passive"),
        ] {
            assert!(!differ(offer), "{offer}");
        }
    }
}
