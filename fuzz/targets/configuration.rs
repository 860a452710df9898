//! The configuration of a session, as JSON, in today's shape and the beta's: what is accepted is accepted again, and what a client cannot
//! change stays. A second piece is joined to the first.

#![no_main]

use firsthop_fuzz::pieces;
use firsthop_signaling::session_config::{ROOT, check, from_beta, merge};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|data: &[u8]| {
    let mut values = pieces(data).filter_map(|piece| serde_json::from_slice::<Value>(piece).ok());
    let Some(first) = values.next() else {
        return;
    };
    match check(first.clone()) {
        Ok(config) => assert_eq!(check(Value::Object(config.clone())).ok(), Some(config)),
        Err(error) => assert!(error.path.starts_with(ROOT), "{}", error.path),
    }
    let Value::Object(first) = first else {
        return;
    };
    let today = from_beta(first.clone());
    assert_eq!(from_beta(today.clone()), today);
    if let Some(Value::Object(second)) = values.next() {
        let merged = merge(first.clone(), second.clone());
        assert!(stays(&first, &merged));
        assert!(second.keys().all(|name| merged.contains_key(name)));
    }
});

/// Whether everything in `fixed` is in `merged`, too.
fn stays(fixed: &Map<String, Value>, merged: &Map<String, Value>) -> bool {
    fixed
        .iter()
        .all(|(name, value)| match (value, merged.get(name)) {
            (Value::Object(fixed), Some(Value::Object(merged))) => stays(fixed, merged),
            (value, found) => found == Some(value),
        })
}
