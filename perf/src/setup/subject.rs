//! Whom calls are placed at: Firsthop's programs, and peers, started on the server of a [`World`].

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use super::results::Subject;
use super::world::World;
use crate::call::air::Way;
use crate::call::stack::{Backend, Stack, StackPlan};
use crate::process::Process;

/// The port of the aiortc answerer.
const ANSWERER_PORT: u16 = 8_070;

/// Where the answerer's program stands.
const ANSWERER: &str = include_str!("../../peers/aiortc/answerer.py");

/// An URL that takes an offer as SDP, and answers with one.
#[derive(Clone, Debug)]
pub struct Desk {
    /// The URL.
    pub url: String,
    /// The bearer token that it wants, if any.
    pub key: Option<String>,
}

/// How a subject is called.
#[derive(Clone, Debug)]
pub struct Callee {
    /// Where offers go.
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
}

/// Programs that run on the server.
pub struct Subjects {
    stack: Stack,
    aiortc: Option<Process>,
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
        Ok(Self { stack, aiortc })
    }

    /// How a subject is called; nothing when it does not run.
    #[must_use]
    pub fn callee(&self, subject: Subject) -> Option<Callee> {
        match subject {
            Subject::Relay | Subject::Direct => {
                let (url, key) = self.stack.signaling_url();
                let way = match subject {
                    Subject::Direct => self.stack.direct(),
                    _ => Way::Relay,
                };
                Some(Callee {
                    desk: Desk {
                        url: format!("{url}/v1/realtime/calls"),
                        key: Some(key),
                    },
                    way,
                })
            }
            Subject::Aiortc => self.aiortc.as_ref().map(|_| Callee {
                desk: Desk {
                    url: format!("http://{}/offer", answerer_address()),
                    key: None,
                },
                way: Way::Relay,
            }),
            Subject::Janus => None,
        }
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
