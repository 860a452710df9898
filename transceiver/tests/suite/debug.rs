//! What support asks of a call at the real binary.

use std::time::{Duration, Instant};

use firsthop_transceiver::limits;
use serde_json::Value;

use crate::loopback::{PATIENCE, Process, Relay, SECRET, Signaling, assert_quiet, request};
use crate::peer::{self, Call, Client};

fn ask(signaling: &Signaling, process: &Process, id: &str) -> (u16, Value, String) {
    let (status, body) = signaling.get(process, &format!("/debug/call/{id}"));
    let told = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
    (status, told, body)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is text"))
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

#[test]
fn a_live_call_tells_how_it_stands_and_none_of_its_secrets() {
    let process = Process::start("debug-live", &["--backend", "echo"]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 77, 1);
    relay.connect();
    relay.client.speaking = true;
    relay.client.next_frame = Some(Instant::now());
    // The engine counts what it has sent every five seconds.
    relay.until("echo", |relay| {
        relay.client.heard.loud() > 30 && relay.client.heard.packets > 280
    });

    let (status, call, body) = ask(&signaling, &process, "77");
    assert_eq!(status, 200, "{body}");
    println!("{call:#}");
    assert_eq!(ask(&signaling, &process, "0x4d").0, 200);
    for (field, is) in [
        ("client", "test"),
        ("backend_kind", "echo"),
        ("kind", "realtime"),
        ("state", "live"),
    ] {
        assert_eq!(call[field], is, "{field}");
    }
    assert_eq!((number(&call["session"]), number(&call["shard"])), (77, 1));
    assert_eq!(number(&call["created"]), peer::CREATED);
    let whys: Vec<&str> = call["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| text(&step["why"]))
        .collect();
    assert_eq!(whys, ["answered", "first_check", "dtls_up"]);
    for phase in [
        "first_check",
        "ice",
        "dtls",
        "channel",
        "audio_in",
        "audio_out",
    ] {
        assert!(
            number(&call["setup_ms"][phase]) <= number(&call["age_ms"]),
            "{phase}"
        );
    }
    assert_eq!(call["dtls"]["version"], "DTLS 1.2");
    let profile = text(&call["dtls"]["srtp_profile"]);
    assert!(profile.starts_with("SRTP_A"), "{profile}");
    assert_eq!(call["audio"]["codec"], "opus");
    assert!(number(&call["audio"]["packets_in"]) > 30);
    assert!(number(&call["audio"]["packets_out"]) > 30);
    assert_eq!(call["events"]["open"], true);
    assert!(number(&call["events"]["sent"]) >= 1);
    assert_eq!(number(&call["events"]["lost"]), 0);
    assert_eq!(call["backend"]["state"], "local");

    let paths = call["paths"].as_array().expect("paths");
    let selected: Vec<&Value> = paths.iter().filter(|p| p["selected"] == true).collect();
    assert_eq!(selected.len(), 1, "{paths:#?}");
    let public = relay.client.public.get().to_string();
    assert_eq!(text(&selected[0]["client"]), public);
    let hop = relay.socket.local_addr().expect("an address").to_string();
    assert_eq!(text(&selected[0]["hop"]), hop);
    let advertised = ["203.0.113.10:3478", "203.0.113.20:3478"];
    assert!(advertised.contains(&text(&selected[0]["advertised"])));
    assert_eq!(selected[0]["consent"], true);

    let credentials = relay.client.rtc.direct_api().local_ice_credentials();
    for secret in [
        credentials.pass.as_str(),
        SECRET,
        "ice-pwd",
        "fingerprint",
        "session.created",
    ] {
        assert!(!body.contains(secret), "{secret} in {body}");
    }
    assert_quiet(&process.stop().1);
}

#[test]
fn what_is_not_there_is_404_and_what_has_ended_says_why() {
    let process = Process::start("debug-ended", &[]);
    let signaling = Signaling::new();
    let (status, told, body) = ask(&signaling, &process, "78");
    assert_eq!(
        (status, &told["code"]),
        (404, &Value::from("unknown_session"))
    );
    assert!(told.get("ended").is_none(), "{body}");

    let mut relay = Relay::call(&process, &signaling, 78, 0);
    relay.connect();
    assert_eq!(signaling.hang_up(&process, 78), 200);
    let (status, told, body) = ask(&signaling, &process, "78");
    assert_eq!(
        (status, &told["code"]),
        (404, &Value::from("unknown_session"))
    );
    let ended = &told["ended"];
    assert_eq!(ended["reason"], "hung_up", "{body}");
    assert!(number(&ended["ms_ago"]) < 1_000 * PATIENCE.as_secs());
    let call = &ended["call"];
    assert_eq!(call["state"], "ended");
    let last = call["steps"].as_array().and_then(|steps| steps.last());
    assert_eq!(last.expect("steps")["why"], "hung_up");
    // Where the client was is not kept.
    let ip = relay.client.public.get().ip().to_string();
    assert_eq!(call["paths"], Value::Array(Vec::new()));
    assert!(!body.contains(&ip), "{ip} in {body}");

    // A call that was refused was never there.
    let refused = request(&process, 79, 0, "v=0");
    assert_ne!(signaling.create(&process, &refused).0, 201);
    assert!(ask(&signaling, &process, "79").1.get("ended").is_none());
}

#[test]
fn of_ended_calls_the_last_are_kept() {
    let process = Process::start("debug-many", &[]);
    let signaling = Signaling::new();
    let (offer, _) = Client::new(Instant::now()).offer(true);
    let kept = u32::try_from(limits::ENDINGS_KEPT).expect("a small number");
    for id in 0..=kept {
        let shard = (id % 2) as u8;
        let made = signaling.create(&process, &request(&process, 1_000 + id, shard, &offer));
        assert_eq!(made.0, 201, "{}", made.1);
        assert_eq!(signaling.hang_up(&process, 1_000 + id), 200);
    }
    assert!(ask(&signaling, &process, "1000").1.get("ended").is_none());
    assert!(ask(&signaling, &process, "1001").1.get("ended").is_some());
}

#[test]
fn nobody_asks_without_the_secret_or_for_what_is_no_id() {
    let process = Process::start("debug-refused", &[]);
    let signaling = Signaling::new();
    let url = process.url("/debug/call/77");
    assert_eq!(signaling.send(signaling.http.get(&url)).0, 401);
    let wrong = signaling.http.get(&url).bearer_auth("another");
    assert_eq!(signaling.send(wrong).0, 401);
    for id in ["x", "4294967296", "rtc_0123456789"] {
        let (status, told, _) = ask(&signaling, &process, id);
        assert_eq!(
            (status, &told["code"]),
            (400, &Value::from("bad_request")),
            "{id}"
        );
    }
}

#[test]
fn a_report_follows_the_call_on_its_clock() {
    let mut call = Call::live(90);
    call.speak(true);
    call.run(Duration::from_secs(30));
    let report = call.session.report(call.now);
    assert_eq!(report.state, "live");
    assert!(report.age_ms >= 30_000);
    assert!(report.last_report.rtt_ms.is_some_and(|ms| ms < 1_000));
    assert_eq!(report.last_report.lost, Some(0.0));
    assert!(report.rtcp.sent > 1_000);
    assert_eq!((report.ice_restarts, report.path_moves), (0, 0));
}
