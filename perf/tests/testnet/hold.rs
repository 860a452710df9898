//! `perf hold` and `perf model` on the two ends of the real programs: calls that are held, and what is heard of them at either end.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use firsthop_perf::call::model::Format;
use firsthop_perf::call::placing::Desk;
use firsthop_perf::call::stack::{self, Backend, Stack, StackPlan, model_address};
use firsthop_perf::signal::{self, Signal};
use serde_json::{Value, json};

use crate::told::Told;

/// How long a machine may take that does something else.
const PATIENCE: Duration = Duration::from_secs(40);

/// What signaling logs of a restart that an owner has not answered.
const NOT_DONE: &str = "the owner did not do what it was asked";

/// Clients, and the address that they have first.
const CALLS: u64 = 3;
const FROM: &str = "127.64.0.1";

/// The programs that were built beside this test, or those that `FIRSTHOP_BINARIES` names, started.
fn start(number: u8, model: &str) -> Stack {
    let wanted = ["transceiver", "relay", "signaling"];
    let named = std::env::var_os("FIRSTHOP_BINARIES").map(PathBuf::from);
    let programs = stack::programs(named.as_deref(), &wanted).expect("the programs");
    let cores = core_affinity::get_core_ids().expect("processors");
    let directory = format!("firsthop-hold-{}-{number}", std::process::id());
    Stack::start(StackPlan {
        programs,
        directory: std::env::temp_dir().join(directory),
        number,
        processor: cores.last().expect("at least one").id,
        backend: Backend::Realtime {
            url: model.to_owned(),
            format: Format::Pcmu,
        },
        whole: true,
    })
    .expect("a stack")
}

fn number(value: &Value, name: &str) -> u64 {
    let number = value[name].as_u64();
    number.unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// Marks, and measures until so many packets have come since, of every client some; returns the last measure.
fn heard_anew(holder: &mut Told, packets: u64) -> Value {
    assert_eq!(holder.tell("mark"), json!({ "marked": CALLS }));
    let until = Instant::now() + PATIENCE;
    loop {
        let measure = holder.tell("measure");
        let all = measure["first_after_ms"].is_number() && number(&measure, "up") == CALLS;
        if all && number(&measure, "packets") >= packets {
            return measure;
        }
        assert!(Instant::now() < until, "{measure}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn calls_are_held_through_changes_of_address_and_attacks_and_judged_at_both_ends() {
    let listen = model_address(40).to_string();
    let (mut model, ready) = Told::start(&["model", "--listen", &listen]);
    let url = ready["ready"]["url"].as_str().expect("a URL").to_owned();
    let mut stack = start(41, &url);
    let Desk::Signaling { url, key } = stack.signaling_desk() else {
        panic!("a desk of signaling");
    };
    // The relay is where signaling is.
    let address: SocketAddrV4 = url["http://".len()..].parse().expect("an address");
    let via = format!("{}:3478", address.ip());
    let line = [
        "hold",
        "--url",
        &url,
        "--key",
        &key,
        "--calls",
        "3",
        "--from",
        FROM,
        "--threads",
        "2",
        "--via",
        &via,
    ];
    let (mut holder, ready) = Told::start(&line);
    assert_eq!(ready, json!({ "ready": { "calls": CALLS } }));
    let up = holder.hear();
    let expected = json!({ "up": CALLS, "calls": CALLS, "handshakes": CALLS, "failed": {} });
    assert_eq!(up, expected);

    // Both ends hear, and number what they hear.
    model.tell("mark");
    let measure = heard_anew(&mut holder, 60);
    assert_eq!(
        (number(&measure, "handshakes"), number(&measure, "cut")),
        (1, 0)
    );
    assert_eq!(measure["worst"].as_array().map(Vec::len), Some(3));
    let until = Instant::now() + PATIENCE;
    let judged = loop {
        let judged = model.tell("measure");
        if number(&judged, "calls") == CALLS && number(&judged, "frames") >= 60 {
            break judged;
        }
        assert!(Instant::now() < until, "{judged}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(
        (number(&judged, "connections"), number(&judged, "ended")),
        (CALLS, 0)
    );
    assert!(
        number(&judged, "frames_lost") < number(&judged, "frames"),
        "{judged}"
    );
    let [usual, worst] = ["cadence_ms", "worst_gap_ms"].map(|name| judged[name].as_f64());
    assert!(usual < worst.map(|worst| worst + 1.0), "{judged}");

    // Another port, without a word; another address, with a restart of ICE; the server's one address.
    let rebound = holder.tell("rebind");
    assert_eq!(
        (number(&rebound, "rebound"), &rebound["failed"]),
        (CALLS, &json!({}))
    );
    heard_anew(&mut holder, 60);
    // The owner does not answer at first: clients ask again.
    stack.transceiver.halt().expect("halted");
    let moved = std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + PATIENCE;
            let asked = || stack.log("signaling").expect("a log").contains(NOT_DONE);
            while !asked() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            signal::send(stack.transceiver.id(), Signal::Continue).expect("runs");
        });
        holder.tell("move 127.64.0.2")
    });
    let log = stack.log("signaling").expect("a log");
    assert!(log.contains(NOT_DONE), "{log}");
    assert_eq!(
        (number(&moved, "moved"), &moved["failed"]),
        (CALLS, &json!({}))
    );
    let measure = heard_anew(&mut holder, 60);
    let local = measure["worst"][0]["local"].as_str().expect("an address");
    assert!(local.starts_with("127.64.0.2:"), "{measure}");
    let same = holder.tell(&format!("via {via}"));
    assert_eq!(
        (number(&same, "chosen"), &same["failed"]),
        (CALLS, &json!({}))
    );
    let wrong = holder.tell("via 127.0.0.1:1");
    assert_eq!(number(&wrong, "chosen"), 0);
    assert!(
        wrong["failed"].to_string().contains("no candidate"),
        "{wrong}"
    );

    // Attacks beside them.
    let storm = holder.tell("storm 0.5 1000");
    assert_eq!(storm, json!({ "storm": { "sent": 500 } }));
    let spoofed = &holder.tell("spoof 0.5 400 127.64.0.2 127.64.0.3")["spoofed"];
    assert_eq!(number(spoofed, "replayed") + number(spoofed, "forged"), 200);
    assert_eq!(number(spoofed, "media_back"), 0, "{spoofed}");

    // All of it with the one handshake that each began with.
    let measure = heard_anew(&mut holder, 60);
    assert_eq!(
        (number(&measure, "handshakes_sum"), number(&measure, "cut")),
        (CALLS, 0)
    );
    assert!(holder.tell("sing")["error"].is_string());
    let hung_up = holder.tell("hang-up");
    assert_eq!(
        (number(&hung_up, "hung_up"), &hung_up["failed"]),
        (CALLS, &json!({}))
    );
    assert_eq!(number(&holder.tell("measure"), "up"), 0);
    holder.end();
    let until = Instant::now() + PATIENCE;
    while number(&model.tell("measure"), "connections") > 0 {
        assert!(Instant::now() < until, "a session has not ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    model.end();
}

#[test]
fn a_client_that_hears_nothing_places_another_call_and_its_pause_goes_on() {
    let listen = model_address(42).to_string();
    let (mut model, ready) = Told::start(&["model", "--listen", &listen]);
    let url = ready["ready"]["url"].as_str().expect("a URL").to_owned();
    let mut stack = start(43, &url);
    let Desk::Signaling { url, key } = stack.signaling_desk() else {
        panic!("a desk of signaling");
    };
    let line = [
        "hold",
        "--url",
        &url,
        "--key",
        &key,
        "--calls",
        "3",
        "--from",
        FROM,
        "--reconnect",
    ];
    let (mut holder, _) = Told::start(&line);
    assert_eq!(number(&holder.hear(), "up"), CALLS);
    // Only of a client that was heard before it is known that it was silent.
    let until = Instant::now() + PATIENCE;
    while number(&model.tell("mark"), "marked") < CALLS {
        assert!(Instant::now() < until, "the model does not hear them");
        std::thread::sleep(Duration::from_millis(50));
    }
    holder.tell("mark");
    stack.transceiver.halt().expect("halted");
    let until = Instant::now() + PATIENCE;
    while number(&holder.tell("measure"), "cut") < CALLS {
        assert!(Instant::now() < until, "they do not give up");
        std::thread::sleep(Duration::from_millis(50));
    }
    stack.transceiver.go_on().expect("runs");
    let until = Instant::now() + PATIENCE;
    let measure = loop {
        let measure = holder.tell("measure");
        if number(&measure, "up") == CALLS && number(&measure, "handshakes_sum") >= 2 * CALLS {
            break measure;
        }
        assert!(Instant::now() < until, "{measure}");
        std::thread::sleep(Duration::from_millis(50));
    };
    // It was silence for as long as they wait, and then for as long as the new calls took.
    let gap = measure["worst_gap_ms"].as_f64().expect("a gap");
    assert!(gap > 3_000.0, "{measure}");
    let until = Instant::now() + PATIENCE;
    loop {
        let judged = model.tell("calls");
        let calls = judged["calls"].as_array().expect("calls");
        // The same clients, whose numbers have gone on, in the same pause.
        assert_eq!(calls.len(), 3, "{judged}");
        let back =
            |call: &&Value| call["gap_ms"].as_f64() > Some(3_000.0) && call["until_ms"].is_number();
        if calls.iter().filter(back).count() == 3 {
            break;
        }
        assert!(Instant::now() < until, "{judged}");
        std::thread::sleep(Duration::from_millis(50));
    }
    holder.end();
    model.end();
}
