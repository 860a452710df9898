//! `GET /debug/call/{id}`: what support asks of a call, behind the control secret.
//!
//! `id` is the session's number as logs have it, in decimal, or in hexadecimal after `0x`; with `?created=` it is that call alone. A call that lives is answered with 200 and a
//! [`CallReport`](crate::worker::CallReport). One that has ended is answered with 404 and, as long as it is among the last
//! [`limits::ENDINGS_KEPT`], with how it stood at its end:
//!
//! ```json
//! { "code": "unknown_session", "message": "…", "ended": { "reason": "hung_up", "ms_ago": 4200, "call": { … } } }
//! ```
//!
//! **What it tells.** No credential, no key, no SDP, no audio, and nothing of what events say. The client's address is told while the call
//! lives: without it nobody can tell a NAT that rebinds from a relay that fails, and who has the control secret can end and overhear the
//! call anyway. It is not kept beyond the call's end.
//!
//! **What it costs.** The worker is asked by the bounded channel of all commands, and builds its answer in some microseconds. Who finds
//! the channel full, or waits for longer than [`limits::REPORT_TIMEOUT`], gets 503: calls come first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use firsthop_shared::address::SessionId;
use firsthop_shared::control::{ControlCode, ControlError};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::control::{Control, Refusal, created_of, submit, unknown_session};
use crate::limits;
use crate::worker::{CallReport, Command, Ended};

/// Answers what support asks of a call.
pub(crate) async fn call(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Refusal> {
    let id = parse(&id)?;
    // Who knows when the call was created gets no other one of its id.
    let wanted = match query.contains_key("created") {
        true => Some(created_of(&query)?),
        false => None,
    };
    let is_wanted = |call: &CallReport| wanted.is_none_or(|wanted| wanted == call.session.created);
    if let Some(shard) = control.directory.shard_of(id) {
        let (reply, result) = oneshot::channel();
        submit(control.worker(shard)?, Command::Report { id, reply })?;
        match timeout(limits::REPORT_TIMEOUT, result).await {
            Ok(Ok(Some(report))) if is_wanted(&report) => {
                return Ok(axum::Json(report).into_response());
            }
            // It has ended meanwhile, or is not made yet, or is another call.
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => {
                return Err(Refusal::new(
                    ControlCode::Full,
                    "the worker has no time to answer: ask again",
                ));
            }
        }
    }
    let (at, ended) = control
        .endings
        .find(id)
        .filter(|(_, ended)| ended.call.as_deref().is_none_or(is_wanted))
        .ok_or_else(unknown_session)?;
    let ms_ago = Instant::now().saturating_duration_since(at).as_millis();
    let message = format!("the session has ended: {}", ended.reason);
    let told = Told {
        error: ControlError::new(ControlCode::UnknownSession, message),
        ended: Past {
            ms_ago: u64::try_from(ms_ago).unwrap_or(u64::MAX),
            ended,
        },
    };
    Ok((StatusCode::NOT_FOUND, axum::Json(told)).into_response())
}

#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    error: ControlError,
    ended: Past,
}

#[derive(Serialize)]
struct Past {
    ms_ago: u64,
    #[serde(flatten)]
    ended: Ended,
}

fn parse(text: &str) -> Result<SessionId, Refusal> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let wrong = if text.starts_with("rtc_") {
        "only signaling can open a call id: ask there, GET /v1/fleet/calls/rtc_… with an admin key"
    } else {
        "an id is the session's number, as the log has it, or 0x and hexadecimal digits"
    };
    number
        .map(SessionId)
        .map_err(|_| Refusal::new(ControlCode::BadRequest, wrong))
}

#[cfg(test)]
mod tests {
    use firsthop_shared::address::ShardId;
    use tokio::sync::mpsc;

    use super::*;
    use crate::control::WorkerHandle;
    use crate::control::tests::control;

    fn status_for(control: Arc<Control>) -> StatusCode {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let asked = call(State(control), Path("7".to_owned()), Query(HashMap::new()));
        runtime.block_on(asked).into_response().status()
    }

    #[test]
    fn a_worker_without_time_is_not_waited_for() {
        let (commands, queue) = mpsc::channel(1);
        let worker = WorkerHandle {
            commands,
            stats: Arc::default(),
        };
        let control = Arc::new(control(vec![worker]));
        assert!(control.directory.reserve(SessionId(7), ShardId(0)));
        let began = Instant::now();
        // Taken by the queue, and answered by nobody.
        assert_eq!(
            status_for(Arc::clone(&control)),
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert!(began.elapsed() >= limits::REPORT_TIMEOUT);
        // Not even taken: the queue is full.
        assert_eq!(
            status_for(Arc::clone(&control)),
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(queue.len(), 1);
        drop(queue);
        assert_eq!(status_for(control), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn ids_are_taken_as_logs_write_them() {
        let good = |text: &str| parse(text).ok().map(|id| id.0);
        assert_eq!(good("4273009881"), Some(4_273_009_881));
        assert_eq!(good("0xfeb0a0d9"), Some(0xfeb0_a0d9));
        for bad in ["", "feb0a0d9", "0x", "4294967296", "-1", "rtc_abc"] {
            assert_eq!(good(bad), None, "{bad}");
        }
    }
}
