//! Which calls are traced.
//!
//! A share of all calls is, by the dice. A client that says in its `traceparent` that it records its own trace gets its call traced, too,
//! but no more than [`ASKED_PER_SEC`] such calls a second are: anybody can send that header. That a client does not record is no reason to
//! leave its call out: the dice count. Whoever is traced has its spans put below the client's own, so that the trace is one.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use super::{Place, TraceParent};

/// How many calls a second are traced because their clients asked for it.
pub const ASKED_PER_SEC: u32 = 5;

/// A share of calls, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share(f64);

impl Share {
    /// Whether it is none at all.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 <= 0.0
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self(share)),
            _ => Err("a share is a number from 0 to 1, such as 0.01"),
        }
    }
}

/// Decides for each call.
#[derive(Debug)]
pub struct Sampler {
    share: Share,
    asked: Mutex<Asked>,
}

/// How many were traced at their client's wish in this second.
#[derive(Debug, Default)]
struct Asked {
    second: u64,
    count: u32,
}

impl Sampler {
    /// Traces this share of calls.
    #[must_use]
    pub fn new(share: Share) -> Self {
        Self {
            share,
            asked: Mutex::default(),
        }
    }

    /// The place of a call's first span, when the call is traced. `dice` is a random number, 0 to 1, and `second` the time.
    #[must_use]
    pub fn decide(&self, client: Option<&TraceParent>, dice: f64, second: u64) -> Option<Place> {
        let asks = client.is_some_and(TraceParent::is_sampled);
        let traced = dice < self.share.0 || (asks && self.grants(second));
        traced.then(|| client.map_or_else(Place::root, Place::under))
    }

    fn grants(&self, second: u64) -> bool {
        if self.share.is_none() {
            return false;
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.second != second {
            *asked = Asked { second, count: 0 };
        }
        let granted = asked.count < ASKED_PER_SEC;
        asked.count += u32::from(granted);
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(flags: &str) -> Option<TraceParent> {
        TraceParent::parse(&format!(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}"
        ))
    }

    fn sampler(share: &str) -> Sampler {
        Sampler::new(share.parse().expect("a share"))
    }

    #[test]
    fn the_dice_decide_for_whoever_does_not_ask() {
        let some = sampler("0.25");
        assert!(some.decide(None, 0.24, 0).is_some());
        assert!(some.decide(None, 0.25, 0).is_none());
        assert!(some.decide(client("00").as_ref(), 0.24, 0).is_some());
        assert!(some.decide(client("00").as_ref(), 0.26, 0).is_none());
        assert!(sampler("1").decide(None, 0.999, 0).is_some());
        assert!(sampler("0").decide(None, 0.0, 0).is_none());
    }

    #[test]
    fn a_client_that_asks_is_granted_it_within_the_bound() {
        let few = sampler("0.001");
        let granted = |second| {
            let asks = client("01");
            (0..1_000)
                .filter(|_| few.decide(asks.as_ref(), 0.9, second).is_some())
                .count()
        };
        assert_eq!(granted(7), ASKED_PER_SEC as usize);
        assert_eq!(granted(8), ASKED_PER_SEC as usize);
        // Where nothing is traced, nobody's word changes that.
        assert!(sampler("0").decide(client("01").as_ref(), 0.0, 9).is_none());
    }

    #[test]
    fn a_share_is_between_none_and_all() {
        for bad in ["", "-0.1", "1.1", "NaN", "10%", "inf"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
        assert!("0".parse::<Share>().expect("a share").is_none());
        assert!(!"0.5".parse::<Share>().expect("a share").is_none());
    }
}
