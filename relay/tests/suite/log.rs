//! The log, when nobody can write it.

use std::fs::OpenOptions;
use std::process::{Child, ExitStatus, Stdio};

use crate::testbed::owner::Owner;
use crate::testbed::process::{self, Pages};
use crate::testbed::{Testbed, signal, until};

/// A relay whose standard error is a disk without room. It is killed when the test ends.
struct Unheard(Child);

impl Unheard {
    fn start(settings: &[(&'static str, String)]) -> Self {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let child = process::command(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(full.expect("every Linux has it"))
            .spawn();
        Self(child.expect("the relay starts"))
    }

    fn end(mut self) -> ExitStatus {
        until("it has ended", || self.0.try_wait().expect("a child"))
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_that_takes_no_line_is_lost_and_the_relay_goes_on() {
    let testbed = Testbed::new();
    let relay = Unheard::start(&testbed.settings());
    let pages = Pages(testbed.admin());
    until("it is ready", || {
        let (status, _) = pages.page_while_up("/readyz")?;
        (status == "HTTP/1.1 200 OK").then_some(())
    });
    let owner = Owner::bind(testbed.owner_address(0));
    let check = testbed.check(owner.address(), 0, 1);
    testbed.client(0).send(testbed.public(0), &check);
    owner.receive_one();
    assert_eq!(pages.whole("group_rebuilds_total"), Some(0));
    signal(&relay.0, "TERM");
    assert_eq!(relay.end().code(), Some(0));
}

#[test]
fn a_setting_is_refused_with_its_status_even_if_nobody_hears_why() {
    let testbed = Testbed::new();
    let settings = testbed.with_settings(&[("--cores", "none".to_owned())]);
    assert_eq!(Unheard::start(&settings).end().code(), Some(2));
}
