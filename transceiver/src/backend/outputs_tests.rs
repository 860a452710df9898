//! The order in which what waits is given, and who tells of a cut.

use serde_json::json;

use super::*;

fn outputs() -> Outputs {
    let names = Names {
        server: "model server",
        mind: "model",
    };
    Outputs::new(1, names)
}

/// Polls until nothing is given any more, in words.
fn polled(outputs: &mut Outputs, room: usize) -> Vec<String> {
    let now = Instant::now();
    let mut all = Vec::new();
    while let Some(output) = outputs.poll(room, now) {
        all.push(match output {
            Output::Event(text) => {
                let event: Value = serde_json::from_str(&text).expect("JSON");
                event["type"].as_str().expect("a type").to_owned()
            }
            Output::Audio { pcm, .. } => format!("audio {}", pcm.len()),
            Output::Finished(_) => "finished".to_owned(),
            Output::Clear { .. } => "clear".to_owned(),
            other => panic!("{other:?}"),
        });
    }
    all
}

#[test]
fn what_is_urgent_does_not_wait_behind_audio_for_which_there_is_no_room() {
    let mut outputs = outputs();
    let piece = outputs.audio(Some("r"), "a", 0).expect("live");
    outputs.play(piece, vec![0; 100]);
    outputs.tell("said.after", json!({}));
    assert_eq!(polled(&mut outputs, 0), Vec::<String>::new());
    outputs.tell_now("told.now", json!({}));
    assert_eq!(polled(&mut outputs, 0), ["told.now"]);
    assert_eq!(
        polled(&mut outputs, 60),
        ["audio 60", "audio 40", "said.after"]
    );
    assert!(outputs.is_empty());
}

#[test]
fn a_cut_of_what_the_playout_has_never_heard_of_is_handed_back_once() {
    let mut outputs = outputs();
    let piece = outputs.audio(Some("r"), "a", 3).expect("live");
    // Less than a sample: there is nothing to play.
    outputs.play(piece, Vec::new());
    assert_eq!(outputs.audio(Some("r"), "a", 3), Ok(piece));
    outputs.play(piece, vec![0; 100]);
    outputs.play(piece, vec![0; 100]);
    let unheard = Truncation {
        item: "a".into(),
        part: 3,
        sent_ms: 0,
    };
    assert_eq!(outputs.interrupt(Instant::now()), [unheard]);
    assert_eq!(
        polled(&mut outputs, 1_000),
        ["clear", "output_audio_buffer.cleared"]
    );
    assert_eq!(outputs.interrupt(Instant::now()), [], "cut once");
}

#[test]
fn a_cut_of_what_the_playout_knows_is_told_by_the_playout_alone() {
    let mut outputs = outputs();
    let item = outputs.audio(Some("r"), "a", 0).expect("live");
    outputs.play(item, vec![0; 100]);
    assert_eq!(polled(&mut outputs, 60).len(), 2);
    outputs.play(item, vec![0; 100]);
    assert_eq!(outputs.clear(Instant::now()), []);
    let cut = outputs.played(PlayoutEvent::Cleared { item, sent_ms: 4 });
    assert_eq!(cut.map(|cut| cut.sent_ms), Some(4));
}

#[test]
fn an_outage_is_told_of_once_until_there_is_a_session() {
    let mut outputs = outputs();
    let broken = Loss {
        cause: LossCause::Closed(Some(1_011)),
        retry: Some(std::time::Duration::from_secs(1)),
    };
    let mut told = |restored: bool| {
        outputs.connected();
        if restored {
            outputs.restored();
        }
        outputs.lost(&broken, false, Instant::now());
        polled(&mut outputs, 0).len()
    };
    assert_eq!(
        [false, false, false, true, false].map(&mut told),
        [1, 0, 0, 1, 0]
    );
}
