//! When a channel stalls, what one begins with that opens late, and what is told in the place of what does not fit.

use super::*;

#[test]
fn a_channel_stalls_when_nothing_is_acknowledged_and_an_event_is_given_up_each_time() {
    let start = Instant::now();
    let after = |secs| start + Duration::from_secs(secs);
    let stall = limits::CHANNEL_STALL.as_secs();
    let mut channel = Channel::new(Some(usize::MAX), start);
    assert_eq!(channel.largest(), Some(limits::CHANNEL_SEND_MAX));
    assert!(!channel.blocked(1_000, start) && !channel.blocked(1_000, after(stall - 1)));
    // A byte is a sign of life.
    assert!(!channel.blocked(999, after(stall)) && !channel.stalled);
    assert!(channel.blocked(999, after(2 * stall)) && channel.stalled);
    assert!(!channel.blocked(999, after(2 * stall)));
    assert!(channel.blocked(999, after(3 * stall)));
    assert!(!channel.blocked(998, after(3 * stall)) && !channel.stalled);
    assert!(channel.blocked(998, after(4 * stall)));
    channel.took();
    assert!(!channel.stalled);
}

#[test]
fn what_a_late_channel_begins_with_is_the_session_and_no_error_before_it() {
    let error = error_event("t", "server_error", "backend_disconnected", "Not yet.");
    let created = r#"{"type":"session.created"}"#;
    let mut channel = Channel::new(Some(65_536), Instant::now());
    let mut rtc = str0m::RtcConfig::new()
        .set_crypto_provider(
            crate::dtls::Identity::process()
                .expect("an identity")
                .provider(),
        )
        .build(Instant::now());
    let mut open = |channel: &mut Channel, label: &str| {
        let config = str0m::channel::ChannelConfig {
            label: label.to_owned(),
            ..Default::default()
        };
        let id = rtc.direct_api().create_data_channel(config);
        channel.opened(id, label)
    };
    assert_eq!(open(&mut channel, "other"), None);
    channel.left(&error);
    assert_eq!(open(&mut channel, LABEL), Some(error));
    let mut channel = Channel::new(Some(65_536), Instant::now());
    for event in [
        error_event("t", "a", "b", "c").as_str(),
        created,
        r#"{"type":"after"}"#,
    ] {
        channel.left(event);
    }
    assert_eq!(open(&mut channel, LABEL).as_deref(), Some(created));
}

#[test]
fn an_item_that_is_too_large_loses_its_audio_and_anything_else_becomes_an_error() {
    let mut channel = Channel::new(Some(1_000), Instant::now());
    let audio = "A".repeat(2_000);
    let item = json!({
        "type": "conversation.item.retrieved",
        "item": {"id": "i", "content": [{"type": "output_audio", "transcript": "Hi.", "audio": audio}]},
    });
    let short: Value = serde_json::from_str(&channel.shortened(&item.to_string())).expect("JSON");
    assert_eq!(
        short["item"]["content"],
        json!([{"type": "output_audio", "transcript": "Hi."}])
    );
    for event in [
        json!({"type": "response.done", "audio": audio}),
        json!({"type": "conversation.item.retrieved", "item": {"content": [{"transcript": audio}]}}),
    ] {
        let told: Value =
            serde_json::from_str(&channel.shortened(&event.to_string())).expect("JSON");
        assert_eq!(told["error"]["code"], "message_too_large");
    }
}

#[test]
fn each_error_has_an_id_of_its_own_and_says_which_event_it_is_about() {
    let mut channel = Channel::new(Some(1_000), Instant::now());
    let audio = "A".repeat(2_000);
    let long = "a".repeat(KIND_MAX + 1);
    let mut ids = std::collections::HashSet::new();
    let mut said = |text: String| {
        let event: Value = serde_json::from_str(&text).expect("JSON");
        assert!(ids.insert(event["event_id"].clone()), "{text}");
        event["error"]["message"]
            .as_str()
            .expect("a message")
            .to_owned()
    };
    for (event, expected) in [
        (
            json!({"audio": audio, "type": "response.done"}),
            "An event 'response.done' of 2035 bytes has been left out: the channel to this client carries 1000.",
        ),
        (
            json!({"audio": audio, "type": "response.done"}),
            "An event 'response.done' ",
        ),
        (json!({"audio": audio}), "An event of 2012 bytes "),
        (json!({"audio": audio, "type": 7}), "An event of "),
        (json!({"audio": audio, "type": ""}), "An event of "),
        (json!({"audio": audio, "type": long}), "An event of "),
        (json!({"audio": audio, "type": "a'b\n"}), "An event of "),
    ] {
        let message = said(channel.shortened(&event.to_string()));
        assert!(message.starts_with(expected), "{message}");
    }
    for why in [EndReason::Idle, EndReason::Idle, EndReason::Drained] {
        said(channel.expiry_warning(why, 30));
    }
    said(channel.expired(EndReason::Drained));
}
