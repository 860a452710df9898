//! Bad settings and bad machines: each stops the start with status 2 and one line that names the setting and the fix.

#![allow(unsafe_code)] // Takes io_uring and memory away from a child before it starts, as containers do.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use crate::testbed::{Testbed, process};

/// Asserts that the relay refused to start, with one line that holds all the parts.
pub(crate) fn assert_refused(output: &Output, parts: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(error.lines().count(), 1, "one line:\n{error}");
    assert!(error.starts_with("relay: "), "{error}");
    for part in parts {
        assert!(error.contains(part), "'{part}' is missing in: {error}");
    }
}

/// Runs a relay with one setting of the testbed replaced.
fn run_with(testbed: &Testbed, setting: &'static str, value: &str) -> Output {
    let mut settings = testbed.settings();
    settings.retain(|(name, _)| *name != setting);
    settings.push((setting, value.to_owned()));
    process::run(&settings)
}

fn refused(setting: &'static str, value: &str, parts: &[&str]) {
    let testbed = Testbed::new();
    let mut all = vec![setting];
    all.extend(parts);
    assert_refused(&run_with(&testbed, setting, value), &all);
}

#[test]
fn a_missing_setting() {
    let testbed = Testbed::new();
    let mut settings = testbed.settings();
    settings.retain(|(name, _)| *name != "--keyring");
    assert_refused(&process::run(&settings), &["--keyring", "required"]);
}

#[test]
fn an_unknown_setting() {
    refused("--colour", "red", &["unexpected argument"]);
}

#[test]
fn a_keyring_that_is_not_there() {
    refused(
        "--keyring",
        "/nowhere/data.toml",
        &["/nowhere/data.toml", "No such file", "keys init"],
    );
}

#[test]
fn a_keyring_that_is_none() {
    let testbed = Testbed::new();
    fs::write(testbed.keyring_file(), "active = 1\n").expect("written");
    assert_refused(
        &process::run(&testbed.settings()),
        &["--keyring", "data.toml"],
    );
}

#[test]
fn a_fleet_that_is_not_there() {
    refused(
        "--fleet",
        "/nowhere/fleet.toml",
        &["/nowhere/fleet.toml", "No such file"],
    );
}

#[test]
fn a_fleet_that_is_none() {
    let testbed = Testbed::new();
    fs::write(testbed.fleet_file(), "cluster = 7\n").expect("written");
    assert_refused(
        &process::run(&testbed.settings()),
        &["--fleet", "fleet.toml"],
    );
}

#[test]
fn a_cluster_that_the_fleet_does_not_have() {
    refused("--cluster", "7", &["not a cluster of", "fleet.toml"]);
}

#[test]
fn a_cluster_that_is_no_number() {
    refused("--cluster", "frankfurt", &["frankfurt"]);
}

#[test]
fn a_drain_that_nobody_waits_for() {
    refused("--drain", "3601", &["3601", "choose 0 to 3600"]);
}

#[test]
fn a_listen_address_that_is_none() {
    refused(
        "--listen",
        "203.0.113.10",
        &["203.0.113.10", "address with a port"],
    );
}

#[test]
fn a_role_that_there_is_not() {
    refused("--role", "edge", &["edge", "both", "ingress", "cluster"]);
}

#[test]
fn a_relay_for_clients_without_a_listen_address_and_one_for_relays_with_one() {
    refused("--role", "cluster", &["--listen", "serves no clients"]);
    let testbed = Testbed::new();
    for role in ["both", "ingress"] {
        let mut settings = testbed.settings();
        settings.retain(|(name, _)| *name != "--listen");
        settings.push(("--role", role.to_owned()));
        assert_refused(&process::run(&settings), &["--listen", "0 addresses"]);
    }
    let mut settings = testbed.settings();
    settings.retain(|(name, _)| *name != "--listen");
    assert_refused(&process::run(&settings), &["--listen", "required"]);
}

#[test]
fn a_relay_in_the_fleet_that_cannot_be_one() {
    let testbed = Testbed::new();
    for (relay, part) in [
        ("address = \"10.0.0.1\", cores = 0", "relay 10.0.0.1: cores"),
        ("address = \"0.0.0.0\", cores = 1", "relay 0.0.0.0: address"),
        (
            "address = \"10.0.0.1\", cores = 2, port = 65535",
            "relay 10.0.0.1: port",
        ),
        ("address = \"10.0.0.1\", cores = 2, seed = -1", "seed"),
    ] {
        testbed.write_fleet(&format!("relays = [{{ {relay} }}]"), "");
        assert_refused(
            &process::run(&testbed.settings()),
            &["--fleet", "fleet.toml", part],
        );
    }
}

#[test]
fn a_wildcard_listen_address() {
    refused(
        "--listen",
        "0.0.0.0:3478",
        &["wildcard", "name each address"],
    );
    refused("--listen", "[::]:3478", &["wildcard"]);
}

#[test]
fn a_listen_port_of_zero() {
    let testbed = Testbed::new();
    let listen = format!("{}=127.0.0.1:3478", SocketAddr::new(testbed.ip(128), 0));
    assert_refused(
        &run_with(&testbed, "--listen", &listen),
        &["--listen", "port 0", "name the port"],
    );
}

#[test]
fn an_advertised_address_that_the_fleet_does_not_have() {
    let testbed = Testbed::new();
    let listen = format!("{}=203.0.113.10:3478", testbed.public(0));
    assert_refused(
        &run_with(&testbed, "--listen", &listen),
        &[
            "--listen",
            "no ingress",
            "203.0.113.10:3478",
            "add it there",
        ],
    );
}

#[test]
fn an_advertised_address_that_clients_cannot_reach() {
    let testbed = Testbed::new();
    for advertised in ["0.0.0.0:3478", "203.0.113.10:0", "224.0.0.1:3478"] {
        let listen = format!("{}={advertised}", testbed.public(0));
        assert_refused(
            &run_with(&testbed, "--listen", &listen),
            &["--listen", "cannot reach", advertised],
        );
    }
}

#[test]
fn an_advertised_address_of_the_other_family() {
    let testbed = Testbed::new();
    let listen = format!("{}=[::1]:3478", testbed.public(0));
    assert_refused(
        &run_with(&testbed, "--listen", &listen),
        &["--listen", "families"],
    );
}

#[test]
fn a_listen_address_named_twice() {
    let testbed = Testbed::new();
    let listen = format!("{0},{0}", testbed.public(0));
    assert_refused(
        &run_with(&testbed, "--listen", &listen),
        &["--listen", "twice"],
    );
}

#[test]
fn two_listen_addresses_for_one_advertised_address() {
    let testbed = Testbed::new();
    let listen = format!("{},{}={0}", testbed.public(0), testbed.public(1));
    assert_refused(
        &run_with(&testbed, "--listen", &listen),
        &["--listen", "already serves"],
    );
}

#[test]
fn a_listen_address_that_only_internal_clients_reach() {
    refused(
        "--internal-networks",
        "127.0.0.0/8",
        &["--listen", "--allow-internal-clients"],
    );
}

#[test]
fn a_listen_address_of_another_machine() {
    let testbed = Testbed::new();
    let listen = format!("203.0.113.10:3478={}", testbed.public(0));
    assert_refused(
        &run_with(&testbed, "--listen", &listen),
        &["--listen", "203.0.113.10:3478", "address of this machine"],
    );
}

#[test]
fn a_listen_port_in_use() {
    let testbed = Testbed::new();
    let _other = UdpSocket::bind(testbed.public(0)).expect("taken");
    assert_refused(
        &process::run(&testbed.settings()),
        &[
            "--listen",
            &testbed.public(0).to_string(),
            "in use",
            "another port",
        ],
    );
}

#[test]
fn a_second_relay_on_the_same_addresses() {
    let testbed = Testbed::new();
    let first = testbed.relay(&[]);
    let mut settings = testbed.settings();
    settings.push(("--internal-port", "4100".to_owned()));
    settings.retain(|(name, _)| *name != "--admin");
    settings.push(("--admin", SocketAddr::new(testbed.ip(2), 9101).to_string()));
    assert_refused(&process::run(&settings), &["--listen", "in use"]);
    first.stop();
}

#[test]
fn an_internal_address_outside_of_the_internal_networks() {
    refused(
        "--internal",
        "192.0.2.1",
        &["--internal-networks", "inside"],
    );
    refused("--internal", "0.0.0.0", &["--internal-networks"]);
}

#[test]
fn an_internal_port_in_use() {
    let testbed = Testbed::new();
    let _other = UdpSocket::bind(testbed.relay_internal(0)).expect("taken");
    assert_refused(
        &process::run(&testbed.settings()),
        &[
            "--internal",
            &testbed.relay_internal(0).to_string(),
            "in use",
        ],
    );
}

#[test]
fn internal_ports_beyond_the_last() {
    refused("--internal-port", "0", &["1 to 65535"]);
    refused("--internal-port", "70000", &["70000"]);
}

#[test]
fn internal_networks_that_are_none() {
    refused(
        "--internal-networks",
        "10.0.0.0/33",
        &["10.0.0.0/33", "CIDR"],
    );
    refused("--internal-networks", ",", &["is empty"]);
}

#[test]
fn cores_that_do_not_exist() {
    refused("--cores", "4000", &["4000", "ask for no more"]);
    refused("--cores", "0,999", &["processor 999", "choose among"]);
    refused("--cores", "0", &["1 to"]);
    refused("--cores", "all", &["not a number"]);
}

#[test]
fn flows_out_of_range() {
    refused("--flows-per-core", "2", &["choose 4 to"]);
    refused("--flows-per-core", "2000000", &["choose 4 to"]);
}

#[test]
fn a_linger_that_is_heard() {
    refused("--linger", "100000", &["microseconds"]);
}

#[test]
fn an_internal_mtu_that_no_path_has() {
    refused("--internal-mtu", "100", &["1280"]);
}

#[test]
fn an_admin_port_in_use() {
    let testbed = Testbed::new();
    let _other = TcpListener::bind(testbed.admin()).expect("taken");
    assert_refused(
        &process::run(&testbed.settings()),
        &["--admin", &testbed.admin().to_string(), "another port"],
    );
}

#[test]
fn an_admin_address_that_is_none() {
    refused("--admin", "9101", &["9101"]);
}

#[test]
fn a_switch_that_is_neither_on_nor_off() {
    refused("--spin", "maybe", &["maybe", "on, off"]);
}

#[test]
fn a_log_filter_that_is_none() {
    refused("--log", "firsthop_relay=chatty", &["filter"]);
}

#[test]
fn a_bad_value_in_the_environment() {
    let testbed = Testbed::new();
    let mut command = process::command(&testbed.settings());
    let output = command
        .env("FIRSTHOP_CORES", "none")
        .output()
        .expect("the relay runs");
    assert_refused(&output, &["--cores", "none"]);
}

fn run_after(testbed: &Testbed, prepare: fn() -> io::Result<()>) -> Output {
    let mut command: Command = process::command(&testbed.settings());
    // SAFETY: `prepare` makes system calls only, on memory of its own, as is allowed between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command
        .stdin(Stdio::null())
        .output()
        .expect("the relay runs")
}

#[test]
fn a_machine_that_forbids_io_uring() {
    let testbed = Testbed::new();
    let output = run_after(&testbed, || {
        // A seccomp program as container runtimes have it: io_uring_setup (425 on every architecture) is not permitted.
        let statement = |code, k| libc::sock_filter {
            code,
            jt: 0,
            jf: 0,
            k,
        };
        let mut program = [
            statement(0x20, 0), // ld the number of the call
            libc::sock_filter {
                code: 0x15,
                jt: 0,
                jf: 1,
                k: 425,
            },
            statement(0x06, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            statement(0x06, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the filter and its program live until the calls return.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    });
    assert_refused(
        &output,
        &[
            "io_uring is not available",
            "kernel.io_uring_disabled=0",
            "seccomp",
        ],
    );
}

#[test]
fn a_machine_with_too_little_memory_to_lock() {
    let testbed = Testbed::new();
    let output = run_after(&testbed, || {
        let limit = libc::rlimit {
            rlim_cur: 64 * 1_024,
            rlim_max: 64 * 1_024,
        };
        // SAFETY: the kernel reads one `rlimit`.
        match unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    assert_refused(&output, &["64 KiB", "512 KiB", "ulimit -l", "LimitMEMLOCK"]);
}

#[test]
fn help_and_version_are_no_errors() {
    for flag in ["--help", "--version"] {
        let output = Command::new(env!("CARGO_BIN_EXE_relay"))
            .arg(flag)
            .output()
            .expect("the relay runs");
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("relay"));
    }
}

#[test]
fn settings_come_from_the_environment_too() {
    let testbed = Testbed::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    command.env_clear().env("FIRSTHOP_ADMIN", "9101");
    for (name, value) in testbed.settings() {
        if name != "--admin" {
            let name = name
                .trim_start_matches("--")
                .replace('-', "_")
                .to_uppercase();
            command.env(format!("FIRSTHOP_{name}"), value);
        }
    }
    // All but one are right: it is the one that is named.
    assert_refused(
        &command.output().expect("the relay runs"),
        &["--admin", "9101"],
    );
}
