//! A serving relay that may write no file: the flows for its successor count as one.

use super::refused::{last_line, successor};
use super::{Calls, path};
use crate::testbed::Testbed;
use crate::testbed::process::{self, RelayProcess};

#[test]
fn a_serving_relay_that_may_write_no_file_goes_on() {
    let testbed = Testbed::new();
    let settings = testbed.with_settings(&[("--handover", path(&testbed))]);
    let limited = process::after("ulimit -f 0", &process::command(&settings));
    let relay = RelayProcess::ready(limited, testbed.admin());
    let mut calls = Calls::new(&testbed, &relay, 4);
    let line = last_line(&process::run(&successor(&testbed, &[])), 1);
    for part in ["cannot write its flows", "LimitFSIZE=", "goes on"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    calls.pass(&testbed);
    assert_eq!(relay.page("/readyz").0, "HTTP/1.1 200 OK");
    assert_eq!(relay.metric("drops_total", None), 0);
    relay.stop_warned();
}
