//! Other clusters and the ingress points: whether they are well, and how requests are sent on.
//!
//! Every two seconds each ingress point with a `health` URL and the `/readyz` of each other cluster's signaling are asked, all at once. Two
//! failures in a row make one ill, one success makes it well. An ingress point is well until it fails; a cluster is not until it answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_MATCH, LINK,
    LOCATION, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use firsthop_service::traces::TRACEPARENT;
use firsthop_shared::address::{ClusterId, IngressId};
use firsthop_shared::fleet::Fleet;
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::task::JoinSet;

use crate::access::REQUEST_ID;
use crate::context::FORWARDED;
use crate::limits::{
    HEALTH_FAILURES, IDLE_MAX, OWNER_CONNECT_TIMEOUT, OWNER_RESPONSE_MAX, PEER_TIMEOUT,
};

/// What goes along with a forwarded request.
const SENT_ON: [HeaderName; 8] = [
    ACCEPT,
    AUTHORIZATION,
    CONTENT_TYPE,
    IF_MATCH,
    ORIGIN,
    REQUEST_ID,
    HeaderName::from_static("openai-beta"),
    HeaderName::from_static(TRACEPARENT),
];

/// What comes back with its response.
const BROUGHT_BACK: [HeaderName; 9] = [
    CACHE_CONTROL,
    CONTENT_TYPE,
    ETAG,
    LINK,
    LOCATION,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    HeaderName::from_static("accept-patch"),
    HeaderName::from_static("accept-post"),
];

/// What is known of one neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    failures: u8,
    answered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Neighbour {
    Ingress(IngressId),
    Cluster(ClusterId),
}

/// The neighbours, and a client for them.
#[derive(Debug)]
pub struct Neighbours {
    http: Client,
    patience: Duration,
    health: Mutex<HashMap<Neighbour, Health>>,
}

/// Why a request could not be sent on.
#[derive(Debug, thiserror::Error)]
#[error("the other cluster could not be reached: {0}")]
pub struct ForwardError(String);

/// A request as it is sent on.
#[derive(Clone, Debug)]
pub struct Forward<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path and query.
    pub path: &'a str,
    /// Its headers; those that matter are picked from them.
    pub headers: &'a HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// What this cluster says of it.
    pub note: String,
}

impl Neighbours {
    /// Knows of nobody yet; each answer to whether it is well may take as long as `patience`.
    ///
    /// # Errors
    /// When the HTTP client cannot be built.
    pub fn new(patience: Duration) -> Result<Self, reqwest::Error> {
        let http = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(OWNER_CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_MAX)
            .build()?;
        Ok(Self {
            http,
            patience,
            health: Mutex::default(),
        })
    }

    /// Asks everybody once; returns when the last has answered or failed.
    pub async fn poll_once(self: &Arc<Self>, fleet: &Fleet, own: ClusterId) {
        let ingresses = fleet
            .ingresses()
            .iter()
            .filter_map(|i| Some((Neighbour::Ingress(i.id), i.health.clone()?)));
        let clusters = fleet
            .clusters()
            .iter()
            .filter(|cluster| cluster.id != own)
            .filter_map(|c| {
                let url = format!("{}/readyz", base(c.signaling.as_deref()?));
                Some((Neighbour::Cluster(c.id), url))
            });
        let asked: Vec<(Neighbour, String)> = ingresses.chain(clusters).collect();
        // Who left the fleet file is forgotten, and begins anew when it comes back.
        self.lock()
            .retain(|known, _| asked.iter().any(|(neighbour, _)| neighbour == known));
        let mut polls = JoinSet::new();
        for (neighbour, url) in asked {
            let this = Arc::clone(self);
            polls.spawn(async move {
                let sent = this.http.get(url).timeout(this.patience).send().await;
                let well = sent.is_ok_and(|response| response.status().is_success());
                this.note(neighbour, well);
            });
        }
        while polls.join_next().await.is_some() {}
    }

    fn note(&self, neighbour: Neighbour, well: bool) {
        let mut table = self.lock();
        let health = table.entry(neighbour).or_default();
        let before = *health;
        health.answered |= well;
        health.failures = if well {
            0
        } else {
            health.failures.saturating_add(1)
        };
        let (was, is) = (is_well(neighbour, before), is_well(neighbour, *health));
        if was != is {
            tracing::info!(?neighbour, well = is, "neighbour");
        }
    }

    /// Whether an ingress point can be advertised.
    #[must_use]
    pub fn ingress_is_well(&self, id: IngressId) -> bool {
        self.is_well(Neighbour::Ingress(id))
    }

    /// Whether a cluster has room, as it said lately.
    #[must_use]
    pub fn cluster_is_well(&self, id: ClusterId) -> bool {
        self.is_well(Neighbour::Cluster(id))
    }

    fn is_well(&self, neighbour: Neighbour) -> bool {
        let health = self.lock().get(&neighbour).copied().unwrap_or_default();
        is_well(neighbour, health)
    }

    /// Sends a request on and brings the response back.
    ///
    /// # Errors
    /// When there was no usable response.
    pub async fn forward(
        &self,
        signaling: &str,
        request: Forward<'_>,
    ) -> Result<Response, ForwardError> {
        let fail = |error: reqwest::Error| ForwardError(error.without_url().to_string());
        let mut headers = pick(request.headers, &SENT_ON);
        let note = HeaderValue::from_str(&request.note)
            .map_err(|error| ForwardError(error.to_string()))?;
        headers.insert(FORWARDED, note);
        // So that the body comes back as it was made.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let url = format!("{}{}", base(signaling), request.path);
        let mut response = self
            .http
            .request(request.method.clone(), url)
            .headers(headers)
            .body(request.body)
            .timeout(PEER_TIMEOUT)
            .send()
            .await
            .map_err(fail)?;
        let status = response.status();
        let headers = pick(response.headers(), &BROUGHT_BACK);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(fail)? {
            if body.len() + chunk.len() > OWNER_RESPONSE_MAX {
                return Err(ForwardError("it said too much".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, headers, body).into_response())
    }

    /// Opens a WebSocket's way to another cluster; see [`sideband`](crate::sideband).
    pub fn upgrade(
        &self,
        signaling: &str,
        path: &str,
        headers: &HeaderMap,
        note: &str,
    ) -> reqwest::RequestBuilder {
        self.http
            .get(format!("{}{path}", base(signaling)))
            .headers(pick(headers, &SENT_ON))
            .header(FORWARDED, note)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Neighbour, Health>> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_well(neighbour: Neighbour, health: Health) -> bool {
    let known = health.answered || matches!(neighbour, Neighbour::Ingress(_));
    known && health.failures < HEALTH_FAILURES
}

/// A base URL without the slash that a path brings.
#[must_use]
pub fn base(url: &str) -> &str {
    url.trim_end_matches('/')
}

fn pick(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut picked = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            picked.append(name.clone(), value.clone());
        }
    }
    picked
}

/// Whether another cluster's response means that it did not take the call, and another may.
#[must_use]
pub fn did_not_take_it(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
    )
}
