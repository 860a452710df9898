use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{
    Codec, EncoderSettings, FRAME, RtpIn, SAMPLE_RATE, STALL, Uplink,
};

use crate::audio::signals::{aligned, encoded, frames, ms, rms, speech};

const TICKS: u32 = 960;

fn packet(n: u32, payload: &[u8]) -> RtpIn {
    RtpIn {
        ssrc: 1,
        // Near both wraps.
        sequence: 65_500_u16.wrapping_add(n as u16),
        timestamp: (u32::MAX - 10_000).wrapping_add(n * TICKS),
        payload: Arc::from(payload),
    }
}

fn encode(pcm: &[i16], expected_loss: u8) -> Vec<Vec<u8>> {
    let settings = EncoderSettings {
        expected_loss,
        ..EncoderSettings::default()
    };
    encoded(Codec::Opus, settings, pcm)
}

fn drain(uplink: &mut Uplink, now: Instant, pcm: &mut Vec<i16>) {
    while let Some(piece) = uplink.poll(now) {
        pcm.extend_from_slice(piece);
    }
}

/// Plays packets `(milliseconds, packet)` and the clock in between, up to `end`; returns all PCM and the time of each millisecond's length.
fn play(uplink: &mut Uplink, arrivals: &[(u64, RtpIn)], end: u64) -> (Vec<i16>, Vec<usize>) {
    let start = Instant::now();
    let (mut pcm, mut lengths, mut next) = (Vec::new(), Vec::new(), 0);
    for ms in 0..end {
        let now = start + Duration::from_millis(ms);
        while let Some((_, packet)) = arrivals.get(next).filter(|(at, _)| *at <= ms) {
            uplink.push(packet.clone(), now);
            drain(uplink, now, &mut pcm);
            next += 1;
        }
        if uplink.deadline().is_some_and(|deadline| deadline <= now) {
            drain(uplink, now, &mut pcm);
        }
        lengths.push(pcm.len());
    }
    (pcm, lengths)
}

fn in_time(payloads: &[Vec<u8>]) -> Vec<(u64, RtpIn)> {
    let arrivals = payloads.iter().enumerate();
    arrivals
        .map(|(n, payload)| (20 * n as u64, packet(n as u32, payload)))
        .collect()
}

#[test]
fn a_stream_without_loss_is_decoded_whole_and_without_delay() {
    let sent = speech(ms(2_000));
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let arrivals = in_time(&encode(&sent, 0));
    let (pcm, lengths) = play(&mut uplink, &arrivals, 2_000);
    assert_eq!(pcm.len(), sent.len());
    assert_eq!(lengths[0], FRAME);
    assert!(aligned(&sent[..ms(1_900)], &pcm, ms(20)).0 > 0.9);
    let counters = uplink.counters();
    assert_eq!(counters.received, 100);
    assert_eq!(
        (
            counters.concealed,
            counters.filled,
            counters.reorder.missing
        ),
        (0, 0, 0)
    );
}

#[test]
fn reordered_and_doubled_packets_change_nothing() {
    let payloads = encode(&speech(ms(1_000)), 0);
    let arrivals = in_time(&payloads);
    let (reference, _) = play(&mut Uplink::new(Codec::Opus).unwrap(), &arrivals, 1_100);
    let mut shuffled = arrivals.clone();
    for n in (3..48).step_by(4) {
        shuffled[n].0 += 25;
        let mut double = arrivals[n].clone();
        double.0 += 31;
        shuffled.push(double);
    }
    shuffled.sort_by_key(|(at, _)| *at);
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let (pcm, _) = play(&mut uplink, &shuffled, 1_100);
    assert_eq!(pcm, reference);
    assert_eq!(uplink.counters().reorder.duplicate, 12);
}

#[test]
fn lost_packets_are_restored_or_concealed_and_take_no_time_away() {
    let sent = speech(ms(2_000));
    for (expected_loss, recovered, wanted) in [(20, 12..20, 0.8), (0, 0..1, 0.6)] {
        let mut uplink = Uplink::new(Codec::Opus).unwrap();
        let mut arrivals = in_time(&encode(&sent, expected_loss));
        arrivals.retain(|(at, _)| *at == 0 || at % 100 != 0);
        let (pcm, _) = play(&mut uplink, &arrivals, 2_100);
        assert_eq!(pcm.len(), sent.len());
        let counters = uplink.counters();
        assert_eq!(counters.reorder.missing, 19);
        // An encoder adds no redundancy for frames that conceal well.
        assert!(recovered.contains(&counters.recovered), "{counters:?}");
        assert_eq!(counters.concealed, 19 * FRAME as u64);
        let alike = aligned(&sent[..ms(1_900)], &pcm, ms(20)).0;
        assert!(alike > wanted, "correlation {alike}, {counters:?}");
    }
}

#[test]
fn a_lost_packet_delays_those_behind_it_by_40_ms_at_most() {
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let mut arrivals = in_time(&encode(&speech(ms(1_000)), 0));
    arrivals.remove(10);
    let (_, lengths) = play(&mut uplink, &arrivals, 1_000);
    for (ms, length) in lengths.iter().enumerate() {
        let sent = (ms / 20 + 1) * FRAME;
        let behind = (sent - length) / FRAME * 20;
        // The packet after the lost one waits 40 ms; then all is as before.
        assert!(behind <= 60, "{behind} ms behind at {ms} ms");
        assert!(
            behind == 0 || (200..260).contains(&ms),
            "{behind} ms behind at {ms} ms"
        );
    }
}

#[test]
fn an_outage_is_concealed_for_200_ms_and_the_rest_is_skipped() {
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let mut arrivals = in_time(&encode(&speech(ms(2_000)), 0));
    arrivals.drain(50..75);
    let (pcm, _) = play(&mut uplink, &arrivals, 2_100);
    let counters = uplink.counters();
    assert_eq!(counters.reorder.missing, 25);
    assert_eq!(counters.concealed, ms(200) as u64);
    assert_eq!(counters.skipped, ms(300) as u64);
    assert_eq!(pcm.len(), ms(2_000 - 300));
}

#[test]
fn late_audio_of_a_stalled_network_is_not_lost() {
    let sent = speech(ms(2_000));
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let mut arrivals = in_time(&encode(&sent, 0));
    for (at, _) in &mut arrivals[40..80] {
        *at = 1_600;
    }
    let (pcm, _) = play(&mut uplink, &arrivals, 2_000);
    assert_eq!(pcm.len(), sent.len());
    assert!(aligned(&sent[..ms(1_900)], &pcm, ms(20)).0 > 0.9);
}

#[test]
fn a_client_with_dtx_is_heard_as_silence_in_real_time() {
    let mut spoken = speech(ms(1_000));
    spoken.extend(vec![0; ms(3_000)]);
    spoken.extend(speech(ms(1_000)));
    let mut encoder =
        opus::Encoder::new(SAMPLE_RATE, opus::Channels::Mono, opus::Application::Voip).unwrap();
    encoder.set_dtx(true).unwrap();
    let mut arrivals = Vec::new();
    let (mut sequence, mut silent) = (0_u16, false);
    for (n, frame) in frames(&spoken).iter().enumerate() {
        let payload = encoder.encode_vec(frame, 1_500).unwrap();
        // As libwebrtc does: the first packet of silence is sent, and then only what says more.
        let skip = silent && payload.len() <= 2;
        silent = payload.len() <= 2;
        if !skip {
            let mut packet = packet(n as u32, &payload);
            packet.sequence = sequence;
            sequence += 1;
            arrivals.push((20 * n as u64, packet));
        }
    }
    assert!(arrivals.len() < 150, "DTX sent {} packets", arrivals.len());
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let (pcm, lengths) = play(&mut uplink, &arrivals, 5_000);
    assert!(uplink.counters().filled > 0);
    assert_eq!(uplink.counters().reorder.missing, 0);
    for (at, length) in lengths.iter().enumerate() {
        let heard = length * 1_000 / SAMPLE_RATE as usize;
        assert!(heard <= at + 20, "{heard} ms of audio after {at} ms");
        assert!(heard + 100 >= at, "{heard} ms of audio after {at} ms");
    }
    assert_eq!(pcm.len(), spoken.len());
    assert!(rms(&pcm[ms(2_000)..ms(3_900)]) < 50.0);
    let alike = aligned(&spoken[ms(4_100)..ms(4_900)], &pcm[ms(4_050)..], ms(100)).0;
    assert!(alike > 0.8, "correlation {alike} after the gap");
}

#[test]
fn a_client_that_stops_without_a_word_is_silent_after_a_second_for_five() {
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let arrivals = in_time(&encode(&speech(ms(400)), 0));
    let (pcm, lengths) = play(&mut uplink, &arrivals, 20_000);
    let stall = STALL.as_millis() as usize;
    assert_eq!(lengths[380 + stall], ms(400));
    assert_eq!(lengths[400 + stall + 1], ms(420));
    assert_eq!(pcm.len(), ms(400 + 5_000));
    assert!(pcm[ms(400)..].iter().all(|s| *s == 0));
    assert_eq!(uplink.deadline(), None);
}

#[test]
fn another_stream_begins_without_a_gap() {
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let payloads = encode(&speech(ms(400)), 0);
    let mut arrivals = in_time(&payloads);
    for (n, (_, packet)) in arrivals.iter_mut().enumerate().skip(10) {
        packet.ssrc = 2;
        packet.sequence = 5_000 + n as u16;
        packet.timestamp = 77_000 + n as u32 * TICKS;
    }
    let (pcm, _) = play(&mut uplink, &arrivals, 500);
    assert_eq!(pcm.len(), ms(400));
    let counters = uplink.counters();
    assert_eq!(
        (
            counters.reorder.restarts,
            counters.filled,
            counters.concealed
        ),
        (1, 0, 0)
    );
}

#[test]
fn a_malformed_payload_is_counted_and_concealed() {
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let mut arrivals = in_time(&encode(&speech(ms(400)), 0));
    // Code 3 with a frame count of 0: invalid by RFC 6716, section 3.4.
    arrivals[10].1.payload = Arc::from([0x4b, 0x00, 0x00].as_slice());
    let (pcm, _) = play(&mut uplink, &arrivals, 500);
    assert_eq!(pcm.len(), ms(400));
    let counters = uplink.counters();
    assert_eq!((counters.malformed, counters.concealed), (1, FRAME as u64));
}

#[test]
fn a_client_far_ahead_of_real_time_is_not_decoded() {
    let mut uplink = Uplink::new(Codec::Opus).unwrap();
    let payloads = encode(&speech(ms(1_000)), 0);
    let flood: Vec<(u64, RtpIn)> = (0..2_000)
        .map(|n| (u64::from(n) / 20, packet(n, &payloads[n as usize % 50])))
        .collect();
    let (pcm, _) = play(&mut uplink, &flood, 200);
    assert!((ms(5_000)..ms(5_300)).contains(&pcm.len()), "{}", pcm.len());
    let counters = uplink.counters();
    assert!((1_735..=1_750).contains(&counters.excess), "{counters:?}");
    assert_eq!((counters.concealed, counters.filled), (0, 0));
}
