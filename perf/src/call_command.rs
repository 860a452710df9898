//! The command that places calls.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use firsthop_perf::call::air::Way;
use firsthop_perf::call::load::{self, Ending, LoadPlan, Progress};
use firsthop_perf::call::manner::Manner;
use firsthop_perf::call::placing::Desk;
use firsthop_perf::call::recording::Codec;
use firsthop_shared::address::{ClusterId, IngressId};
use firsthop_shared::keyring::DataKeyring;

#[derive(clap::Args)]
pub(crate) struct CallArgs {
    /// Where calls are placed: signaling's URL, or with --control a transceiver's.
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
    /// How long each lasts, in seconds, set-up included.
    #[arg(long, default_value_t = 10.0)]
    duration: f64,
    /// How long calls settle after the last one was placed, before what they hear counts, in seconds.
    #[arg(long, default_value_t = 2.0)]
    settle: f64,
    /// What clients offer.
    #[arg(long, value_enum, default_value_t = Codec::Opus)]
    codec: Codec,
    /// Clients say nothing.
    #[arg(long)]
    silent: bool,
    /// How calls end.
    #[arg(long, value_enum, default_value_t = Ending::Close)]
    end: Ending,
    /// Threads that play clients.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Process ids of programs whose processor time and memory are to be told; may be repeated.
    #[arg(long)]
    watch: Vec<u32>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// A rate as `200/s` or `200`.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("give calls per second, such as 200/s".to_owned()),
    }
}

impl CallArgs {
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
        let seconds = |name, value| Duration::try_from_secs_f64(value).context(name);
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
            threads: self.threads,
            watch: self.watch.clone(),
            manner: Manner::default(),
        })
    }
}

/// Places calls.
pub(crate) fn call(args: &CallArgs) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let progress = Arc::new(Progress::default());
    let over = Arc::new(AtomicBool::new(false));
    let shown = (!args.json && std::io::stderr().is_terminal()).then(|| {
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
    ensure!(
        report.connected > 0,
        "no call came about; is Firsthop running, and the key right?"
    );
    Ok(())
}

/// Shows on one line how far the load is, until it is over.
fn show(progress: &Progress, over: &AtomicBool) {
    let mut err = std::io::stderr().lock();
    while !over.load(Relaxed) {
        let now = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let calls = now(&progress.calls);
        let (placed, connected, ended) = (
            now(&progress.placed),
            now(&progress.connected),
            now(&progress.ended),
        );
        let _ = write!(
            err,
            "\r{placed} of {calls} placed, {connected} connected, {ended} ended "
        );
        let _ = err.flush();
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = write!(err, "\r{:60}\r", "");
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        call: CallArgs,
    }

    fn line(words: &[&str]) -> Result<CallArgs, String> {
        Line::try_parse_from(["call"].iter().chain(words))
            .map(|line| line.call)
            .map_err(|error| error.to_string())
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
        let args = line(&["--keyring", "/nowhere", "--direct"]).expect("a line");
        let error = format!("{:#}", args.plan().expect_err("refused"));
        assert!(error.starts_with("--keyring"), "{error}");
    }
}
