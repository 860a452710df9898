//! The bodies that ask signaling for a call: raw SDP, JSON, or a form. The first byte says which. What is taken is an offer and a
//! configuration that pass their own checks; what is not is the client's fault by its status.

#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use firsthop_fuzz::is_exact;
use firsthop_shared::limits::SDP_MAX;
use firsthop_signaling::body::{CALL_TYPES, CallBody, call, json_object, require};
use firsthop_signaling::error::ApiError;
use firsthop_signaling::{offer, session_config};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const FORM: &str = "multipart/form-data; boundary=edge";

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    let content = match kind {
        b's' => CALL_TYPES[0],
        b'j' => CALL_TYPES[2],
        _ => FORM,
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, content.parse().expect("a value"));
    let kind = require(&headers, &CALL_TYPES).expect("an accepted type");
    if let Ok(fields) = json_object(body) {
        let fields = Value::Object(fields);
        let again = json_object(fields.to_string().as_bytes()).map(Value::Object);
        assert!(again.is_ok_and(|again| again == fields || !is_exact(&fields)));
    }
    match read(&headers, &kind, body) {
        Ok(body) => {
            assert!(body.sdp.len() <= SDP_MAX);
            assert_eq!(offer::check(body.sdp.as_bytes()), Ok(body.sdp.as_str()));
            if let Some(session) = body.session {
                let again = session_config::check(Value::Object(session.clone()));
                assert_eq!(again.ok(), Some(session));
            }
        }
        Err(error) => assert!(error.status.is_client_error()),
    }
});

/// Reads a body that is there already: nothing is waited for.
fn read(headers: &HeaderMap, kind: &str, body: &[u8]) -> Result<CallBody, ApiError> {
    let mut reading = pin!(call(headers, kind, body.to_vec().into()));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(read) = reading.as_mut().poll(&mut context) {
            return read;
        }
    }
}
