//! The frames of a WebSocket, as a server sees them (RFC 6455 section 5): those that a client sends are found, and pings and closes answered.

/// The longest message that is kept: 100 ms of PCM are 6,400 bytes.
const MESSAGE_MAX: u64 = 65_536;

/// A frame of a server's: not masked, and whole.
pub(super) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length @ 126..0x1_0000 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// What a client's frames call for.
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    pub(super) closes: bool,
}

/// Takes the messages that are kept; nothing for one that was too long.
pub(super) type Hear<'a> = &'a mut dyn FnMut(Option<&[u8]>);

/// Finds the frames in a client's stream, and passes over their payloads but for those of control frames, and of messages if these are kept.
pub(super) struct Frames {
    /// Messages are kept.
    pub(super) keeps: bool,
    /// The head of a frame, as far as it has come: two bytes, length and mask; then a control frame's payload.
    head: Vec<u8>,
    /// Bytes of a payload that are still to be passed over.
    pass: u64,
    /// The message that this payload is of, as far as it has come, and its mask; when it is kept.
    message: Option<(Vec<u8>, [u8; 4])>,
}

impl Frames {
    pub(super) fn new(keeps: bool) -> Self {
        Self {
            keeps,
            head: Vec::new(),
            pass: 0,
            message: None,
        }
    }

    /// Takes bytes; returns what is to be answered, if anything.
    pub(super) fn take(&mut self, mut bytes: &[u8], hear: Hear<'_>) -> Option<Reply> {
        let mut reply = Reply {
            bytes: Vec::new(),
            closes: false,
        };
        // Each turn takes a byte at least.
        while let Some(&byte) = bytes.first() {
            if self.pass > 0 {
                let passed = self.pass.min(bytes.len() as u64);
                self.pass -= passed;
                let (payload, rest) = bytes.split_at(passed as usize);
                bytes = rest;
                if let Some((message, mask)) = &mut self.message {
                    let begun = message.len();
                    let mask = mask.iter().cycle().skip(begun % 4);
                    message.extend(payload.iter().zip(mask).map(|(byte, key)| byte ^ key));
                    if self.pass == 0 {
                        hear(Some(message));
                        self.message = None;
                    }
                }
                continue;
            }
            self.head.push(byte);
            bytes = &bytes[1..];
            self.look(&mut reply, hear);
        }
        (!reply.bytes.is_empty()).then_some(reply)
    }

    /// Looks whether the head is whole, and acts on it.
    fn look(&mut self, reply: &mut Reply, hear: Hear<'_>) {
        let &[first, second, ..] = &self.head[..] else {
            return;
        };
        let short = usize::from(second & 0x7f);
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = 2 + extended;
        let begin = mask + 4 * usize::from(second >> 7);
        if self.head.len() < begin {
            return;
        }
        let opcode = first & 0x0f;
        if opcode < 8 {
            let length = self.head[2..mask]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            self.pass = if extended == 0 { short as u64 } else { length };
            if self.keeps && self.pass > 0 {
                // A message of one frame; the transceiver makes no others.
                let whole = first & 0x80 != 0 && opcode != 0;
                let key = self.head[mask..begin].first_chunk::<4>();
                match key.filter(|_| whole && self.pass <= MESSAGE_MAX) {
                    Some(key) => {
                        let room = Vec::with_capacity(self.pass as usize);
                        self.message = Some((room, *key));
                    }
                    None => hear(None),
                }
            }
            self.head.clear();
        } else if self.head.len() == begin + short {
            let key = &self.head[mask..begin];
            let payload: Vec<u8> = self.head[begin..]
                .iter()
                .zip(key.iter().cycle())
                .map(|(byte, key)| byte ^ key)
                .collect();
            match opcode {
                8 => {
                    reply.closes = true;
                    reply.bytes.extend(frame(8, &payload));
                }
                9 => reply.bytes.extend(frame(10, &payload)),
                _ => {}
            }
            self.head.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's frame: masked.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let key = [1, 2, 3, 4];
        let mut bytes = frame(opcode, payload);
        let body = bytes.split_off(bytes.len() - payload.len());
        bytes[1] |= 0x80;
        bytes.extend(key);
        bytes.extend(
            body.iter()
                .zip(key.iter().cycle())
                .map(|(byte, key)| byte ^ key),
        );
        bytes
    }

    #[test]
    fn pings_and_closes_are_answered_wherever_the_stream_is_cut() {
        let mut stream = masked(1, &[7; 300]);
        stream.extend(masked(9, b"are you there"));
        stream.extend(masked(1, &[8; 70_000]));
        stream.extend(masked(2, b""));
        stream.extend(masked(8, &[3, 232]));
        for cut in [1, 7, 1_000, stream.len()] {
            let mut frames = Frames::new(true);
            let mut messages = Vec::new();
            let replies: Vec<Reply> = stream
                .chunks(cut)
                .filter_map(|part| {
                    let mut hear =
                        |message: Option<&[u8]>| messages.push(message.map(<[u8]>::to_vec));
                    frames.take(part, &mut hear)
                })
                .collect();
            assert_eq!(
                messages,
                [Some(vec![7; 300]), None],
                "cut every {cut} bytes"
            );
            let bytes: Vec<u8> = replies
                .iter()
                .flat_map(|reply| reply.bytes.clone())
                .collect();
            let mut expected = frame(10, b"are you there");
            expected.extend(frame(8, &[3, 232]));
            assert_eq!(bytes, expected, "cut every {cut} bytes");
            assert!(replies.last().is_some_and(|reply| reply.closes));
        }
    }
}
