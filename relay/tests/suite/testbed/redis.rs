//! A real Redis on an address of the testbed, with nothing on disk.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::{PATIENCE, Testbed, signal, until};

/// A Redis that runs, and is killed when the test ends.
pub(crate) struct Redis {
    child: Child,
    address: SocketAddr,
    password: Option<String>,
}

/// A reply, as far as tests look at it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Nothing,
    Number(i64),
    Text(String),
    Error(String),
}

impl Redis {
    /// Starts one on the testbed's address for it, and waits until it answers.
    pub(crate) fn start(testbed: &Testbed, settings: &[&str]) -> Self {
        let address = testbed.redis();
        let log = testbed.file("redis.log");
        let output = File::create(&log).expect("its log");
        let child = Command::new("redis-server")
            .args(["--bind", &address.ip().to_string()])
            .args(["--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--dir", &testbed.file(".").display().to_string()])
            .args(settings)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("its log"))
            .stderr(output)
            .spawn()
            .expect("redis-server runs (Debian's package of that name)");
        let password = settings
            .iter()
            .position(|setting| *setting == "--requirepass")
            .map(|at| settings[at + 1].to_owned());
        let mut redis = Self {
            child,
            address,
            password,
        };
        until("Redis answers", || {
            if let Some(status) = redis.child.try_wait().expect("a child") {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                panic!("Redis ended with {status}:\n{log}");
            }
            let pong = Some(Reply::Text("PONG".to_owned()));
            (redis.try_command(&["PING"]) == pong).then_some(())
        });
        redis
    }

    /// The URL without a password.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Sends a command, and reads its reply.
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).expect("Redis answers")
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        match self.command(&["GET", key]) {
            Reply::Text(text) => Some(text),
            Reply::Nothing => None,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn set(&self, key: &str, value: &str) {
        let reply = self.command(&["SET", key, value]);
        assert_eq!(reply, Reply::Text("OK".to_owned()));
    }

    /// Waits until a key has a value, or none.
    pub(crate) fn wait(&self, key: &str, value: Option<&str>) {
        until(&format!("{key} is {value:?}"), || {
            (self.get(key).as_deref() == value).then_some(())
        });
    }

    /// How often a command has been called.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let Reply::Text(text) = self.command(&["INFO", "commandstats"]) else {
            panic!("no statistics");
        };
        let prefix = format!("cmdstat_{command}:calls=");
        let rest = text.lines().find_map(|line| line.strip_prefix(&prefix));
        rest.and_then(|rest| rest.split(',').next())
            .map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// Sends it a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Kills it as a crash would. What it held is gone.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn try_command(&self, words: &[&str]) -> Option<Reply> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        if let Some(password) = &self.password {
            write(&mut stream, &["AUTH", password])?;
            read(&mut reader)?;
        }
        write(&mut stream, words)?;
        read(&mut reader)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.end();
    }
}

fn write(stream: &mut TcpStream, words: &[&str]) -> Option<()> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(text.as_bytes()).ok()
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Reply> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (kind, rest) = line.trim_end().split_at_checked(1)?;
    match kind {
        "+" => Some(Reply::Text(rest.to_owned())),
        "-" => Some(Reply::Error(rest.to_owned())),
        ":" => Some(Reply::Number(rest.parse().ok()?)),
        "$" if rest == "-1" => Some(Reply::Nothing),
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>().ok()? + 2];
            reader.read_exact(&mut bytes).ok()?;
            bytes.truncate(bytes.len() - 2);
            Some(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => None,
    }
}
