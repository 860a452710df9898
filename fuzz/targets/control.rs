//! The messages between signaling and a transceiver: what is read is written and read alike.

#![no_main]

use firsthop_fuzz::is_exact;
use firsthop_shared::control::{
    ControlError, CreateRequest, CreateResponse, RestartRequest, RestartResponse, SessionInfo,
    Status,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    check::<CreateRequest>(data);
    check::<CreateResponse>(data);
    check::<RestartRequest>(data);
    check::<RestartResponse>(data);
    check::<SessionInfo>(data);
    check::<Status>(data);
    check::<ControlError>(data);
});

fn check<T: Serialize + DeserializeOwned + PartialEq>(data: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(data) else {
        return;
    };
    let written = serde_json::to_vec(&message).expect("text keys only");
    let again = serde_json::from_slice::<T>(&written);
    let exact = serde_json::from_slice(data).is_ok_and(|value| is_exact(&value));
    assert!(again.is_ok_and(|again| again == message || !exact));
}
