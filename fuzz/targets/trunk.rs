//! Trunk datagrams: what opens has its records inside the datagram, one after the other, and is built again from them byte by byte.
//!
//! No fuzzer guesses a tag. So a datagram that fails by its tag alone is given the right one, and must open then.

#![no_main]

use firsthop_fuzz::data_keyring;
use firsthop_shared::address::KeyId;
use firsthop_shared::limits::{TRUNK_DATAGRAM_MAX, TRUNK_RECORDS_MAX};
use firsthop_shared::trunk::{
    self, DATAGRAM_HEADER_LEN, Datagram, DatagramBuilder, RecordHeader, TAGGED_LEN, Tagger,
    TrunkError,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match trunk::open(data_keyring(), data) {
        Ok(datagram) => check(data, &datagram),
        Err(TrunkError::Tag) => {
            let signed = sign(data);
            let datagram = trunk::open(data_keyring(), &signed).expect("the right tag");
            check(&signed, &datagram);
        }
        Err(_) => {}
    }
});

fn sign(data: &[u8]) -> Vec<u8> {
    let id = KeyId::new(u16::from_be_bytes([data[4], data[5]])).expect("a key id");
    let key = data_keyring().get(id).expect("a key of the ring");
    let head = data.first_chunk::<TAGGED_LEN>().expect("a header");
    let mut tagger = Tagger::new(key, head);
    let mut at = DATAGRAM_HEADER_LEN;
    while at < data.len() {
        let (header, used) = RecordHeader::parse(&data[at..]).expect("a record");
        tagger.record(&data[at..at + used]);
        at += used + usize::from(header.payload_len);
    }
    let mut signed = data.to_vec();
    signed[TAGGED_LEN..DATAGRAM_HEADER_LEN].copy_from_slice(&tagger.finish());
    signed
}

fn check(data: &[u8], datagram: &Datagram<'_>) {
    let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
    let mut at = DATAGRAM_HEADER_LEN;
    for record in datagram.records() {
        assert_eq!(record.offset, at + record.header.encoded_len());
        assert_eq!(record.payload.len(), usize::from(record.header.payload_len));
        at = record.offset + record.payload.len();
        assert_eq!(record.payload, &data[record.offset..at]);
        assert!(builder.push(&record.header, record.payload), "it fitted");
    }
    assert_eq!(at, data.len(), "the records fill the datagram");
    assert!((1..=TRUNK_RECORDS_MAX).contains(&builder.records()));
    let header = datagram.header;
    let key = data_keyring().get(header.key).expect("a key of the ring");
    let again = builder.finish(key, header.shard, header.boot, header.sequence);
    assert_eq!(again, data);
}
