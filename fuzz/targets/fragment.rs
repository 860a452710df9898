//! SDP fragments: credentials that are taken are taken again when they are written down, and what tells a client of an answer says what the
//! answer says.

#![no_main]

use firsthop_signaling::fragment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(ice) = fragment::parse(data) {
        let written = format!(
            "a=ice-ufrag:{}\r\na=ice-pwd:{}\r\n",
            ice.ufrag, ice.password
        );
        assert_eq!(fragment::parse(written.as_bytes()), Ok(ice));
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = firsthop_signaling::offer::check(data);
    let Some(told) = fragment::of_answer(text) else {
        return;
    };
    for name in ["ice-ufrag", "ice-pwd"] {
        assert_eq!(
            fragment::attribute(&told, name),
            fragment::attribute(text, name)
        );
    }
});
