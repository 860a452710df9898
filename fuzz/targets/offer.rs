//! SDP offers: the offer that the engine is given says of the call what the client's says. The first byte says what the offer is read for.

#![no_main]

use firsthop_shared::control::{CallKind, IceCredentials};
use firsthop_transceiver::audio::Codec;
use firsthop_transceiver::limits::CHANNEL_SEND_MAX;
use firsthop_transceiver::sdp::{Offer, Purpose, Role};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((purpose, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let purpose = Purpose {
        kind: match purpose & 1 {
            0 => CallKind::Realtime,
            _ => CallKind::Whip,
        },
        codec: [
            None,
            Some(Codec::Opus),
            Some(Codec::Pcmu),
            Some(Codec::Pcma),
        ][usize::from(purpose >> 1 & 3)],
    };
    let Ok(offer) = Offer::parse_for(text, purpose) else {
        return;
    };
    let layout = offer.layout();
    assert!(!layout.is_empty() && layout.iter().all(|(role, _)| *role != Role::Rejected));
    assert_eq!(offer.codec().is_some(), offer.payload_type().is_some());

    let engine = Offer::parse(&offer.for_engine()).expect("our own offer");
    assert_eq!(engine.layout(), layout);
    assert_eq!(engine.codec(), offer.codec());
    assert_eq!(engine.payload_type(), offer.payload_type());
    assert_eq!(engine.takes_fec(), offer.takes_fec());
    // The engine is told of our own bound, whatever the client takes.
    let bound = offer.channel_message_max().map(|_| CHANNEL_SEND_MAX);
    assert_eq!(engine.channel_message_max(), bound);
    assert_eq!(engine.ice_ufrag(), offer.ice_ufrag());
    assert_eq!(engine.ice_password(), offer.ice_password());

    let ice = IceCredentials {
        ufrag: "other".to_owned(),
        password: "0123456789012345678901".to_owned(),
    };
    let restarted = offer.with_ice(&ice).expect("good credentials");
    assert_eq!(restarted.ice_ufrag(), ice.ufrag);
    assert_eq!(restarted.ice_password(), ice.password);
});
