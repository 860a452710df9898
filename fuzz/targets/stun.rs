//! STUN messages: every view of one lies inside it, and one that is written from what was read is read alike.

#![no_main]

use firsthop_shared::stun::{Class, Stun};
use firsthop_shared::stun_write::{Role, binding_request};
use libfuzzer_sys::fuzz_target;

/// The password of the golden vectors (`shared/vectors/stun.json`).
const PASSWORD: &[u8] = b"a password of an agent";

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Stun::parse(data) else {
        return;
    };
    let _ = message.fingerprint_ok();
    let verified = message.verify_integrity(PASSWORD);
    assert!(!verified || message.has_integrity());
    let Some(username) = message.username() else {
        assert!(message.local_ufrag().is_none() && message.remote_ufrag().is_none());
        return;
    };
    match (message.local_ufrag(), message.remote_ufrag()) {
        (Some(local), Some(remote)) => assert_eq!([local, b":", remote].concat(), username),
        (None, None) => assert!(!username.contains(&b':')),
        halves => panic!("one half of a username: {halves:?}"),
    }

    let Ok(name) = std::str::from_utf8(username) else {
        return;
    };
    if name.len() > 513 {
        return;
    }
    let nominates = message.use_candidate();
    let role = Role::Controlling(7, nominates);
    let mut written = Vec::new();
    binding_request(&mut written, message.transaction(), name, PASSWORD, 1, role);
    let again = Stun::parse(&written).expect("our own request");
    assert_eq!(again.class, Class::Request);
    assert_eq!(again.transaction(), message.transaction());
    assert_eq!(again.username(), Some(username));
    assert_eq!(again.use_candidate(), nominates);
    assert!(again.verify_integrity(PASSWORD));
    assert_eq!(again.fingerprint_ok(), Some(true));
});
