//! The relay as a process: start, log, metrics, signals, end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::{PATIENCE, signal, until};

/// The admin pages of a relay, wherever it runs.
#[derive(Clone, Copy)]
pub(crate) struct Pages(pub(crate) SocketAddr);

/// A relay that runs, and is killed when the test ends. Its admin pages are read as [`Pages`] says.
pub(crate) struct RelayProcess {
    child: Child,
    pages: Pages,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// The relay program with settings.
pub(crate) fn command(settings: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    command.env_clear();
    for (name, value) in settings {
        command.arg(format!("{name}={value}"));
    }
    command
}

/// The same, after something that a shell does to the process.
pub(crate) fn after(preparation: &str, command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.env_clear();
    shell.args(["-c", &format!("{preparation} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

/// Runs a relay that is expected to end by itself.
pub(crate) fn run(settings: &[(&'static str, String)]) -> Output {
    command(settings)
        .stdin(Stdio::null())
        .output()
        .expect("the relay runs")
}

impl RelayProcess {
    /// Starts a relay and waits for its ready line.
    pub(crate) fn ready(mut command: Command, admin: SocketAddr) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let stderr = child.stderr.take().expect("a pipe");
        let log = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = shared.lock().expect("the log");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut process = Self {
            child,
            pages: Pages(admin),
            log,
            reader: Some(reader),
        };
        until("the relay is ready", || {
            if let Some(status) = process.child.try_wait().expect("a child") {
                process.reader.take().map(JoinHandle::join);
                panic!("the relay ended with {status}:\n{}", process.log());
            }
            process.log().contains(" ready ").then_some(())
        });
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("the log").clone()
    }

    /// Sends a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Kills the relay as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Stops the relay as an operator would: it ends with status 0, and has logged no warning.
    pub(crate) fn stop(self) {
        self.signal("TERM");
        self.ended_well();
    }

    /// Waits until the relay has ended by itself: with status 0, and no warning in its log, which is returned.
    pub(crate) fn ended_well(mut self) -> String {
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "the relay ended with {status}:\n{log}");
        for word in ["WARN", "ERROR", "panicked"] {
            assert!(!log.contains(word), "the relay logged a {word}:\n{log}");
        }
        log
    }

    /// Waits until the relay has ended by itself.
    pub(crate) fn ended(mut self) -> ExitStatus {
        self.wait()
    }

    /// Stops the relay in good order, whatever it has logged, and returns its log.
    pub(crate) fn stop_warned(mut self) -> String {
        self.signal("TERM");
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "the relay ended with {status}:\n{log}");
        log
    }

    fn wait(&mut self) -> ExitStatus {
        let status = until("the relay has ended", || {
            self.child.try_wait().expect("a child")
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log was read");
        }
        status
    }
}

impl Deref for RelayProcess {
    type Target = Pages;

    fn deref(&self) -> &Pages {
        &self.pages
    }
}

impl Pages {
    /// Fetches an admin page: status line and body.
    pub(crate) fn page(&self, path: &str) -> (String, String) {
        self.page_while_up(path).expect("the admin port answers")
    }

    /// Fetches an admin page of a relay that may end at any moment: nothing when it has.
    pub(crate) fn page_while_up(&self, path: &str) -> Option<(String, String)> {
        let mut stream = TcpStream::connect(self.0).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.lines().next().unwrap_or_default();
        Some((status.to_owned(), body.to_owned()))
    }

    /// The sum over all cores of a metric, by its name without `firsthop_relay_`, with a label when given.
    pub(crate) fn metric(&self, name: &str, label: Option<(&str, &str)>) -> u64 {
        let (_, body) = self.page("/metrics");
        let label = label.map(|(key, value)| format!("{key}=\"{value}\""));
        let name = format!("firsthop_relay_{name}{{");
        body.lines()
            .filter(|line| line.starts_with(&name))
            .filter(|line| label.as_ref().is_none_or(|label| line.contains(label)))
            .map(|line| {
                line.rsplit(' ')
                    .next()
                    .and_then(|v| v.parse::<u64>().ok())
                    .expect("a number")
            })
            .sum()
    }

    /// A metric of the relay as a whole, by its name without `firsthop_relay_`.
    pub(crate) fn whole(&self, name: &str) -> Option<u64> {
        let (_, body) = self.page("/metrics");
        let name = format!("firsthop_relay_{name} ");
        let value = body.lines().find_map(|line| line.strip_prefix(&name))?;
        Some(value.parse().expect("a number"))
    }

    pub(crate) fn drops(&self, reason: &str) -> u64 {
        self.metric("drops_total", Some(("reason", reason)))
    }

    /// Waits until exactly so many were dropped for a reason.
    pub(crate) fn wait_drops(&self, reason: &str, count: u64) {
        until(&format!("{count} drops for {reason}"), || {
            (self.drops(reason) == count).then_some(())
        });
    }

    /// Waits until a metric, summed over all cores, has a value.
    pub(crate) fn wait_metric(&self, name: &str, value: u64) {
        until(&format!("{name} is {value}"), || {
            (self.metric(name, None) == value).then_some(())
        });
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        if std::thread::panicking() && matches!(self.child.try_wait(), Ok(None)) {
            // What a failing test wants to know: everything that the relay has counted.
            let (_, metrics) = self.page("/metrics");
            let counted = metrics
                .lines()
                .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
            println!("{}{}", self.log(), counted.collect::<Vec<_>>().join("\n"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
