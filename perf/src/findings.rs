//! Files of results, read back: what was measured, where, when and of which commit.
//!
//! A file's name says which kind it is: `relay.json`, or `relay-` and whatever tells it from others. What is in it is read by whoever needs
//! it, as no more than what they need ([`Source::read`]): a file that an older or newer program wrote is good as long as that is there.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::measured::is_busy;

pub(crate) mod cost;
mod kind;
mod origin;

pub use kind::Kind;
pub use origin::Origin;
use origin::when;

/// A file of results.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path, as it was given.
    pub file: String,
    /// What it is about.
    pub kind: Kind,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it is of the short form, which is for a look.
    pub quick: bool,
    value: Value,
}

/// Why files of results could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FindingsError {
    /// The system refused it.
    #[error("{file}: {error}")]
    Io {
        /// Which one.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is no JSON.
    #[error("{file} is no JSON: {error}; `{}` writes it anew", kind.command())]
    Json {
        /// Which one.
        file: String,
        /// What it should be.
        kind: Kind,
        /// Why.
        error: serde_json::Error,
    },
    /// Something in it is not what it should be.
    #[error("{file}: {field}: {error}; `{}` writes it anew", kind.command())]
    Shape {
        /// Which one.
        file: String,
        /// What it should be.
        kind: Kind,
        /// The field, from the top of the file.
        field: String,
        /// Why.
        error: String,
    },
    /// There is no such file, and no such folder.
    #[error(
        "{0}: there is nothing of this name here; `scripts/bench` makes results in the project's perf/results: name a file or a folder of them, from the folder that you are in"
    )]
    Missing(String),
    /// Its name tells nothing.
    #[error(
        "{0}: its name does not say what it holds: name it relay.json, calls.json, signaling.json, setup.json, capacity.json or testnet.json, \
         or with a dash before .json, as in relay-monday.json"
    )]
    Unnamed(String),
    /// Nothing was there.
    #[error("{0}: no results here; `scripts/bench` makes them")]
    Nothing(String),
}

/// All files that were read.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    /// In the order of their kinds; of each, those of the short form before the whole ones, and the oldest first.
    sources: Vec<Source>,
}

impl Findings {
    /// Reads files, and all files of folders whose names say what they are.
    ///
    /// # Errors
    /// A file is not there, is no JSON, or does not say where it comes from; a folder has none.
    pub fn read(paths: &[PathBuf]) -> Result<Self, FindingsError> {
        let mut sources = Vec::new();
        for path in paths {
            let name = path.display().to_string();
            if !path.exists() {
                return Err(FindingsError::Missing(name));
            }
            if !path.is_dir() {
                let kind = Kind::of(path).ok_or(FindingsError::Unnamed(name))?;
                sources.push(read(path, kind)?);
                continue;
            }
            let before = sources.len();
            for path in listed(path)? {
                if let Some(kind) = Kind::of(&path) {
                    sources.push(read(&path, kind)?);
                }
            }
            if sources.len() == before {
                return Err(FindingsError::Nothing(name));
            }
        }
        Ok(Self::of(sources))
    }

    /// Puts sources in order.
    #[must_use]
    pub fn of(mut sources: Vec<Source>) -> Self {
        // The sort is stable: files without a date, or of one moment, stay as they were given.
        let key = |source: &Source| (source.kind, !source.quick);
        sources.sort_by(|a, b| {
            key(a)
                .cmp(&key(b))
                .then_with(|| a.origin.when().cmp(&b.origin.when()))
        });
        Self { sources }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Source] {
        &self.sources
    }

    /// Those of a kind: of the short form, then whole, and each the oldest first.
    pub fn of_kind(&self, kind: Kind) -> impl DoubleEndedIterator<Item = &Source> {
        self.sources
            .iter()
            .filter(move |source| source.kind == kind)
    }

    /// The newest of a kind; of the short form only where there is no whole one.
    #[must_use]
    pub fn latest(&self, kind: Kind) -> Option<&Source> {
        self.of_kind(kind).next_back()
    }

    /// The newest of each kind.
    pub fn newest(&self) -> impl Iterator<Item = &Source> {
        Kind::ALL.into_iter().filter_map(|kind| self.latest(kind))
    }
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, FindingsError> {
    let failed = |error| FindingsError::Io {
        file: folder.display().to_string(),
        error,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path, kind: Kind) -> Result<Source, FindingsError> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| FindingsError::Io {
        file: file.clone(),
        error,
    })?;
    // What is no text is no JSON either.
    Source::parse(file, kind, &String::from_utf8_lossy(&bytes))
}

impl Source {
    /// Takes a file's text.
    ///
    /// # Errors
    /// It is no JSON, or does not say where it comes from.
    pub fn parse(file: String, kind: Kind, text: &str) -> Result<Self, FindingsError> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return Err(FindingsError::Json { file, kind, error }),
        };
        let mut source = Self {
            file,
            kind,
            origin: Origin {
                machine: String::new(),
                commit: String::new(),
                date: String::new(),
                earlier: Vec::new(),
                busy: false,
            },
            quick: false,
            value,
        };
        // The test world writes a list, and in every row where it comes from.
        let heads: Vec<Head> = if source.value.is_array() {
            source.read()?
        } else {
            vec![source.read()?]
        };
        let Some(newest) = heads
            .iter()
            .max_by(|a, b| when(&a.date).cmp(&when(&b.date)))
        else {
            return Err(source.shape(".", "an empty list"));
        };
        source.quick = newest.quick;
        source.origin = Origin {
            machine: newest.machine.line(),
            commit: one_or_all(&heads, |head| &head.commit),
            date: newest.date.clone(),
            earlier: heads.iter().flat_map(|head| head.earlier.clone()).collect(),
            busy: heads.iter().any(|head| head.machine.is_busy()),
        };
        Ok(source)
    }

    /// Takes out of it what somebody needs.
    ///
    /// # Errors
    /// It is not there, or is something else.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FindingsError> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| self.shape(&error.path().to_string(), &error.inner().to_string()))
    }

    /// The error that something in it is not what it should be.
    #[must_use]
    pub fn shape(&self, field: &str, error: &str) -> FindingsError {
        FindingsError::Shape {
            file: self.file.clone(),
            kind: self.kind,
            field: match field {
                "." => "the whole".to_owned(),
                field => field.to_owned(),
            },
            error: error.to_owned(),
        }
    }
}

/// Reads a number that may be none: where a program wrote infinity or worse, JSON has `null`. It has no place in a chart then.
pub(crate) fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// What all of these say, each once.
fn one_or_all(heads: &[Head], of: impl Fn(&Head) -> &String) -> String {
    let mut said: Vec<&str> = Vec::new();
    for head in heads {
        if !said.contains(&of(head).as_str()) {
            said.push(of(head));
        }
    }
    said.join(", ")
}

/// What every file begins with.
#[derive(Deserialize)]
struct Head {
    machine: Place,
    commit: String,
    date: String,
    #[serde(default)]
    earlier: Vec<String>,
    #[serde(default)]
    quick: bool,
}

/// A machine, as [`Machine`](crate::measured::Machine) is written, or in a line already.
#[derive(Deserialize)]
#[serde(untagged)]
enum Place {
    Line(String),
    Parts {
        processor: String,
        processors: usize,
        kernel: String,
        #[serde(default)]
        load_at_start: f64,
    },
}

impl Place {
    fn line(&self) -> String {
        match self {
            Self::Line(line) => line.clone(),
            Self::Parts {
                processor,
                processors,
                kernel,
                load_at_start: _,
            } => format!("{processors} x {processor}, Linux {kernel}"),
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Line(_) => false,
            Self::Parts {
                processors,
                load_at_start,
                ..
            } => is_busy(*load_at_start, *processors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        r#""machine": {"processor": "Fast", "processors": 2, "kernel": "6.18"}, "commit": "abc""#;

    fn parse(kind: Kind, text: &str) -> Result<Source, FindingsError> {
        Source::parse("here.json".to_owned(), kind, text)
    }

    #[test]
    fn machines_compare_however_they_are_written() {
        let relay = parse(
            Kind::Relay,
            &format!(r#"{{{HEAD}, "date": "2026-01-02T03:04:05Z", "quick": true}}"#),
        )
        .expect("good");
        let row = |commit: &str, date: &str| {
            format!(
                r#"{{"machine": "2 x Fast, Linux 6.18", "commit": "{commit}", "date": "{date}"}}"#
            )
        };
        let rows = format!(
            "[{}, {}]",
            row("abc", "2026-01-01"),
            row("def", "2026-01-03")
        );
        let testnet = parse(Kind::Testnet, &rows).expect("good");
        assert_eq!(relay.origin.machine, testnet.origin.machine);
        assert_eq!(relay.origin.day(), "2026-01-02");
        assert!(relay.quick && !testnet.quick);
        assert_eq!(testnet.origin.commit, "abc, def");
        assert_eq!(testnet.origin.date, "2026-01-03");
    }

    #[test]
    fn a_file_with_parts_of_several_runs_names_all_days() {
        let text = format!(
            r#"{{{HEAD}, "date": "2026-01-04T01:00:00Z", "earlier": ["2026-01-02T03:04:05Z", "2026-01-04T00:00:00Z"]}}"#
        );
        let origin = parse(Kind::Setup, &text).expect("good").origin;
        assert_eq!(origin.days(), ["2026-01-02", "2026-01-04"]);
        assert!(
            origin.to_string().contains("2026-01-02 and 2026-01-04"),
            "{origin}"
        );
    }

    #[test]
    fn a_machine_that_had_other_work_is_known() {
        for (load, busy) in [("0.3", false), ("3.9", false), ("4.1", true), ("18", true)] {
            let head = HEAD.replace(
                r#""processors": 2"#,
                &format!(r#""processors": 2, "load_at_start": {load}"#),
            );
            let text = format!(r#"{{{head}, "date": "2026-01-02"}}"#);
            let source = parse(Kind::Relay, &text).expect("good");
            assert_eq!(source.origin.busy, busy, "{load}");
        }
        let older = parse(Kind::Relay, &format!(r#"{{{HEAD}, "date": ""}}"#)).expect("good");
        assert!(!older.origin.busy, "it does not say");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_and_field() {
        let error = parse(Kind::Relay, &format!("{{{HEAD}}}")).expect_err("no date");
        assert!(
            error.to_string().contains("missing field `date`"),
            "{error}"
        );
        let good = parse(
            Kind::Relay,
            &format!(r#"{{{HEAD}, "date": "", "a": [{{"b": "x"}}]}}"#),
        )
        .expect("good");
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is never made")]
        struct Inner {
            b: f64,
        }
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is never made")]
        struct Outer {
            a: Vec<Inner>,
        }
        let error = good.read::<Outer>().expect_err("no number").to_string();
        assert!(
            error.starts_with("here.json: a[0].b: invalid type: string"),
            "{error}"
        );
        assert!(
            error.ends_with("`scripts/bench relay` writes it anew"),
            "{error}"
        );
        assert!(parse(Kind::Testnet, "[]").is_err());
        assert!(matches!(
            parse(Kind::Calls, "{"),
            Err(FindingsError::Json { .. })
        ));
    }

    #[test]
    fn a_name_of_nothing_is_told_apart_from_a_name_that_tells_nothing() {
        let folder = std::env::temp_dir().join(format!("firsthop-findings-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let told = |name: &str| {
            let read = Findings::read(&[folder.join(name)]);
            read.expect_err("refused").to_string()
        };
        assert!(told("results").contains("nothing of this name"));
        fs::write(folder.join("monday.json"), HEAD).expect("written");
        assert!(told("monday.json").contains("does not say what it holds"));
        fs::write(folder.join("relay.json"), [0xff, 0xfe, 0x00]).expect("written");
        assert!(told("relay.json").contains("writes it anew"));
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn the_newest_of_a_kind_is_the_last() {
        let dated = |date: &str| {
            parse(Kind::Calls, &format!(r#"{{{HEAD}, "date": "{date}"}}"#)).expect("good")
        };
        let findings = Findings::of(vec![dated("2026-02-01"), dated("2026-01-01")]);
        let latest = findings.latest(Kind::Calls).expect("two");
        assert_eq!(latest.origin.date, "2026-02-01");
        assert_eq!(findings.newest().count(), 1);
        assert!(findings.latest(Kind::Relay).is_none());
    }

    #[test]
    fn a_file_without_a_date_or_of_the_short_form_is_no_newer_than_a_whole_one_with_a_date() {
        let of = |date: &str, quick: bool| {
            let text = format!(r#"{{{HEAD}, "date": "{date}", "quick": {quick}}}"#);
            parse(Kind::Calls, &text).expect("good")
        };
        let findings = Findings::of(vec![
            of("2026-03-01", true),
            of("unknown", false),
            of("2026-01-01", false),
            of("unknown", true),
        ]);
        let dates: Vec<&str> = findings
            .of_kind(Kind::Calls)
            .map(|source| source.origin.date.as_str())
            .collect();
        assert_eq!(dates, ["unknown", "2026-03-01", "unknown", "2026-01-01"]);
        let rows = ["unknown", "2026-01-01"].map(|date| format!(r#"{{{HEAD}, "date": "{date}"}}"#));
        let testnet = parse(Kind::Testnet, &format!("[{}]", rows.join(", "))).expect("good");
        assert_eq!(testnet.origin.date, "2026-01-01");
    }
}
