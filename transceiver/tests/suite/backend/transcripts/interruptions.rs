//! A user who interrupts: what is cut off, where, and what each side is told.

use super::*;

#[test]
fn an_interruption_in_the_middle_of_an_item() {
    let lines = check("barge-in");
    let speech = of_type(&lines, "to_client", "input_audio_buffer.speech_started")[0].0;
    let (cleared, _) = of_type(&lines, "to_client", "output_audio_buffer.cleared")[0];
    let truncates = of_type(&lines, "to_server", "conversation.item.truncate");
    let (silent, frames) = all(&lines, "silent_after_frames")[0];
    assert_eq!(cleared, speech);
    assert!(
        silent <= speech + 20,
        "the last packet leaves within a frame"
    );
    assert_eq!(truncates.len(), 1, "once, though the user spoke twice");
    let sent = 20 * frames.as_u64().expect("frames");
    assert_eq!(truncates[0].1["audio_end_ms"], sent, "what was really sent");
    assert_eq!(
        of_type(&lines, "to_client", "conversation.item.truncated").len(),
        1
    );
}

#[test]
fn an_interruption_far_ahead_of_the_playout() {
    let lines = check("barge-in-far-ahead");
    let speech = of_type(&lines, "server", "input_audio_buffer.speech_started")[0].0;
    let told = of_type(&lines, "to_client", "input_audio_buffer.speech_started")[0].0;
    let cleared = of_type(&lines, "to_client", "output_audio_buffer.cleared");
    assert_eq!((told, cleared[0].0, cleared.len()), (speech, speech, 1));
    let (silent, frames) = all(&lines, "silent_after_frames")[0];
    assert!(
        silent <= speech + 20,
        "the last packet leaves within a frame"
    );
    let truncates: Vec<_> = of_type(&lines, "to_server", "conversation.item.truncate")
        .into_iter()
        .map(|(at, event)| {
            (
                at,
                event["item_id"].as_str(),
                event["audio_end_ms"].as_u64(),
            )
        })
        .collect();
    let sent = frames.as_u64().map(|frames| 20 * frames);
    // Of the second item a part waited for room, and of the third nothing was taken yet.
    let expected = [
        ("item_a1", sent),
        ("item_a2", Some(0)),
        ("item_a3", Some(0)),
    ]
    .map(|(item, sent)| (speech, Some(item), sent));
    assert_eq!(truncates.len(), 3, "{truncates:?}");
    assert!(
        expected.iter().all(|t| truncates.contains(t)),
        "{truncates:?}"
    );
    // What is no audio is told all the same, and in its order.
    let kinds: Vec<_> = all(&lines, "to_client")
        .into_iter()
        .map(|(_, event)| event["type"].as_str().unwrap_or_default().to_owned())
        .collect();
    let at = |kind: &str| kinds.iter().position(|k| k == kind).expect(kind);
    assert!(at("response.done") < at("input_audio_buffer.speech_started"));
    // The next answer is heard.
    let stopped = of_type(&lines, "to_client", "output_audio_buffer.stopped");
    assert_eq!(stopped.len(), 1);
    assert_eq!(stopped[0].1["response_id"], "resp_2");
}

#[test]
fn speech_is_an_interruption_before_its_turn_only_while_it_interrupts() {
    let mut realtime = Realtime::new(RealtimeSettings::default());
    let text = |event: Value| Message::Text(event.to_string());
    let speech = text(json!({"type": "input_audio_buffer.speech_started", "item_id": "i"}));
    let now = Instant::now();
    // What says again how it is changes nothing that comes behind it.
    for (interrupts, itself, expected) in [
        (true, Glance::Plain, Glance::Interruption),
        (false, Glance::Opaque, Glance::Plain),
        (false, Glance::Plain, Glance::Plain),
        (true, Glance::Opaque, Glance::Interruption),
    ] {
        let detection = json!({"type": "server_vad", "interrupt_response": interrupts});
        let session = json!({"audio": {"input": {"turn_detection": detection}}});
        let updated = text(json!({"type": "session.updated", "session": session}));
        assert_eq!(realtime.glance(&updated), itself);
        realtime.server(FromServer::Message(updated), now, now);
        assert_eq!(realtime.glance(&speech), expected);
    }
}

/// Not every server ends what it had begun to answer, when the user goes on.
#[test]
fn an_interruption_of_an_answer_that_has_made_no_sound() {
    let lines = check("barge-in-before-sound");
    assert_eq!(buffers(&lines, "started"), ["resp_2"]);
    assert_eq!(buffers(&lines, "stopped"), ["resp_2"]);
    assert!(buffers(&lines, "cleared").is_empty(), "nothing was heard");
    let truncates = of_type(&lines, "to_server", "conversation.item.truncate");
    assert_eq!(truncates.len(), 1, "the server knows that, too");
    assert_eq!(truncates[0].1["item_id"], "item_a1");
    assert_eq!(truncates[0].1["audio_end_ms"], 0);
}

#[test]
fn an_interruption_after_an_item_was_played_in_full() {
    let lines = check("barge-in-after-the-end");
    assert!(of_type(&lines, "to_server", "conversation.item.truncate").is_empty());
    assert!(of_type(&lines, "to_client", "output_audio_buffer.cleared").is_empty());
}

#[test]
fn speech_that_is_not_to_interrupt() {
    let lines = check("no-interruption");
    assert!(of_type(&lines, "to_server", "conversation.item.truncate").is_empty());
    assert_eq!(
        of_type(&lines, "to_client", "output_audio_buffer.stopped").len(),
        1
    );
}
