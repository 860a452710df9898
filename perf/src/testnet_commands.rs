//! The commands that a test network is made with: they run until their input ends, and obey it line by line.

use std::io::{stdin, stdout};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::builder::ValueParser;
use firsthop_perf::call::judge::Judge;
use firsthop_perf::call::model::{Format, ModelServer};
use firsthop_perf::call::placing::Desk;
use firsthop_perf::call::recording::Codec;
use firsthop_perf::clock::wall_nanos;
use firsthop_perf::hold::command::Command;
use firsthop_perf::hold::{Holder, Plan};
use firsthop_perf::impair::Impaired;
use firsthop_perf::impair::fate::{LONGEST, Line};
use firsthop_perf::impair::link::Link;
use firsthop_perf::lines;
use serde_json::{Value, json};

/// A rate as `200/s` or `200`.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("give calls per second, such as 20/s".to_owned()),
    }
}

/// A time as `20ms`, `1.5s` or `300us`.
fn time(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[number.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => {
            return Err(format!(
                "{text:?} is no time; give one as 20ms, 300us or 1.5s"
            ));
        }
    };
    let seconds = number.parse::<f64>().map(|number| number * scale);
    match seconds.ok().map(Duration::try_from_secs_f64) {
        Some(Ok(time)) if time <= LONGEST => Ok(time),
        _ => Err(format!(
            "{text:?} is no time from 0 to {} s",
            LONGEST.as_secs()
        )),
    }
}

/// A share as `0.02`.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!(
            "{text:?} is no share; give one from 0 to 1, such as 0.02"
        )),
    }
}

#[derive(clap::Args)]
pub(crate) struct ImpairArgs {
    /// The two interfaces that are joined; the right CAP_NET_RAW is needed.
    #[arg(long, value_delimiter = ',', num_args = 1, required = true)]
    between: Vec<String>,
    /// How long a frame takes.
    #[arg(long, default_value = "0ms", value_parser = ValueParser::new(time))]
    delay: Duration,
    /// How much sooner or later than that it may come.
    #[arg(long, default_value = "0ms", value_parser = ValueParser::new(time))]
    jitter: Duration,
    /// The share of frames that are lost.
    #[arg(long, default_value = "0", value_parser = ValueParser::new(share))]
    loss: f64,
    /// Decides which frames are lost, and how late each comes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Joins two interfaces.
pub(crate) fn impair(args: &ImpairArgs) -> anyhow::Result<()> {
    let [a, b] = &args.between[..] else {
        bail!("--between names two interfaces, such as --between left,right");
    };
    ensure!(a != b, "--between names two interfaces, not one twice");
    let open = |name: &str| Link::open(name).with_context(|| format!("interface {name}"));
    let mut line = Line {
        delay: args.delay,
        jitter: args.jitter,
        loss: args.loss,
        cut: false,
    };
    let mut link = Impaired::start([open(a)?, open(b)?], line, args.seed)?;
    let mut out = stdout().lock();
    lines::say(&mut out, &json!({ "ready": { "between": [a, b] } }))?;
    lines::obey(stdin().lock(), &mut out, |words| {
        change(&mut line, words)?;
        let done = match words {
            "measure" => link
                .measure()
                .and_then(|report| Ok(serde_json::to_value(report)?)),
            _ => link.set(line).map(|()| told(&line)),
        };
        done.map_err(|error| error.to_string())
    })?;
    Ok(())
}

/// Changes a line as a command says.
fn change(line: &mut Line, words: &str) -> Result<(), String> {
    match words.split_whitespace().collect::<Vec<_>>()[..] {
        ["delay", delay] => line.delay = time(delay)?,
        ["jitter", jitter] => line.jitter = time(jitter)?,
        ["loss", loss] => line.loss = share(loss)?,
        ["cut"] => line.cut = true,
        ["heal"] => line.cut = false,
        ["measure"] => {}
        _ => {
            return Err(format!(
                "{words:?} is no command here; there are: delay TIME, jitter TIME, loss SHARE, cut, heal, measure"
            ));
        }
    }
    Ok(())
}

fn told(line: &Line) -> Value {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    json!({ "line": {
        "delay_ms": millis(line.delay),
        "jitter_ms": millis(line.jitter),
        "loss": line.loss,
        "cut": line.cut,
    }})
}

#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// Where transceivers connect to.
    #[arg(long)]
    listen: SocketAddr,
}

/// Plays a model server that judges what it hears.
pub(crate) fn model(args: &ModelArgs) -> anyhow::Result<()> {
    let judge = Arc::new(Mutex::new(Judge::new(wall_nanos())));
    let server = ModelServer::judged(args.listen, Format::Pcmu, Arc::clone(&judge))
        .with_context(|| format!("--listen {}", args.listen))?;
    let mut out = stdout().lock();
    lines::say(&mut out, &json!({ "ready": { "url": server.url() } }))?;
    lines::obey(stdin().lock(), &mut out, |words| {
        let mut judge = judge.lock().unwrap_or_else(PoisonError::into_inner);
        let now = wall_nanos();
        match words {
            "mark" => {
                judge.mark(now);
                Ok(json!({ "marked": judge.clients(now).len() }))
            }
            "measure" => serde_json::to_value(judge.measure(now)).map_err(|e| e.to_string()),
            "calls" => Ok(json!({ "calls": judge.clients(now) })),
            _ => Err(format!(
                "{words:?} is no command here; there are: mark, measure, calls"
            )),
        }
    })?;
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct HoldArgs {
    /// Where calls are placed: signaling's URL.
    #[arg(long, default_value = "http://localhost:8080")]
    url: String,
    /// An API key, or a client secret.
    #[arg(long, env = "FIRSTHOP_KEY", default_value = "dev")]
    key: String,
    /// How many calls.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls: u32,
    /// How many are placed per second.
    #[arg(long, default_value = "20/s", value_parser = ValueParser::new(rate))]
    ramp: f64,
    /// The clients' address, one of this machine's.
    #[arg(long)]
    from: Ipv4Addr,
    /// Use only this of the server's candidates.
    #[arg(long)]
    via: Option<SocketAddrV4>,
    /// What clients offer. Frames of G.711 are marked for `perf model`.
    #[arg(long, value_enum, default_value_t = Codec::Pcmu)]
    codec: Codec,
    /// A client that hears nothing for 3 s, or whose call has ended, places another.
    #[arg(long)]
    reconnect: bool,
    /// How long all calls may take until they hear something, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience: u64,
    /// Threads that play clients.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
}

/// Holds calls.
pub(crate) fn hold(args: &HoldArgs) -> anyhow::Result<()> {
    let holder = Holder::start(Plan {
        desk: Desk::Signaling {
            url: args.url.trim_end_matches('/').to_owned(),
            key: args.key.clone(),
        },
        calls: args.calls,
        ramp: args.ramp,
        from: args.from,
        via: args.via.map(SocketAddr::V4),
        codec: args.codec,
        reconnect: args.reconnect,
        threads: args.threads,
    })?;
    let mut out = stdout().lock();
    lines::say(&mut out, &json!({ "ready": { "calls": args.calls } }))?;
    let set_up = holder.set_up(Duration::from_secs(args.patience))?;
    lines::say(&mut out, &serde_json::to_value(set_up)?)?;
    lines::obey(stdin().lock(), &mut out, |words| {
        holder.obey(words.parse::<Command>()?)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_are_read_and_what_is_none_is_refused() {
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(time("300us"), Ok(Duration::from_micros(300)));
        for text in ["", "20", "ms", "-1ms", "11s", "NaNs", "20 ms", "5m"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert_eq!(share("0.02"), Ok(0.02));
        for text in ["", "-0.1", "1.1", "2%", "NaN"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_is_changed_by_commands_and_only_by_these() {
        let mut line = Line {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            cut: false,
        };
        for words in ["delay 40ms", "jitter 2ms", "loss 0.02", "cut", "measure"] {
            change(&mut line, words).expect("a command");
        }
        let expected = Line {
            delay: Duration::from_millis(40),
            jitter: Duration::from_millis(2),
            loss: 0.02,
            cut: true,
        };
        assert_eq!(line, expected);
        change(&mut line, "heal").expect("a command");
        assert!(!line.cut);
        for (words, expected) in [
            ("delay", "there are: delay"),
            ("delay long", "no time"),
            ("loss 2", "no share"),
            ("cut now", "there are"),
        ] {
            let error = change(&mut line, words).expect_err("refused");
            assert!(error.contains(expected), "{error}");
        }
    }
}
