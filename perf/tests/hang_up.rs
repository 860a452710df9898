//! Calls that never connect are hung up over HTTP: no goodbye of theirs reaches a server, which would hold their sessions meanwhile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use firsthop_perf::call::air::Way;
use firsthop_perf::call::identity::Identity;
use firsthop_perf::call::load::{self, Ending, LoadPlan};
use firsthop_perf::call::manner::Manner;
use firsthop_perf::call::placing::Desk;
use firsthop_perf::call::recording::Codec;
use str0m::change::SdpOffer;
use str0m::{Candidate, RtcConfig};

/// Nobody is there.
const NOWHERE: &str = "127.2.0.1:9";

/// A server that takes so long to answer every offer, and is nowhere to be reached by media. Tells of each call that is hung up.
fn server(takes: Duration) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = mpsc::channel();
    let (identity, answered) = (Identity::new().expect("an identity"), Arc::default());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (tell, identity, answered) =
                (tell.clone(), identity.clone(), Arc::clone(&answered));
            std::thread::spawn(move || serve(stream, &identity, &answered, &tell, takes));
        }
    });
    (url, told)
}

fn serve(
    stream: TcpStream,
    identity: &Identity,
    answered: &AtomicU32,
    tell: &Sender<String>,
    takes: Duration,
) {
    let mut writer = stream.try_clone().expect("a stream");
    let mut reader = BufReader::new(stream);
    loop {
        let (mut request, mut length) = (String::new(), 0);
        if reader.read_line(&mut request).is_ok_and(|read| read == 0) {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a head");
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let path = request.split(' ').nth(1).expect("a path");
        let said = if path.ends_with("/hangup") {
            // The test may have seen enough.
            let _ = tell.send(path.to_owned());
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            // It is as slow as it is to be.
            std::thread::sleep(takes);
            let number = answered.fetch_add(1, Relaxed);
            let answer = answer(identity, &String::from_utf8(body).expect("text"));
            format!(
                "HTTP/1.1 201 Created\r\nlocation: /calls/{number}\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            )
        };
        writer.write_all(said.as_bytes()).expect("answered");
    }
}

fn answer(identity: &Identity, offer: &str) -> String {
    let mut rtc = RtcConfig::new()
        .set_crypto_provider(identity.provider())
        .set_dtls_cert(identity.certificate())
        .build(Instant::now());
    let nowhere = NOWHERE.parse().expect("an address");
    rtc.add_local_candidate(Candidate::host(nowhere, "udp").expect("a candidate"));
    let offer = SdpOffer::from_sdp_string(offer).expect("an offer");
    let answer = rtc.sdp_api().accept_offer(offer).expect("an answer");
    answer.to_sdp_string()
}

/// Two calls that no media reaches: which of them are hung up.
fn hung_up(ending: Ending, hold: Duration, takes: Duration) -> Vec<String> {
    let (url, told) = server(takes);
    let mut plan = LoadPlan {
        desk: Desk::Signaling {
            url,
            key: "any".to_owned(),
        },
        way: Way::Relay,
        calls: 2,
        ramp: 10.0,
        hold,
        settle: Duration::ZERO,
        codec: Codec::Pcmu,
        silent: false,
        ending,
        threads: 1,
        watch: Vec::new(),
        manner: Manner::default(),
    };
    plan.manner.echo = None;
    let report = load::run(&plan, &Arc::default()).expect("a load");
    assert_eq!((report.answered, report.connected), (2, 0), "{report}");
    assert_eq!(report.failed(), 2, "{report}");
    // What was asked is done when the load is over.
    let mut hung_up: Vec<String> = told.try_iter().collect();
    hung_up.sort();
    hung_up
}

#[test]
fn calls_that_never_connect_are_hung_up_unless_they_vanish() {
    let both = &["/calls/0/hangup", "/calls/1/hangup"][..];
    // Before the client gives up by itself, or long after; and answered when their time is over. All at once: each waits for its time to pass.
    std::thread::scope(|scope| {
        for (ending, hold, takes, expected) in [
            (Ending::Close, 2, 0, both),
            (Ending::HangUp, 2, 0, both),
            (Ending::Close, 12, 0, both),
            (Ending::Vanish, 12, 0, &[]),
            (Ending::Close, 1, 3, both),
            (Ending::Vanish, 1, 3, &[]),
        ] {
            let [hold, takes] = [hold, takes].map(Duration::from_secs);
            scope.spawn(move || {
                let found = hung_up(ending, hold, takes);
                assert_eq!(found, expected, "{ending:?} {hold:?} {takes:?}");
            });
        }
    });
}
