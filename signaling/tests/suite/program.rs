//! The program itself: bad settings, signals, names with several addresses.

use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::stage::{self, KEY, OFFER, Stage, Stub, certificate};
use firsthop_signaling::limits::API;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{sleep, timeout};

/// How long a program may take for what it does at once; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments that work.
fn good(stage: &Stage, transceivers: &str) -> Vec<(&'static str, String)> {
    let file = |name: &str| stage.path(name).display().to_string();
    vec![
        ("--listen", "127.0.0.1:0".into()),
        ("--metrics", "127.0.0.1:0".into()),
        ("--transceivers", transceivers.into()),
        ("--control-secret-file", file("secret")),
        ("--api-keys", file("keys.toml")),
        ("--keyring", file("data.toml")),
        ("--api-keyring", file("api.toml")),
        ("--fleet", file("fleet.toml")),
        ("--cluster", "1".into()),
        ("--log-format", "json".into()),
    ]
}

fn set(arguments: &mut Vec<(&'static str, String)>, name: &'static str, value: Option<&str>) {
    arguments.retain(|(known, _)| *known != name);
    if let Some(value) = value {
        arguments.push((name, value.to_owned()));
    }
}

fn command(arguments: &[(&'static str, String)]) -> Command {
    command_after(":", arguments)
}

/// The same, after something that a shell does to the process.
fn command_after(preparation: &str, arguments: &[(&'static str, String)]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{preparation} && exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_signaling"));
    for (name, value) in arguments {
        command.arg(name).arg(value);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

struct Program {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    api: Vec<SocketAddr>,
    metrics: SocketAddr,
}

impl Program {
    async fn start(arguments: &[(&'static str, String)]) -> Self {
        Self::ready(command(arguments)).await
    }

    /// Starts it, and waits until it serves.
    async fn ready(mut command: Command) -> Self {
        let mut child = command.spawn().expect("started");
        let log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut program = Self {
            child,
            log,
            api: Vec::new(),
            metrics: SocketAddr::from(([0; 4], 0)),
        };
        let ready = program.logged("ready").await;
        let list = |name: &str| -> Vec<SocketAddr> {
            let text = ready["fields"][name].as_str().expect("addresses");
            text.split(',')
                .map(|a| a.parse().expect("an address"))
                .collect()
        };
        program.api = list("api");
        program.metrics = list("metrics")[0];
        program
    }

    /// Waits for a log line with this message.
    async fn logged(&mut self, message: &str) -> serde_json::Value {
        loop {
            let line = timeout(PATIENCE, self.log.next_line())
                .await
                .expect("logged in time")
                .expect("readable")
                .expect("not ended");
            let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            assert_ne!(line["level"], "WARN", "{line}");
            if line["fields"]["message"] == message {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().expect("running").to_string();
        // The shell has a kill of its own; a program of that name need not be installed.
        let status = std::process::Command::new("sh")
            .args(["-c", &format!("kill {name} {id}")])
            .status()
            .expect("a shell");
        assert!(status.success());
    }

    async fn exit(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait())
            .await
            .expect("ended in time")
            .expect("ended")
            .code()
    }
}

/// Runs a program that is to refuse its settings and returns what it says.
async fn refused(arguments: &[(&'static str, String)]) -> String {
    refused_by(command(arguments)).await
}

async fn refused_by(mut command: Command) -> String {
    let output = timeout(PATIENCE, command.output())
        .await
        .expect("ended in time")
        .expect("ran");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    said
}

#[tokio::test]
async fn a_bad_setting_stops_the_start_with_one_line_that_names_it_and_the_fix() {
    let stage = Stage::new();
    stage.write("empty", "\n");
    stage.write("broken", "[[key]\n");
    stage.write("short", "0123456789abcde\n");
    stage.write("long", &"x".repeat(600_000));
    let file = |name: &str| stage.path(name).display().to_string();
    let cases: Vec<(&'static str, Option<String>, &str)> = vec![
        ("--listen", Some("nonsense".into()), "127.0.0.1:8080"),
        ("--listen", Some("127.0.0.1:80000".into()), "127.0.0.1:8080"),
        (
            "--listen",
            Some("203.0.113.77:0".into()),
            "an address of this machine",
        ),
        ("--metrics", Some("9103".into()), "127.0.0.1:9103"),
        ("--transceivers", None, "http://10.0.0.1:5080"),
        (
            "--transceivers",
            Some("10.0.0.1:5080".into()),
            "http://10.0.0.1:5080",
        ),
        ("--control-secret-file", None, "transceivers"),
        ("--control-secret-file", Some(file("missing")), "missing"),
        ("--control-secret-file", Some(file("empty")), "one line"),
        (
            "--control-secret-file",
            Some(file("short")),
            "fewer than 16",
        ),
        ("--control-secret-file", Some(file("long")), "more than 256"),
        ("--api-keys", None, "[[key]]"),
        ("--api-keys", Some(file("broken")), "broken: line 1"),
        ("--keyring", None, "keys init"),
        ("--keyring", Some(file("api.toml")), "keys init"),
        ("--keyring", Some(file("broken")), "broken: line 1"),
        ("--api-keyring", Some(file("data.toml")), "keys init"),
        ("--api-keyring", Some(file("broken")), "broken: line 1"),
        ("--fleet", Some(file("broken")), "correct the fleet file"),
        ("--fleet", Some(file("broken")), "broken: "),
        ("--cluster", None, "id of this cluster"),
        ("--cluster", Some("one".into()), "from 0 to 65535"),
        ("--cluster", Some("7".into()), "not a cluster of the fleet"),
        ("--ingresses", Some("1,x".into()), "such as 0,1"),
        ("--ingresses", Some("4,4".into()), "twice"),
        (
            "--ingresses",
            Some("77".into()),
            "not an ingress of the fleet",
        ),
        ("--tls-certificate", Some(file("empty")), "give both"),
        ("--tls-key", Some(file("empty")), "give both"),
        ("--address-rate", Some("fast".into()), "200/2000"),
        ("--address-rate", Some("0/5".into()), "or off"),
        ("--address-connections", Some("0".into()), "or off"),
        ("--address-connections", Some("many".into()), "2048"),
        ("--trusted-proxies", Some("10.0.0.0/99".into()), "CIDRs"),
        ("--place-headers", Some("a,b".into()), "latitude, longitude"),
        ("--places", Some(file("broken")), ".mmdb"),
        ("--places", Some(file("missing")), "MaxMind"),
        (
            "--steering",
            Some("away".into()),
            "forward, redirect or off",
        ),
        ("--ice-servers", Some("http://x".into()), "stun:"),
        (
            "--ice-servers",
            Some("turn:x;password=y".into()),
            "username",
        ),
        (
            "--ice-servers",
            Some("turn:x;username=a".into()),
            "credential",
        ),
        (
            "--transceivers",
            Some("http://10.0.0.1:".into()),
            "control URLs",
        ),
        ("--log", Some("=,,=".into()), "trace"),
        ("--log-format", Some("xml".into()), "text, json"),
    ];
    for (setting, value, part) in cases {
        let mut arguments = good(&stage, "http://127.0.0.1:1");
        set(&mut arguments, setting, value.as_deref());
        let said = refused(&arguments).await;
        assert_eq!(
            said.trim_end().lines().count(),
            1,
            "{setting} {value:?}: {said}"
        );
        assert!(said.contains(setting), "{setting} {value:?}: {said}");
        assert!(said.contains(part), "{setting} {value:?}: {said}");
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_stops_the_start() {
    let stage = Stage::new();
    stage.write("one.pem", &certificate("localhost").0);
    stage.write("other.key", &certificate("localhost").1);
    stage.write("broken", "no PEM at all\n");
    let file = |name: &str| stage.path(name).display().to_string();
    for (certificate, key, setting, part) in [
        (
            "broken",
            "other.key",
            "--tls-certificate",
            "no PEM certificate",
        ),
        ("missing", "other.key", "--tls-certificate", "missing"),
        ("one.pem", "broken", "--tls-key", "no PEM private key"),
        ("one.pem", "other.key", "--tls-key", "belong together"),
    ] {
        let mut arguments = good(&stage, "http://127.0.0.1:1");
        set(
            &mut arguments,
            "--tls-certificate",
            Some(&file(certificate)),
        );
        set(&mut arguments, "--tls-key", Some(&file(key)));
        let said = refused(&arguments).await;
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(said.contains(setting) && said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn a_taken_port_and_an_unknown_option_are_told_in_one_line() {
    let stage = Stage::new();
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = holder.local_addr().expect("bound").to_string();
    for setting in ["--listen", "--metrics"] {
        let mut arguments = good(&stage, "http://127.0.0.1:1");
        set(&mut arguments, setting, Some(&taken));
        let said = refused(&arguments).await;
        let last = said.trim_end().lines().last().expect("a line");
        assert!(last.contains(setting) && last.contains(&taken), "{said}");
        assert!(last.contains("another port"), "{said}");
    }
    let mut arguments = good(&stage, "http://127.0.0.1:1");
    arguments.push(("--wrong", "x".into()));
    let said = refused(&arguments).await;
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(
        said.contains("--wrong") && said.contains("--help"),
        "{said}"
    );
}

#[tokio::test]
async fn it_serves_calls_and_metrics_reloads_by_itself_and_stops_cleanly() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut program = Program::start(&good(&stage, &format!("http://{}", stub.control))).await;
    program.logged("transceiver").await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let call = async |key: &str| {
        client
            .post(format!("http://{}/v1/realtime/calls", program.api[0]))
            .bearer_auth(key)
            .header("content-type", "application/sdp")
            .body(OFFER)
            .send()
            .await
            .expect("a response")
            .status()
    };
    assert_eq!(call(KEY).await, 201);
    // The number is shown when the round of questions is over, a moment after the log told of the answer.
    let shown = async {
        loop {
            let metrics = client
                .get(format!("http://{}/metrics", program.metrics))
                .send()
                .await
                .expect("a response")
                .text()
                .await
                .expect("a body");
            if metrics.contains("firsthop_signaling_transceivers{standing=\"ready\"} 1") {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, shown).await.expect("shown in time");
    stage.write("keys.toml", &stage::key_file(&[("other", "other-key")]));
    program.logged("file reloaded").await;
    let call = client
        .post(format!("http://{}/v1/realtime/calls", program.api[0]))
        .bearer_auth("other-key")
        .header("content-type", "application/sdp")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(call.status(), 201);
    program.signal("-TERM");
    program.logged("stopped").await;
    assert_eq!(program.exit().await, Some(0));
}

#[tokio::test]
async fn an_interrupt_stops_it_without_waiting_for_idle_connections() {
    let stage = Stage::new();
    let mut program = Program::start(&good(&stage, "http://127.0.0.1:1")).await;
    let silent = TcpStream::connect(program.api[0]).await.expect("connected");
    let idle = served(program.api[0]).await;
    let started = Instant::now();
    program.signal("-INT");
    assert_eq!(program.exit().await, Some(0));
    assert!(started.elapsed() < API.stop, "{:?}", started.elapsed());
    drop((silent, idle));
}

/// A connection on which a request was answered, and which stays.
async fn served(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn too_few_files_stop_the_start_and_too_few_for_all_clients_are_told() {
    let stage = Stage::new();
    let arguments = good(&stage, "http://127.0.0.1:1");
    for limit in [6, 8, 16, 32] {
        let few = format!("ulimit -n {limit}");
        let said = refused_by(command_after(&few, &arguments)).await;
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        let problem = format!("only {limit} files may be open");
        assert!(said.contains(&problem), "{said}");
        assert!(said.contains("LimitNOFILE="), "{said}");
    }

    let mut program = Program::ready(command_after("ulimit -n 64", &arguments)).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(TcpStream::connect(program.api[0]).await.expect("queued"));
    }
    let complained = async {
        loop {
            let line = program.log.next_line().await.expect("readable");
            if line.expect("it goes on").contains("cannot accept") {
                return;
            }
        }
    };
    timeout(PATIENCE, complained).await.expect("told in time");
    drop(held);
    drop(served(program.api[0]).await);
    program.signal("-TERM");
    while let Some(line) = program.log.next_line().await.expect("readable") {
        assert!(!line.contains("panicked"), "{line}");
    }
    assert_eq!(program.exit().await, Some(0));
}

#[tokio::test]
async fn one_address_holds_as_many_connections_as_it_may_unless_it_is_a_trusted_proxy() {
    let stage = Stage::new();
    let mut arguments = good(&stage, "http://127.0.0.1:1");
    arguments.push(("--address-connections", "1".into()));
    let program = Program::start(&arguments).await;
    let first = served(program.api[0]).await;
    let mut second = TcpStream::connect(program.api[0]).await.expect("connected");
    let mut said = String::new();
    second.read_to_string(&mut said).await.expect("closed");
    assert_eq!(said, "");
    let metrics = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client")
        .get(format!("http://{}/metrics", program.metrics))
        .send()
        .await
        .expect("a response");
    let line = "firsthop_signaling_connections_refused_total{reason=\"address\"} 1";
    let metrics = metrics.text().await.expect("a body");
    assert!(metrics.contains(line), "{metrics}");
    drop(first);

    arguments.push(("--trusted-proxies", "127.0.0.0/8".into()));
    let program = Program::start(&arguments).await;
    let both = [served(program.api[0]).await, served(program.api[0]).await];
    drop(both);
}

#[tokio::test]
async fn localhost_is_served_in_both_families_where_there_are_two() {
    let stage = Stage::new();
    let mut arguments = good(&stage, "http://localhost:1");
    set(&mut arguments, "--listen", Some("localhost:0,127.0.0.1:0"));
    let program = Program::start(&arguments).await;
    let both = TcpListener::bind("[::1]:0").is_ok()
        && std::fs::read_to_string("/etc/hosts").is_ok_and(|hosts| {
            hosts.lines().any(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some("::1") && words.any(|name| name == "localhost")
            })
        });
    let count = |v6: bool| program.api.iter().filter(|a| a.is_ipv6() == v6).count();
    assert_eq!(count(false), 2, "{:?}", program.api);
    assert_eq!(count(true), usize::from(both), "{:?}", program.api);
    for address in &program.api {
        let mut connection = TcpStream::connect(address).await.expect("connected");
        connection
            .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .expect("sent");
        let mut answer = String::new();
        connection
            .read_to_string(&mut answer)
            .await
            .expect("answered");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}
