//! Settings: read from the command line and the environment, errors in one line, the log, the exit status.
//!
//! A setting that cannot be used stops the start with exit status [`BAD_SETTING`] and one line on standard error,
//! `program: --setting: problem; fix`, before anything is opened.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log;

/// The exit status of a start that a setting, or a limit of the machine, has stopped.
pub const BAD_SETTING: u8 = 2;

/// A setting that cannot be used: which one, what is wrong, and what to do about it. Prints as one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingError {
    setting: Cow<'static, str>,
    problem: String,
    fix: Cow<'static, str>,
}

impl SettingError {
    /// An error about a setting, named as on the command line (`--listen`).
    #[must_use]
    pub fn new(
        setting: impl Into<Cow<'static, str>>,
        problem: impl Into<String>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            setting: setting.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// An error about the content of a file, which its path is put before; errors of reading name it themselves.
    #[must_use]
    pub fn in_file(
        setting: impl Into<Cow<'static, str>>,
        path: &Path,
        cause: &dyn fmt::Display,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (path, cause) = (path.display().to_string(), cause.to_string());
        // A word or several: a path may have blanks.
        let named = cause.match_indices(&path).any(|(start, found)| {
            let end = &cause[start + found.len()..];
            (start == 0 || cause[..start].ends_with(char::is_whitespace))
                && (end.is_empty() || end.starts_with(|c: char| c == ':' || c.is_whitespace()))
        });
        let problem = if named {
            cause
        } else {
            format!("{path}: {cause}")
        };
        Self::new(setting, problem, fix)
    }

    /// The error for an address that could not be opened.
    #[must_use]
    pub fn cannot_listen(
        setting: impl Into<Cow<'static, str>>,
        place: &dyn fmt::Display,
        cause: &io::Error,
    ) -> Self {
        let fix = match cause.kind() {
            io::ErrorKind::AddrInUse => "stop what uses it, or give another port",
            io::ErrorKind::AddrNotAvailable => "give an address of this machine",
            io::ErrorKind::PermissionDenied => {
                "give a port from 1024 on, or the right to use lower ones (CAP_NET_BIND_SERVICE)"
            }
            _ => "give an address and port of this machine",
        };
        Self::new(setting, format!("cannot listen on {place} ({cause})"), fix)
    }
}

impl std::error::Error for SettingError {}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.setting.is_empty() {
            write!(f, "{}: ", self.setting)?;
        }
        write!(f, "{}; {}", on_one_line(&self.problem), self.fix)
    }
}

/// Parsers like to draw their errors over several lines.
fn on_one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// What else may come of reading the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Print this and end with success: help or version.
    Told(String),
    /// A setting cannot be used.
    Refused(SettingError),
}

/// Reads the settings from arguments (the first is the program's name) and the environment.
///
/// # Errors
/// [`Stop`]
pub fn read<P: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<P, Stop> {
    P::try_parse_from(arguments).map_err(|error| {
        if error.use_stderr() {
            Stop::Refused(from_clap(&error))
        } else {
            Stop::Told(error.to_string())
        }
    })
}

/// Reads the settings of this process, and says what has to be said when that ends it.
///
/// # Errors
/// The exit status: success after help or version, [`BAD_SETTING`] otherwise.
pub fn of_process<P: Parser>(program: &str) -> Result<P, ExitCode> {
    read(std::env::args_os()).map_err(|stop| match stop {
        Stop::Told(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Stop::Refused(error) => refuse(program, &error),
    })
}

/// Says in one line why the program does not start, and returns the exit status for it.
#[must_use]
pub fn refuse(program: &str, error: &dyn fmt::Display) -> ExitCode {
    say(program, &on_one_line(&error.to_string()));
    ExitCode::from(BAD_SETTING)
}

/// Says on standard error why the program ends, if that takes a line, and does not wait for that: the exit status says so too.
pub fn say(program: &str, why: &str) {
    log::say(&format!("{program}: {why}"));
}

/// Says what clap says about a bad command line in our form.
fn from_clap(error: &clap::Error) -> SettingError {
    const SEE_HELP: &str = "--help lists all settings";
    let about = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    // Of `--keyring <FILE>` the first word.
    let settings: Vec<String> = about(ContextKind::InvalidArg)
        .iter()
        .filter_map(|shown| shown.split([' ', '=', '[']).next())
        .map(str::to_owned)
        .collect();
    let setting = settings.join(", ");
    let value = about(ContextKind::InvalidValue).concat();
    match error.kind() {
        ErrorKind::UnknownArgument => SettingError::new(setting, "unexpected argument", SEE_HELP),
        ErrorKind::MissingRequiredArgument => SettingError::new(
            setting,
            "required, and not set",
            "give it on the command line, or as FIRSTHOP_ and its name in the environment",
        ),
        ErrorKind::InvalidValue if value.is_empty() => {
            SettingError::new(setting, "it has no value", SEE_HELP)
        }
        ErrorKind::InvalidValue => {
            let values = about(ContextKind::ValidValue).join(", ");
            SettingError::new(
                setting,
                format!("'{value}' is not one of its values"),
                format!("give one of {values}"),
            )
        }
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error)
                .map_or_else(|| "it cannot be read".to_owned(), ToString::to_string);
            SettingError::new(
                setting,
                format!("'{value}' is not a value for it ({reason})"),
                "--help says what it takes",
            )
        }
        _ => {
            let text = error.to_string();
            let message = text.split("\n\n").next().unwrap_or(&text);
            SettingError::new("", message.trim_start_matches("error: "), SEE_HELP)
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// The settings of the log, to be flattened into a program's own.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct Log {
    /// What is logged: a level (error, warn, info, debug, trace), or a filter such as info,TARGET=debug. WebSockets are logged up to debug at
    /// the most: trace would hold keys and all that is said.
    #[arg(
        long = "log",
        env = "FIRSTHOP_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    filter: String,
    /// How it is logged.
    #[arg(
        long = "log-format",
        env = "FIRSTHOP_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    format: LogFormat,
}

impl Log {
    /// Starts the log, on standard error, where panics are told as well. The targets in `quiet` log at their level there, unless the filter names them.
    ///
    /// # Errors
    /// The filter cannot be used.
    pub fn start(&self, quiet: &[(&str, &str)]) -> Result<(), SettingError> {
        let filter = EnvFilter::try_new(quieter(&self.filter, quiet)).map_err(|error| {
            SettingError::new(
                "--log",
                format!("'{}' is no filter ({error})", self.filter),
                "give error, warn, info, debug or trace, or a list of target=level",
            )
        })?;
        let loudest = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
        let discreet = filter_fn(is_discreet).with_max_level_hint(loudest);
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(log::to_stderr)
            // It would say so on standard error, and panic when that takes no more.
            .log_internal_errors(false)
            .with_ansi(io::stderr().is_terminal());
        log::start(self.format);
        match self.format {
            LogFormat::Text => lines.finish().with(discreet).init(),
            LogFormat::Json => lines.json().finish().with(discreet).init(),
        }
        Ok(())
    }
}

/// Targets whose trace holds what no log may: requests with the key that they show, and frames with what is said.
const INDISCREET: [&str; 2] = ["tungstenite", "tokio_tungstenite"];

/// Whether this may be logged, whatever the filter asks for.
fn is_discreet(event: &Metadata<'_>) -> bool {
    let from = event.target().split("::").next().unwrap_or_default();
    *event.level() != Level::TRACE || !INDISCREET.contains(&from)
}

/// The filter that was asked for, with the levels of targets that it does not name.
fn quieter(asked: &str, quiet: &[(&str, &str)]) -> String {
    let mut parts = vec![asked.trim().to_owned()];
    for (target, level) in quiet {
        let named = asked
            .split(',')
            .any(|part| part.trim().split(['=', ':', '[']).next() == Some(target));
        if !named {
            parts.push(format!("{target}={level}"));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug)]
    struct Settings {
        #[arg(long, value_name = "FILE")]
        keyring: String,
        #[arg(long, value_name = "FILE")]
        fleet: String,
        #[arg(long, default_value_t = 1)]
        cluster: u16,
        #[arg(long, default_value = "127.0.0.1:1")]
        admin: std::net::SocketAddr,
        #[command(flatten)]
        log: Log,
    }

    fn refused(more: &[&str]) -> String {
        let arguments = [&["program"], more].concat();
        match read::<Settings>(arguments.into_iter().map(OsString::from)) {
            Err(Stop::Refused(error)) => error.to_string(),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_names_it_once() {
        for (path, cause, told) in [
            (
                "blank",
                "the secret has blanks",
                "blank: the secret has blanks",
            ),
            (
                "blank",
                "blanks, such as a blank.",
                "blank: blanks, such as a blank.",
            ),
            (
                "blank",
                "cannot read blank: no such file",
                "cannot read blank: no such file",
            ),
            (
                "my secrets/a b",
                "cannot read my secrets/a b: no such file",
                "cannot read my secrets/a b: no such file",
            ),
            (
                "a b",
                "a b is larger than 3 bytes",
                "a b is larger than 3 bytes",
            ),
            ("a b", "line 1: not a bc", "a b: line 1: not a bc"),
        ] {
            let error = SettingError::in_file("--secret", Path::new(path), &cause, "mend it");
            assert_eq!(error.to_string(), format!("--secret: {told}; mend it"));
        }
    }

    #[test]
    fn whatever_is_wrong_is_told_in_one_line_of_one_form() {
        let files = ["--keyring", "a", "--fleet", "b"];
        let with = |more: &[&'static str]| refused(&[&files, more].concat());
        for (line, expected) in [
            (
                refused(&[]),
                "--keyring, --fleet: required, and not set; give it",
            ),
            (
                with(&["--colour", "red"]),
                "--colour: unexpected argument; --help",
            ),
            (
                with(&["--cluster", "frankfurt"]),
                "--cluster: 'frankfurt' is not a value for it (invalid digit found in string); --help",
            ),
            (
                with(&["--cluster", "70000"]),
                "--cluster: '70000' is not a value for it (70000 is not in 0..=65535)",
            ),
            (
                with(&["--admin", "here"]),
                "--admin: 'here' is not a value for it (invalid socket address syntax)",
            ),
            (
                with(&["--log-format", "xml"]),
                "--log-format: 'xml' is not one of its values; give one of text, json",
            ),
            (with(&["--log"]), "--log: it has no value; --help"),
            (
                with(&["--cluster", "1", "--cluster", "2"]),
                "the argument '--cluster <CLUSTER>' cannot be used multiple times; --help",
            ),
        ] {
            assert!(line.starts_with(expected), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn help_is_no_error() {
        let asked = read::<Settings>(["program", "--help"].map(OsString::from));
        let Err(Stop::Told(text)) = asked else {
            panic!("{asked:?}");
        };
        assert!(text.contains("--log-format"), "{text}");
    }

    #[test]
    fn an_error_of_several_lines_becomes_one() {
        let error = SettingError::new("--fleet", "line 1\n  |\n1 | x\n  | ^\n", "correct it");
        assert_eq!(error.to_string(), "--fleet: line 1 | 1 | x | ^; correct it");
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let log = Log {
            filter: "info,x=chatty".to_owned(),
            format: LogFormat::Text,
        };
        let error = log.start(&[]).expect_err("refused").to_string();
        assert!(
            error.starts_with("--log: 'info,x=chatty' is no filter"),
            "{error}"
        );
    }

    /// This test runs itself, as a program that is asked to log everything.
    #[test]
    fn websockets_are_never_traced_whatever_the_filter_asks_for() {
        const CHILD: &str = "FIRSTHOP_TEST_DISCREET";
        if std::env::var_os(CHILD).is_some() {
            let log = Log {
                filter: "trace,tungstenite=trace,tungstenite::handshake::client=trace".to_owned(),
                format: LogFormat::Json,
            };
            log.start(&[]).expect("a log");
            ::log::trace!(target: "tungstenite::handshake::client", "a secret request");
            ::log::trace!(target: "tungstenite::protocol", "a secret frame");
            tracing::trace!(target: "tokio_tungstenite", "a secret message");
            ::log::debug!(target: "tungstenite::protocol", "of tungstenite, debug");
            ::log::trace!(target: "another", "of another, trace");
            tracing::trace!(target: "tungstenite_of_theirs", "of a third, trace");
            std::process::exit(7);
        }
        let child = std::process::Command::new(std::env::current_exe().expect("this"))
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("settings::tests::websockets_are_never_traced_whatever_the_filter_asks_for")
            .env(CHILD, "1")
            .output()
            .expect("it runs");
        let said = String::from_utf8(child.stderr).expect("text");
        assert_eq!(child.status.code(), Some(7), "{said}");
        assert!(!said.contains("secret"), "{said}");
        for other in [
            "of tungstenite, debug",
            "of another, trace",
            "of a third, trace",
        ] {
            assert!(said.contains(other), "{other}: {said}");
        }
    }

    #[test]
    fn targets_are_quiet_unless_named() {
        let quiet = [("str0m", "error"), ("is", "off")];
        assert_eq!(quieter("info", &quiet), "info,str0m=error,is=off");
        assert_eq!(
            quieter("debug, str0m=trace", &quiet),
            "debug, str0m=trace,is=off"
        );
        assert_eq!(quieter("", &quiet), "str0m=error,is=off");
    }
}
