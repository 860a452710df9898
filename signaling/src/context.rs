//! What is known of a request before any handler sees it: the client's address and place, and whether another cluster sent it on.
//!
//! A cluster that forwards a request tells the next one what it knows, in a sealed note (prefix `fw_`, see [`sealed`]), so that the
//! client's address is not lost on the way and cannot be made up. **Loops cannot happen**: whatever carries a note, good or not, and whatever
//! was redirected here is served here.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use firsthop_service::server::Peer;
use serde::{Deserialize, Serialize};

use crate::calls::{FrontDoor, unix_millis};
use crate::error::ApiError;
use crate::limits::FORWARD_FRESH_SECS;
use crate::sealed;
use crate::steering::Position;

/// Header that says that another cluster forwarded the request.
pub const FORWARDED: HeaderName = HeaderName::from_static("firsthop-forwarded");

/// Query parameter of a URL that another cluster redirected to.
pub const STEERED: &str = "firsthop_steered";

const NOTE_PREFIX: &str = "fw_";

/// What is known of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Context {
    /// The client's address.
    pub client: IpAddr,
    /// Where it is.
    pub place: Option<Position>,
    /// Whether it has been steered: then it stays here.
    pub steered: bool,
}

/// What one cluster tells another.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Note {
    client: IpAddr,
    place: Option<Position>,
    /// Unix time in seconds.
    at: u64,
}

impl FrontDoor {
    /// The note to send along with a forwarded request.
    #[must_use]
    pub fn note(&self, context: &Context) -> String {
        let note = Note {
            client: context.client,
            place: context.place,
            at: unix_millis() / 1_000,
        };
        sealed::seal(self.files.api_keyring.borrow().active(), NOTE_PREFIX, &note)
    }

    /// The context, and whether its note of another cluster's is genuine.
    fn context(&self, peer: IpAddr, headers: &HeaderMap, uri: &Uri) -> (Context, bool) {
        if let Some(note) = headers.get(FORWARDED) {
            let keyring = Arc::clone(&self.files.api_keyring.borrow());
            let now = unix_millis() / 1_000;
            let genuine = note
                .to_str()
                .ok()
                .and_then(|note| sealed::open::<Note>(&keyring, NOTE_PREFIX, note).ok())
                .filter(|note| now.abs_diff(note.at) <= FORWARD_FRESH_SECS);
            if let Some(note) = genuine {
                let context = Context {
                    client: note.client,
                    place: note.place,
                    steered: true,
                };
                return (context, true);
            }
        }
        let client = self.proxies.client(peer, headers);
        let place = self.proxies.place(peer, headers).or_else(|| {
            let places = self.places.as_ref()?;
            places.borrow().find(client)
        });
        let steered = headers.contains_key(FORWARDED)
            || uri
                .query()
                .is_some_and(|query| query.split('&').any(|pair| pair.starts_with(STEERED)));
        (
            Context {
                client,
                place,
                steered,
            },
            false,
        )
    }
}

/// Whether requests to this path are counted against their client's address.
fn counted(path: &str) -> bool {
    path.starts_with("/v1/") || path.starts_with("/whip/")
}

/// Puts the [`Context`] into a request, and refuses it when its client asks too often.
pub async fn admit(
    State(door): State<Arc<FrontDoor>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request
        .extensions()
        .get::<Peer>()
        .map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
    let (context, vouched) = door.context(peer, request.headers(), request.uri());
    // What another cluster forwarded was counted there.
    if counted(request.uri().path())
        && !vouched
        && let Err(wait) = door.rates.address(context.client)
    {
        return ApiError::too_many("client address", wait).into_response();
    }
    request.extensions_mut().insert(context);
    next.run(request).await
}
