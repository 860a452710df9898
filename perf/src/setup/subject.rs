//! Whom calls are placed at: Firsthop's programs, and peers, started on the server of a [`World`].

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use super::results::Subject;
use super::world::World;
use crate::call::air::Way;
use crate::call::janus::{Janus, JanusPlan};
use crate::call::placing::Desk;
use crate::call::stack::{Backend, Stack, StackPlan};
use crate::process::Process;

/// The port of the aiortc answerer.
const ANSWERER_PORT: u16 = 8_070;

/// The port of Janus's HTTP API.
const JANUS_PORT: u16 = 8_088;

/// The answerer's program.
const ANSWERER: &str = include_str!("../../peers/aiortc/answerer.py");

/// How a subject is called.
#[derive(Clone, Debug)]
pub struct Callee {
    /// Where calls are placed.
    pub desk: Desk,
    /// Which way packets go.
    pub way: Way,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct SubjectPlan {
    /// The folder with Firsthop's programs.
    pub programs: PathBuf,
    /// Where files and logs go.
    pub directory: PathBuf,
    /// The processor that all of them run on.
    pub processor: usize,
    /// A Python that has aiortc and aiohttp.
    pub aiortc: Option<PathBuf>,
    /// Start Janus, too.
    pub janus: bool,
}

/// Programs that run on the server.
pub struct Subjects {
    stack: Stack,
    aiortc: Option<Process>,
    janus: Option<Janus>,
}

impl Subjects {
    /// Starts Firsthop, and the peers that there are.
    ///
    /// # Errors
    /// A program does not start: its last words are in the message.
    pub fn start(world: &World, plan: &SubjectPlan) -> io::Result<Self> {
        let stack = StackPlan {
            programs: plan.programs.clone(),
            directory: plan.directory.join("firsthop"),
            number: 0,
            processor: plan.processor,
            backend: Backend::Echo,
            whole: true,
        };
        let stack = world
            .server
            .within(|| Stack::start_at(stack, World::place()))?;
        let aiortc = match &plan.aiortc {
            Some(python) => Some(world.server.within(|| answerer(python.clone(), plan))?),
            None => None,
        };
        let janus = match plan.janus {
            true => Some(world.server.within(|| Janus::start(janus(plan)))?),
            false => None,
        };
        Ok(Self {
            stack,
            aiortc,
            janus,
        })
    }

    /// Leaves the logs of Firsthop's programs where they are when these end.
    pub fn keep_logs(&mut self) {
        self.stack.keep_logs();
    }

    /// How a subject is called; nothing when it does not run.
    #[must_use]
    pub fn callee(&self, subject: Subject) -> Option<Callee> {
        match subject {
            Subject::Relay => Some(Callee {
                desk: self.stack.signaling_desk(),
                way: Way::Relay,
            }),
            Subject::Direct => Some(Callee {
                desk: self.stack.signaling_desk(),
                way: self.stack.direct(),
            }),
            Subject::Aiortc => self.aiortc.as_ref().map(|_| Callee {
                desk: Desk::Signaling {
                    url: format!("http://{}", answerer_address()),
                    key: "any".to_owned(),
                },
                way: Way::Relay,
            }),
            Subject::Janus => self.janus.as_ref().map(|janus| Callee {
                desk: janus.desk(),
                way: Way::Relay,
            }),
        }
    }
}

/// As its authors advise for many calls, and on the server's address.
fn janus(plan: &SubjectPlan) -> JanusPlan {
    let ip = *World::place().public.ip();
    JanusPlan {
        directory: plan.directory.join("janus"),
        processor: plan.processor,
        http: SocketAddrV4::new(ip, JANUS_PORT),
        media: ip,
        event_loops: Some(1),
        lite: true,
    }
}

fn answerer_address() -> SocketAddrV4 {
    SocketAddrV4::new(*World::place().public.ip(), ANSWERER_PORT)
}

/// Starts the answerer, and waits until it takes connections.
fn answerer(python: PathBuf, plan: &SubjectPlan) -> io::Result<Process> {
    fs::create_dir_all(&plan.directory)?;
    let script = plan.directory.join("answerer.py");
    fs::write(&script, ANSWERER)?;
    let address = answerer_address();
    let mut command = Command::new(python);
    command
        .arg(&script)
        .arg(address.ip().to_string())
        .arg(address.port().to_string());
    let log = plan.directory.join("aiortc.log");
    let mut process = Process::start(plan.processor, &command, File::create(&log)?)?;
    process
        .wait_until("take connections", || {
            Ok(TcpStream::connect(address).is_ok())
        })
        .map_err(|error| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let last = text.lines().next_back().unwrap_or_default();
            io::Error::other(format!(
                "the aiortc answerer: {error}; its last words: {last}"
            ))
        })?;
    Ok(process)
}
