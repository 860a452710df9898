//! Record headers: what is read is written again byte by byte, in the length that was told; and the class of a packet.

#![no_main]

use firsthop_shared::packet::classify;
use firsthop_shared::trunk::{RECORD_HEADER_MAX, RECORD_HEADER_MIN, RecordHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = classify(data);
    let Ok((header, used)) = RecordHeader::parse(data) else {
        return;
    };
    assert!((RECORD_HEADER_MIN..=RECORD_HEADER_MAX).contains(&used));
    assert_eq!(header.encoded_len(), used);
    let mut out = [0; RECORD_HEADER_MAX];
    assert_eq!(header.write(&mut out), used);
    assert_eq!(out[..used], data[..used]);
    // One byte less is not enough.
    assert!(RecordHeader::parse(&data[..used - 1]).is_err());
});
