//! Programs on one processor with a kind of work, and loads of calls on them: what every measurement of capacity and cost is made of.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::air::Way;
use super::echoing::IN_HAND;
use super::embedded_echo::FROM_MOUTH;
use super::load::{Ending, LoadPlan};
use super::manner::Manner;
use super::model::{Format, ModelServer};
use super::placing::Desk;
use super::recording::Codec;
use super::report::{CallReport, Spread};
use super::stack::{Backend, Stack, StackPlan, model_address};

/// How many calls are placed per second.
pub const RAMP: f64 = 60.0;

/// How long a caller listens for its own voice. Only some are echoed, and what comes later than this is beyond any limit.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be done for each call.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Nothing but to keep it: nobody speaks.
    Silent,
    /// G.711 through to a model server that takes it, and back, over a WebSocket.
    Passthrough,
    /// Opus decoded for a model server that takes PCM, and its answer encoded.
    Transcoding,
    /// Opus decoded, heard through by the voice detector, and encoded again.
    Echo,
}

impl Work {
    /// What results call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Passthrough => "passthrough",
            Self::Transcoding => "transcoding",
            Self::Echo => "echo",
        }
    }

    /// What clients speak.
    #[must_use]
    pub fn codec(self) -> Codec {
        match self {
            Self::Passthrough => Codec::Pcmu,
            Self::Silent | Self::Transcoding | Self::Echo => Codec::Opus,
        }
    }

    /// What the model server speaks, if there is one.
    fn format(self) -> Option<Format> {
        match self {
            Self::Passthrough => Some(Format::Pcmu),
            Self::Transcoding => Some(Format::Pcm),
            Self::Silent | Self::Echo => None,
        }
    }

    /// How many calls a search begins with.
    #[must_use]
    pub fn few(self) -> u32 {
        match self {
            Self::Silent | Self::Passthrough => 60,
            Self::Transcoding | Self::Echo => 20,
        }
    }

    /// Of how many callers one hears itself, where a model server answers: an echo costs the generator as much as its client does, and
    /// hundreds of callers are enough when some of them say what all hear.
    #[must_use]
    pub fn one_echo_in(self) -> NonZeroU32 {
        match self {
            Self::Passthrough => NonZeroU32::MIN.saturating_add(7),
            Self::Silent | Self::Transcoding | Self::Echo => NonZeroU32::MIN,
        }
    }
}

/// Where programs are, and where they run.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The folder with the programs.
    pub programs: PathBuf,
    /// Where files and logs go.
    pub directory: PathBuf,
    /// The processor that all programs under test run on.
    pub processor: usize,
    /// How long calls settle after the last one was placed, before it counts.
    pub settle: Duration,
}

/// Who takes part on the servers' side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// A transceiver alone: calls are placed with its control API, and packets go past the relay.
    Transceiver,
    /// Relay, transceiver and signaling, all on one processor, as an app meets them.
    All,
}

/// Who answers the callers, where the work needs a model server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answerer {
    /// One that speaks, a second at a time: it costs least.
    Speaks,
    /// One that gives one caller in so many its own audio back as it comes, so that it can tell how long that took.
    Echoes(NonZeroU32),
}

/// Programs that serve.
pub struct Served {
    /// The programs.
    pub stack: Stack,
    work: Work,
    service: Service,
    settle: Duration,
    /// What the answerer waits on purpose, where it gives callers their own audio back.
    echo: Option<Duration>,
    // After the stack: it ends when nobody asks any more.
    _model: Option<ModelServer>,
}

impl Served {
    /// Starts programs for a kind of work. Each that runs beside another has a number of its own.
    ///
    /// # Errors
    /// Programs do not start.
    pub fn start(
        bench: &Bench,
        number: u8,
        service: Service,
        work: Work,
        answerer: Answerer,
    ) -> io::Result<Self> {
        let model = match work.format() {
            None => None,
            Some(format) => {
                let address: SocketAddr = model_address(number);
                let server = match answerer {
                    Answerer::Speaks => ModelServer::start(address, format)?,
                    Answerer::Echoes(one_in) => ModelServer::echoing(address, format, one_in)?,
                };
                Some((server, format))
            }
        };
        let stack = Stack::start(StackPlan {
            programs: bench.programs.clone(),
            directory: bench.directory.clone(),
            number,
            processor: bench.processor,
            backend: match &model {
                None => Backend::Echo,
                Some((model, format)) => Backend::Realtime {
                    url: model.url().to_owned(),
                    format: *format,
                },
            },
            whole: service == Service::All,
        })?;
        Ok(Self {
            stack,
            work,
            service,
            settle: bench.settle,
            echo: match (work, answerer) {
                (Work::Silent, _) | (_, Answerer::Speaks) => None,
                (Work::Echo, _) => Some(FROM_MOUTH),
                (_, Answerer::Echoes(_)) => Some(IN_HAND),
            },
            _model: model.map(|(model, _)| model),
        })
    }

    /// So many calls that are all up for as long as it counts, placed where the service takes them.
    #[must_use]
    pub fn calls(&self, calls: u32, counted: Duration) -> LoadPlan {
        let (desk, way) = match self.service {
            Service::Transceiver => (self.stack.control_desk(), self.stack.direct()),
            Service::All => (self.stack.signaling_desk(), Way::Relay),
        };
        LoadPlan {
            watch: self.stack.processes(),
            silent: self.work == Work::Silent,
            manner: Manner {
                echo: self.echo,
                patience: PATIENCE,
                // The embedded echo would give back late for ever what was said before it was there.
                after_channel: self.work == Work::Echo,
                ..Manner::default()
            },
            ..held(desk, way, self.work.codec(), calls, self.settle, counted)
        }
    }
}

/// So many calls that are all up while they settle, and then for as long as it counts. Nobody is watched, and nobody listens for itself.
#[must_use]
pub fn held(
    desk: Desk,
    way: Way,
    codec: Codec,
    calls: u32,
    settle: Duration,
    counted: Duration,
) -> LoadPlan {
    LoadPlan {
        desk,
        way,
        calls,
        ramp: RAMP,
        hold: Duration::from_secs_f64(f64::from(calls) / RAMP) + settle + counted,
        settle,
        codec,
        silent: false,
        ending: Ending::Close,
        threads: 1,
        watch: Vec::new(),
        manner: Manner {
            echo: None,
            ..Manner::default()
        },
    }
}

/// How long it took from the request until DTLS was up: the sum of two parts' quantiles, in milliseconds, and so at most too much; nothing when no
/// call came so far.
#[must_use]
pub fn set_up(report: &CallReport, quantile: fn(&Spread) -> f64) -> Option<f64> {
    let part = |name| report.set_up.get(name).map(quantile);
    Some(part("answer")? + part("connected")?)
}
