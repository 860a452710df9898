//! Marks in a client's audio, by which a model server knows whose frame it hears and the how many-eth it is.
//!
//! ```text
//! byte 0    8    16   24   32
//!      run  call count sum  audio …      each a u32, a byte per four bits: 0xE0 and the bits, the highest first
//! ```
//!
//! A call whose two sides both speak G.711 µ-law passes through a transceiver bit by bit, so the marks come out as they went in. A frame that the
//! transceiver makes up for a lost one repeats what was said, and so carries no count that would be the next, or has a wrong sum.

/// Bytes of a mark.
pub const STAMP: usize = 32;

/// Bytes of 20 ms of G.711.
pub const FRAME: usize = 160;

/// The high half of every byte of a mark: µ-law of some loudness.
const HIGH: u8 = 0xe0;

/// What a frame says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The program that the client is of, by a number chosen at random.
    pub run: u32,
    /// The client's number in it; it stays when the client places another call.
    pub call: u32,
    /// The frames that this client had sent before.
    pub count: u32,
}

impl Stamp {
    /// Writes the mark over the beginning of a frame. A frame too short for one is left as it is.
    pub fn write(&self, frame: &mut [u8]) {
        let Some(room) = frame.first_chunk_mut::<STAMP>() else {
            return;
        };
        let words = [self.run, self.call, self.count, self.sum()];
        for (byte, at) in room.iter_mut().zip(0usize..) {
            let bits = words[at / 8] >> (28 - 4 * (at % 8));
            *byte = HIGH | (bits as u8 & 0x0f);
        }
    }

    /// Reads the mark at the beginning of a frame.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let mut words = [0u32; 4];
        for (byte, at) in frame.first_chunk::<STAMP>()?.iter().zip(0usize..) {
            if byte & 0xf0 != HIGH {
                return None;
            }
            words[at / 8] = words[at / 8] << 4 | u32::from(byte & 0x0f);
        }
        let [run, call, count, sum] = words;
        let stamp = Self { run, call, count };
        (stamp.sum() == sum).then_some(stamp)
    }

    /// Reads all marks in audio of any length, wherever they lie in it.
    pub fn all(mut audio: &[u8], mut each: impl FnMut(Self)) {
        while audio.len() >= STAMP {
            // A frame has one mark, at its beginning.
            let step = match Self::read(audio) {
                Some(stamp) => {
                    each(stamp);
                    FRAME
                }
                None => 1,
            };
            audio = audio.get(step..).unwrap_or_default();
        }
    }

    /// FNV-1a of the three numbers: audio is not taken for a mark by chance.
    fn sum(&self) -> u32 {
        [self.run, self.call, self.count]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .fold(0x811c_9dc5, |sum: u32, byte| {
                (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back_in_order_wherever_frames_begin() {
        let stamp = |count| Stamp {
            run: 0xdead_beef,
            call: 99,
            count,
        };
        for before in [0, 1, 160, 333] {
            let mut audio = vec![0xff; before];
            for count in [0, 1, 70_000, u32::MAX] {
                let mut frame = [0xff; FRAME];
                stamp(count).write(&mut frame);
                assert_eq!(Stamp::read(&frame), Some(stamp(count)));
                audio.extend(frame);
            }
            let mut found = Vec::new();
            Stamp::all(&audio, |stamp| found.push(stamp.count));
            assert_eq!(found, [0, 1, 70_000, u32::MAX], "{before} bytes before");
        }
    }

    #[test]
    fn what_is_no_mark_or_a_broken_one_is_not_read() {
        assert_eq!(Stamp::read(&[0xff; FRAME]), None);
        assert_eq!(Stamp::read(&[0xe0; FRAME]), None);
        let mut frame = [0xff; FRAME];
        let stamp = Stamp {
            run: 1,
            call: 2,
            count: 3,
        };
        stamp.write(&mut frame);
        for at in 0..STAMP {
            let mut broken = frame;
            broken[at] ^= 1;
            assert_eq!(Stamp::read(&broken), None, "byte {at}");
        }
        assert_eq!(Stamp::read(&frame[..STAMP - 1]), None);
        stamp.write(&mut frame[..10]);
        Stamp::all(&[], |_| panic!("there is none"));
    }
}
