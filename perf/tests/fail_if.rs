//! A guard names the measure that is beyond its limit also where there is nobody to call.

use std::net::TcpListener;
use std::process::Command;

#[test]
fn a_measure_beyond_its_limit_is_named_when_no_call_came_about() {
    // Bound and closed: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|bound| bound.local_addr())
        .expect("a port");
    let guard = Command::new(env!("CARGO_BIN_EXE_perf"))
        .args([
            "calls",
            "--url",
            &format!("http://{address}"),
            "--key",
            "dev",
        ])
        .args(["--calls", "1", "--duration", "1", "--settle", "0"])
        .args(["--fail-if", "failed>0", "--fail-if", "cut>0"])
        .output()
        .expect("perf runs");
    let said = String::from_utf8_lossy(&guard.stderr);
    assert_eq!(guard.status.code(), Some(1), "{said}");
    assert!(said.contains("failed: failed"), "{said}");
    assert!(!said.contains("failed: cut"), "{said}");
    assert!(said.contains("no call came about"), "{said}");
}
