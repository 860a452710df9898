//! The command that places calls.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use firsthop_perf::call::air::Way;
use firsthop_perf::call::ear::PATIENCE;
use firsthop_perf::call::load::{self, Ending, LoadPlan, Progress};
use firsthop_perf::call::manner::{Manner, Sharing};
use firsthop_perf::call::placing::Desk;
use firsthop_perf::call::recording::Codec;
use firsthop_perf::call::schedule::{Arrivals, Lengths};
use firsthop_perf::call::trouble::Rates;
use firsthop_perf::call::verdicts::{self, Limit};
use firsthop_perf::call::wav::Speech;
use firsthop_shared::address::{ClusterId, IngressId};
use firsthop_shared::keyring::DataKeyring;
use indicatif::{ProgressBar, ProgressStyle};

/// The longest that an echo may wait on purpose: marks are not listened for much longer.
const LONGEST_DELAY: Duration = Duration::from_secs(3);

/// The longest that a load, or a part of it, may take: a week.
const LONGEST_RUN: Duration = Duration::from_secs(7 * 24 * 3_600);

#[derive(clap::Args)]
pub(crate) struct CallsArgs {
    /// Where calls are placed: signaling's URL, or that of any server with a Realtime API (with a path, if that is another than /v1/realtime/calls); with --control a
    /// transceiver's.
    #[arg(long, default_value = "http://localhost:8080")]
    url: String,
    /// An API key, or a client secret.
    #[arg(long, env = "FIRSTHOP_KEY", default_value = "dev")]
    key: String,
    /// Place calls with a transceiver's control API, past signaling. Needs --keyring and --control-secret-file.
    #[arg(long, requires = "keyring", requires = "control_secret_file")]
    control: bool,
    /// File with the transceiver's control secret.
    #[arg(long, env = "FIRSTHOP_CONTROL_SECRET_FILE")]
    control_secret_file: Option<PathBuf>,
    /// Send packets to transceivers over the trunk, past the relay. Needs --keyring.
    #[arg(long, requires = "keyring")]
    direct: bool,
    /// The fleet's data keyring.
    #[arg(long, env = "FIRSTHOP_KEYRING")]
    keyring: Option<PathBuf>,
    /// The transceiver's cluster, with --control.
    #[arg(long, env = "FIRSTHOP_CLUSTER", default_value_t = 1)]
    cluster: u16,
    /// The ingress point that calls advertise with --control, and that --direct pretends to be.
    #[arg(long, default_value_t = 0)]
    ingress: u8,
    /// How many calls.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
    /// How many are placed per second.
    #[arg(long, default_value = "50/s", value_parser = rate)]
    ramp: f64,
    /// What they have between them while they are placed.
    #[arg(long, value_enum, default_value_t = Arrivals::Even)]
    arrivals: Arrivals,
    /// How long each lasts, in seconds, set-up included.
    #[arg(long, default_value_t = 10.0)]
    duration: f64,
    /// How lengths are distributed about that mean: fixed, exponential, or log-normal:SIGMA.
    #[arg(long, default_value = "fixed")]
    lengths: Lengths,
    /// For how long after the ramp further calls arrive by chance, as many as end, in seconds.
    #[arg(long, default_value_t = 0.0)]
    churn: f64,
    /// Decides what is random: the same seed makes the same calls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long calls settle after the last one was placed, before what they hear counts, in seconds: an echo lags behind what was said before the channel was open, until
    /// the first pause.
    #[arg(long, default_value_t = 5.0)]
    settle: f64,
    /// What clients offer.
    #[arg(long, value_enum, default_value_t = Codec::Opus)]
    codec: Codec,
    /// Clients say nothing.
    #[arg(long, conflicts_with = "wav")]
    silent: bool,
    /// What clients say, over and over: a WAV file of 16-bit PCM. Without one, talk spurts that are made up.
    #[arg(long)]
    wav: Option<PathBuf>,
    /// How long what answers waits on purpose before it returns what it hears. The embedded echo waits so long; Janus, say, does not.
    #[arg(long, default_value = "80ms", value_parser = time)]
    echo_delay: Duration,
    /// Begin to speak when the channel is open, and not when DTLS is up.
    #[arg(long)]
    after_channel: bool,
    /// Do not listen for marks in what comes back: what answers is no echo.
    #[arg(long)]
    no_marks: bool,
    /// How calls end.
    #[arg(long, value_enum, default_value_t = Ending::Close)]
    end: Ending,
    /// The share of calls that end without a word, however the others do.
    #[arg(long, default_value = "0", value_parser = share)]
    vanish: f64,
    /// How often a client restarts ICE where it is.
    #[arg(long, default_value = "0/min", value_parser = per_call)]
    restarts: f64,
    /// How often a client gets another address, and restarts ICE from there.
    #[arg(long, default_value = "0/min", value_parser = per_call)]
    moves: f64,
    /// How often a client gets another port, and nobody is told.
    #[arg(long, default_value = "0/min", value_parser = per_call)]
    rebinds: f64,
    /// The clients' sockets: `own`, one for each client; or `shared`, a few that have a loopback address for each, for servers on this machine. The default goes by the URL.
    #[arg(long, value_enum)]
    sockets: Option<Sockets>,
    /// The address of sockets that clients own. The default is that from which this machine reaches the URL.
    #[arg(long)]
    from: Option<Ipv4Addr>,
    /// Threads that play clients; the default is one for each processor, or one for servers on this machine, which need the others.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Process ids of programs whose processor time and memory are to be told; may be repeated.
    #[arg(long)]
    watch: Vec<u32>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Exit with status 1 when a measure is beyond a limit, such as 'setup_p99>500ms' or 'lost>1%'; may be repeated. --help lists the measures.
    #[arg(long, value_name = "LIMIT", long_help = fail_if_help())]
    fail_if: Vec<Limit>,
}

/// How clients share sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Sockets {
    /// Many clients behind one.
    Shared,
    /// One for each client.
    Own,
}

fn fail_if_help() -> String {
    format!(
        "Exit with status 1 when a measure is beyond a limit, such as 'setup_p99>500ms' or 'lost>1%'; may be repeated. What was not measured \
         is beyond any limit.\n\n\
         A server that dies leaves calls in which nothing is heard any more. When nothing came for more than 60 ms before a call's end, or before it stopped to count, that is a \
         gap as long as it lasted, and a packet is lost for each 20 ms of it: an echo sends without pause. Any other server may stop when it has nothing to say (RFC 3551): \
         where the last packets before the silence were silent themselves, it is none.\n\n{}",
        verdicts::measures()
    )
}

/// A time as `80ms` or `1.5s`.
fn time(text: &str) -> Result<Duration, String> {
    let (number, scale) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, f64::NAN),
    };
    let seconds = number.parse::<f64>().map(|number| number * scale);
    match seconds.ok().map(Duration::try_from_secs_f64) {
        Some(Ok(time)) if time <= LONGEST_DELAY => Ok(time),
        _ => Err("give a time up to 3 s, such as 80ms".to_owned()),
    }
}

/// A share as `5%` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(number) => number.parse::<f64>().map(|number| number / 100.0),
        None => text.parse::<f64>(),
    };
    match share {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("give a share such as 5% or 0.05".to_owned()),
    }
}

/// How often something befalls each call, as `2/min` or `0.1/s`; per second.
fn per_call(text: &str) -> Result<f64, String> {
    let (number, scale) = match (text.strip_suffix("/min"), text.strip_suffix("/s")) {
        (Some(number), _) => (number, 1.0 / 60.0),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, f64::NAN),
    };
    match number.parse::<f64>().map(|number| number * scale) {
        Ok(rate) if (0.0..=10.0).contains(&rate) => Ok(rate),
        _ => Err("give how often each call has it, such as 2/min; at most 10/s".to_owned()),
    }
}

/// A rate as `200/s` or `200`.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("give calls per second, such as 200/s".to_owned()),
    }
}

impl CallsArgs {
    fn plan(&self) -> anyhow::Result<LoadPlan> {
        let keyring = match &self.keyring {
            Some(path) => Some(Arc::new(DataKeyring::load(path).context("--keyring")?)),
            None => None,
        };
        let url = self.url.trim_end_matches('/').to_owned();
        let desk = match (self.control, &self.control_secret_file, &keyring) {
            (false, _, _) => Desk::Signaling {
                url,
                key: self.key.clone(),
            },
            (true, Some(secret), Some(keyring)) => Desk::Control {
                url,
                secret: fs::read_to_string(secret)
                    .with_context(|| format!("--control-secret-file {}", secret.display()))?
                    .trim()
                    .to_owned(),
                keyring: Arc::clone(keyring),
                cluster: ClusterId(self.cluster),
                ingresses: vec![self.ingress],
            },
            (true, _, _) => bail!("--control needs --keyring and --control-secret-file"),
        };
        let way = match (self.direct, keyring) {
            (false, _) => Way::Relay,
            (true, Some(keyring)) => Way::Direct {
                keyring,
                ingress: IngressId(self.ingress),
            },
            (true, None) => bail!("--direct needs --keyring"),
        };
        let seconds = |name, value| {
            let time = Duration::try_from_secs_f64(value).ok();
            let time = time.filter(|time| *time <= LONGEST_RUN);
            time.with_context(|| {
                format!("{name} {value}: give a number of seconds, from 0 to a week")
            })
        };
        let trouble = Rates {
            restarts: self.restarts,
            moves: self.moves,
            rebinds: self.rebinds,
        };
        ensure!(
            !self.control || self.restarts + self.moves == 0.0,
            "--restarts and --moves ask signaling for them; leave --control out"
        );
        ensure!(
            !self.direct || self.moves + self.rebinds == 0.0,
            "--moves and --rebinds want clients with sockets; leave --direct out"
        );
        let sockets = self.sharing(&desk)?;
        let shared = sockets == Sharing::Shared;
        let threads = self.threads.unwrap_or_else(|| {
            let all = std::thread::available_parallelism().map_or(1, usize::from);
            if shared { 1 } else { all.min(256) as u32 }
        });
        let speech = match &self.wav {
            Some(path) => Some(Arc::new(Speech::read(path).context("--wav")?)),
            None => None,
        };
        let hold = seconds("--duration", self.duration)?;
        ensure!(!hold.is_zero(), "--duration: a call takes some time");
        Ok(LoadPlan {
            desk,
            way,
            calls: self.calls,
            ramp: self.ramp,
            hold,
            settle: seconds("--settle", self.settle)?,
            codec: self.codec,
            silent: self.silent,
            ending: self.end,
            threads,
            watch: self.watch.clone(),
            manner: Manner {
                seed: self.seed,
                arrivals: self.arrivals,
                lengths: self.lengths,
                churn: seconds("--churn", self.churn)?,
                vanish: self.vanish,
                trouble,
                speech,
                echo: (!self.no_marks).then_some(self.echo_delay),
                patience: PATIENCE,
                after_channel: self.after_channel,
                sockets,
            },
        })
    }

    /// The clients' sockets, for this desk.
    fn sharing(&self, desk: &Desk) -> anyhow::Result<Sharing> {
        if self.direct {
            return Ok(Sharing::Shared);
        }
        let reached = || desk.reached_from().map_err(anyhow::Error::msg);
        let own = |from, bind| Ok(Sharing::Own { from, bind });
        match (self.sockets, self.from) {
            (Some(Sockets::Shared), Some(_)) => bail!("--from is for --sockets own"),
            (Some(Sockets::Shared), None) => Ok(Sharing::Shared),
            (_, Some(from)) => own(from, from),
            (Some(Sockets::Own), None) => own(reached().context("--url")?, Ipv4Addr::UNSPECIFIED),
            (None, None) => match reached().context("--url")? {
                from if from.is_loopback() => Ok(Sharing::Shared),
                from => own(from, Ipv4Addr::UNSPECIFIED),
            },
        }
    }
}

/// Places calls.
pub(crate) fn calls(args: &CallsArgs) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let progress = Arc::new(Progress::default());
    let over = Arc::new(AtomicBool::new(false));
    let shown = std::io::stderr().is_terminal().then(|| {
        let (progress, over) = (Arc::clone(&progress), Arc::clone(&over));
        std::thread::spawn(move || show(&progress, &over))
    });
    let result = load::run(&plan, &progress);
    over.store(true, Relaxed);
    if let Some(shown) = shown {
        // It only shows.
        let _ = shown.join();
    }
    let report = result?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    let broken: Vec<String> = args
        .fail_if
        .iter()
        .filter_map(|limit| limit.broken(&report))
        .collect();
    for line in &broken {
        eprintln!("failed: {line}");
    }
    ensure!(
        report.connected > 0,
        "no call came about; is Firsthop running, and the key right?"
    );
    if broken.is_empty() {
        return Ok(());
    }
    // What was asked for has been done, and no error was met: a status, and no trace of where.
    std::process::exit(1)
}

/// Shows how far the load is, until it is over.
fn show(progress: &Progress, over: &AtomicBool) {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let begin = Instant::now();
    while !over.load(Relaxed) {
        let now = |counter: &AtomicU64| counter.load(Relaxed);
        let (calls, placed) = (now(&progress.calls), now(&progress.placed));
        let (connected, ended) = (now(&progress.connected), now(&progress.ended));
        let length = now(&progress.millis);
        bar.set_length(length);
        bar.set_position((begin.elapsed().as_millis() as u64).min(length));
        bar.set_message(format!(
            "{placed} of {calls} placed, {connected} connected, {ended} ended"
        ));
        std::thread::sleep(Duration::from_millis(200));
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use firsthop_perf::call::embedded_echo::FROM_MOUTH;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        call: CallsArgs,
    }

    fn line(words: &[&str]) -> Result<CallsArgs, String> {
        Line::try_parse_from(["calls"].iter().chain(words))
            .map(|line| line.call)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_manner_of_calls_is_read_with_its_units() {
        let words = [
            "--restarts",
            "3/min",
            "--moves",
            "0.5/s",
            "--vanish",
            "5%",
            "--lengths",
            "log-normal:0.8",
            "--arrivals",
            "poisson",
            "--churn",
            "60",
            "--from",
            "10.0.0.7",
            "--no-marks",
            "--fail-if",
            "setup_p99>500ms",
            "--fail-if",
            "lost > 1%",
        ];
        let args = line(&words).expect("a line");
        assert_eq!(args.fail_if.len(), 2);
        let manner = args.plan().expect("a plan").manner;
        assert_eq!((manner.trouble.restarts, manner.trouble.moves), (0.05, 0.5));
        assert_eq!(
            (manner.vanish, manner.churn, manner.echo),
            (0.05, Duration::from_secs(60), None)
        );
        assert_eq!(manner.lengths, Lengths::LogNormal { sigma: 0.8 });
        let from = Ipv4Addr::new(10, 0, 0, 7);
        assert_eq!(manner.sockets, Sharing::Own { from, bind: from });
        // Servers here have clients that share sockets, and one thread of them.
        let plan = line(&["--url", "http://127.0.0.1:8080"])
            .and_then(|args| args.plan().map_err(|error| format!("{error:#}")))
            .expect("a plan");
        assert_eq!((plan.manner.sockets, plan.threads), (Sharing::Shared, 1));
        assert_eq!(plan.manner.echo, Some(FROM_MOUTH));
    }

    #[test]
    fn a_line_makes_a_plan_and_what_is_missing_is_named() {
        let plan = line(&["--calls", "100", "--ramp", "20/s", "--codec", "pcmu"])
            .and_then(|args| args.plan().map_err(|error| format!("{error:#}")))
            .expect("a plan");
        assert_eq!(
            (plan.calls, plan.ramp, plan.codec),
            (100, 20.0, Codec::Pcmu)
        );
        assert!(matches!(plan.way, Way::Relay));
        for (words, expected) in [
            (&["--ramp", "fast"][..], "calls per second"),
            (&["--ramp", "0"], "calls per second"),
            (&["--direct"], "--keyring"),
            (&["--control"], "--keyring"),
            (&["--calls", "0"], "--calls"),
        ] {
            let error = line(words).err().expect("refused");
            assert!(error.contains(expected), "{error}");
        }
        for (words, expected) in [
            (&["--lengths", "short"][..], "log-normal:SIGMA"),
            (&["--vanish", "110%"], "a share"),
            (&["--restarts", "often"], "2/min"),
            (&["--echo-delay", "80"], "80ms"),
            (&["--fail-if", "speed>1s"], "mouth_to_ear"),
            (&["--silent", "--wav", "speech.wav"], "--wav"),
        ] {
            let error = line(words).err().expect("refused");
            assert!(error.contains(expected), "{error}");
        }
        for (words, expected) in [
            (&["--url", "nowhere"][..], "--url"),
            (&["--sockets", "shared", "--from", "10.0.0.1"], "--from"),
            (&["--wav", "/nowhere.wav"], "--wav"),
            (&["--duration", "0"], "--duration"),
        ] {
            let args = line(words).expect("a line");
            let error = format!("{:#}", args.plan().expect_err("refused"));
            assert!(error.starts_with(expected), "{error}");
        }
        let args = line(&["--keyring", "/nowhere", "--direct"]).expect("a line");
        let error = format!("{:#}", args.plan().expect_err("refused"));
        assert!(error.starts_with("--keyring"), "{error}");
    }
}
