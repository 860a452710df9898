//! How long sessions may take, and how long the process waits for them when it is told to stop.

use std::time::Duration;

use clap::Args;
use firsthop_service::settings::SettingError;

use crate::limits;

/// The settings. Each may also stand in the environment, as `FIRSTHOP_` and its name.
#[derive(Clone, Debug, Args)]
pub struct LifetimeArgs {
    /// How long running sessions may go on after SIGTERM, in seconds. New ones are refused meanwhile, and the process ends with the last
    /// session. 0 ends them at once, and so do SIGINT and a second SIGTERM.
    #[arg(
        long,
        env = "FIRSTHOP_DRAIN",
        value_name = "SECONDS",
        default_value_t = limits::DRAIN_DEFAULT.as_secs()
    )]
    pub drain: u64,
    /// After how many seconds in which nothing was said or sent a session ends, with a warning before; without it, never.
    ///
    /// What counts is speech that the backend has detected, events of the client and of sidebands, and all that the backend says or plays.
    #[arg(long, env = "FIRSTHOP_IDLE_TIMEOUT", value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,
    /// How long a session may take at most, in seconds; there is a warning before the end. Signaling may ask for less.
    #[arg(
        long,
        env = "FIRSTHOP_MAX_SESSION",
        value_name = "SECONDS",
        default_value_t = limits::SESSION_MAX.as_secs()
    )]
    pub max_session: u64,
}

/// How long a session may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// All in all.
    pub longest: Duration,
    /// Without anything said or sent; nothing means for ever.
    pub idle: Option<Duration>,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            longest: limits::SESSION_MAX,
            idle: None,
        }
    }
}

impl LifetimeArgs {
    /// Checks the settings; the second is how long a drain takes.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(&self) -> Result<(Lifetimes, Duration), SettingError> {
        let most = limits::SESSION_MAX.as_secs();
        let within = |setting: &'static str, value: u64, least: u64| {
            if (least..=most).contains(&value) {
                return Ok(Duration::from_secs(value));
            }
            Err(SettingError::new(
                setting,
                format!("{value} is not between {least} and {most}"),
                "give a number of seconds that is",
            ))
        };
        let lifetimes = Lifetimes {
            longest: within("--max-session", self.max_session, 1)?,
            idle: self
                .idle_timeout
                .map(|seconds| within("--idle-timeout", seconds, 1))
                .transpose()?,
        };
        // No session lasts longer.
        Ok((lifetimes, within("--drain", self.drain, 0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_bounded_by_the_longest_session() {
        let args = |drain, idle_timeout, max_session| LifetimeArgs {
            drain,
            idle_timeout,
            max_session,
        };
        let (lifetimes, drain) = args(0, Some(60), 600).check().expect("valid");
        assert_eq!(lifetimes.longest, Duration::from_secs(600));
        assert_eq!(lifetimes.idle, Some(Duration::from_secs(60)));
        assert_eq!(drain, Duration::ZERO);
        for (bad, named) in [
            (args(3_601, None, 600), "--drain: 3601"),
            (args(1, Some(0), 600), "--idle-timeout: 0"),
            (args(1, None, 3_601), "--max-session: 3601"),
        ] {
            let error = bad.check().expect_err("refused").to_string();
            assert!(error.starts_with(named), "{error}");
        }
    }
}
