//! What the log says of model servers that cannot be connected to: a warning once for an outage, however many calls meet it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tokio_tungstenite::tungstenite::http::Uri;

use super::translator::LossCause;
use crate::limits;

/// The servers that are out, of all workers.
#[derive(Debug, Default)]
pub struct Outages {
    out: Mutex<HashSet<String>>,
}

impl Outages {
    /// A connection to this server could not be made: whether that is news.
    pub fn begins(&self, server: &str) -> bool {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // More servers than are remembered are told of call by call.
        out.len() < limits::BACKEND_OUTAGES && out.insert(server.to_owned())
    }

    /// A connection was made: whether the server had been out.
    pub fn ends(&self, server: &str) -> bool {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.remove(server)
    }
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
        let outages = Outages::default();
        assert!(!outages.ends("a"), "it was well");
        assert_eq!(
            ["a", "a", "b"].map(|s| outages.begins(s)),
            [true, false, true]
        );
        assert_eq!(["a", "a"].map(|s| outages.ends(s)), [true, false]);
        assert!(outages.begins("a"));
    }

    #[test]
    fn a_bounded_number_of_servers_is_remembered() {
        let outages = Outages::default();
        let told = (0..2 * limits::BACKEND_OUTAGES).filter(|n| outages.begins(&n.to_string()));
        assert_eq!(told.count(), limits::BACKEND_OUTAGES);
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
