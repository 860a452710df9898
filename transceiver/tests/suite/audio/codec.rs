use firsthop_transceiver::audio::{
    Codec, Decoder, Encoder, EncoderSettings, FRAME, MAX_PACKET, MAX_PAYLOAD, OpusMode, Origin,
    SAMPLE_RATE,
};
use proptest::prelude::*;

use crate::audio::signals::{aligned, correlation, encoded, frames, ms, rms, speech};

fn encode(pcm: &[i16], settings: EncoderSettings) -> Vec<Vec<u8>> {
    encoded(Codec::Opus, settings, pcm)
}

#[test]
fn speech_survives_encoding_and_decoding_at_24_khz() {
    let sent = speech(ms(2_000));
    let mut decoder = Decoder::new(Codec::Opus).unwrap();
    let mut heard = Vec::new();
    for payload in encode(&sent, EncoderSettings::default()) {
        assert_eq!(decoder.decode(&payload, &mut heard).unwrap(), FRAME);
    }
    let (alike, lag) = aligned(&sent[..ms(1_900)], &heard, ms(20));
    assert!(alike > 0.9, "correlation {alike}");
    assert!(lag <= ms(10), "codec delay of {lag} samples");
}

#[test]
fn a_lost_packet_is_restored_from_the_next_one_when_loss_was_expected() {
    let sent = speech(ms(2_000));
    let settings = EncoderSettings {
        expected_loss: 20,
        ..EncoderSettings::default()
    };
    let payloads = encode(&sent, settings);
    let reference = decode_with_loss(&payloads, None).0;
    let lost = 50;
    let (restored, origin) = decode_with_loss(&payloads, Some((lost, true)));
    assert_eq!(origin, Some(Origin::Recovered));
    let (concealed, origin) = decode_with_loss(&payloads, Some((lost, false)));
    assert_eq!(origin, Some(Origin::Concealed));
    assert_eq!(
        (restored.len(), concealed.len()),
        (reference.len(), reference.len())
    );
    let hole = lost * FRAME..(lost + 1) * FRAME;
    let alike = |heard: &[i16]| correlation(&reference[hole.clone()], &heard[hole.clone()]);
    assert!(alike(&restored) > 0.8, "restored {}", alike(&restored));
    assert!(alike(&restored) > alike(&concealed));
}

#[test]
fn a_packet_without_redundancy_says_so() {
    let payloads = encode(&speech(ms(1_000)), EncoderSettings::default());
    let (_, origin) = decode_with_loss(&payloads, Some((20, true)));
    assert_eq!(origin, Some(Origin::Concealed));
}

fn decode_with_loss(
    payloads: &[Vec<u8>],
    loss: Option<(usize, bool)>,
) -> (Vec<i16>, Option<Origin>) {
    let mut decoder = Decoder::new(Codec::Opus).unwrap();
    let (mut pcm, mut origin) = (Vec::new(), None);
    for (n, payload) in payloads.iter().enumerate() {
        match loss {
            Some((lost, with_next)) if lost == n => {
                let next = with_next.then_some(payloads[n + 1].as_slice());
                origin = Some(decoder.fill(FRAME, next, &mut pcm).unwrap());
            }
            _ => {
                decoder.decode(payload, &mut pcm).unwrap();
            }
        }
    }
    (pcm, origin)
}

#[test]
fn a_long_hole_is_concealed_in_full_and_fades_out() {
    let payloads = encode(&speech(ms(1_000)), EncoderSettings::default());
    let mut decoder = Decoder::new(Codec::Opus).unwrap();
    let mut pcm = Vec::new();
    for payload in &payloads {
        decoder.decode(payload, &mut pcm).unwrap();
    }
    let before = pcm.len();
    decoder.fill(ms(200), None, &mut pcm).unwrap();
    assert_eq!(pcm.len() - before, ms(200));
    let end = rms(&pcm[pcm.len() - ms(20)..]);
    assert!(
        end < rms(&pcm[before - ms(200)..before]) / 4.0,
        "still {end}"
    );
}

#[test]
fn every_packet_duration_of_opus_is_decoded() {
    for (frame, n) in [
        (opus::FrameSize::Ms2_5, 60),
        (opus::FrameSize::Ms5, 120),
        (opus::FrameSize::Ms10, 240),
        (opus::FrameSize::Ms20, 480),
        (opus::FrameSize::Ms40, 960),
        (opus::FrameSize::Ms60, 1_440),
        (opus::FrameSize::Ms120, 2_880),
    ] {
        let mut encoder =
            opus::Encoder::new(SAMPLE_RATE, opus::Channels::Mono, opus::Application::Voip).unwrap();
        encoder.set_expert_frame_duration(frame).unwrap();
        let payload = encoder.encode_vec(&speech(n), 1_500).unwrap();
        assert_eq!(Codec::Opus.duration(&payload), Some(n));
        let mut pcm = Vec::new();
        let mut decoder = Decoder::new(Codec::Opus).unwrap();
        assert_eq!(decoder.decode(&payload, &mut pcm).unwrap(), n);
        // What is concealed after it is as long.
        assert_eq!(decoder.decode(&[], &mut pcm).unwrap(), n);
        assert_eq!(pcm.len(), 2 * n);
    }
    assert_eq!(MAX_PACKET, 2_880);
}

#[test]
fn a_stereo_client_at_48_khz_is_heard_in_mono_at_24() {
    let mut encoder =
        opus::Encoder::new(48_000, opus::Channels::Stereo, opus::Application::Audio).unwrap();
    let mut decoder = Decoder::new(Codec::Opus).unwrap();
    let tone = |n: usize| (f64::sin(n as f64 * 0.06) * 10_000.0) as i16;
    let mut pcm = Vec::new();
    for frame in 0..10 {
        let stereo: Vec<i16> = (0..1_920).map(|n| tone((frame * 1_920 + n) / 2)).collect();
        let payload = encoder.encode_vec(&stereo, 1_500).unwrap();
        assert_eq!(decoder.decode(&payload, &mut pcm).unwrap(), FRAME);
    }
    let expected: Vec<i16> = (0..9 * FRAME).map(|n| tone(2 * n)).collect();
    assert!(aligned(&expected[..7 * FRAME], &pcm, ms(20)).0 > 0.95);
}

#[test]
fn loss_settings_change_at_runtime_and_are_capped() {
    let mut encoder = Encoder::new(Codec::Opus, EncoderSettings::default()).unwrap();
    for percent in [0, 5, 100, 255, 0] {
        encoder.set_expected_loss(percent).unwrap();
    }
}

/// RFC 6716, table 2: from configuration 16 on a packet has no model of the voice, before that it may carry forward error correction.
#[test]
fn the_light_mode_leaves_the_voice_model_out_unless_packets_are_lost() {
    let speech = speech(ms(6_000));
    let mut encoder = Encoder::new(Codec::Opus, OpusMode::Light.into()).unwrap();
    let mut decoder = Decoder::new(Codec::Opus).unwrap();
    let mut payload = [0; MAX_PAYLOAD];
    let (mut modelled, mut with_fec, mut heard) = ([0; 3], [0; 3], Vec::new());
    for (n, frame) in frames(&speech).iter().enumerate() {
        let third = n / 100;
        if n % 100 == 0 {
            encoder.set_expected_loss([0, 10, 0][third]).unwrap();
        }
        let length = encoder.encode(frame, &mut payload).unwrap();
        let payload = &payload[..length];
        // A change of the mode takes a few frames.
        if n % 100 >= 10 {
            modelled[third] += usize::from(payload[0] >> 3 < 16);
            with_fec[third] += usize::from(Codec::Opus.has_fec(payload));
        }
        decoder.decode(payload, &mut heard).unwrap();
    }
    assert_eq!(modelled, [0, 90, 0]);
    assert!(with_fec[1] > 10, "{with_fec:?}");
    assert!(aligned(&speech[..100 * FRAME], &heard, ms(20)).0 > 0.9);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let complex = EncoderSettings {
        complexity: 11,
        ..EncoderSettings::default()
    };
    let error = Encoder::new(Codec::Opus, complex).err().unwrap();
    assert!(error.to_string().contains("complexity"), "{error}");
    let slow = EncoderSettings {
        bitrate: 0,
        ..EncoderSettings::default()
    };
    let error = Encoder::new(Codec::Opus, slow).err().unwrap();
    assert!(error.to_string().contains("bitrate"), "{error}");
}

#[test]
fn a_dtx_payload_is_recognised() {
    for dtx in [[].as_slice(), &[0x78], &[0x78, 0]] {
        assert!(Codec::Opus.is_dtx(dtx));
    }
    assert!(!Codec::Opus.is_dtx(&[0x78, 0, 0]));
}

proptest! {
    /// A client may send any bytes.
    #[test]
    fn any_payload_is_decoded_or_refused(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..10)) {
        let mut decoder = Decoder::new(Codec::Opus).unwrap();
        let mut pcm = Vec::new();
        for payload in payloads {
            let before = pcm.len();
            match decoder.decode(&payload, &mut pcm) {
                Ok(samples) => prop_assert_eq!(pcm.len() - before, samples),
                Err(_) => prop_assert_eq!(pcm.len(), before),
            }
            let before = pcm.len();
            let _ = decoder.fill(1_000, Some(&payload), &mut pcm);
            prop_assert!(pcm.len() - before <= 1_000);
        }
    }
}
