//! What a core asks of the kernel while packets flow: one `io_uring_enter` a turn, and no futex at all.
//!
//! A relay that shares something between its cores on the packet path spends its time in futexes. Whether this one does is
//! not measured here but seen: strace writes down every system call of a core's thread under load.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::testbed::owner::Owner;
use crate::testbed::process::RelayProcess;
use crate::testbed::{Client, Testbed, rtp, until};

const CLIENTS: u32 = 50;
const ROUNDS: u32 = 200;

/// A strace that is attached to one thread.
struct Trace {
    strace: Child,
    output: PathBuf,
}

impl Trace {
    /// Returns once every further system call of the thread is written down.
    fn attach(thread: u32, output: PathBuf) -> Self {
        let mut strace = Command::new("strace")
            .args(["-p", &thread.to_string(), "-o"])
            .arg(&output)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test needs strace, which scripts/test installs: {error}")
            });
        let mut said = String::new();
        let mut stderr = BufReader::new(strace.stderr.take().expect("a pipe"));
        stderr.read_line(&mut said).expect("strace speaks");
        if !said.contains("attached") {
            let _ = stderr.read_to_string(&mut said);
            let _ = strace.wait();
            panic!(
                "no thread can be traced here, so nothing is known of futexes: {said}\
                 run this test as root or with CAP_SYS_PTRACE, or skip it by name"
            );
        }
        Self { strace, output }
    }

    /// Detaches, and returns the lines that were written.
    fn end(mut self) -> Vec<String> {
        let status = Command::new("kill")
            .args(["-INT", &self.strace.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
        self.strace.wait().expect("strace ends");
        let text = fs::read_to_string(&self.output).expect("what strace wrote");
        text.lines().map(str::to_owned).collect()
    }
}

/// The thread that pumps a core: the first of its name. Its executor has made another since, for blocking work.
fn core_thread(relay: &RelayProcess, core: u32) -> u32 {
    let threads = fs::read_dir(format!("/proc/{}/task", relay.id())).expect("threads");
    let named = threads.filter_map(|thread| {
        let path = thread.expect("a thread").path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let id = path.file_name()?.to_str()?.parse::<u32>().ok()?;
        (name.trim() == format!("relay-core-{core}")).then_some(id)
    });
    named.min().expect("the core's thread")
}

/// The descriptor of the packet ring: the one with registered files.
fn packet_ring(relay: &RelayProcess) -> u32 {
    let infos = fs::read_dir(format!("/proc/{}/fdinfo", relay.id())).expect("descriptors");
    let mut rings = infos.filter_map(|info| {
        let path = info.expect("a descriptor").path();
        let text = fs::read_to_string(&path).ok()?;
        let ring = text.contains("UserFiles:") && !text.contains("UserFiles:\t0\n");
        ring.then(|| path.file_name()?.to_str()?.parse().ok())?
    });
    rings.next().expect("a ring with registered files")
}

/// A number of turns that the core publishes from now on.
fn next_turns(relay: &RelayProcess) -> u64 {
    let before = relay.metric("turns_total", None);
    until("the core publishes", || {
        let now = relay.metric("turns_total", None);
        (now != before).then_some(now)
    })
}

#[test]
fn a_core_under_load_makes_one_system_call_a_turn_and_none_of_them_waits_for_another_thread() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<Client> = (0..CLIENTS).map(|n| testbed.client(n as u8)).collect();
    let exchange = |owner: &mut Owner, packet: &dyn Fn(u32) -> Vec<u8>| {
        for (session, client) in (0..).zip(&clients) {
            client.send(testbed.public(0), &packet(session));
        }
        let mut missing = CLIENTS as usize;
        while missing > 0 {
            let arrived = owner.receive();
            missing -= arrived.records.len();
            let records: Vec<_> = arrived
                .records
                .iter()
                .map(|(header, payload)| (*header, &payload[..]))
                .collect();
            owner.send(arrived.from, &records);
        }
        for client in &clients {
            client.receive();
        }
    };
    let address = owner.address();
    exchange(&mut owner, &|session| testbed.check(address, 0, session));

    let ring = format!("io_uring_enter({}, ", packet_ring(&relay));
    let first = relay.metric("turns_total", None);
    let trace = Trace::attach(core_thread(&relay, 0), testbed.file("strace.txt"));
    // Counters are published now and then: these were while the thread was traced, the others are from before and after.
    let second = next_turns(&relay);
    for round in 0..ROUNDS {
        exchange(&mut owner, &|_| rtp(round));
    }
    let third = next_turns(&relay);
    let lines = trace.end();
    let last = next_turns(&relay);

    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        let name = if line.starts_with(&ring) {
            "packet ring"
        } else {
            line.split('(').next().unwrap_or(line)
        };
        *calls.entry(name).or_default() += 1;
    }
    println!("{calls:?} in {} to {} turns", third - second, last - first);
    assert!(!calls.contains_key("futex"), "{calls:?}");
    let enters = calls.get("packet ring").copied().unwrap_or(0);
    // Detaching may write the last call down although it belongs to the next.
    assert!(
        (third - second..=last - first + 1).contains(&enters),
        "{enters} calls for {} to {} turns: {calls:?}",
        third - second,
        last - first
    );
    let packets = u64::from(CLIENTS * (1 + ROUNDS));
    relay.wait_metric("client_packets_sent_total", packets);
    relay.stop();
}
