//! What clients send that is, or looks like, a request: good ones, wrong ones, and rubbish.

use super::*;

impl Simulation<'_> {
    pub(crate) fn good_request(&mut self) {
        let (key, call) = (self.key(), self.call());
        let packet = &call.requests.good;
        let (verdict, records) = self
            .relay
            .receive(key.ingress, key.transport, key.client, packet);
        let refused = self.refusal(call, &key.client).or_else(|| {
            let bound = self.model.request(self.ticks(), key, call.who);
            (!bound).then_some(Reason::TrunkTableFull)
        });
        match refused {
            Some(reason) => self.expect_drop(verdict, reason),
            None => {
                assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
                let packed = self.packed(key, &[call.who], packet);
                assert_eq!(records, packed, "a request goes where its ufrag says, only");
                self.ever.entry(key).or_default().insert(call.who);
                self.touch_live(&key, call.who);
            }
        }
        self.compare(&key);
    }

    /// Why a request with this call's ufrag is refused before its integrity is looked at.
    fn refusal(&self, call: &Call, client: &ClientAddr) -> Option<Reason> {
        if !self.population.rings[self.ring].0.contains(&call.key.get()) {
            Some(Reason::UfragUnknownKey)
        } else if call.cluster != CLUSTER {
            Some(Reason::ForeignCluster)
        } else if call.who.owner.ip().to_string().starts_with("192.") {
            Some(Reason::OwnerOutside)
        } else if Self::is_inside(client) {
            Some(Reason::ClientInside)
        } else {
            None
        }
    }

    pub(crate) fn bad_request(&mut self) {
        let (key, call) = (self.key(), self.call());
        let requests = &call.requests;
        let known = self.population.rings[self.ring].0.contains(&call.key.get());
        let (packet, reason) = match self.rng.random_range(0..7) {
            0 => (
                &requests.wrong_integrity,
                self.refusal(call, &key.client)
                    .unwrap_or(Reason::StunIntegrity),
            ),
            1 if known => (&requests.forged, Reason::UfragForged),
            1 => (&requests.forged, Reason::UfragUnknownKey),
            2 => (&requests.no_integrity, Reason::StunNoIntegrity),
            3 => (&requests.wrong_fingerprint, Reason::StunFingerprint),
            4 => (&requests.wrong_length, Reason::UfragLength),
            5 => (&requests.wrong_format, Reason::UfragFormat),
            _ => (&requests.no_colon, Reason::StunNoUfrag),
        };
        self.refused(key, packet, reason);
    }

    pub(crate) fn rubbish(&mut self) {
        let key = self.key();
        let (packet, reason) = match self.rng.random_range(0..5) {
            0 => (Vec::new(), Reason::Empty),
            1 => (vec![0x47; 9], Reason::UnknownClass),
            2 => (vec![0; 30], Reason::StunMalformed),
            3 => (vec![0x80; 1_901], Reason::Oversize),
            _ => (world::turn_allocate(), Reason::StunMethod),
        };
        self.refused(key, &packet, reason);
    }

    fn refused(&mut self, key: Key, packet: &[u8], reason: Reason) {
        let (verdict, _) = self
            .relay
            .receive(key.ingress, key.transport, key.client, packet);
        self.expect_drop(verdict, reason);
        self.compare(&key);
    }
}
