//! The real binary: its calls, what it refuses, and how it starts and stops.

use std::io::Read as _;
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::Instant;

use firsthop_shared::address::{
    ClientAddr, ClusterId, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};
use firsthop_shared::control::{
    CallKind, ControlCode, ControlError, CreateRequest, CreateResponse, IceCredentials,
    RestartRequest, RestartResponse, SessionInfo, Status,
};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::{self, RecordKind};
use str0m::media::Direction;

use crate::loopback::{
    PATIENCE, Process, Relay, SECRET, Signaling, after, assert_quiet, masters, request, request_of,
};
use crate::peer::{self, Client, addr};

#[test]
fn a_call_connects_echoes_and_is_hung_up_without_a_warning() {
    let process = Process::start("call", &[]);
    let signaling = Signaling::new();
    let mut calls: Vec<Relay> = (0..2)
        .map(|shard| Relay::call(&process, &signaling, 100 + u32::from(shard), shard))
        .collect();
    Relay::connect_all(&mut calls);
    for relay in &mut calls {
        assert_eq!(relay.client.heard.types()[0], "session.created");
        relay.client.speaking = true;
        relay.client.next_frame = Some(Instant::now());
    }
    Relay::until_all(&mut calls, "echo", |relay| relay.client.heard.loud() > 30);
    for relay in &calls {
        assert!(relay.proven > 0, "proof reaches the relay");
    }

    let (status, body) = signaling.get(&process, "/v1/status");
    assert_eq!(status, 200);
    let report: Status = serde_json::from_str(&body).expect("a status");
    assert_eq!(report.owner, process.trunk);
    let sessions: Vec<u32> = report.shards.iter().map(|s| s.sessions).collect();
    assert_eq!(sessions, [1, 1]);
    let (_, page) = signaling.get(&process, "/metrics");
    for line in [
        "firsthop_transceiver_sessions{worker=\"0\",state=\"live\"} 1",
        "firsthop_transceiver_sessions{worker=\"1\",state=\"live\"} 1",
        "firsthop_transceiver_drops_total{worker=\"0\",reason=\"foreign_shard\"} 0",
        "firsthop_transceiver_drops_total{worker=\"1\",reason=\"foreign_shard\"} 0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
    }

    let mut first = calls.remove(0);
    assert_eq!(signaling.hang_up(&process, 100), 200);
    first.until("close", |relay| relay.closed && relay.client.heard.closed);
    assert_eq!(signaling.hang_up(&process, 100), 404);

    // The other call is closed by the stop.
    let mut second = calls.remove(0);
    let (status, log) = process.stop();
    second.until("close at the stop", |relay| relay.closed);
    assert!(status.success(), "{status}: {log:#?}");
    assert_quiet(&log);
    let ended: Vec<_> = log.iter().filter(|l| l.contains("session ended")).collect();
    assert_eq!(ended.len(), 2, "{log:#?}");
    println!("{ended:#?}");
    assert!(ended[0].contains("reason=\"hung_up\"") && ended[1].contains("reason=\"stopped\""));
    let secrets = log
        .iter()
        .any(|l| l.contains("ice-pwd") || l.contains(SECRET));
    assert!(!secrets);
}

#[test]
fn a_client_that_leaves_causes_no_warning() {
    let mut process = Process::start("leave", &["--log", "debug"]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 7, 0);
    relay.connect();
    relay.client.rtc.close().expect("closes");
    relay.until("close", |relay| relay.closed);
    process.wait_for("client_closed");
    let (status, log) = process.stop();
    assert!(status.success());
    assert_quiet(&log);
}

#[test]
fn refusals_have_their_status_and_their_code() {
    let process = Process::start("refuse", &["--sessions-per-worker", "1"]);
    let signaling = Signaling::new();
    let mut client = Client::new(Instant::now());
    let (offer, _) = client.offer(true);
    let good = request(&process, 1, 0, &offer);
    let expect = |request: &CreateRequest, status: u16, code: ControlCode| {
        let (got, body) = signaling.create(&process, request);
        let error: ControlError =
            serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert_eq!((got, error.code), (status, code), "{body}");
        assert!(!error.message.is_empty());
    };
    let with = |change: &dyn Fn(&mut CreateRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };

    expect(&with(&|r| r.shard = 9), 409, ControlCode::NoSuchShard);
    expect(&with(&|r| r.shard = 1), 400, ControlCode::BadUfrag);
    expect(&with(&|r| r.session = 2), 400, ControlCode::BadUfrag);
    expect(
        &with(&|r| r.ufrag = "x".repeat(42)),
        400,
        ControlCode::BadUfrag,
    );
    expect(&with(&|r| r.ufrag.clear()), 400, ControlCode::BadUfrag);
    let elsewhere = {
        let keyring = DataKeyring::parse(&masters().data_toml()).expect("a keyring");
        let route = Route {
            cluster: ClusterId(1),
            owner: OwnerAddr::new(addr("127.0.0.1:9")),
            shard: ShardId(0),
            restart: Restart(0),
            session: SessionId(1),
        };
        token::mint(keyring.active(), &route).to_string()
    };
    expect(
        &with(&|r| r.ufrag.clone_from(&elsewhere)),
        400,
        ControlCode::BadUfrag,
    );
    expect(
        &with(&|r| r.offer = "hello".to_owned()),
        400,
        ControlCode::BadOffer,
    );
    expect(
        &with(&|r| r.offer = offer.replace("opus", "speex")),
        422,
        ControlCode::UnsupportedOffer,
    );
    expect(
        &with(&|r| r.kind = CallKind::Whip),
        422,
        ControlCode::UnsupportedOffer,
    );
    expect(
        &with(&|r| r.ingresses = vec![9]),
        400,
        ControlCode::BadRequest,
    );
    expect(
        &with(&|r| r.ingresses = vec![]),
        400,
        ControlCode::BadRequest,
    );
    expect(
        &with(&|r| r.offer = "v".repeat(400_000)),
        413,
        ControlCode::TooLarge,
    );

    assert_eq!(signaling.create(&process, &good).0, 201);
    let look = |path: &str| signaling.get(&process, path);
    let (status, body) = look(&format!("/v1/sessions/1?created={}", peer::CREATED));
    assert_eq!(status, 200, "{body}");
    let info: SessionInfo = serde_json::from_str(&body).expect("a session");
    assert_eq!(
        (info.owner, info.shard, info.restart),
        (process.trunk, 0, 0)
    );
    assert_eq!(look("/v1/sessions/1?created=5").0, 404);
    assert_eq!(look("/v1/sessions/2?created=5").0, 404);
    assert_eq!(look("/v1/sessions/1").0, 400);
    expect(&good, 409, ControlCode::SessionExists);
    expect(&request(&process, 2, 0, &offer), 503, ControlCode::Full);

    let post = |secret: &str| {
        let post = signaling.http.post(process.url("/v1/sessions"));
        signaling.send(post.bearer_auth(secret).body("{}"))
    };
    assert_eq!(post("wrong").0, 401);
    assert_eq!(post("").0, 401);
    assert_eq!(post(SECRET).0, 400, "not the expected JSON");
    let (status, body) = signaling.send(signaling.http.get(process.url("/v1/status")));
    assert_eq!(status, 401, "{body}");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(signaling.send(signaling.http.get(process.url(path))).0, 200);
    }
    assert_eq!(signaling.hang_up(&process, 99), 404);
    let (status, log) = process.stop();
    assert!(status.success());
    assert_quiet(&log);
}

#[test]
fn a_call_of_either_kind_is_restarted_by_the_client_s_credentials_alone() {
    let process = Process::start("restart", &[]);
    let signaling = Signaling::new();
    let restart = |id: u32, number: u8, offer: &str, ice: Option<(&str, &str)>| {
        let fresh = request_of(&process, id, 0, number, offer);
        let body = RestartRequest {
            created: peer::CREATED,
            ufrag: fresh.ufrag.clone(),
            restart: number,
            offer: offer.to_owned(),
            ingresses: vec![0, 1],
            ice: ice.map(|(ufrag, password)| IceCredentials {
                ufrag: ufrag.to_owned(),
                password: password.to_owned(),
            }),
        };
        let url = process.url(&format!("/v1/sessions/{id}/restart"));
        let post = signaling.http.post(url).bearer_auth(SECRET).json(&body);
        (signaling.send(post), fresh.ufrag)
    };
    let good = Some(("wxyz", "abcdefghijklmnopqrstuv"));
    for (id, kind) in [(1, CallKind::Realtime), (2, CallKind::Whip)] {
        let mut client = Client::new(Instant::now());
        client.direction = Direction::SendOnly;
        let (offer, _) = client.offer(kind == CallKind::Realtime);
        let create = CreateRequest {
            kind,
            ..request(&process, id, 0, &offer)
        };
        let (status, body) = signaling.create(&process, &create);
        assert_eq!(status, 201, "{body}");
        let first: CreateResponse = serde_json::from_str(&body).expect("an answer");
        for (number, offer, ice, expected) in [
            (1, "", Some(("abc", "abcdefghijklmnopqrstuv")), 400),
            (1, "", Some(("wxyz", "short")), 400),
            (1, offer.as_str(), good, 400),
            (1, "", None, 400),
            (0, "", good, 409),
        ] {
            let ((status, body), _) = restart(id, number, offer, ice);
            assert_eq!(status, expected, "{body}");
        }
        let ((status, body), ufrag) = restart(id, 1, "", good);
        assert_eq!(status, 200, "{body}");
        let again: RestartResponse = serde_json::from_str(&body).expect("an answer");
        assert!(again.answer.contains(&format!("a=ice-ufrag:{ufrag}\r\n")));
        assert_ne!(first.answer, again.answer);
        let sections = |sdp: &str| sdp.matches("\r\nm=").count();
        assert_eq!(sections(&first.answer), sections(&again.answer));
        let path = format!("/v1/sessions/{id}?created={}", peer::CREATED);
        let info: SessionInfo =
            serde_json::from_str(&signaling.get(&process, &path).1).expect("a session");
        assert_eq!(info.restart, 1);
    }
    let (status, log) = process.stop();
    assert!(status.success());
    assert_quiet(&log);
}

#[test]
fn an_unknown_client_gets_no_answer_but_its_relay_is_told() {
    let process = Process::start("unknown", &[]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 5, 1);
    relay.session = SessionId(6);
    relay.up(IngressId(0), &[0; 20]);
    let mut buffer = [0; 9_000];
    relay
        .socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    let (length, _) = relay.socket.recv_from(&mut buffer).expect("an answer");
    let opened = trunk::open(&relay.keyring, &buffer[..length]).expect("authentic");
    let record = opened.records().next().expect("a record");
    assert_eq!(record.header.kind, RecordKind::UnknownSession);
    assert_eq!(record.header.session, SessionId(6));
    assert_eq!(
        record.header.client,
        ClientAddr::new(addr("198.51.100.7:61000"))
    );
}

#[test]
fn a_bad_setting_stops_the_start_with_one_line() {
    let held = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let taken = held.local_addr().expect("an address").to_string();
    let folder = std::env::temp_dir().join(format!("firsthop-loopback-{}-bad", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    };
    let keyring = file("keyring.toml", &masters().data_toml());
    let fleet = file(
        "fleet.toml",
        "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"127.0.0.1:3478\"\n",
    );
    let secret = file("secret", SECRET);
    let cases: [(&str, &[&str], &str); 8] = [
        (":", &["--trunk", "nonsense"], "--trunk"),
        (":", &["--backend", "nobody"], "--backend"),
        (":", &["--trunk", "0.0.0.0:5000"], "--owner"),
        (":", &["--keyring", "/nowhere"], "--keyring"),
        (":", &["--log", "no=such=filter"], "--log"),
        (":", &["--trunk", &taken], "--trunk"),
        ("ulimit -n 8", &["--workers", "1"], "only 8 files"),
        ("ulimit -n 16", &["--workers", "1"], "LimitNOFILE="),
    ];
    for (preparation, more, named) in cases {
        let mut child = after(preparation);
        child.args(["--fleet", &fleet, "--control-secret-file", &secret]);
        if more[0] != "--keyring" {
            child.args(["--keyring", &keyring]);
        }
        let mut child = child
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut text = String::new();
        let mut stderr = child.stderr.take().expect("piped");
        stderr.read_to_string(&mut text).expect("text");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(2), "{more:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{more:?}: {text}");
        assert!(text.contains(named), "{more:?}: {text}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
