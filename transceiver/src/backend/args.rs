//! The settings of backends.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use firsthop_service::settings::SettingError;
use tokio_rustls::rustls::ClientConfig;

use super::apps::{App, Apps, AppsReloader, Kind, parse_url};
use super::key::{Auth, Secret};
use super::misplaced::misplaced;
use super::tls::{self, Roots};
use super::{Format, Rate};

/// Where audio and events come from, and whom to trust there.
#[derive(Clone, Debug, Args)]
pub struct BackendArgs {
    /// Where audio and events come from.
    #[arg(
        long,
        env = "FIRSTHOP_BACKEND",
        value_name = "KIND",
        default_value = "echo"
    )]
    pub backend: Kind,
    /// The model server: ws:// or wss://, with the path of its protocol.
    #[arg(long, env = "FIRSTHOP_BACKEND_URL", value_name = "URL")]
    pub backend_url: Option<String>,
    /// The model, whatever clients ask for; when it is not given, they choose.
    #[arg(long, env = "FIRSTHOP_BACKEND_MODEL", value_name = "NAME")]
    pub backend_model: Option<String>,
    /// File with the key that is shown to the model server. The key itself may stand in the environment, as FIRSTHOP_BACKEND_KEY.
    #[arg(long, env = "FIRSTHOP_BACKEND_KEY_FILE", value_name = "FILE")]
    pub backend_key_file: Option<PathBuf>,
    /// How the key is shown.
    #[arg(
        long,
        env = "FIRSTHOP_BACKEND_AUTH",
        value_name = "HOW",
        default_value = "bearer"
    )]
    pub backend_auth: Auth,
    /// The audio format, when the server's own word on it is not to count.
    #[arg(long, env = "FIRSTHOP_BACKEND_FORMAT", value_name = "FORMAT")]
    pub backend_format: Option<Format>,
    /// The rate of the sound that a Pipecat bot is sent, in samples per second: its audio_in_sample_rate. 16000 when not given.
    #[arg(long, env = "FIRSTHOP_BACKEND_RATE", value_name = "RATE")]
    pub backend_rate: Option<Rate>,
    /// Whose certificates are trusted: Mozilla's list, the system's, or nobody's but those of --backend-ca.
    #[arg(
        long,
        env = "FIRSTHOP_BACKEND_ROOTS",
        value_name = "WHOSE",
        default_value = "webpki"
    )]
    pub backend_roots: Roots,
    /// PEM file with certificates that are trusted beside those.
    #[arg(long, env = "FIRSTHOP_BACKEND_CA", value_name = "FILE")]
    pub backend_ca: Option<PathBuf>,
    /// File with applications, a table for each: which backend, where, and with which session. docs/backends.md shows one.
    #[arg(long, env = "FIRSTHOP_APPS", value_name = "FILE")]
    pub apps: Option<PathBuf>,
}

/// The environment's name of the key. It is no flag: a command line is public.
const KEY: &str = "FIRSTHOP_BACKEND_KEY";

/// Checked settings, with the files read.
pub struct BackendConfig {
    /// The applications, and their watch.
    pub apps: (AppsReloader, Apps),
    /// TLS towards model servers.
    pub tls: Arc<ClientConfig>,
}

impl BackendConfig {
    /// Checks the settings and reads the files.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn load(args: &BackendArgs) -> Result<Self, SettingError> {
        Self::with_key(args, std::env::var(KEY).ok().as_deref())
    }

    fn with_key(args: &BackendArgs, key: Option<&str>) -> Result<Self, SettingError> {
        let url = args.backend_url.as_deref().map(parse_url).transpose();
        let url = url.map_err(|problem| told("--backend-url", &problem))?;
        match (args.backend, &url) {
            (Kind::Realtime, None) => {
                let problem = "is missing; name the server, like wss://models.example/v1/realtime";
                return Err(told("--backend-url", problem));
            }
            (Kind::Pipecat, None) => {
                let problem = "is missing; name the bot's server, like ws://bot.example:8765";
                return Err(told("--backend-url", problem));
            }
            (Kind::Echo, Some(_)) => {
                let problem = "an echo has no server; leave the URL out, or say --backend realtime";
                return Err(told("--backend-url", problem));
            }
            _ => {}
        }
        if let Some((field, problem)) = misplaced(
            args.backend,
            args.backend_format,
            args.backend_rate,
            args.backend_model.as_deref(),
        ) {
            let setting = match field {
                "rate" => "--backend-rate",
                "model" => "--backend-model",
                _ => "--backend-format",
            };
            return Err(told(setting, problem));
        }
        let key = match key.filter(|key| !key.trim().is_empty()) {
            None => None,
            Some(_) if args.backend_key_file.is_some() => {
                let problem = format!("{KEY} is in the environment too; give one of the two");
                return Err(told("--backend-key-file", &problem));
            }
            Some(key) => Some(Secret::new(key).ok_or_else(|| {
                let problem = format!("the key has characters that no header may have; mend {KEY}");
                told("--backend-key-file", &problem)
            })?),
        };
        let app = App {
            kind: args.backend,
            url,
            model: args.backend_model.clone(),
            key,
            auth: args.backend_auth,
            format: args.backend_format,
            rate: args.backend_rate,
            ..App::default()
        };
        let tls = tls::config(args.backend_roots, args.backend_ca.as_deref())
            .map_err(|error| told("--backend-ca", &error.to_string()))?;
        // A file that cannot be used names itself in its error.
        let named = if args.apps.is_some() {
            "--apps"
        } else {
            "--backend-key-file"
        };
        let apps = AppsReloader::new(app, args.backend_key_file.as_deref(), args.apps.as_deref())
            .map_err(|error| told(named, &error.to_string()))?;
        if args.backend_roots == Roots::None && args.backend_ca.is_none() && apps.1.want_tls() {
            let problem = "none trusts nobody, so that no wss:// server could be connected to; give --backend-ca too, or leave this out";
            return Err(told("--backend-roots", problem));
        }
        Ok(Self { apps, tls })
    }
}

/// An error whose words may end with what to do about it, after a semicolon.
fn told(setting: &'static str, words: &str) -> SettingError {
    match words.rsplit_once("; ") {
        Some((problem, fix)) => SettingError::new(setting, problem, fix.to_owned()),
        None => SettingError::new(setting, words, "mend the file, or name another"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        backend: BackendArgs,
    }

    fn load(words: &[&str], key: Option<&str>) -> Result<BackendConfig, String> {
        let line = Line::try_parse_from(["x"].iter().chain(words)).expect("arguments");
        BackendConfig::with_key(&line.backend, key).map_err(|error| error.to_string())
    }

    #[test]
    fn an_echo_needs_no_settings_and_a_server_its_url() {
        let echo = load(&[], None).expect("usable");
        assert_eq!(echo.apps.1.find(None).expect("there").kind, Kind::Echo);
        let words = [
            "--backend",
            "realtime",
            "--backend-url",
            "wss://models.example/v1/realtime",
        ];
        let realtime = load(&words, Some("k\n")).expect("usable");
        let app = realtime.apps.1.find(None).expect("there");
        assert_eq!(app.key, Secret::new("k"));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_the_fix() {
        let cases: [(&[&str], Option<&str>, &str); 15] = [
            (
                &[
                    "--backend",
                    "pipecat",
                    "--backend-url",
                    "ws://x",
                    "--backend-model",
                    "m",
                ],
                None,
                "--backend-model: a Pipecat bot has its model in its own pipeline",
            ),
            (
                &["--backend-model", "m"],
                None,
                "--backend-model: an echo has no model",
            ),
            (&["--backend", "pipecat"], None, "--backend-url: is missing"),
            (
                &[
                    "--backend",
                    "pipecat",
                    "--backend-url",
                    "ws://x",
                    "--backend-format",
                    "pcmu",
                ],
                None,
                "--backend-format: a Pipecat bot takes PCM alone",
            ),
            (
                &["--backend-rate", "24000"],
                None,
                "--backend-rate: only a Pipecat bot",
            ),
            (
                &["--backend", "realtime"],
                None,
                "--backend-url: is missing",
            ),
            (
                &["--backend-url", "wss://x"],
                None,
                "--backend-url: an echo has no server",
            ),
            (
                &["--backend", "realtime", "--backend-url", "https://x/?key=k"],
                None,
                "--backend-url: 'https://x/' is not the URL of a WebSocket; give ws:// or wss://",
            ),
            (
                &["--backend", "realtime", "--backend-url", "wss://u:p@x"],
                None,
                "--backend-url: there is a user or a password in it; leave it out",
            ),
            (
                &["--backend", "realtime", "--backend-url", "ws://x:99999/"],
                None,
                "--backend-url: 'ws://x:99999/': ':99999' in it is no port",
            ),
            (
                &["--backend", "pipecat", "--backend-url", "ws://x:/"],
                None,
                "--backend-url: 'ws://x:/': ':' in it is no port",
            ),
            (
                &["--backend-key-file", "/nowhere"],
                Some("k"),
                "--backend-key-file: FIRSTHOP_BACKEND_KEY is in the environment too",
            ),
            (
                &[
                    "--backend",
                    "realtime",
                    "--backend-url",
                    "wss://x",
                    "--backend-roots",
                    "none",
                ],
                None,
                "--backend-roots: none trusts nobody",
            ),
            (
                &["--backend-ca", "/nowhere"],
                None,
                "--backend-ca: cannot read certificates",
            ),
            (&["--apps", "/nowhere"], None, "--apps: cannot read"),
        ];
        for (words, key, expected) in cases {
            let error = load(words, key).err().expect("refused");
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
