//! The HTTP requests by which calls are placed, restarted and hung up.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firsthop_shared::address::{Restart, SessionId, ShardId};
use firsthop_shared::control::{
    ControlError, CreateRequest, CreateResponse, SESSIONS_PATH, STATUS_PATH, Status,
};
use firsthop_shared::token::{self, Route};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_MATCH, LOCATION};

use super::janus_api;
use super::placing::{Answered, CallName, Desk, PlacingError};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often another session id is tried, when one was taken.
const TRIES: usize = 3;

/// Where calls are placed at an address that has no path of its own.
const CALLS_PATH: &str = "/v1/realtime/calls";

/// Where offers go to, with signaling: the API's path at this address, or the address as it is when it has a path.
///
/// # Errors
/// It is no address, in words.
pub(super) fn calls_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| {
        format!("{text:?} is no URL: {error}; give one as https://voice.example.com")
    })?;
    if !["http", "https"].contains(&url.scheme()) || url.host().is_none() {
        return Err(format!(
            "{text:?} is no URL of a server; give one as https://voice.example.com"
        ));
    }
    if url.path() == "/" {
        url.set_path(CALLS_PATH);
    }
    Ok(url)
}

/// Asks a desk, over one HTTP client.
pub(super) struct Clerk {
    http: reqwest::Client,
    desk: Desk,
    /// The transceiver, when calls are placed there.
    status: Option<Status>,
}

impl Clerk {
    pub(super) async fn new(desk: Desk) -> Result<Self, PlacingError> {
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            // Nobody stands between the generator and what it measures.
            .no_proxy()
            .build()
            .map_err(|error| failed(&error))?;
        let mut clerk = Self {
            http,
            desk,
            status: None,
        };
        if let Desk::Control { url, secret, .. } = &clerk.desk {
            let request = clerk.http.get(format!("{url}{STATUS_PATH}"));
            let answer = request.bearer_auth(secret).send().await;
            let answer = answer.map_err(|error| failed(&error))?;
            if !answer.status().is_success() {
                return Err(PlacingError(format!(
                    "the transceiver's status: {}",
                    answer.status()
                )));
            }
            clerk.status = Some(answer.json().await.map_err(|error| failed(&error))?);
        }
        Ok(clerk)
    }

    pub(super) async fn place(&self, client: u32, offer: String) -> Result<Answered, PlacingError> {
        match &self.desk {
            Desk::Signaling { url, key } => {
                let url = calls_url(url).map_err(PlacingError)?;
                let post = self.http.post(url.clone());
                let answer = self.ask(post, key, offer).await?;
                let location = word(&answer.headers, LOCATION)
                    .and_then(|at| url.join(&at).ok())
                    .map(String::from);
                match location {
                    Some(location) if answer.status == 201 => Ok(Answered {
                        etag: word(&answer.headers, ETAG),
                        sdp: answer.text,
                        name: CallName::Url(location),
                    }),
                    _ => Err(answer.refusal()),
                }
            }
            Desk::Control { .. } => self.create(client, &offer).await,
            Desk::Janus { url } => janus_api::place(&self.http, url, offer).await,
        }
    }

    /// Restarts ICE with a whole offer, as the call's own URL takes it.
    pub(super) async fn restart(
        &self,
        name: CallName,
        etag: String,
        offer: String,
    ) -> Result<Answered, PlacingError> {
        let (Desk::Signaling { key, .. }, CallName::Url(url)) = (&self.desk, &name) else {
            let words = "ICE is restarted with signaling alone";
            return Err(PlacingError(words.to_owned()));
        };
        let patch = self.http.patch(url).header(IF_MATCH, etag);
        let answer = self.ask(patch, key, offer).await?;
        match word(&answer.headers, ETAG) {
            Some(etag) if answer.status == 200 => Ok(Answered {
                sdp: answer.text,
                name,
                etag: Some(etag),
            }),
            _ => Err(answer.refusal()),
        }
    }

    /// Sends an offer to signaling.
    async fn ask(
        &self,
        request: reqwest::RequestBuilder,
        key: &str,
        offer: String,
    ) -> Result<Reply, PlacingError> {
        let request = request
            .bearer_auth(key)
            .header(CONTENT_TYPE, "application/sdp");
        let answer = request.body(offer).send().await.map_err(|e| failed(&e))?;
        Ok(Reply {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            text: answer.text().await.map_err(|error| failed(&error))?,
        })
    }

    async fn create(&self, client: u32, offer: &str) -> Result<Answered, PlacingError> {
        let mut last = PlacingError("there is no transceiver".to_owned());
        for _ in 0..TRIES {
            let Some((request, url, secret)) = self.request(client, offer) else {
                return Err(last);
            };
            let post = self.http.post(format!("{url}{SESSIONS_PATH}"));
            let sent = post.bearer_auth(secret).json(&request).send().await;
            let answer = sent.map_err(|error| failed(&error))?;
            let status = answer.status();
            let text = answer.text().await.map_err(|error| failed(&error))?;
            if status.as_u16() == 201 {
                let made: CreateResponse =
                    serde_json::from_str(&text).map_err(|error| PlacingError(error.to_string()))?;
                let name = CallName::Session {
                    id: request.session,
                    created: request.created,
                };
                return Ok(Answered {
                    sdp: made.answer,
                    name,
                    etag: None,
                });
            }
            let words = match serde_json::from_str::<ControlError>(&text) {
                Ok(error) => error.to_string(),
                Err(_) => first_words(&text),
            };
            last = PlacingError(format!("{status}: {words}"));
            // The id was taken: another is tried.
            if status.as_u16() != 409 {
                break;
            }
        }
        Err(last)
    }

    /// A request for a session under a random id, at one worker after the other.
    fn request(&self, client: u32, offer: &str) -> Option<(CreateRequest, &str, &str)> {
        let (
            Desk::Control {
                url,
                secret,
                keyring,
                cluster,
                ingresses,
            },
            Some(status),
        ) = (&self.desk, &self.status)
        else {
            return None;
        };
        let shards = status.shards.len().max(1);
        let shard = u8::try_from(client as usize % shards).ok()?;
        let session: u32 = rand::random();
        let route = Route {
            cluster: *cluster,
            owner: status.owner.into(),
            shard: ShardId(shard),
            restart: Restart(0),
            session: SessionId(session),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let request = CreateRequest {
            session,
            shard,
            created: since.as_millis() as u64,
            ufrag: token::mint(keyring.active(), &route).to_string(),
            offer: offer.to_owned(),
            ingresses: ingresses.clone(),
            client: Some("perf".to_owned()),
            ..CreateRequest::default()
        };
        Some((request, url, secret))
    }

    pub(super) async fn hang_up(&self, call: &CallName) {
        // The call may have ended meanwhile.
        let _ = match (&self.desk, call) {
            (Desk::Signaling { key, .. }, CallName::Url(url)) => {
                let post = self.http.post(format!("{url}/hangup"));
                post.bearer_auth(key).send().await
            }
            (Desk::Control { url, secret, .. }, CallName::Session { id, created }) => {
                let path = format!("{url}{SESSIONS_PATH}/{id}?created={created}");
                self.http.delete(path).bearer_auth(secret).send().await
            }
            (Desk::Janus { url }, CallName::Janus { session }) => {
                return janus_api::destroy(&self.http, url, *session).await;
            }
            _ => return,
        };
    }
}

/// What signaling said.
struct Reply {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    fn refusal(&self) -> PlacingError {
        PlacingError(format!("{}: {}", self.status, first_words(&self.text)))
    }
}

/// A header, in words.
fn word(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// An error of the HTTP library's, with its cause: it says "error sending request" of all of them.
pub(super) fn failed(error: &reqwest::Error) -> PlacingError {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(because) = cause {
        words = because.to_string();
        cause = because.source();
    }
    PlacingError(words)
}

/// The beginning of a body, in one line.
fn first_words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_go_to_the_apis_path_or_where_the_url_says() {
        for (text, expected) in [
            (
                "http://localhost:8080",
                "http://localhost:8080/v1/realtime/calls",
            ),
            (
                "https://voice.example.com/",
                "https://voice.example.com/v1/realtime/calls",
            ),
            (
                "https://api.example.com/v1/realtime/calls?model=m",
                "https://api.example.com/v1/realtime/calls?model=m",
            ),
        ] {
            assert_eq!(calls_url(text).map(String::from), Ok(expected.to_owned()));
        }
        for text in ["", "localhost", "localhost:8080", "ftp://localhost"] {
            let refused = calls_url(text).expect_err("refused");
            assert!(refused.contains("is no URL"), "{refused}");
        }
    }

    #[test]
    fn what_a_server_says_is_cut_to_one_line() {
        assert_eq!(first_words("{\n  \"error\": 1\n}"), "{ \"error\": 1 }");
        assert_eq!(first_words(&"x".repeat(1_000)).len(), 200);
    }
}
