use firsthop_transceiver::audio::{FRAME, VoiceDetector, VoiceEvent, VoiceSettings};

use crate::audio::signals::{Noise, ms, speech};

fn hear(voice: &mut VoiceDetector, pcm: &[i16], piece: usize) -> Vec<VoiceEvent> {
    let mut events = Vec::new();
    for pcm in pcm.chunks(piece) {
        voice.push(pcm);
        events.extend(std::iter::from_fn(|| voice.poll_event()));
    }
    events
}

/// A second of silence, a second and a half of speech, two of silence.
fn utterance() -> Vec<i16> {
    let mut pcm = vec![0; ms(1_000)];
    pcm.extend(speech(ms(1_500)));
    pcm.extend(vec![0; ms(2_000)]);
    pcm
}

fn times(events: &[VoiceEvent]) -> (u64, u64) {
    match events {
        [
            VoiceEvent::Started { start_ms },
            VoiceEvent::Stopped { end_ms },
        ] => (*start_ms, *end_ms),
        other => panic!("not one turn: {other:?}"),
    }
}

#[test]
fn an_utterance_is_one_turn_with_padding_and_silence_included() {
    let mut voice = VoiceDetector::new(VoiceSettings::default());
    let (start, end) = times(&hear(&mut voice, &utterance(), FRAME));
    assert!(
        (600..=900).contains(&start),
        "voice at 1000 ms began at {start}"
    );
    assert!(
        (2_800..=3_200).contains(&end),
        "voice until 2500 ms ended at {end}"
    );
}

#[test]
fn silence_and_noise_and_clicks_are_no_turn() {
    let mut noise = Noise::new(1);
    let hiss: Vec<i16> = (0..ms(4_000)).map(|_| noise.next() / 512).collect();
    let clicks: Vec<i16> = (0..ms(4_000))
        .map(|n| if n % ms(500) < ms(5) { 20_000 } else { 0 })
        .collect();
    for (name, pcm) in [
        ("silence", vec![0; ms(4_000)]),
        ("hiss", hiss),
        ("clicks", clicks),
    ] {
        let mut voice = VoiceDetector::new(VoiceSettings::default());
        assert_eq!(hear(&mut voice, &pcm, FRAME), [], "{name}");
    }
}

#[test]
fn the_size_of_the_pieces_changes_nothing() {
    let pcm = utterance();
    let reference = hear(
        &mut VoiceDetector::new(VoiceSettings::default()),
        &pcm,
        FRAME,
    );
    for piece in [1, 7, 60, 2_880, pcm.len()] {
        let mut voice = VoiceDetector::new(VoiceSettings::default());
        assert_eq!(
            hear(&mut voice, &pcm, piece),
            reference,
            "pieces of {piece}"
        );
    }
}

#[test]
fn settings_move_the_ends_of_a_turn() {
    let (start, end) = times(&hear(
        &mut VoiceDetector::new(VoiceSettings::default()),
        &utterance(),
        FRAME,
    ));
    let mut voice = VoiceDetector::new(VoiceSettings {
        prefix_padding_ms: 0,
        silence_duration_ms: 1_000,
        ..VoiceSettings::default()
    });
    let (later, longer) = times(&hear(&mut voice, &utterance(), FRAME));
    assert_eq!(later, start + 300);
    // Whole pieces of 16 ms.
    assert!(longer.abs_diff(end + 500) < 16, "{longer} after {end}");
}

#[test]
fn padding_reaches_neither_before_the_stream_nor_into_the_last_turn() {
    let mut voice = VoiceDetector::new(VoiceSettings {
        prefix_padding_ms: 4_000,
        silence_duration_ms: 100,
        ..VoiceSettings::default()
    });
    let mut pcm = utterance();
    pcm.extend(utterance());
    let events = hear(&mut voice, &pcm, FRAME);
    let mut last_end = 0;
    let mut turns = 0;
    for event in events {
        match event {
            VoiceEvent::Started { start_ms } => assert!(start_ms >= last_end),
            VoiceEvent::Stopped { end_ms } => {
                last_end = end_ms;
                turns += 1;
            }
        }
    }
    assert!(turns >= 2, "{turns} turns");
}

#[test]
fn settings_out_of_bounds_are_brought_into_them() {
    let voice = VoiceDetector::new(VoiceSettings {
        threshold: 7.0,
        prefix_padding_ms: u64::MAX,
        silence_duration_ms: 0,
    });
    let settings = voice.settings();
    assert_eq!(settings.threshold, 1.0);
    assert_eq!(
        (settings.prefix_padding_ms, settings.silence_duration_ms),
        (4_000, 100)
    );
}
