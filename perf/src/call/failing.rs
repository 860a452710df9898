//! Why a client cannot go on, in words.

/// A client that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The answer is not one to its offer.
    #[error("the answer cannot be used: {0}")]
    Answer(String),
    /// The engine gave up.
    #[error("the engine failed: {0}")]
    Engine(str0m::RtcError),
}

// Its words have the cause: it is not named as a source as well, which would have it printed twice.
impl From<str0m::RtcError> for ClientError {
    fn from(error: str0m::RtcError) -> Self {
        Self::Engine(error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::call::recording::RecordingError;
    use crate::rig::RigError;

    /// An error as a program that ends with it prints it: with all its causes.
    fn printed(error: impl std::error::Error + Send + Sync + 'static) -> String {
        format!("{:#}", anyhow::Error::new(error))
    }

    #[test]
    fn a_cause_is_printed_once() {
        let cause = "No space left";
        let said = printed(RigError::from(io::Error::other(cause)));
        assert_eq!(said, cause);

        let mut encoder = opus::Encoder::new(48_000, opus::Channels::Mono, opus::Application::Voip)
            .expect("an encoder");
        let refused = encoder
            .encode(&[0; 7], &mut [0; 100])
            .expect_err("no frame");
        let cause = refused.to_string();
        let said = printed(RecordingError::from(refused));
        assert_eq!(said.matches(&cause).count(), 1, "{said}");

        let refused = str0m::RtcError::RemoteSdp("odd".to_owned());
        let cause = refused.to_string();
        let said = printed(ClientError::from(refused));
        assert_eq!(said.matches(&cause).count(), 1, "{said}");
    }
}
