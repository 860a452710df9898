//! A relay that may open few files: it says what it lacks, or serves as far as they go.

use std::net::TcpStream;

use crate::settings::assert_refused;
use crate::testbed::process::{self, RelayProcess};
use crate::testbed::{Testbed, until};

#[test]
fn a_limit_too_low_for_a_start_is_refused_with_the_fix() {
    let testbed = Testbed::new();
    let command = process::command(&testbed.settings());
    for limit in [8, 12, 16, 32, 48] {
        let output = process::after(&format!("ulimit -n {limit}"), &command)
            .output()
            .expect("the relay runs");
        let problem = format!("only {limit} files may be open");
        assert_refused(&output, &[&problem, "LimitNOFILE=", "ulimit -Hn"]);
    }
}

#[test]
fn a_relay_without_a_file_left_says_so_and_serves_again_once_it_has_one() {
    let testbed = Testbed::new();
    let limited = process::after("ulimit -n 64", &process::command(&testbed.settings()));
    let relay = RelayProcess::ready(limited, testbed.admin());
    let held: Vec<TcpStream> = (0..80)
        .map(|_| TcpStream::connect(testbed.admin()).expect("the kernel takes it"))
        .collect();
    until("the relay complains", || {
        relay
            .log()
            .contains("cannot accept connections")
            .then_some(())
    });
    drop(held);
    assert_eq!(relay.page("/readyz").0, "HTTP/1.1 200 OK");
    let log = relay.stop_warned();
    assert!(!log.contains("panicked"), "{log}");
}
