//! How long a call takes to be set up, by how long the line is.

mod asked;

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use self::asked::{Asked, is_slope, key, stands_alone};
use super::chart::{Axis, Bar, Drawn, Figure, Legend, Limit, Scale, Series, Table, bars, lines};
use super::figures::{grouped, millis, number, percent};
use super::metric::{Better, Metric, Unit};
use crate::findings::{FindingsError, Source};
use crate::setup::fit::Fit;
use crate::setup::results::Channel;
use crate::setup::targets::{Figure as Which, Key, TARGET_RTT_MS};

/// Of a file of set-up times, what the page shows.
#[derive(Deserialize)]
struct Setup {
    #[serde(default)]
    rungs: Vec<Rung>,
    #[serde(default)]
    round_trips: Vec<RoundTrips>,
    #[serde(default)]
    echoes: Vec<Echo>,
    #[serde(default)]
    targets: Vec<Asked>,
    #[serde(default)]
    missing: Vec<String>,
}

#[derive(Deserialize)]
struct Rung {
    subject: String,
    connection: String,
    channel: String,
    rtt_ms: f64,
    loss: f64,
    calls: f64,
    #[serde(default)]
    failed: BTreeMap<String, f64>,
    #[serde(default)]
    phases: BTreeMap<String, Quantiles>,
}

#[derive(Deserialize)]
struct Quantiles {
    p50: f64,
    p90: f64,
    p99: f64,
}

#[derive(Deserialize)]
struct RoundTrips {
    subject: String,
    connection: String,
    channel: String,
    phase: String,
    round_trips: f64,
    fixed_ms: f64,
    /// Older files do not say.
    worst_ms: Option<f64>,
    /// Older files do not say.
    points: Option<usize>,
}

#[derive(Deserialize)]
struct Echo {
    subject: String,
    ms: f64,
    /// Older files have all of it taken off, and do not say so.
    subtracted_ms: Option<f64>,
}

/// From the POST to audio that is back, without the time that the echo holds it.
const AUDIO: &str = "audio";

/// The line on which losses are shown, in milliseconds.
const LOSSY_RTT: f64 = 20.0;

/// Who is called, in the order of the page.
const SUBJECTS: [(&str, &str); 4] = [
    ("relay", "through the relay"),
    ("direct", "direct (past the relay)"),
    ("janus", "Janus, its echo test"),
    ("aiortc", "aiortc"),
];

const CHANNELS: [(&str, &str); 3] = [
    ("without", "no data channel"),
    ("handshake", "with a data channel"),
    ("snap", "with a data channel by SNAP"),
];

fn named<'a>(names: &[(&str, &'a str)], name: &'a str) -> &'a str {
    let known = names.iter().find(|(known, _)| *known == name);
    known.map_or(name, |(_, words)| words)
}

/// Slope and intercept of the line through the medians, beside the time on one line; nothing for other targets, or where the medians are no line.
fn besides(setup: &Setup, key: Option<Key>) -> Option<String> {
    let Some(Key::Audio { channel, .. }) = key else {
        return None;
    };
    let channel = match channel {
        Channel::Without => "without",
        Channel::Handshake => "handshake",
        Channel::Snap => "snap",
    };
    let fit = setup.round_trips.iter().find(|one| {
        (one.subject.as_str(), one.connection.as_str()) == ("relay", "warm")
            && (one.channel.as_str(), one.phase.as_str()) == (channel, AUDIO)
    })?;
    let fit = setup.line(fit)?;
    Some(format!("({fit})"))
}

impl Setup {
    /// The line through the medians of a phase, where they are one.
    fn line(&self, found: &RoundTrips) -> Option<Fit> {
        let medians = || {
            let like = |rung: &&Rung| {
                rung.loss == 0.0
                    && (&rung.subject, &rung.connection, &rung.channel)
                        == (&found.subject, &found.connection, &found.channel)
                    && rung.phases.contains_key(&found.phase)
            };
            self.rungs.iter().filter(like).count()
        };
        let fit = Fit {
            round_trips: found.round_trips,
            fixed_ms: found.fixed_ms,
            worst_ms: found.worst_ms?,
            points: found.points.unwrap_or_else(medians),
        };
        fit.is_straight().then_some(fit)
    }
}

/// Its figures.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    let setup: Setup = source.read()?;
    let metric = |asked: &Asked| {
        let key = key(asked);
        // Both are the same on any machine.
        let unit = match key {
            Some(Key::Audio { .. }) => Unit::RoundTrips,
            _ => Unit::Ratio,
        };
        let name = key.map_or_else(|| asked.name.clone(), Key::name);
        let what = capital(&stands_alone(asked));
        let metric =
            Metric::new(&name, &what, asked.found, unit, Better::Lower).target(asked.must, None);
        let metric = match besides(&setup, key) {
            Some(besides) => metric.besides(besides),
            None => metric,
        };
        // Of what both are asked at half load, the median is among the first figures, as it is without a line.
        let first = match key {
            Some(Key::Audio { .. }) => true,
            Some(Key::RelayOverDirect { rtt_ms, .. }) => rtt_ms == TARGET_RTT_MS,
            Some(Key::RelayOverDirectLoaded { figure, .. }) => figure == Which::Median,
            None => false,
        };
        if first { metric.headline() } else { metric }
    };
    let asked = setup.targets.iter().filter(|asked| !is_slope(asked));
    let mut metrics: Vec<Metric> = asked.map(metric).collect();
    let is_loaded = |asked: &Asked| matches!(key(asked), Some(Key::RelayOverDirectLoaded { .. }));
    if !setup.targets.iter().any(is_loaded) {
        // It is asked all the same.
        metrics.push(metric(&Asked {
            name: String::new(),
            key: Some(Key::RelayOverDirectLoaded {
                rtt_ms: TARGET_RTT_MS,
                figure: Which::Median,
            }),
            found: f64::NAN,
            must: crate::setup::targets::RELAY_OVER_DIRECT,
            how: String::new(),
        }));
    }
    Ok(metrics)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next();
    first.map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Its charts and tables.
pub(super) fn body(source: &Source) -> Result<Markup, FindingsError> {
    let setup: Setup = source.read()?;
    Ok(html! {
        p {
            "From the request until audio comes back from an echo, on a line between two network namespaces that delays and loses as it is told. What the echo itself holds is taken "
            "off"
            @for (at, echo) in setup.echoes.iter().enumerate() {
                (if at == 0 { ": " } else { ", " }) (named(&SUBJECTS, &echo.subject)) " " (millis(echo.subtracted_ms.unwrap_or(echo.ms)))
                @if echo.subtracted_ms.is_some_and(|subtracted| subtracted != echo.ms) { " of " (millis(echo.ms)) " that were measured" }
            }
            ". Time over the line's round-trip time is what is asked of the line of " (millis(TARGET_RTT_MS)) "; slopes describe."
        }
        div.figures {
            @for (channel, words) in CHANNELS { (ladder(&setup.rungs, channel, words)) }
            (round_trips(&setup, true))
            (round_trips(&setup, false))
            (losses(&setup.rungs))
        }
        (table(&setup.rungs))
        @for asked in setup.targets.iter().filter(|asked| !asked.how.is_empty() && !is_slope(asked)) {
            p { strong { (capital(&stands_alone(asked))) ": " } (asked.how) }
        }
        @for missing in &setup.missing { p.absent { "Not measured: " (missing) } }
    })
}

/// Who is called by this kind of call, in the order of the page.
fn subjects(rungs: &[&Rung]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let known = SUBJECTS.iter().map(|(subject, _)| *subject);
    for subject in known.chain(rungs.iter().map(|rung| rung.subject.as_str())) {
        if rungs.iter().any(|rung| rung.subject == subject)
            && !found.iter().any(|one| one == subject)
        {
            found.push(subject.to_owned());
        }
    }
    found
}

fn ladder(rungs: &[Rung], channel: &str, words: &str) -> Markup {
    let like =
        |rung: &&Rung| rung.loss == 0.0 && rung.connection == "warm" && rung.channel == channel;
    let rungs: Vec<&Rung> = rungs.iter().filter(like).collect();
    let mut table = Table::new(["Call", "round-trip time", "until audio, p50", "p99"]);
    let (mut series, mut legend) = (Vec::new(), Vec::new());
    for subject in subjects(&rungs) {
        let mut points = Vec::new();
        for rung in rungs.iter().filter(|rung| rung.subject == subject) {
            let Some(audio) = rung.phases.get(AUDIO) else {
                continue;
            };
            points.push((rung.rtt_ms, audio.p50));
            let name = named(&SUBJECTS, &subject).to_owned();
            table.row([
                name,
                millis(rung.rtt_ms),
                millis(audio.p50),
                millis(audio.p99),
            ]);
        }
        if points.is_empty() {
            continue;
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        series.push(Series {
            points,
            look: series.len(),
            drawn: Drawn::Joined,
        });
        legend.push(named(&SUBJECTS, &subject).to_owned());
    }
    if series.is_empty() {
        return html! {};
    }
    Figure {
        title: &format!("Until audio is back, {words}"),
        says: "Medians, over an HTTP connection that was open already. The less steep, the fewer round trips.",
        legend: Legend::Marks(legend),
        drawing: lines(
            &series,
            &Axis::new("round-trip time of the line, ms", Scale::Linear),
            &Axis::new("ms", Scale::Linear),
            None,
        ),
        table,
    }
    .markup()
}

/// The slopes of calls with a data channel, or of those without: what the times on one line must keep to is not the same. Nothing is held against them.
fn round_trips(setup: &Setup, channel: bool) -> Markup {
    let found = &setup.round_trips;
    let phases = [
        ("answer", "answer"),
        ("ice", "ICE"),
        ("dtls", "DTLS"),
        ("channel", "channel"),
        (AUDIO, "audio back"),
    ];
    let mut table = Table::new([
        "Call",
        phases[0].1,
        phases[1].1,
        phases[2].1,
        phases[3].1,
        phases[4].1,
        "its intercept",
    ]);
    let mut rows = Vec::new();
    let asked = |one: &&RoundTrips| one.phase == AUDIO && (one.channel != "without") == channel;
    for audio in found.iter().filter(asked) {
        let like = |one: &&RoundTrips| {
            (&one.subject, &one.connection, &one.channel)
                == (&audio.subject, &audio.connection, &audio.channel)
        };
        let name = format!(
            "{}, {} connection, {}",
            named(&SUBJECTS, &audio.subject),
            audio.connection,
            named(&CHANNELS, &audio.channel)
        );
        let line = setup.line(audio);
        let none = || "–".to_owned();
        let mut row = vec![name.clone()];
        for (phase, _) in phases {
            let of_phase = found.iter().filter(like).find(|one| one.phase == phase);
            let fit = of_phase.and_then(|one| setup.line(one));
            row.push(fit.map_or_else(none, |fit| number(fit.round_trips)));
        }
        row.push(line.map_or_else(none, |fit| millis(fit.fixed_ms)));
        table.rows.push(row);
        if let Some(fit) = line {
            rows.push(Bar {
                name: capital(&name),
                value: fit.round_trips,
                figure: number(fit.round_trips),
                ours: ["relay", "direct"].contains(&audio.subject.as_str()),
            });
        }
    }
    if rows.is_empty() {
        return html! {};
    }
    let title = if channel {
        "What round-trip time adds until audio is back"
    } else {
        "What round-trip time adds until audio is back, no data channel"
    };
    Figure {
        title,
        says: "Milliseconds for each of the line's: the slope of the medians from the request on, where three or more are a line, none of them more than 3 ms from it. The table has \
               every phase; – is no line.",
        legend: Legend::None,
        drawing: bars(&rows, None),
        table,
    }
    .markup()
}

fn losses(rungs: &[Rung]) -> Markup {
    // Who has no data channel (Janus's echo test) is shown by its calls without one.
    let channel = |rung: &Rung| {
        let with = |one: &Rung| one.subject == rung.subject && one.channel == "handshake";
        if rungs.iter().any(with) {
            "handshake"
        } else {
            "without"
        }
    };
    let like = |rung: &&Rung| {
        rung.rtt_ms == LOSSY_RTT && rung.connection == "warm" && rung.channel == channel(rung)
    };
    let rungs: Vec<&Rung> = rungs.iter().filter(like).collect();
    if rungs.iter().all(|rung| rung.loss == 0.0) {
        return html! {};
    }
    let mut table = Table::new([
        "Call",
        "lost each way",
        "calls",
        "until audio, p50",
        "p90",
        "p99",
        "failed",
    ]);
    let (mut series, mut legend) = (Vec::new(), Vec::new());
    for subject in subjects(&rungs) {
        let mut name = named(&SUBJECTS, &subject).to_owned();
        if rungs
            .iter()
            .any(|rung| rung.subject == subject && rung.channel == "without")
        {
            name.push_str(", no data channel");
        }
        let mut points = Vec::new();
        for rung in rungs.iter().filter(|rung| rung.subject == subject) {
            let Some(audio) = rung.phases.get(AUDIO) else {
                continue;
            };
            points.push((100.0 * rung.loss, audio.p50));
            let failed = grouped(rung.failed.values().sum());
            table.row([
                name.clone(),
                percent(rung.loss),
                grouped(rung.calls),
                millis(audio.p50),
                millis(audio.p90),
                millis(audio.p99),
                failed,
            ]);
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !points.is_empty() {
            series.push(Series {
                points,
                look: series.len(),
                drawn: Drawn::Joined,
            });
            legend.push(name);
        }
    }
    let least = rungs.iter().map(|rung| rung.calls).fold(f64::MAX, f64::min);
    let most = rungs.iter().map(|rung| rung.calls).fold(0.0, f64::max);
    let calls = if least < most {
        format!("{} to {}", grouped(least), grouped(most))
    } else {
        grouped(most)
    };
    let patience = Limit {
        name: "a second".to_owned(),
        value: 1_000.0,
    };
    Figure {
        title: "With losses, on a line of 20 ms",
        says: &format!(
            "Until audio is back: medians of {calls} calls for each point. What is lost is sent again after a while: how soon, decides. The slowest of so few calls are chance; they stand in the table."
        ),
        legend: Legend::Marks(legend),
        drawing: lines(
            &series,
            &Axis::new("% of frames lost, each way", Scale::Linear),
            &Axis::new("ms, median", Scale::Linear),
            Some(&patience),
        ),
        table,
    }
    .markup()
}

fn table(rungs: &[Rung]) -> Markup {
    if rungs.is_empty() {
        return html! {};
    }
    let mut table = Table::new([
        "Call",
        "line",
        "lost",
        "calls",
        "failed",
        "answer",
        "ICE",
        "DTLS",
        "channel",
        "audio",
        "audio, p99",
    ]);
    for rung in rungs {
        let phase = |phase: &str| {
            rung.phases
                .get(phase)
                .map_or_else(|| "–".to_owned(), |q| millis(q.p50))
        };
        let mut row = vec![
            format!(
                "{}, {}, {}",
                named(&SUBJECTS, &rung.subject),
                rung.connection,
                named(&CHANNELS, &rung.channel)
            ),
            millis(rung.rtt_ms),
            percent(rung.loss),
            grouped(rung.calls),
            grouped(rung.failed.values().sum()),
        ];
        row.extend(["answer", "ice", "dtls", "channel", AUDIO].map(phase));
        row.push(
            rung.phases
                .get(AUDIO)
                .map_or_else(|| "–".to_owned(), |q| millis(q.p99)),
        );
        table.rows.push(row);
    }
    html! {
        details.card {
            summary { "Every kind of call on every line: medians of each phase, counted from the request" }
            (table.markup("Every kind of call on every line"))
        }
    }
}
