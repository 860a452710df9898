//! What a packet costs. Ignored: run with `cargo test --release -p firsthop-transceiver --test suite audio::cost -- --ignored --nocapture`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{
    Codec, Conversation, ConversationSettings, Decoder, Echo, Encoder, EncoderSettings,
    MAX_PAYLOAD, OpusMode, Reorder, RtpIn, VoiceDetector, VoiceSettings,
};

use crate::audio::signals::{frames, ms, speech};

/// Half speech, half silence, as a user's side of a call.
fn talk() -> Vec<[i16; 480]> {
    let mut pcm = speech(ms(5_000));
    pcm.extend(vec![0; ms(5_000)]);
    frames(&pcm)
}

fn report(what: &str, frames: usize, mut work: impl FnMut()) {
    let best = (0..5)
        .map(|_| {
            let begin = cpu_time();
            work();
            cpu_time() - begin
        })
        .min()
        .expect("five runs");
    let each = best.as_nanos() / frames as u128;
    println!("{what:<40} {each:>8} ns of CPU per 20 ms, best of 5");
}

/// What this thread has run: other work on the machine is not counted (but for the caches that it takes).
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel");
    let nanoseconds = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(nanoseconds.expect("nanoseconds on the CPU"))
}

#[test]
#[ignore = "a measurement, not a test"]
fn cost_of_each_part_of_a_call() {
    let talk = talk();
    let mut payload = [0; MAX_PAYLOAD];
    for (mode, complexity, expected_loss) in [
        (OpusMode::Speech, 0, 0),
        (OpusMode::Speech, 5, 0),
        (OpusMode::Speech, 6, 0),
        (OpusMode::Speech, 6, 10),
        (OpusMode::Speech, 10, 0),
        (OpusMode::Light, 6, 0),
        (OpusMode::Light, 6, 10),
    ] {
        let settings = EncoderSettings {
            complexity,
            expected_loss,
            ..mode.into()
        };
        let mut encoder = Encoder::new(Codec::Opus, settings).unwrap();
        report(
            &format!("encode, {mode:?}, complexity {complexity}, loss {expected_loss} %"),
            talk.len(),
            || {
                for frame in &talk {
                    black_box(encoder.encode(frame, &mut payload).unwrap());
                }
            },
        );
    }

    let mut encoder = Encoder::new(Codec::Opus, EncoderSettings::default()).unwrap();
    let payloads: Vec<Arc<[u8]>> = talk
        .iter()
        .map(|frame| {
            let length = encoder.encode(frame, &mut payload).unwrap();
            Arc::from(&payload[..length])
        })
        .collect();
    let bytes: usize = payloads.iter().map(|p| p.len()).sum();
    println!(
        "{:<40} {:>8} bytes per 20 ms",
        "payload",
        bytes / payloads.len()
    );
    let mut decoder = Decoder::new(Codec::Opus).unwrap();
    let mut pcm = Vec::new();
    report("decode", talk.len(), || {
        for payload in &payloads {
            pcm.clear();
            decoder.decode(payload, &mut pcm).unwrap();
            black_box(&pcm);
        }
    });

    let mut encoder = Encoder::new(Codec::Pcmu, EncoderSettings::default()).unwrap();
    let mut decoder = Decoder::new(Codec::Pcmu).unwrap();
    report("G.711 both ways, resampling included", talk.len(), || {
        for frame in &talk {
            let length = encoder.encode(frame, &mut payload).unwrap();
            pcm.clear();
            decoder.decode(&payload[..length], &mut pcm).unwrap();
            black_box(&pcm);
        }
    });

    let mut voice = VoiceDetector::new(VoiceSettings::default());
    report("voice detector, resampling included", talk.len(), || {
        for frame in &talk {
            voice.push(frame);
            black_box(voice.poll_event());
        }
    });

    let mut reorder = Reorder::new();
    let mut sequence = 0_u16;
    let now = Instant::now();
    report("reorder", 200 * talk.len(), || {
        for payload in (0..200).flat_map(|_| &payloads) {
            reorder.push(1, sequence, payload.clone(), now);
            sequence = sequence.wrapping_add(1);
            black_box(reorder.pop(now));
        }
    });

    let settings = ConversationSettings {
        codec: Codec::Opus,
        encoder: EncoderSettings::default(),
        playout: Echo::playout_settings(),
    };
    let mut call = Conversation::new(Box::new(Echo::new(1)), settings, 0).unwrap();
    call.start_playing();
    let (mut now, mut n) = (Instant::now(), 0_u32);
    report("echo conversation, both ways", talk.len(), || {
        for payload in &payloads {
            now += Duration::from_millis(20);
            n = n.wrapping_add(1);
            let packet = RtpIn {
                ssrc: 1,
                sequence: n as u16,
                timestamp: n.wrapping_mul(960),
                payload: payload.clone(),
            };
            call.received(packet, now);
            while let Some(packet) = call.poll_packet(now) {
                black_box(packet);
            }
            while call.poll_event().is_some() {}
        }
    });

    let pages = || -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux kernel");
        let resident = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        resident.expect("resident pages")
    };
    let before = pages();
    let calls: Vec<Conversation> = (0..500)
        .map(|seed| {
            let mut call = Conversation::new(Box::new(Echo::new(seed)), settings, 0).unwrap();
            call.start_playing();
            for (n, payload) in payloads.iter().take(10).enumerate() {
                let packet = RtpIn {
                    ssrc: 1,
                    sequence: n as u16,
                    timestamp: n as u32 * 960,
                    payload: payload.clone(),
                };
                call.received(packet, now + Duration::from_millis(20 * n as u64));
                while call
                    .poll_packet(now + Duration::from_millis(20 * n as u64))
                    .is_some()
                {}
            }
            call
        })
        .collect();
    let each = (pages() - before) * 4 / calls.len();
    println!("{:<40} {each:>8} KiB per call", "memory");
}
