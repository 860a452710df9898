//! What a client changes about a call that is up: ICE restarts, and the direction of its audio.

use firsthop_shared::control::IceCredentials;
use firsthop_transceiver::sdp::OfferError;
use str0m::change::SdpPendingOffer;
use str0m::media::Direction;

use super::{Call, credentials};

impl Call {
    /// An ICE restart by the client, through the owner.
    pub(crate) fn restart(&mut self, restart: u8) -> Result<String, OfferError> {
        self.restart_with(restart, |offer| offer)
    }

    /// The same with an offer that was changed on its way.
    pub(crate) fn restart_with(
        &mut self,
        restart: u8,
        edit: impl FnOnce(String) -> String,
    ) -> Result<String, OfferError> {
        let mut api = self.client.rtc.sdp_api();
        api.ice_restart(true);
        let (offer, pending) = api.apply().expect("changes");
        let offer = self.client.written(&offer.to_sdp_string());
        self.renegotiate(restart, &edit(offer), pending)
    }

    /// An ICE restart by the client's new credentials alone: the whole offer stays with the client, which takes an answer as if it had been
    /// sent.
    pub(crate) fn restart_ice(&mut self, restart: u8) -> Result<String, OfferError> {
        let mut api = self.client.rtc.sdp_api();
        api.ice_restart(true);
        let (offer, pending) = api.apply().expect("changes");
        let offer = offer.to_sdp_string();
        let value = |name: &str| {
            let mut lines = offer.lines();
            let value = lines.find_map(|line| line.strip_prefix(name));
            value.expect("a credential").to_owned()
        };
        let client = IceCredentials {
            ufrag: value("a=ice-ufrag:"),
            password: value("a=ice-pwd:"),
        };
        let answer = self.session.restart_ice(
            credentials(self.id, restart),
            &client,
            &self.ingresses.clone(),
            self.now,
            &mut self.out,
        )?;
        self.flush_session();
        self.client.accept(pending, &answer);
        Ok(answer)
    }

    /// Changes what the client does with its audio, through the owner.
    pub(crate) fn direct(&mut self, direction: Direction) -> Result<String, OfferError> {
        let mid = self.client.mid.expect("an audio section");
        let mut api = self.client.rtc.sdp_api();
        api.set_direction(mid, direction);
        let (offer, pending) = api.apply().expect("changes");
        let offer = self.client.written(&offer.to_sdp_string());
        self.renegotiate(0, &offer, pending)
    }

    fn renegotiate(
        &mut self,
        restart: u8,
        offer: &str,
        pending: SdpPendingOffer,
    ) -> Result<String, OfferError> {
        let advertised = self.ingresses.clone();
        let credentials = credentials(self.id, restart);
        let answer =
            self.session
                .restart(credentials, offer, &advertised, self.now, &mut self.out)?;
        self.flush_session();
        self.client.accept(pending, &answer);
        Ok(answer)
    }
}
