//! The header of a file of flows: what it holds, and proof that nobody has cut or altered that.

use siphasher::sip::SipHasher24;

use super::{FORMAT, ImportError};

const MAGIC: [u8; 8] = *b"FHFLOWS\0";

/// Where the check of all bytes before it stands.
const CHECK: usize = Header::LEN - 8;

/// What the sections of the file hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// Slots of the table: what handles may name.
    pub(super) capacity: u32,
    pub(super) flows: u32,
    pub(super) provisional: u32,
    pub(super) trunks: u32,
    pub(super) senders: u32,
    /// The keys of the flow table's hash, which ufrag marks are made with.
    pub(super) hash: [u64; 2],
}

impl Header {
    pub(super) const LEN: usize = 64;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_be_bytes());
        bytes[10..12].copy_from_slice(&(Self::LEN as u16).to_be_bytes());
        let words = [
            self.capacity,
            self.flows,
            self.provisional,
            self.trunks,
            self.senders,
        ];
        for (place, word) in bytes[12..32].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[32..40].copy_from_slice(&self.hash[0].to_be_bytes());
        bytes[40..48].copy_from_slice(&self.hash[1].to_be_bytes());
        let check = check(&bytes[..CHECK]);
        bytes[CHECK..].copy_from_slice(&check);
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ImportError> {
        if bytes[..8] != MAGIC {
            return Err(ImportError::Header);
        }
        if bytes[CHECK..] != check(&bytes[..CHECK]) {
            return Err(ImportError::Header);
        }
        let format = u16::from_be_bytes([bytes[8], bytes[9]]);
        if format != FORMAT {
            return Err(ImportError::Format(format));
        }
        if usize::from(u16::from_be_bytes([bytes[10], bytes[11]])) != Self::LEN {
            return Err(ImportError::Header);
        }
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Ok(Self {
            capacity: word(12),
            flows: word(16),
            provisional: word(20),
            trunks: word(24),
            senders: word(28),
            hash: [long(32), long(40)],
        })
    }
}

/// The same in every format, so that a format that is not ours can be told from a header that is damaged.
fn check(bytes: &[u8]) -> [u8; 8] {
    SipHasher24::new().hash(bytes).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(words: [u32; 5], hash: [u64; 2]) -> Header {
        let [capacity, flows, provisional, trunks, senders] = words;
        Header {
            capacity,
            flows,
            provisional,
            trunks,
            senders,
            hash,
        }
    }

    proptest! {
        #[test]
        fn a_header_comes_back_as_it_went(words: [u32; 5], hash: [u64; 2]) {
            let header = header(words, hash);
            prop_assert_eq!(Header::parse(&header.to_bytes()).expect("ours"), header);
        }

        #[test]
        fn an_altered_byte_is_noticed(
            words: [u32; 5], hash: [u64; 2], at in 0..Header::LEN, by in 1u8..,
        ) {
            let mut bytes = header(words, hash).to_bytes();
            bytes[at] ^= by;
            prop_assert!(matches!(Header::parse(&bytes), Err(ImportError::Header)));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), Header::LEN)) {
            let bytes = bytes.first_chunk().expect("as long");
            prop_assert!(Header::parse(bytes).is_err());
        }
    }

    #[test]
    fn another_format_is_named() {
        let mut bytes = header([1; 5], [2; 2]).to_bytes();
        bytes[8..10].copy_from_slice(&(FORMAT + 1).to_be_bytes());
        let check = check(&bytes[..CHECK]);
        bytes[CHECK..].copy_from_slice(&check);
        let error = Header::parse(&bytes).expect_err("not ours").to_string();
        assert!(error.contains(&format!("format {}", FORMAT + 1)), "{error}");
    }
}
