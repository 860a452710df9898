//! How long a reply of Redis may be.
//!
//! A parser of replies collects each whole, however long it says that it is: without a bound, whoever is in the place of Redis has as much of
//! the relay's memory as it can send before its answer is late. So what comes in is followed here first, byte by byte, as far as it
//! takes to know where a reply ends. Nothing that a relay asks is answered with anything but a line, or one string as long as an entry:
//! these replies are let through, in the notation of RESP2, and any other one ends the connection.

use std::io;

use firsthop_relay_core::cache::VALUE_MAX;

use crate::limits::CACHE_REPLY_LINE;

/// The longest string in a reply: an entry, and the byte that tells that there is more.
const STRING_MAX: usize = VALUE_MAX + 1;

/// What came is no reply that may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refused {
    /// A string or a line is longer than any that was asked for.
    #[error("it replies with more than was asked for")]
    TooLong,
    /// A reply of another kind, or none at all.
    #[error("it replies in another way than Redis does")]
    Nonsense,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::InvalidData, refused)
    }
}

/// Follows the replies on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Replies {
    at: At,
}

/// Where in a reply the next byte is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    /// Between two replies.
    #[default]
    Start,
    /// In a line with a text or a number, of which so many bytes have come; the last was a carriage return, or not.
    Line { len: usize, returned: bool },
    /// Before the length of a string.
    Length,
    /// In the length of a string, or behind it.
    Digits { length: usize, returned: bool },
    /// In the length of a string that is none: `-1`, of which so many bytes have come.
    None { len: usize },
    /// In a string, of which so many bytes are to come, with those that end it.
    String { left: usize },
}

/// What follows the kind of a string that is none.
const NONE: &[u8] = b"-1\r\n";

impl Replies {
    /// Takes the next bytes, cut anywhere.
    ///
    /// # Errors
    /// They begin, or make, a reply that may not be. Nothing that comes after that means anything.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let At::String { left } = self.at {
                let taken = left.min(bytes.len());
                bytes = &bytes[taken..];
                self.at = match left - taken {
                    0 => At::Start,
                    left => At::String { left },
                };
            } else {
                self.at = self.at.next(byte)?;
                bytes = rest;
            }
        }
        Ok(())
    }
}

impl At {
    /// Where the next byte is after this one, anywhere but in a string.
    fn next(self, byte: u8) -> Result<Self, Refused> {
        Ok(match (self, byte) {
            (Self::Start, b'+' | b'-' | b':') => Self::Line {
                len: 0,
                returned: false,
            },
            (Self::Start, b'$') => Self::Length,
            (Self::Line { returned: true, .. }, b'\n') => Self::Start,
            (Self::Line { len, .. }, _) if len < CACHE_REPLY_LINE => Self::Line {
                len: len + 1,
                returned: byte == b'\r',
            },
            (Self::Line { .. }, _) => return Err(Refused::TooLong),
            (Self::Length, b'-') => Self::None { len: 1 },
            (Self::Length, b'0'..=b'9') => Self::Digits {
                length: usize::from(byte - b'0'),
                returned: false,
            },
            // After a zero they could go on for ever.
            (
                Self::Digits {
                    length: length @ 1..,
                    returned: false,
                },
                b'0'..=b'9',
            ) => match 10 * length + usize::from(byte - b'0') {
                length @ 0..=STRING_MAX => Self::Digits {
                    length,
                    returned: false,
                },
                _ => return Err(Refused::TooLong),
            },
            (
                Self::Digits {
                    length,
                    returned: false,
                },
                b'\r',
            ) => Self::Digits {
                length,
                returned: true,
            },
            (
                Self::Digits {
                    length,
                    returned: true,
                },
                b'\n',
            ) => Self::String { left: length + 2 },
            (Self::None { len }, byte) if NONE[len] == byte => match len + 1 {
                len if len == NONE.len() => Self::Start,
                len => Self::None { len },
            },
            _ => return Err(Refused::Nonsense),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(bytes: &[u8]) -> Result<(), Refused> {
        let mut replies = Replies::default();
        replies.take(bytes)?;
        // All of these end where they should, so that another reply may follow.
        assert_eq!(replies, Replies::default(), "{}", bytes.escape_ascii());
        replies.take(b"+OK\r\n")
    }

    fn string(len: usize) -> Vec<u8> {
        let mut reply = format!("${len}\r\n").into_bytes();
        reply.resize(reply.len() + len, b'\n');
        reply.extend(b"\r\n");
        reply
    }

    fn line(kind: char, len: usize) -> Vec<u8> {
        format!("{kind}{}\r\n", "x".repeat(len)).into_bytes()
    }

    #[test]
    fn what_a_relay_asks_for_may_come() {
        for reply in [
            &b"+PONG\r\n"[..],
            b"-NOAUTH Authentication required.\r\n",
            b"-EVIL one\rtwo\nthree\r\r\n",
            b":1\r\n",
            b":-1\r\n",
            b"$-1\r\n",
            b"$0\r\n\r\n",
        ] {
            assert_eq!(take(reply), Ok(()), "{}", reply.escape_ascii());
        }
        assert_eq!(take(&string(STRING_MAX)), Ok(()));
        // The carriage return counts.
        assert_eq!(take(&line('-', CACHE_REPLY_LINE - 1)), Ok(()));
    }

    #[test]
    fn a_reply_is_refused_as_soon_as_it_is_too_long() {
        for reply in [
            &format!("${}", STRING_MAX + 1)[..],
            "$629145600",
            "$99999999999999999999999999999999999999",
        ] {
            assert_eq!(take(reply.as_bytes()), Err(Refused::TooLong), "{reply}");
        }
        for kind in ['+', '-', ':'] {
            let long = line(kind, CACHE_REPLY_LINE + 1);
            let cut = &long[..CACHE_REPLY_LINE + 2];
            assert_eq!(take(cut), Err(Refused::TooLong));
        }
    }

    #[test]
    fn what_nobody_asked_for_is_refused() {
        for reply in [
            &b"*1000000000\r\n"[..],
            b"*0\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\r\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$-1x",
            b"$05\r\nhello\r\n",
            b"$+5\r\nhello\r\n",
            b"$5\n",
            b"$5\r5",
            b"$ 5\r\n",
            b"%1\r\n",
            b">2\r\n",
            b"=4\r\n",
            b"!4\r\n",
            b"_\r\n",
        ] {
            assert_eq!(
                take(reply),
                Err(Refused::Nonsense),
                "{}",
                reply.escape_ascii()
            );
        }
    }

    fn reply() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0..=STRING_MAX).prop_map(string),
            (prop::sample::select(vec!['+', '-', ':']), 0..40usize)
                .prop_map(|(kind, len)| line(kind, len)),
            Just(b"$-1\r\n".to_vec()),
        ]
    }

    proptest! {
        /// However a connection cuts replies, they end at the same places.
        #[test]
        fn replies_may_be_cut_anywhere(
            replies in prop::collection::vec(reply(), 1..8), size in 1usize..64, end in prop::sample::select(vec!["", "*", "$98"]),
        ) {
            let mut bytes = replies.concat();
            bytes.extend(end.bytes());
            let mut guard = Replies::default();
            let result = bytes.chunks(size).try_for_each(|piece| guard.take(piece));
            let expected = match end {
                "" => Ok(()),
                "*" => Err(Refused::Nonsense),
                _ => Err(Refused::TooLong),
            };
            prop_assert_eq!(result, expected);
        }

        #[test]
        fn nothing_makes_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..8)) {
            let mut guard = Replies::default();
            let _ = pieces.iter().try_for_each(|piece| guard.take(piece));
        }
    }

    const _: () = assert!(STRING_MAX == 97);
}
