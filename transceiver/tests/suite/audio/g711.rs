//! The laws against the tables of ITU-T G.711, and calls that use them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{Codec, Decoder, EncoderSettings, FRAME, Law, RtpIn, Uplink};

use crate::audio::signals::{aligned, encoded, ms, rms, speech};

const LAWS: [Law; 2] = [Law::Mu, Law::A];

/// Where the segments of one polarity end, and the steps in them: tables 1a and 2a of the recommendation, in its own scale, and what a unit
/// of that is in samples of 16 bits.
type Segments = (&'static [(i32, i32)], i32);

const MU: Segments = (
    &[
        (31, 2),
        (95, 4),
        (223, 8),
        (479, 16),
        (991, 32),
        (2_015, 64),
        (4_063, 128),
        (8_159, 256),
    ],
    4,
);

const A: Segments = (
    &[
        (64, 2),
        (128, 4),
        (256, 8),
        (512, 16),
        (1_024, 32),
        (2_048, 64),
        (4_096, 128),
    ],
    8,
);

/// The intervals of one polarity: the decision values between which they lie, and the value that stands for all in between.
fn intervals(law: Law) -> Vec<(i32, i32, i32)> {
    let ((segments, unit), mut from) = match law {
        // The first interval of µ-law is half as wide, and stands for zero.
        Law::Mu => (MU, -1),
        Law::A => (A, 0),
    };
    let mut all = Vec::new();
    for (end, step) in segments {
        while from < *end {
            all.push((from * unit, (from + step) * unit, (from + step / 2) * unit));
            from += step;
        }
    }
    all
}

/// The code of the nth interval: tables 1 and 2, the lower half by symmetry.
fn code(law: Law, n: usize, negative: bool) -> u8 {
    let n = n as u8;
    match (law, negative) {
        (Law::Mu, false) => 0xff - n,
        (Law::Mu, true) => 0x7f - n,
        // Even bits are inverted on the line.
        (Law::A, false) => (0x80 | n) ^ 0x55,
        (Law::A, true) => n ^ 0x55,
    }
}

#[test]
fn every_interval_of_the_tables_has_its_code_and_its_value() {
    for law in LAWS {
        let intervals = intervals(law);
        assert_eq!(intervals.len(), 128, "{law:?}");
        for (n, (from, to, value)) in intervals.into_iter().enumerate() {
            for sample in [from.max(0), (from + to) / 2, to - 1] {
                let sample = sample.min(32_767) as i16;
                assert_eq!(
                    law.compress(sample),
                    code(law, n, false),
                    "{law:?} {sample}"
                );
                assert_eq!(
                    law.compress(!sample),
                    code(law, n, true),
                    "{law:?} {}",
                    !sample
                );
            }
            assert_eq!(
                i32::from(law.expand(code(law, n, false))),
                value,
                "{law:?} {n}"
            );
            // Negative zero is told from zero by the last bit of a sample, which no law reaches.
            let negative = if value == 0 { -1 } else { -value };
            assert_eq!(
                i32::from(law.expand(code(law, n, true))),
                negative,
                "{law:?} {n}"
            );
        }
    }
}

#[test]
fn clipped_samples_have_the_outermost_codes() {
    assert_eq!(
        (Law::Mu.compress(i16::MAX), Law::Mu.compress(i16::MIN)),
        (0x80, 0x00)
    );
    assert_eq!(
        (Law::A.compress(i16::MAX), Law::A.compress(i16::MIN)),
        (0xaa, 0x2a)
    );
    assert_eq!((Law::Mu.compress(0), Law::A.compress(0)), (0xff, 0xd5));
}

/// Tables 5 and 6 of the recommendation: a sine of 1 kHz at 0 dBm0, 3.17 and 3.14 dB below the largest.
#[test]
fn the_digital_milliwatt_is_a_tone_of_its_level() {
    for (law, codes, largest, hundredths_below) in [
        (
            Law::Mu,
            [0x1e, 0x0b, 0x0b, 0x1e, 0x9e, 0x8b, 0x8b, 0x9e],
            8_159.0 * 4.0,
            317,
        ),
        (
            Law::A,
            [0x34, 0x21, 0x21, 0x34, 0xb4, 0xa1, 0xa1, 0xb4],
            4_096.0 * 8.0,
            314,
        ),
    ] {
        let pcm: Vec<i16> = codes.iter().map(|&code| law.expand(code)).collect();
        let peak = rms(&pcm) * 2_f64.sqrt();
        let level = 20.0 * (largest / peak).log10();
        let below = f64::from(hundredths_below) / 100.0;
        assert!((level - below).abs() < 0.05, "{law:?}: {level} dB");
        let phase = |n: usize| (std::f64::consts::PI * (2 * n + 1) as f64 / 8.0).sin();
        for (n, sample) in pcm.iter().enumerate() {
            let sine = -peak * phase(n);
            assert!(
                (f64::from(*sample) - sine).abs() < peak * 0.01,
                "{law:?} {n}: {sample}"
            );
        }
    }
}

#[test]
fn samples_compressed_together_become_what_each_becomes_alone() {
    let samples: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    for law in LAWS {
        let mut bytes = vec![0; samples.len()];
        law.compress_all(&samples, &mut bytes);
        let alone: Vec<u8> = samples.iter().map(|s| law.compress(*s)).collect();
        assert!(bytes == alone, "{law:?}");
        // Neither side is read or written beyond the shorter.
        law.compress_all(&samples[..3], &mut bytes[..2]);
        assert_eq!(bytes[2..], alone[2..]);
    }
}

#[test]
fn every_code_comes_back_to_itself() {
    for law in LAWS {
        for code in 0..=255 {
            assert_eq!(law.compress(law.expand(code)), code, "{law:?}");
        }
    }
}

fn encode(codec: Codec, pcm: &[i16]) -> Vec<Vec<u8>> {
    encoded(codec, EncoderSettings::default(), pcm)
}

#[test]
fn speech_survives_both_laws_and_20_ms_are_160_bytes() {
    let sent = speech(ms(2_000));
    for codec in [Codec::Pcmu, Codec::Pcma] {
        let mut decoder = Decoder::new(codec).unwrap();
        let mut heard = Vec::new();
        for payload in encode(codec, &sent) {
            assert_eq!(payload.len(), 160);
            assert_eq!(decoder.decode(&payload, &mut heard).unwrap(), FRAME);
        }
        assert_eq!(heard.len(), sent.len());
        let (alike, lag) = aligned(&sent[..ms(1_900)], &heard, ms(20));
        assert!(alike > 0.95, "{codec:?}: correlation {alike}");
        assert!(lag <= ms(5), "{codec:?}: {lag} samples");
    }
}

#[test]
fn tones_of_the_telephone_band_pass_and_what_would_fold_into_it_does_not() {
    for (hertz, passes) in [
        (300.0, true),
        (1_000.0, true),
        (3_300.0, true),
        (4_300.0, false),
        (7_000.0, false),
    ] {
        let tone: Vec<i16> = (0..ms(500))
            .map(|n| ((n as f64 / 24_000.0 * hertz * std::f64::consts::TAU).sin() * 8_000.0) as i16)
            .collect();
        let mut decoder = Decoder::new(Codec::Pcma).unwrap();
        let mut heard = Vec::new();
        for payload in encode(Codec::Pcma, &tone) {
            decoder.decode(&payload, &mut heard).unwrap();
        }
        let gain = rms(&heard[ms(100)..]) / rms(&tone[ms(100)..]);
        if passes {
            assert!((0.85..1.1).contains(&gain), "{hertz} Hz: {gain}");
        } else {
            assert!(gain < 0.05, "{hertz} Hz: {gain}");
        }
    }
}

#[test]
fn packets_of_any_length_from_2_5_to_120_ms_are_taken() {
    for codec in [Codec::Pcmu, Codec::Pcma] {
        assert_eq!(codec.duration(&[0x55; 80]), Some(240));
        assert_eq!(codec.duration(&[0x55; 960]), Some(2_880));
        assert_eq!(
            (codec.duration(&[0x55; 19]), codec.duration(&[0x55; 961])),
            (None, None)
        );
        let mut decoder = Decoder::new(codec).unwrap();
        let mut pcm = Vec::new();
        for bytes in [20, 80, 161, 960] {
            let before = pcm.len();
            assert_eq!(
                decoder.decode(&vec![0x55; bytes], &mut pcm).unwrap(),
                3 * bytes
            );
            assert_eq!(pcm.len() - before, 3 * bytes);
            // What is concealed after it is as long.
            assert_eq!(decoder.decode(&[], &mut pcm).unwrap(), 3 * bytes);
        }
        let before = pcm.len();
        assert!(decoder.decode(&[0x55; 961], &mut pcm).is_err());
        assert!(decoder.decode(&[0x55; 19], &mut pcm).is_err());
        assert_eq!(pcm.len(), before);
    }
}

fn packets(codec: Codec, pcm: &[i16]) -> Vec<(u64, RtpIn)> {
    let payloads = encode(codec, pcm).into_iter().enumerate();
    payloads
        .map(|(n, payload)| {
            let packet = RtpIn {
                ssrc: 1,
                sequence: 65_500_u16.wrapping_add(n as u16),
                timestamp: (u32::MAX - 1_000).wrapping_add(n as u32 * 160),
                payload: Arc::from(payload),
            };
            (20 * n as u64, packet)
        })
        .collect()
}

fn play(uplink: &mut Uplink, arrivals: &[(u64, RtpIn)], end: u64) -> Vec<i16> {
    let start = Instant::now();
    let (mut pcm, mut next) = (Vec::new(), 0);
    for ms in 0..end {
        let now = start + Duration::from_millis(ms);
        while let Some((_, packet)) = arrivals.get(next).filter(|(at, _)| *at <= ms) {
            uplink.push(packet.clone(), now);
            next += 1;
        }
        while let Some(piece) = uplink.poll(now) {
            pcm.extend_from_slice(piece);
        }
    }
    pcm
}

#[test]
fn lost_packets_are_concealed_and_take_no_time_away() {
    let sent = speech(ms(2_000));
    for codec in [Codec::Pcmu, Codec::Pcma] {
        let mut uplink = Uplink::new(codec).unwrap();
        let mut arrivals = packets(codec, &sent);
        arrivals.retain(|(at, _)| *at == 0 || at % 100 != 0);
        let pcm = play(&mut uplink, &arrivals, 2_100);
        assert_eq!(pcm.len(), sent.len());
        let counters = uplink.counters();
        assert_eq!((counters.reorder.missing, counters.recovered), (19, 0));
        assert_eq!(counters.concealed, 19 * FRAME as u64);
        let alike = aligned(&sent[..ms(1_900)], &pcm, ms(20)).0;
        assert!(alike > 0.6, "{codec:?}: correlation {alike}");
    }
}

#[test]
fn an_outage_fades_out_within_60_ms_and_its_end_is_skipped() {
    let mut uplink = Uplink::new(Codec::Pcmu).unwrap();
    let mut arrivals = packets(Codec::Pcmu, &speech(ms(2_000)));
    arrivals.drain(50..75);
    let pcm = play(&mut uplink, &arrivals, 2_100);
    assert_eq!(pcm.len(), ms(2_000 - 300));
    assert_eq!(uplink.counters().skipped, ms(300) as u64);
    assert_eq!(rms(&pcm[ms(1_000 + 70)..ms(1_000 + 190)]), 0.0);
}

#[test]
fn narrow_audio_is_the_client_s_own_bytes_and_counts_as_much_time() {
    let mut uplink = Uplink::narrow(Law::Mu);
    let mut arrivals = packets(Codec::Pcmu, &speech(ms(1_000)));
    let sent: Vec<u8> = arrivals
        .iter()
        .flat_map(|(_, p)| p.payload.to_vec())
        .collect();
    arrivals.remove(20);
    let bytes: Vec<u8> = play(&mut uplink, &arrivals, 1_100)
        .iter()
        .map(|sample| Law::Mu.compress(*sample))
        .collect();
    assert_eq!(bytes.len(), sent.len());
    assert_eq!(bytes[..20 * 160], sent[..20 * 160]);
    assert_eq!(bytes[21 * 160..], sent[21 * 160..]);
    assert_ne!(bytes[20 * 160..21 * 160], sent[20 * 160..21 * 160]);
    assert_eq!(uplink.counters().concealed, FRAME as u64);
}
