//! A core that is lost while the relay runs: the group starts anew in the same process, and calls heal.
//!
//! The relay runs in the test's own process here, because then the test can take a core's ring away as a fault of the
//! kernel or of the program would: the next system call of that core fails, and nobody else's.

#![allow(unsafe_code)] // Puts another file in the place of a ring: `dup2` has no safe wrapper among the crates used here.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use clap::Parser as _;
use firsthop_relay::config::{Config, Settings};
use firsthop_relay::limits::REBUILDS_MAX;
use firsthop_relay::relay::{Relay, RelayError};
use firsthop_relay_core::Steering;
use firsthop_shared::address::{ClientAddr, SessionId};
use socket2::{Domain, Protocol, Socket, Type};
use tracing_subscriber::fmt::MakeWriter;

use crate::testbed::owner::Owner;
use crate::testbed::process::Pages;
use crate::testbed::{Client, Testbed, need_two_processors, rtp, rtp_number, until};

/// A relay in this process, whose owner waits for a signal in a thread.
struct Inside {
    owner: JoinHandle<Result<(), RelayError>>,
    pages: Pages,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Inside {
    fn start(testbed: &Testbed, cores: usize) -> Self {
        let mut settings = vec!["relay".to_owned()];
        settings.extend(
            testbed
                .settings()
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        settings.push(format!("--cores={cores}"));
        let settings = Settings::try_parse_from(settings).expect("settings");
        let (config, files) = Config::check(&settings).expect("valid settings");
        let mut relay = Relay::start(config, files).expect("started");
        assert!(relay.wait_ready().expect("every core receives"));
        let log = Log::default();
        let writer = log.clone();
        let owner = std::thread::spawn(move || {
            let subscriber = tracing_subscriber::fmt()
                .with_writer(writer)
                .with_ansi(false)
                .finish();
            let result = tracing::subscriber::with_default(subscriber, || relay.wait_signal());
            relay.stop();
            result
        });
        Self {
            owner,
            pages: Pages(testbed.admin()),
            log,
        }
    }

    /// Takes the ring of one core away.
    fn lose_a_core(&self) {
        let rings = packet_rings();
        let nothing = File::open("/dev/null").expect("a file");
        // SAFETY: no memory is passed. The ring's number now names a file that answers no ring's call; its owner closes it.
        let result = unsafe { libc::dup2(nothing.as_raw_fd(), rings[0]) };
        assert_eq!(result, rings[0], "{}", io::Error::last_os_error());
    }

    /// The lines of the log that warn.
    fn warnings(&self) -> Vec<String> {
        let log = self.log.0.lock().expect("the log").clone();
        let log = String::from_utf8(log).expect("text");
        log.lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
            .map(str::to_owned)
            .collect()
    }

    /// Waits until the group has been built anew `count` times and receives again.
    fn wait_rebuilt(&self, count: u64) {
        until(&format!("rebuild {count} is done"), || {
            let (_, metrics) = self.pages.page("/metrics");
            let counted = format!("\nfirsthop_relay_group_rebuilds_total {count}\n");
            (metrics.contains(&counted) && self.pages.page("/readyz").0 == "HTTP/1.1 200 OK")
                .then_some(())
        });
    }

    /// Waits until the relay's owner has ended, without a signal.
    fn ended(self) -> Result<(), RelayError> {
        self.owner.join().expect("no panic")
    }
}

/// The descriptors of this process's packet rings: those with registered files, which the executor's own have not.
fn packet_rings() -> Vec<RawFd> {
    fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .filter_map(|entry| {
            let entry = entry.expect("a descriptor");
            let target = fs::read_link(entry.path()).ok()?;
            let fd = entry.file_name().into_string().ok()?;
            let ring = target.to_str() == Some("anon_inode:[io_uring]");
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            (ring && !info.contains("UserFiles:\t0\n")).then(|| fd.parse().expect("a number"))
        })
        .collect()
}

/// Fault 6: a member that comes back renumbers the group, and live flows reach a core that
/// does not know them.
#[test]
fn a_lost_core_starts_the_group_anew_and_the_next_check_revives_each_call() {
    need_two_processors();
    let testbed = Testbed::new();
    let relay = Inside::start(&testbed, 2);
    let owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<Client> = (0..16).map(|n| testbed.client(n)).collect();
    let check = |session: usize| testbed.check(owner.address(), 0, session as u32);
    for (session, client) in clients.iter().enumerate() {
        client.send(testbed.public(0), &check(session));
        owner.receive_one();
    }
    assert_eq!(packet_rings().len(), 2, "one for each core");
    relay.lose_a_core();
    relay.wait_rebuilt(1);
    assert_eq!(packet_rings().len(), 2, "the former group's are gone");

    // No flow is left.
    for client in &clients {
        client.send(testbed.public(0), &rtp(1));
    }
    relay.pages.wait_drops("no_flow_rtp", clients.len() as u64);
    for (session, client) in clients.iter().enumerate() {
        client.send(testbed.public(0), &check(session));
        assert_eq!(owner.receive_one().1.session, SessionId(session as u32));
        client.send(testbed.public(0), &rtp(2));
        let (from, header, payload) = owner.receive_one();
        assert_eq!(
            (header.session, rtp_number(&payload)),
            (SessionId(session as u32), 2)
        );
        // The numbering is intact: each client's packets come by the core that the rule gives it.
        let core = Steering::new(0, 2).core_for(&ClientAddr::new(client.address()));
        assert_eq!(from, testbed.relay_internal(core));
    }

    let warnings = relay.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let named = ["core=0", "core=1"]
        .iter()
        .any(|core| warnings[0].contains(core));
    assert!(named && warnings[0].contains("io_uring"), "{warnings:?}");
}

#[test]
fn a_core_that_is_lost_again_and_again_ends_the_relay() {
    let testbed = Testbed::new();
    let relay = Inside::start(&testbed, 1);
    for count in 1..=REBUILDS_MAX as u64 {
        relay.lose_a_core();
        relay.wait_rebuilt(count);
    }
    relay.lose_a_core();
    let error = relay.ended().expect_err("it ends");
    assert!(!error.is_setting(), "status 1, not 2");
    let text = error.to_string();
    assert!(
        text.contains("core 0 was lost") && text.contains("3 times"),
        "{text}"
    );
}

#[test]
fn a_group_that_cannot_start_anew_ends_the_relay() {
    let testbed = Testbed::new();
    let relay = Inside::start(&testbed, 1);
    // Somebody of the same user may join the group, and stays when it ends.
    let guest = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
    guest.set_reuse_port(true).expect("a group");
    guest.bind(&testbed.public(0).into()).expect("joined");
    relay.lose_a_core();
    // It tries for two seconds. Who looks later than that finds it gone.
    until("the relay says that it is not ready, or has ended", || {
        let Some((status, body)) = relay.pages.page_while_up("/readyz") else {
            return Some(());
        };
        (status.contains(" 503 ") && body == "0 of 1 cores receive\n").then_some(())
    });
    let error = relay.ended().expect_err("it ends");
    let text = error.to_string();
    assert!(
        text.contains("core 0 was lost") && text.contains("in use"),
        "{text}"
    );
    assert!(!error.is_setting(), "status 1, not 2");
}
