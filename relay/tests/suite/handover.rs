//! Hot restart, between real processes: no packet is lost, and when anything goes wrong the serving relay goes on.

mod fake;
mod file_size;
mod load;
mod recalling;
mod refused;
mod staying;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use firsthop_relay::handover::channel::{Arrived, Connection, Listener};
use firsthop_relay::handover::message::{ToGiver, ToTaker};
use firsthop_relay::limits::{ADMIN_FAREWELL, HANDOVER_STEP};
use firsthop_shared::trunk::RecordHeader;

use crate::testbed::owner::{Owner, record};
use crate::testbed::process::{self, RelayProcess};
use crate::testbed::{
    Client, PATIENCE, Testbed, need_two_processors, rtp, rtp_number, signal, until,
};
use fake::FakeSuccessor;
use load::Load;

fn with_handover(testbed: &Testbed, takeover: bool, cores: usize) -> RelayProcess {
    testbed.relay(&[
        ("--handover", path(testbed)),
        ("--takeover", takeover.to_string()),
        ("--cores", cores.to_string()),
        ("--spin", "off".to_owned()),
    ])
}

fn path(testbed: &Testbed) -> String {
    testbed.file("handover").display().to_string()
}

/// Calls that the relay knows, each proven or not.
struct Calls {
    owner: Owner,
    clients: Vec<Client>,
    next: u32,
}

impl Calls {
    fn new(testbed: &Testbed, relay: &RelayProcess, count: u8) -> Self {
        let mut owner = Owner::bind(testbed.owner_address(0));
        let clients: Vec<Client> = (0..count).map(|n| testbed.client(n)).collect();
        for (session, client) in (0..).zip(&clients) {
            let check = testbed.check(owner.address(), 0, session);
            client.send(testbed.public(0), &check);
            let (hop, _, _) = owner.receive_one();
            let proof = RecordHeader {
                proven: session % 2 == 0,
                ..record(client.address(), 0, session)
            };
            owner.send(hop, &[(proof, &rtp(0))]);
            client.receive();
        }
        relay.wait_metric("flows", u64::from(count));
        relay.wait_metric("flows_proven", u64::from(count).div_ceil(2));
        Self {
            owner,
            clients,
            next: 1,
        }
    }

    /// Sends one packet of each client, without waiting for any.
    fn send(&mut self, testbed: &Testbed) {
        for client in &self.clients {
            client.send(testbed.public(0), &rtp(self.next));
        }
        self.next += 1;
    }

    /// Receives what [`Calls::send`] has sent since last: each once, and nothing else.
    fn receive(&mut self, sent: u32) {
        let mut missing: Vec<(u32, u32)> = (0..self.clients.len() as u32)
            .flat_map(|session| (self.next - sent..self.next).map(move |n| (session, n)))
            .collect();
        while !missing.is_empty() {
            for (header, payload) in self.owner.receive().records {
                let got = (header.session.0, rtp_number(&payload));
                let at = missing.iter().position(|one| *one == got);
                missing.swap_remove(at.unwrap_or_else(|| panic!("{got:?} is not due")));
            }
        }
        assert!(self.owner.is_empty(), "nothing came twice");
    }

    /// Sends and receives.
    fn pass(&mut self, testbed: &Testbed) {
        self.send(testbed);
        self.receive(1);
    }
}

#[test]
fn every_packet_arrives_once_while_one_process_after_the_other_takes_over() {
    need_two_processors();
    let testbed = Testbed::new();
    let mut relay = with_handover(&testbed, false, 2);
    let calls = Calls::new(&testbed, &relay, 16);
    let load = Load::start(&testbed, calls.owner, calls.clients);
    for _ in 0..2 {
        load.wait_progress();
        let successor = with_handover(&testbed, true, 2);
        let log = relay.ended_well();
        assert!(log.contains("handed over"), "{log}");
        load.wait_progress();
        let log = successor.log();
        assert!(log.contains("took over flows=16 left_out=0"), "{log}");
        relay = successor;
    }
    load.finish();

    // Flows came with the file: none was made anew by what passed.
    for metric in [
        "claims_bound_total",
        "claims_restored_total",
        "flows_expired_total",
    ] {
        assert_eq!(relay.metric(metric, None), 0, "{metric}");
    }
    assert_eq!(relay.metric("drops_total", None), 0);
    relay.wait_metric("flows_proven", 8);
    relay.wait_metric("claims_provisional", 8);
    relay.stop();
    assert!(!testbed.file("handover").exists(), "the last one tidies up");
}

#[test]
fn the_socket_is_for_its_owner_alone_and_replaces_one_that_nobody_serves() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let file = fs::metadata(testbed.file("handover")).expect("there");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    relay.kill();
    // The file is left over. Nobody serves there, and whoever would take over starts as usual.
    let relay = with_handover(&testbed, true, 1);
    assert!(relay.log().contains("starting anew"), "{}", relay.log());
    relay.stop();
    assert!(!testbed.file("handover").exists());
    with_handover(&testbed, true, 1).stop();
}

/// Every step at which a successor can die, core 0 of two being its own already at the later ones.
#[test]
fn the_serving_relay_goes_on_whenever_its_successor_dies() {
    need_two_processors();
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 2);
    let mut calls = Calls::new(&testbed, &relay, 8);
    for said in 0..=FakeSuccessor::script(2).len() {
        let mut successor = FakeSuccessor::connect(&testbed.file("handover"));
        // On a machine that stood still too long it was given up before: that is an end like any other.
        let _ = successor.play(2, said);
        // A core may stand still: this waits for whoever receives next.
        calls.send(&testbed);
        drop(successor);
        calls.receive(1);
        calls.pass(&testbed);
        assert_eq!(relay.page("/readyz").0, "HTTP/1.1 200 OK");
    }
    assert_eq!(
        relay.metric("claims_bound_total", None),
        8,
        "no flow was lost"
    );
    assert_eq!(relay.metric("drops_total", None), 0);
    // The next one finds everything as it was.
    let successor = with_handover(&testbed, true, 2);
    wait_ended(relay);
    calls.pass(&testbed);
    successor.stop();
}

/// It has logged warnings, which is right.
fn wait_ended(relay: RelayProcess) {
    assert!(relay.ended().success());
}

#[test]
fn a_successor_that_stalls_is_given_up_and_its_packets_have_waited() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let mut calls = Calls::new(&testbed, &relay, 4);
    let mut successor = FakeSuccessor::connect(&testbed.file("handover"));
    // The core stands still, and the flows are out.
    let asked = Instant::now();
    if !successor.play(1, 2) {
        // The machine stood still, and it was given up before.
        calls.pass(&testbed);
        return relay.kill();
    }
    calls.send(&testbed);
    calls
        .owner
        .socket
        .set_read_timeout(Some(HANDOVER_STEP / 10))
        .expect("a time-out");
    let still = calls.owner.socket.peek_from(&mut [0]).is_err();
    // The machine may have stood still as well, until the time was over.
    assert!(still || asked.elapsed() >= HANDOVER_STEP, "it stands still");
    calls
        .owner
        .socket
        .set_read_timeout(Some(crate::testbed::PATIENCE))
        .expect("a time-out");
    calls.receive(1);
    let ToTaker::GiveUp { why, ends } = successor.hear() else {
        panic!("it was given up");
    };
    assert!(why.contains("in time") && !ends, "{why}");
    calls.pass(&testbed);
    until("the log warns of it", || {
        let log = relay.log();
        (log.contains("still go on") && log.contains("WARN")).then_some(())
    });
    relay.kill();
}

/// The last word and the order to end come at the same time: whichever wins, both ends know which.
#[test]
fn whoever_has_the_last_word_has_the_sockets_file_too() {
    let testbed = Testbed::new();
    for _ in 0..3 {
        let relay = with_handover(&testbed, false, 1);
        let mut successor = FakeSuccessor::connect(&testbed.file("handover"));
        let played = successor.play(1, FakeSuccessor::script(1).len());
        relay.signal("STOP");
        if played {
            successor.say(&ToGiver::Serving);
        }
        relay.signal("INT");
        relay.signal("CONT");
        let given_up = !played || successor.end().is_some();
        wait_ended(relay);
        assert_eq!(testbed.file("handover").exists(), !given_up);
    }
}

/// A successor must not say that somebody serves when nobody does.
#[test]
fn a_serving_relay_that_is_told_to_end_says_so() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let mut successor = FakeSuccessor::connect(&testbed.file("handover"));
    // On a machine that stood still it was late before, and has heard so.
    let played = successor.play(1, 2);
    relay.signal("INT");
    if !played {
        return wait_ended(relay);
    }
    let ToTaker::GiveUp { why, ends } = successor.hear() else {
        panic!("it was given up");
    };
    // Or it was late now.
    if !why.contains("in time") {
        assert_eq!(
            (&why[..], ends),
            ("the serving relay was told to end", true)
        );
    }
    wait_ended(relay);
}

#[test]
fn a_successor_waits_to_be_accepted_although_something_interrupts_it() {
    let testbed = Testbed::new();
    let listener = Listener::bind(&testbed.file("handover")).expect("free");
    // Nobody accepts, and no more fit into the queue.
    let queue: Vec<Connection> = (0..5)
        .map(|_| Connection::connect(&testbed.file("handover")).expect("room"))
        .collect();
    let settings = testbed.with_settings(&[
        ("--handover", path(&testbed)),
        ("--takeover", "true".to_owned()),
    ]);
    let successor = process::command(&settings)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the relay starts");
    let files = format!("/proc/{}/fd", successor.id());
    until("it has a socket to connect", || {
        let mut links = fs::read_dir(&files)
            .ok()?
            .flatten()
            .map(|file| fs::read_link(file.path()));
        links
            .any(|link| link.is_ok_and(|link| link.to_string_lossy().starts_with("socket:")))
            .then_some(())
    });
    // To be stopped and to go on ends a wait that has a time-out.
    for _ in 0..3 {
        signal(&successor, "STOP");
        signal(&successor, "CONT");
    }
    drop(queue);
    // The ones that have left, and then it.
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let Some(connection) = listener.accept().expect("accepted") else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        if connection.send(b"SSH-2.0", &[]).is_ok() {
            break;
        }
    }
    let output = successor.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr);
    // On a machine that stood still it has waited for as long as it does.
    let heard = said.contains("does not speak as a relay does") || said.contains("in time");
    assert!(heard && !said.contains("os error"), "{said}");
}

/// How often a thread of a process has gone to sleep.
fn pauses_of(process: u32, thread: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let of_name = |folder: &std::path::PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm"));
        name.is_ok_and(|name| name.trim_end() == thread)
    };
    let mut folders = threads.map(|folder| folder.expect("a thread").path());
    let folder = folders.find(of_name).expect("it has the thread");
    let status = std::fs::read_to_string(folder.join("status")).expect("its status");
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.expect("Linux").trim().parse().expect("a number")
}

#[test]
fn who_cannot_accept_says_so_now_and_then() {
    let testbed = Testbed::new();
    let settings = testbed.with_settings(&[("--handover", path(&testbed))]);
    let relay = RelayProcess::ready(process::command(&settings), testbed.admin());
    // Nothing can be opened any more: the first three are.
    let limited = Command::new("prlimit")
        .args([&format!("--pid={}", relay.id()), "--nofile=3:3"])
        .status();
    assert!(limited.expect("prlimit runs").success());
    let _waits = Connection::connect(&testbed.file("handover")).expect("it listens");
    let complaints = || relay.log().matches("cannot be accepted").count();
    until("it complains", || (complaints() > 0).then_some(()));
    // It pauses after each attempt.
    let pauses = || pauses_of(relay.id(), "relay-handover");
    let before = pauses();
    until("it has tried ten times more", || {
        (pauses() >= before + 10).then_some(())
    });
    // On a machine that stood still there may be another.
    assert!(complaints() <= 2, "{}", relay.log());
    relay.kill();
}

/// Whatever it is that a successor cannot open: as long as it does not serve, the other relay does.
#[test]
fn a_successor_with_too_few_files_takes_nothing_over() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let mut calls = Calls::new(&testbed, &relay, 2);
    let settings = testbed.with_settings(&[
        ("--handover", path(&testbed)),
        ("--takeover", "true".to_owned()),
        ("--spin", "off".to_owned()),
    ]);
    let mut said = String::new();
    for files in 18..200 {
        let limit = format!("ulimit -n {files}");
        let mut successor = process::after(&limit, &process::command(&settings))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let serves = until("it has ended, or serves", || {
            let ended = successor.try_wait().expect("a child").is_some();
            let serves = relay.log().contains("handed over: the successor serves");
            (ended || serves).then_some(!ended)
        });
        if serves {
            calls.pass(&testbed);
            successor.kill().expect("killed");
            successor.wait().expect("gone");
            return wait_ended(relay);
        }
        said.clear();
        let mut stderr = successor.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        calls.pass(&testbed);
    }
    panic!("no successor serves, whatever it may open: {said}");
}

/// Whoever polls over one connection is to make another, to the successor, before this one ends.
#[test]
fn a_connection_to_the_admin_port_that_is_kept_is_ended_by_a_response() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let mut poller = TcpStream::connect(testbed.admin()).expect("it listens");
    poller.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut poll = || -> Option<String> {
        let request = "GET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n";
        poller.write_all(request.as_bytes()).ok()?;
        let (mut text, mut bytes) = (String::new(), [0; 1_024]);
        while !text.ends_with("\r\n\r\nok\n") {
            let len = poller.read(&mut bytes).ok().filter(|len| *len > 0)?;
            text += &String::from_utf8_lossy(&bytes[..len]);
        }
        Some(text)
    };
    assert!(!poll().expect("a response").contains("connection: close"));
    let mut successor = FakeSuccessor::connect(&testbed.file("handover"));
    let played = successor.play(1, FakeSuccessor::script(1).len());
    successor.say(&ToGiver::Serving);
    let mut asked = Instant::now();
    // On a machine that stood still it was late, or so was this thread.
    while played && asked.elapsed() < ADMIN_FAREWELL / 2 {
        asked = Instant::now();
        match poll() {
            Some(text) if text.contains("connection: close") => break,
            Some(_) => {}
            None => assert!(
                asked.elapsed() >= ADMIN_FAREWELL / 2,
                "it has ended without"
            ),
        }
    }
    if played {
        wait_ended(relay);
    }
}

#[test]
fn what_was_said_before_a_connection_broke_is_heard() {
    let testbed = Testbed::new();
    let listener = Listener::bind(&testbed.file("handover")).expect("free");
    let here = Connection::connect(&testbed.file("handover")).expect("it listens");
    let there = listener.accept().expect("accepted").expect("it came");
    here.send(b"never read", &[]).expect("sent");
    there.send(b"the last word", &[]).expect("sent");
    drop(there);
    let next = || here.receive(Duration::ZERO, None).expect("received");
    assert!(matches!(next(), Arrived::Message(said, _) if said == b"the last word"));
    assert!(matches!(next(), Arrived::End));
}

#[test]
fn nonsense_on_the_socket_harms_nobody() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let mut calls = Calls::new(&testbed, &relay, 2);
    let long = vec![b'x'; 64 * 1_024];
    for nonsense in [&b"hello"[..], b"{}", b"{\"say\":\"serving\"}", b"\0", &long] {
        let mut peer = FakeSuccessor::connect(&testbed.file("handover"));
        peer.send_raw(nonsense);
        assert!(matches!(peer.hear(), ToTaker::GiveUp { .. }));
        calls.pass(&testbed);
    }
    let mut peer = FakeSuccessor::connect(&testbed.file("handover"));
    peer.say(&ToGiver::Refuse {
        why: "it is Monday".to_owned(),
    });
    assert!(matches!(peer.hear(), ToTaker::GiveUp { .. }));
    until("the log tells why", || {
        relay.log().contains("it is Monday").then_some(())
    });
    relay.stop();
}

/// The measure of the issue: a thousand flows at 50 packets a second each, both ways. On a machine that does nothing else:
/// `cargo test --release -p firsthop-relay --test suite -- --ignored --nocapture hot_restart_under_a_thousand_calls`.
#[test]
#[ignore = "measures"]
fn hot_restart_under_a_thousand_calls() {
    load::measure(Duration::from_secs(5));
}
