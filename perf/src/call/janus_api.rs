//! Calls placed with Janus's HTTP API, as its own JavaScript library does: a session, a handle at the echo test, an offer, and a long poll that
//! waits for events meanwhile, of which one has the answer.

use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};

use super::janus::ECHO_TEST;
use super::placing::{Answered, CallName, PlacingError};

/// How often a session says that it is still wanted; Janus forgets it after 60 s.
const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// Events that may come before the answer.
const EVENTS_MAX: u32 = 10;

/// Places a call. Its session is kept alive until it is destroyed, or the runtime ends.
pub(super) async fn place(
    http: &Client,
    url: &str,
    offer: String,
) -> Result<Answered, PlacingError> {
    let made = ask(
        http,
        url,
        &json!({"janus": "create", "transaction": "create"}),
    )
    .await?;
    let session = id(&made)?;
    let at = format!("{url}/{session}");
    let placed = negotiate(http, &at, offer).await;
    if placed.is_ok() {
        tokio::spawn(keep_alive(http.clone(), at));
    } else {
        destroy(http, url, session).await;
    }
    Ok(Answered {
        sdp: placed?,
        name: CallName::Janus { session },
        etag: None,
    })
}

/// Ends a session, and the call with it.
pub(super) async fn destroy(http: &Client, url: &str, session: u64) {
    let order = json!({"janus": "destroy", "transaction": "destroy"});
    // The session may have ended meanwhile.
    let _ = ask(http, &format!("{url}/{session}"), &order).await;
}

async fn negotiate(http: &Client, at: &str, offer: String) -> Result<String, PlacingError> {
    let ordered = async {
        let attach = json!({"janus": "attach", "plugin": ECHO_TEST, "transaction": "attach"});
        let handle = id(&ask(http, at, &attach).await?)?;
        let message = json!({
            "janus": "message",
            "transaction": "message",
            "body": {"audio": true},
            "jsep": {"type": "offer", "sdp": offer},
        });
        ask(http, &format!("{at}/{handle}"), &message).await
    };
    // The answer comes as an event, for which a poll waits that was there before.
    tokio::try_join!(ordered, answer(http, at)).map(|(_, sdp)| sdp)
}

async fn answer(http: &Client, at: &str) -> Result<String, PlacingError> {
    for _ in 0..EVENTS_MAX {
        let sent = http.get(format!("{at}?maxev=1")).send().await;
        let event = read(sent).await?;
        if let Some(sdp) = event["jsep"]["sdp"].as_str() {
            return Ok(sdp.to_owned());
        }
        if event["plugindata"]["data"].get("error").is_some() {
            return Err(refused(&event["plugindata"]["data"]));
        }
    }
    Err(PlacingError("janus gives no answer".to_owned()))
}

async fn keep_alive(http: Client, at: String) {
    let order = json!({"janus": "keepalive", "transaction": "keepalive"});
    loop {
        tokio::time::sleep(KEEP_ALIVE).await;
        if ask(&http, &at, &order).await.is_err() {
            return;
        }
    }
}

async fn ask(http: &Client, url: &str, order: &Value) -> Result<Value, PlacingError> {
    read(http.post(url).json(order).send().await).await
}

async fn read(sent: reqwest::Result<reqwest::Response>) -> Result<Value, PlacingError> {
    let answer = sent.map_err(|error| super::clerk::failed(&error))?;
    let value: Value = answer
        .json()
        .await
        .map_err(|error| super::clerk::failed(&error))?;
    match value["janus"].as_str() {
        Some("error") | None => Err(refused(&value)),
        Some(_) => Ok(value),
    }
}

fn id(answer: &Value) -> Result<u64, PlacingError> {
    answer["data"]["id"].as_u64().ok_or_else(|| refused(answer))
}

fn refused(answer: &Value) -> PlacingError {
    let words: String = answer.to_string().chars().take(200).collect();
    PlacingError(format!("janus: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_and_what_has_none_is_told() {
        let made = json!({"janus": "success", "data": {"id": 4_242_424_242_424_242_u64}});
        assert_eq!(id(&made), Ok(4_242_424_242_424_242));
        let error = id(&json!({"janus": "success"})).expect_err("there is none");
        assert_eq!(error.to_string(), r#"janus: {"janus":"success"}"#);
    }
}
