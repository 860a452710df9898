//! What the log says of model servers that cannot be connected to: a warning once for an outage, however many calls meet it, and never
//! more than one a minute: a server that takes some calls and refuses others is neither out nor well.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Uri};

use super::translator::LossCause;
use crate::limits;

/// The servers that are out, of all workers.
#[derive(Debug, Default)]
pub struct Outages {
    told: Mutex<HashMap<Outage, Told>>,
}

/// Who meets an outage.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Outage {
    server: String,
    /// Whoever shows these headers, whose key is refused; all when there is none.
    shown: Option<u64>,
}

#[derive(Debug)]
struct Told {
    /// When the log was warned last.
    warned: Instant,
    /// When an attempt failed last.
    met: Instant,
    goes_on: bool,
}

impl Outages {
    /// A connection to this server could not be made; when the key is to blame that was `shown`, it was `refused`. Whether that is news.
    pub(super) fn begins(&self, server: &str, shown: u64, refused: bool, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let outage = Outage {
            server: server.to_owned(),
            shown: refused.then_some(shown),
        };
        let recent = |at| now.saturating_duration_since(at) < limits::BACKEND_OUTAGE_PAUSE;
        if let Some(known) = told.get_mut(&outage) {
            known.met = now;
            let news = !known.goes_on && !recent(known.warned);
            if news {
                known.warned = now;
                known.goes_on = true;
            }
            return news;
        }
        if told.len() >= limits::BACKEND_OUTAGES {
            told.retain(|_, known| recent(known.met));
        }
        // More than are remembered are told of call by call.
        let news = told.len() < limits::BACKEND_OUTAGES;
        if news {
            let begun = Told {
                warned: now,
                met: now,
                goes_on: true,
            };
            told.insert(outage, begun);
        }
        news
    }

    /// A connection was made by who has `shown` this: whether the log was warned of an outage that has ended so.
    pub(super) fn ends(&self, server: &str, shown: u64) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = false;
        for shown in [None, Some(shown)] {
            let server = server.to_owned();
            if let Some(known) = told.get_mut(&Outage { server, shown }) {
                ended |= std::mem::take(&mut known.goes_on);
            }
        }
        ended
    }
}

/// What tells the headers that one application shows from those of another. Nothing can be learned of a key by it that is not known.
pub(super) fn shown(headers: &[(HeaderName, HeaderValue)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    headers.hash(&mut hasher);
    hasher.finish()
}

/// Whether the server or what is configured of it is at fault, and not what one client asks of it: a model, say, that there is not.
pub(super) fn is_outage(cause: &LossCause) -> bool {
    match cause {
        LossCause::Status(status) => *status >= 500 || is_refusal(*status),
        LossCause::Unreachable | LossCause::TimedOut => true,
        _ => false,
    }
}

/// Whether a handshake's HTTP status says that the key is wrong, or missing.
pub(super) fn is_refusal(status: u16) -> bool {
    matches!(status, 401 | 403)
}

/// What the log calls a server: its URL without user, password and query, where keys may stand.
pub(super) fn name(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let host = url.host().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}"));
    format!(
        "{scheme}://{host}{}{}",
        port.unwrap_or_default(),
        url.path()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_news_once_until_it_ends() {
        let (outages, now) = (Outages::default(), Instant::now());
        let later = now + 10 * limits::BACKEND_OUTAGE_PAUSE;
        assert!(!outages.ends("a", 1), "it was well");
        let begins = |server, now| outages.begins(server, 1, false, now);
        assert_eq!(
            [("a", now), ("a", now), ("b", now), ("a", later)].map(|(s, now)| begins(s, now)),
            [true, false, true, false]
        );
        assert_eq!(["a", "a"].map(|s| outages.ends(s, 2)), [true, false]);
        assert!(begins("a", later));
    }

    #[test]
    fn a_server_that_refuses_every_other_call_is_told_of_once_a_minute() {
        let (outages, begin) = (Outages::default(), Instant::now());
        let (mut warned, mut ended) = (0, 0);
        for call in 0..240 {
            let now = begin + call * limits::BACKEND_OUTAGE_PAUSE / 60;
            warned += u32::from(outages.begins("a", 1, false, now));
            ended += u32::from(outages.ends("a", 1));
        }
        assert_eq!((warned, ended), (4, 4));
    }

    #[test]
    fn a_key_that_is_refused_is_not_mended_by_one_that_is_taken() {
        let (outages, now) = (Outages::default(), Instant::now());
        let later = now + 10 * limits::BACKEND_OUTAGE_PAUSE;
        assert!(outages.begins("a", 1, true, now));
        assert!(!outages.ends("a", 2), "another application's");
        assert!(!outages.begins("a", 1, true, later));
        assert!(outages.begins("a", 2, true, later), "another key");
        assert!(outages.ends("a", 1));
    }

    #[test]
    fn keys_are_told_apart() {
        let with = |key| {
            let value = HeaderValue::from_static(key);
            shown(&[(HeaderName::from_static("api-key"), value)])
        };
        assert_eq!(with("one"), with("one"));
        assert_ne!(with("one"), with("two"));
        assert_ne!(with("one"), shown(&[]));
    }

    #[test]
    fn a_bounded_number_of_servers_is_remembered() {
        let (outages, now) = (Outages::default(), Instant::now());
        let news = |n: usize, now| outages.begins(&n.to_string(), 1, false, now);
        let told = (0..2 * limits::BACKEND_OUTAGES).filter(|n| news(*n, now));
        assert_eq!(told.count(), limits::BACKEND_OUTAGES);
        // Who has not been met for long makes room.
        let later = now + limits::BACKEND_OUTAGE_PAUSE;
        assert!(news(2 * limits::BACKEND_OUTAGES, later));
    }

    #[test]
    fn what_a_client_asks_for_is_no_outage() {
        for cause in [
            LossCause::Unreachable,
            LossCause::TimedOut,
            LossCause::Status(401),
            LossCause::Status(503),
        ] {
            assert!(is_outage(&cause), "{cause}");
        }
        for cause in [
            LossCause::Status(400),
            LossCause::Status(404),
            LossCause::Closed(Some(1_011)),
        ] {
            assert!(!is_outage(&cause), "{cause}");
        }
    }

    #[test]
    fn a_server_is_named_without_what_may_be_a_key() {
        let url = "wss://user:secret@models.example:444/v1/realtime?api-key=secret&model=m";
        let url: Uri = url.parse().expect("a URL");
        assert_eq!(name(&url), "wss://models.example:444/v1/realtime");
        let bare: Uri = "ws://[::1]:9".parse().expect("a URL");
        assert_eq!(name(&bare), "ws://[::1]:9/");
    }
}
