//! Makes up for lost G.711 packets: the last 20 ms are played backwards and forwards in turn, fading out within 60 ms.
//!
//! Played so, the sound goes on without a jump, and its pitch stays. After 60 ms nothing is left that could sound like a machine.

use super::g711::FRAME;

/// Samples until nothing is left.
const FADE: usize = 3 * FRAME;

/// What was heard last of one stream, at 8 kHz.
pub(super) struct Concealer {
    /// The newest sample is the last one.
    last: [i16; FRAME],
    /// Samples made up since something was heard; counts no further than [`FADE`].
    made: usize,
}

impl Default for Concealer {
    /// Before anything was heard, what is made up is silence.
    fn default() -> Self {
        Self {
            last: [0; FRAME],
            made: 0,
        }
    }
}

impl Concealer {
    /// Takes samples that did arrive.
    pub(super) fn heard(&mut self, pcm: &[i16]) {
        let new = &pcm[pcm.len().saturating_sub(FRAME)..];
        self.last.copy_within(new.len().., 0);
        self.last[FRAME - new.len()..].copy_from_slice(new);
        self.made = 0;
    }

    /// Appends samples for ones that did not.
    pub(super) fn make(&mut self, samples: usize, pcm: &mut Vec<i16>) {
        for _ in 0..samples {
            let left = FADE - self.made;
            let at = self.made % (2 * FRAME);
            let sample = if at < FRAME {
                self.last[FRAME - 1 - at]
            } else {
                self.last[at - FRAME]
            };
            pcm.push((i32::from(sample) * left as i32 / FADE as i32) as i16);
            self.made = (self.made + 1).min(FADE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_up_goes_on_without_a_jump_and_fades_out_in_60_ms() {
        let mut concealer = Concealer::default();
        let heard: Vec<i16> = (0..400)
            .map(|n| (f64::sin(f64::from(n) * 0.3) * 10_000.0) as i16)
            .collect();
        concealer.heard(&heard[..390]);
        concealer.heard(&heard[390..]);
        let mut pcm = heard.clone();
        concealer.make(100, &mut pcm);
        concealer.make(FADE, &mut pcm);
        assert_eq!(pcm.len(), 400 + 100 + FADE);
        let jump = pcm
            .windows(2)
            .map(|w| (i32::from(w[1]) - i32::from(w[0])).abs());
        assert!(jump.max() <= Some(3_100), "no more than the tone itself");
        let peak = |pcm: &[i16]| pcm.iter().map(|s| s.unsigned_abs()).max();
        assert!(peak(&pcm[400..560]) > Some(9_000));
        assert!(peak(&pcm[720..880]) < Some(3_400));
        assert_eq!(peak(&pcm[880..]), Some(0));
        // What arrives begins anew.
        concealer.heard(&[500; 3]);
        let mut again = Vec::new();
        concealer.make(4, &mut again);
        assert_eq!(again[..3], [500, 498, 497]);
        assert_ne!(again[3], 496);
    }

    #[test]
    fn before_anything_was_heard_it_is_silence() {
        let mut pcm = Vec::new();
        Concealer::default().make(300, &mut pcm);
        assert_eq!(pcm, [0; 300]);
    }
}
