//! `perf impair` between two pairs of virtual interfaces, in a network namespace of the test's own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use firsthop_perf::clock::wall_nanos;
use firsthop_perf::impair::link::{Frames, Link, VIRTIO};
use firsthop_perf::readable;
use serde_json::{Value, json};

use crate::told::Told;

/// Says that the test runs in its namespace already.
const INSIDE: &str = "FIRSTHOP_TEST_INSIDE";

/// The ethertype for local experiments (IEEE 802): nobody else sends it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// How long a machine may take that does something else.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a test of this program anew, in a network namespace of its own.
fn run_inside(test: &str) {
    let mut command = Command::new("unshare");
    // Without being root one is it in a namespace of users.
    if fs::metadata("/proc/self").expect("metadata").uid() != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    let status = command
        .args(["--net", "--"])
        .arg(std::env::current_exe().expect("this test's own path"))
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare (util-linux)");
    assert!(status.success(), "{status}");
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .expect("ip (iproute2)");
    assert!(status.success(), "ip {arguments}: {status}");
}

/// The two ends of what `perf impair` joins.
struct Ends {
    links: [Link; 2],
    frames: Frames,
    number: u32,
}

impl Ends {
    /// Sends a frame from one end; returns its number.
    fn send(&mut self, from: usize, size: usize) -> u32 {
        self.number += 1;
        // What is before the addresses is the header of virtio: nothing is left to be done.
        let mut frame = vec![0; VIRTIO];
        frame.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        frame.extend(ETHERTYPE);
        frame.extend(self.number.to_be_bytes());
        frame.extend(wall_nanos().to_be_bytes());
        frame.resize(VIRTIO + size, 0);
        assert!(self.links[from].send(&frame).expect("sent"));
        self.number
    }

    /// The next frame that comes to an end: its number, how long it took in milliseconds, and its size.
    fn receive(&mut self, at: usize) -> Vec<(u32, f64, usize)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let count = self.frames.receive(&self.links[at]).expect("received");
            let came: Vec<_> = self.frames.frames().filter_map(read).collect();
            if !came.is_empty() {
                return came;
            }
            assert!(Instant::now() < until, "no frame came");
            if count == 0 {
                let link = [self.links[at].descriptor()];
                readable::wait(&link, Duration::from_secs(1)).expect("waited");
            }
        }
    }

    /// Takes what comes to an end until the frame with this number has; returns all of it.
    fn until(&mut self, at: usize, last: u32) -> Vec<(u32, f64, usize)> {
        let mut came: Vec<(u32, f64, usize)> = Vec::new();
        while !came.iter().any(|(number, ..)| *number == last) {
            came.extend(self.receive(at));
        }
        came
    }
}

/// Reads a frame of this test's; there are others, of the kernel's own.
fn read((frame, at): (&[u8], Option<u64>)) -> Option<(u32, f64, usize)> {
    let frame = &frame[VIRTIO..];
    let (kind, rest) = frame.get(12..)?.split_first_chunk::<2>()?;
    let (number, rest) = rest.split_first_chunk()?;
    let sent = u64::from_be_bytes(*rest.first_chunk()?);
    let took = at.expect("a time of arrival").saturating_sub(sent) as f64 / 1e6;
    (*kind == ETHERTYPE).then(|| (u32::from_be_bytes(*number), took, frame.len()))
}

/// Waits until so many frames were dropped on one way, for one cause; returns the report.
fn dropped(link: &mut Told, way: &str, cause: &str, count: u64) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let report = link.tell("measure");
        if report[way]["dropped"][cause] == json!(count) {
            return report;
        }
        assert!(Instant::now() < until, "{way} {cause}: {report}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn frames_cross_after_the_delay_until_the_link_is_cut() {
    if std::env::var_os(INSIDE).is_none() {
        return run_inside("impair::frames_cross_after_the_delay_until_the_link_is_cut");
    }
    // A kernel with IPv6 would send frames of its own, which are not those that are counted here.
    let ipv6 = Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    if ipv6.exists() {
        fs::write(ipv6, "1").expect("no IPv6 here");
    }
    for side in ["left", "right"] {
        ip(&format!("link add {side} type veth peer name {side}-end"));
        ip(&format!("link set {side} up"));
        ip(&format!("link set {side}-end up"));
    }
    let (mut link, ready) = Told::start(&["impair", "--between", "left,right", "--delay", "20ms"]);
    assert_eq!(ready, json!({ "ready": { "between": ["left", "right"] } }));
    let open = |name| Link::open(name).expect("a link");
    let mut ends = Ends {
        links: [open("left-end"), open("right-end")],
        frames: Frames::default(),
        number: 0,
    };

    // Both ways, each as it was and no sooner than it may.
    let mut took = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        for size in [60, 200, 1_514] {
            let number = ends.send(from, size);
            let came = ends.until(to, number);
            assert_eq!(came.len(), 1, "{came:?}");
            assert_eq!(came[0].2, size);
            took.push(came[0].1);
        }
    }
    // The clock by which frames are due is not the one that they are stamped by: they may differ by little.
    assert!(took.iter().all(|ms| *ms > 19.5), "{took:?}");

    assert_eq!(link.tell("delay 1ms")["line"]["delay_ms"], json!(1.0));
    let number = ends.send(0, 100);
    let came = ends.until(1, number);
    assert!(came[0].1 > 0.5, "{came:?}");
    assert_eq!(link.tell("loss 1")["line"]["loss"], json!(1.0));
    ends.send(0, 100);
    dropped(&mut link, "a_to_b", "loss", 1);
    assert_eq!(link.tell("loss 0")["line"]["loss"], json!(0.0));
    let number = ends.send(0, 100);
    // Of two frames the later alone comes.
    assert_eq!(ends.until(1, number).len(), 1);
    assert_eq!(link.tell("cut")["line"]["cut"], json!(true));
    ends.send(0, 100);
    ends.send(1, 100);
    dropped(&mut link, "a_to_b", "cut", 1);
    dropped(&mut link, "b_to_a", "cut", 1);
    assert_eq!(link.tell("heal")["line"]["cut"], json!(false));
    for (from, to) in [(0, 1), (1, 0)] {
        let number = ends.send(from, 100);
        assert_eq!(ends.until(to, number).len(), 1);
    }

    let report = link.tell("measure");
    assert_eq!(report["a_to_b"]["forwarded"], json!(6), "{report}");
    assert_eq!(report["b_to_a"]["forwarded"], json!(4), "{report}");
    assert!(link.tell("sing")["error"].is_string());
    link.end();
}
