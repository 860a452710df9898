//! What is logged of transceivers: how they stand, when that changes.
//!
//! One that starts later, drains or goes away is the normal course of things and logged at INFO, once per change. What only an
//! operator can put right (another control secret, another version) is a WARN, also of one that was away before for another reason.
//! One that has several causes by turns is told of now and then, and not at each turn.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use firsthop_service::server::Complaints;
use firsthop_shared::control::ControlCode;

use crate::owner::OwnerError;
use crate::placement::Standing;

/// Why a transceiver is away, as far as it makes a difference for what to do. How a connection fails changes from one second to the next, and is
/// one cause.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Cause {
    /// It refuses the control secret.
    Secret,
    /// It speaks another version's protocol, or is something else.
    Protocol,
    /// It says no for another reason.
    Refusal,
    /// It cannot be reached.
    Silence,
    /// It names no trunk address that relays could send to.
    Trunk,
}

impl Cause {
    fn of(error: Option<&OwnerError>) -> Self {
        match error {
            None => Self::Trunk,
            Some(OwnerError::Refused(..)) => match error.and_then(OwnerError::code) {
                Some(ControlCode::Unauthorized) => Self::Secret,
                _ => Self::Refusal,
            },
            Some(OwnerError::Garbled(_)) => Self::Protocol,
            Some(OwnerError::Gone | OwnerError::Unreachable(_) | OwnerError::TimedOut) => {
                Self::Silence
            }
        }
    }
}

/// What was last logged of each transceiver.
#[derive(Debug, Default)]
pub struct Changes(HashMap<SocketAddr, Logged>);

#[derive(Debug, Default)]
struct Logged {
    /// How it stood, and why it was away.
    last: Option<(Standing, Option<Cause>)>,
    /// By cause: a new one is told of at once, whatever was told of before.
    told: HashMap<Cause, Complaints>,
}

impl Logged {
    /// Notes how a transceiver stands, and why; when that is new, returns how it stood before, if it was known.
    fn news(&mut self, standing: Standing, error: Option<&OwnerError>) -> Option<Option<Standing>> {
        let before = self.last;
        let cause = (standing == Standing::Away).then(|| match (before, error) {
            // One late answer is no verdict: the cause is still what it was.
            (Some((Standing::Away, Some(known))), Some(OwnerError::TimedOut)) => known,
            _ => Cause::of(error),
        });
        self.last = Some((standing, cause));
        (before != self.last).then(|| before.map(|(standing, _)| standing))
    }
}

impl Changes {
    /// Logs how a transceiver stands, when that is new; `error` is what came of asking it.
    pub fn log(
        &mut self,
        control: SocketAddr,
        standing: Standing,
        error: Option<&OwnerError>,
        now: Instant,
    ) {
        let logged = self.0.entry(control).or_default();
        let Some(before) = logged.news(standing, error) else {
            return;
        };
        let cause = Cause::of(error);
        let mut due = || logged.told.entry(cause).or_default().due(now);
        match (standing, error) {
            (Standing::Away, Some(error)) if cause == Cause::Secret => {
                if let Some(times) = due() {
                    tracing::warn!(%control, %error, times, "transceiver refuses the control secret: is it the same file on both sides?");
                }
            }
            (Standing::Away, Some(OwnerError::Garbled(reason))) => {
                if let Some(times) = due() {
                    tracing::warn!(%control, reason, times, "transceiver does not speak this version's control protocol");
                }
            }
            (Standing::Away, Some(error)) => {
                // That it has left is told each time; that it is away for another reason than before, now and then.
                if before != Some(Standing::Away) || due().is_some() {
                    tracing::info!(%control, reason = %error, "transceiver is away");
                }
            }
            (Standing::Away, None) => {
                if let Some(times) = due() {
                    tracing::warn!(%control, times, "transceiver names no usable trunk address: set its --owner");
                }
            }
            (Standing::Full, _) | (Standing::Ready, _) if before == Some(Standing::Full) => {
                tracing::debug!(%control, standing = standing.name(), "transceiver");
            }
            _ => tracing::info!(%control, standing = standing.name(), "transceiver"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use firsthop_service::limits::COMPLAINT_INTERVAL;
    use firsthop_shared::control::ControlError;
    use reqwest::StatusCode;

    use super::*;

    fn wrong_secret() -> OwnerError {
        let error = ControlError {
            code: ControlCode::Unauthorized,
            message: String::new(),
        };
        OwnerError::Refused(StatusCode::UNAUTHORIZED, error)
    }

    #[test]
    fn another_cause_is_news_of_a_transceiver_that_is_away_already() {
        let mut logged = Logged::default();
        let mut away = |error: &OwnerError| {
            logged
                .news(Standing::Away, Some(error))
                .map(|before| before == Some(Standing::Away))
        };
        // Signaling was up first: nobody listens, until the other one starts with another secret.
        assert_eq!(away(&OwnerError::Gone), Some(false));
        assert_eq!(away(&OwnerError::Unreachable("no route".into())), None);
        assert_eq!(away(&wrong_secret()), Some(true));
        assert_eq!(away(&OwnerError::TimedOut), None);
        assert_eq!(away(&wrong_secret()), None);
        assert_eq!(away(&OwnerError::Garbled("?".into())), Some(true));
        assert_eq!(away(&OwnerError::Gone), Some(true));
        assert_eq!(
            logged.news(Standing::Ready, None),
            Some(Some(Standing::Away))
        );
        assert_eq!(logged.news(Standing::Ready, None), None);
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `log` writes at this level and above.
    fn lines(level: tracing::Level, log: impl FnOnce()) -> Vec<String> {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = kept.0.lock().expect("not poisoned").clone();
        let text = String::from_utf8(text).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn causes_by_turns_are_warned_of_now_and_then_and_each_of_them() {
        let control: SocketAddr = "127.0.0.1:5080".parse().expect("an address");
        let other: SocketAddr = "127.0.0.2:5080".parse().expect("an address");
        let start = Instant::now();
        let mut changes = Changes::default();
        let mut log = |control, error: &OwnerError, now| {
            changes.log(control, Standing::Away, Some(error), now);
        };
        let lines = lines(tracing::Level::WARN, || {
            for turn in 0..10 {
                let now = start + turn * COMPLAINT_INTERVAL / 10;
                log(control, &OwnerError::Gone, now);
                log(control, &OwnerError::Garbled("?".into()), now);
            }
            // It stays so: nothing else would tell.
            log(control, &wrong_secret(), start + COMPLAINT_INTERVAL / 2);
            log(other, &OwnerError::Garbled("?".into()), start);
            log(
                control,
                &OwnerError::Garbled("?".into()),
                start + COMPLAINT_INTERVAL,
            );
        });
        let told = [
            ("127.0.0.1", "control protocol", "times=1"),
            ("127.0.0.1", "control secret", "times=1"),
            ("127.0.0.2", "control protocol", "times=1"),
            ("127.0.0.1", "control protocol", "times=10"),
        ];
        assert_eq!(lines.len(), told.len(), "{lines:#?}");
        for (line, (control, what, times)) in lines.iter().zip(told) {
            assert!(
                line.contains(control) && line.contains(what) && line.ends_with(times),
                "{line}"
            );
        }
    }

    #[test]
    fn that_it_is_away_is_told_once_each_time_it_leaves() {
        let control: SocketAddr = "127.0.0.1:5080".parse().expect("an address");
        let start = Instant::now();
        let mut changes = Changes::default();
        let lines = lines(tracing::Level::INFO, || {
            for _ in 0..2 {
                // Behind a balancer whose other servers answer something else.
                for _ in 0..5 {
                    for error in [OwnerError::Gone, OwnerError::Garbled("?".into())] {
                        changes.log(control, Standing::Away, Some(&error), start);
                    }
                }
                changes.log(control, Standing::Ready, None, start);
            }
        });
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("standing=\"ready\""), 2, "{lines:#?}");
        // The second cause is news once, and so is the way back from it.
        assert_eq!(count("transceiver is away"), 3, "{lines:#?}");
        assert_eq!(count("control protocol"), 1, "{lines:#?}");
    }
}
