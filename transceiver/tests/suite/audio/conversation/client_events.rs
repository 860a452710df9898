//! What a client sends by its channel, and what it is answered there.

use super::*;

#[test]
fn session_update_is_answered_and_changes_the_detection_of_turns() {
    let mut call = Call::playing();
    call.send(&json!({"type": "session.update", "event_id": "e1", "session": {
        "type": "realtime", "instructions": "…",
        "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 1_200, "threshold": 0.4}}},
    }}));
    let updated = &call.event("session.updated")["session"];
    let detection = &updated["audio"]["input"]["turn_detection"];
    assert_eq!(detection["silence_duration_ms"], 1_200);
    assert_eq!(detection["threshold"], 0.4);
    assert_eq!(
        updated["id"],
        call.event("session.created")["session"]["id"]
    );
    call.say(&utterance());
    let end = &call.event("input_audio_buffer.speech_stopped")["audio_end_ms"];
    assert!(end.as_u64().unwrap() > 3_500, "{end}");
}

#[test]
fn a_session_update_without_a_session_object_is_an_error_that_names_the_field() {
    let mut call = Call::playing();
    for (session, code) in [
        (Some(json!("loud")), "invalid_type"),
        (Some(json!([])), "invalid_type"),
        (Some(json!(7)), "invalid_type"),
        (Some(Value::Null), "missing_required_parameter"),
        (None, "missing_required_parameter"),
    ] {
        let mut update = json!({"type": "session.update", "event_id": "e1"});
        if let Some(session) = session {
            update["session"] = session;
        }
        call.send(&update);
        let (_, last) = call.events.last().expect("an event");
        assert_eq!(last["type"], "error", "{update}");
        assert_eq!(last["error"]["code"], code, "{update}");
        assert_eq!(last["error"]["param"], "session");
        assert_eq!(last["error"]["event_id"], "e1");
    }
    assert!(!call.kinds().contains(&"session.updated"));
}

#[test]
fn a_response_that_is_asked_for_is_done_at_once_and_one_that_is_cancelled_was_not_active() {
    let mut call = Call::playing();
    call.send(&json!({"type": "response.cancel", "event_id": "e1"}));
    let error = &call.event("error")["error"];
    assert_eq!(error["code"], "response_cancel_not_active");
    assert_eq!(error["event_id"], "e1");
    call.send(&json!({"type": "response.create", "response": {"instructions": "…"}}));
    let kinds = call.kinds();
    assert_eq!(
        kinds[kinds.len() - 2..],
        ["response.created", "response.done"]
    );
    let created = &call.event("response.created")["response"];
    let done = &call.event("response.done")["response"];
    assert_eq!(created["id"], done["id"]);
    assert_eq!(created["status"], "in_progress");
    assert_eq!(done["status"], "completed");
    assert_eq!(done["output"], json!([]));
}

#[test]
fn a_clear_stops_the_echo_at_once_and_says_so_also_when_nothing_plays() {
    let mut call = Call::playing();
    call.say(&speech(ms(1_000)));
    assert_eq!(call.kinds().last(), Some(&"output_audio_buffer.started"));
    let response = call.event("output_audio_buffer.started")["response_id"].clone();
    call.send(&json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(
        call.event("output_audio_buffer.cleared")["response_id"],
        response
    );
    call.say(&vec![0; ms(1_500)]);
    // The turn ends for the input; its output was cleared and is not stopped again.
    assert_eq!(call.kinds().last(), Some(&"input_audio_buffer.committed"));
    call.send(&json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(call.events.last().unwrap().1["response_id"], Value::Null);
    let turns = call.conversation.counters().turns;
    assert_eq!(turns.barge_ins.count(), 1, "a clear of nothing is none");
    assert!(turns.barge_in_max_us <= 20_000, "{turns:?}");
    assert!((20..1_000).contains(&turns.queue_peak_ms), "{turns:?}");
    call.say(&utterance());
    assert_eq!(call.kinds().last(), Some(&"output_audio_buffer.stopped"));
}

#[test]
fn client_events_that_mean_nothing_here_are_answered_by_errors() {
    let mut call = Call::playing();
    let now = call.instant();
    call.conversation.client_event("{not json", now);
    call.drain();
    call.send(&json!({"event_id": "mine"}));
    call.send(&json!({"type": "input_audio_buffer.append", "audio": "AAAA"}));
    call.send(&json!({"type": "x".repeat(10_000), "event_id": "y".repeat(10_000)}));
    let errors: Vec<&Value> = call.events[1..].iter().map(|(_, e)| &e["error"]).collect();
    let codes: Vec<&str> = errors.iter().map(|e| e["code"].as_str().unwrap()).collect();
    assert_eq!(
        codes,
        [
            "invalid_json",
            "missing_required_parameter",
            "unsupported_event",
            "unsupported_event"
        ]
    );
    assert_eq!(errors[1]["event_id"], "mine");
    assert!(errors[3].to_string().len() < 500);
}

#[test]
fn events_wait_for_the_channel_in_order_up_to_a_bound() {
    let mut call = Call::playing();
    let now = call.instant();
    for n in 0..MAX_EVENTS + 10 {
        call.conversation
            .client_event(&json!({"event_id": n.to_string()}).to_string(), now);
    }
    call.drain();
    assert_eq!(call.events.len(), MAX_EVENTS + 1);
    assert_eq!(call.kinds()[0], "session.created");
    assert_eq!(call.events[1].1["error"]["event_id"], "0");
    assert_eq!(call.conversation.counters().dropped_events, 11);
    // The client is told of those that are missing.
    let told = &call.events[MAX_EVENTS].1["error"];
    assert_eq!(told["code"], "events_lost");
    assert!(
        told["message"].as_str().unwrap().contains("here: 11."),
        "{told}"
    );
}
