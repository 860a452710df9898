//! What the two ends of a hand-over say, and what must fit before anything is handed over.
//!
//! A message is one JSON object in one packet of a `SOCK_SEQPACKET` socket; descriptors come along with it. The first message
//! carries the protocol's version under a name of its own, so that versions that share nothing else can tell each other apart.

use std::net::SocketAddr;

use firsthop_relay_core::handover::FORMAT;
use firsthop_service::settings::SettingError;
use firsthop_shared::address::IngressId;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The version of the protocol: of these messages and their order, and of the rule by which clients are steered to cores.
pub const PROTOCOL: u16 = 1;

/// What the serving relay says first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The protocol's version.
    pub firsthop_handover: u16,
    /// What is offered.
    #[serde(flatten)]
    pub relay: Description,
}

#[derive(Deserialize)]
struct Version {
    firsthop_handover: u16,
}

/// A relay, as far as another can only take its place when it is the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The program's version: for people.
    pub program: String,
    /// Its cluster.
    pub cluster: u16,
    /// Its public addresses, in the order of its sockets.
    pub listen: Vec<Place>,
    /// The internal address of its first core; the ports of the others follow.
    pub internal: SocketAddr,
    /// How many cores it has.
    pub cores: u16,
    /// The seed of the rule that spreads clients over them.
    pub steering_seed: u32,
    /// The format of the flows that it writes.
    pub flow_format: u16,
    /// How many flows each core has room for.
    pub flows: u32,
}

/// A public address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Where the sockets are bound.
    pub address: SocketAddr,
    /// The ingress whose address is advertised for it: flows are keyed by it.
    pub ingress: IngressId,
}

/// What the serving relay says, after its offer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToTaker {
    /// With the public sockets of a core and its internal one.
    Sockets {
        /// The core.
        core: u16,
    },
    /// With the listener of the admin port, and that of hand-overs.
    Listeners,
    /// With the flows of a core, which stands still.
    Flows {
        /// The core.
        core: u16,
    },
    /// The core is the successor's.
    Yours {
        /// The core.
        core: u16,
    },
    /// Nothing will be handed over.
    GiveUp {
        /// Why.
        why: String,
        /// Whether the serving relay ends, too; else it goes on.
        #[serde(default)]
        ends: bool,
    },
}

/// What the successor says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToGiver {
    /// The offer fits.
    Accept,
    /// It does not.
    Refuse {
        /// Why.
        why: String,
    },
    /// The successor's cores are prepared; this one shall be handed over.
    Take {
        /// The core.
        core: u16,
    },
    /// The flows of the core are known.
    Imported {
        /// The core.
        core: u16,
    },
    /// The core receives.
    Armed {
        /// The core.
        core: u16,
    },
    /// Everything is taken over.
    Serving,
}

/// The encoded form of a message.
#[must_use]
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("numbers, texts and addresses")
}

/// Reads a message; nothing when it is none.
#[must_use]
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

impl Offer {
    /// The offer of a relay.
    #[must_use]
    pub fn of(relay: Description) -> Self {
        Self {
            firsthop_handover: PROTOCOL,
            relay,
        }
    }

    /// Reads an offer.
    ///
    /// # Errors
    /// It is none, or of another version of the protocol.
    pub fn read(bytes: &[u8]) -> Result<Self, SettingError> {
        let Some(Version { firsthop_handover }) = decode(bytes) else {
            return Err(SettingError::new(
                "--handover",
                "what listens there does not speak as a relay does",
                "give the path that the serving relay has",
            ));
        };
        match decode(bytes) {
            Some(offer) if firsthop_handover == PROTOCOL => Ok(offer),
            _ => Err(misfit(
                "--takeover",
                format!(
                    "the serving relay speaks version {firsthop_handover} of the hand-over, this one {PROTOCOL}"
                ),
                "give one of its own kind",
            )),
        }
    }
}

impl Description {
    /// The relay of these settings.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let listen = config.listen.iter().map(|one| Place {
            address: one.address,
            ingress: one.ingress,
        });
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: config.cluster.0,
            listen: listen.collect(),
            internal: SocketAddr::new(config.internal, config.internal_port),
            cores: config.processors.len() as u16,
            steering_seed: config.steering_seed,
            flow_format: FORMAT,
            flows: config.flows,
        }
    }

    /// Whether this relay can take the place of the one that serves.
    ///
    /// # Errors
    /// The first setting that keeps it from that.
    pub fn can_follow(&self, serving: &Self) -> Result<(), SettingError> {
        let differs = |setting, theirs: &dyn std::fmt::Display, ours: &dyn std::fmt::Display| {
            let problem = format!("the serving relay has {theirs}, this one {ours}");
            Err(misfit(setting, problem, "give the same"))
        };
        if serving.cores != self.cores {
            differs("--cores", &serving.cores, &self.cores)
        } else if serving.listen != self.listen {
            differs("--listen", &places(&serving.listen), &places(&self.listen))
        } else if serving.internal.ip() != self.internal.ip() {
            differs("--internal", &serving.internal.ip(), &self.internal.ip())
        } else if serving.internal != self.internal {
            let (theirs, ours) = (serving.internal.port(), self.internal.port());
            differs("--internal-port", &theirs, &ours)
        } else if serving.cluster != self.cluster {
            differs("--cluster", &serving.cluster, &self.cluster)
        } else if serving.steering_seed != self.steering_seed {
            let (theirs, ours) = (serving.steering_seed, self.steering_seed);
            differs("--steering-seed", &theirs, &ours)
        } else if serving.flows > self.flows {
            let problem = format!(
                "the serving relay has room for {} flows, this one for {}",
                serving.flows, self.flows
            );
            Err(misfit("--flows-per-core", problem, "give at least as many"))
        } else if serving.flow_format != self.flow_format {
            let problem = format!(
                "the serving relay ({}) writes its flows in format {}, this one reads format {}",
                serving.program, serving.flow_format, self.flow_format
            );
            Err(misfit("--takeover", problem, "give one of its own kind"))
        } else {
            Ok(())
        }
    }
}

/// Something that must be the same and is not. Both ways out are named.
fn misfit(setting: &'static str, problem: String, fix: &str) -> SettingError {
    let fix = format!("{fix}, or stop the serving relay and start without --takeover (calls heal)");
    SettingError::new(setting, problem, fix)
}

fn places(places: &[Place]) -> String {
    if places.is_empty() {
        return "none".to_owned();
    }
    let texts: Vec<String> = places
        .iter()
        .map(|one| format!("{} (ingress {})", one.address, one.ingress))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            program: "1.2.3".to_owned(),
            cluster: 7,
            listen: vec![
                Place {
                    address: "192.0.2.1:3478".parse().expect("an address"),
                    ingress: IngressId(0),
                },
                Place {
                    address: "[2001:db8::1]:3478".parse().expect("an address"),
                    ingress: IngressId(0),
                },
            ],
            internal: "10.0.0.1:4000".parse().expect("an address"),
            cores: 4,
            steering_seed: 9,
            flow_format: FORMAT,
            flows: 1_000,
        }
    }

    #[test]
    fn an_offer_comes_back_as_it_went() {
        let offer = Offer::of(description());
        assert_eq!(Offer::read(&encode(&offer)), Ok(offer));
    }

    #[test]
    fn messages_come_back_as_they_went() {
        for message in [
            ToGiver::Accept,
            ToGiver::Take { core: 3 },
            ToGiver::Refuse {
                why: "\"\n".to_owned(),
            },
        ] {
            assert_eq!(decode(&encode(&message)), Some(message));
        }
        let flows = ToTaker::Flows { core: 255 };
        assert_eq!(decode(&encode(&flows)), Some(flows));
    }

    #[test]
    fn what_is_no_message_is_none() {
        let whole = encode(&Offer::of(description()));
        for len in 0..whole.len() {
            Offer::read(&whole[..len]).expect_err("cut");
            assert_eq!(decode::<ToGiver>(&whole[..len]), None);
        }
        for garbage in [&b""[..], b"{}", b"{\"say\":\"take\"}", b"\xff\xfe", b"null"] {
            assert_eq!(decode::<ToGiver>(garbage), None);
            Offer::read(garbage).expect_err("garbage");
        }
    }

    #[test]
    fn another_version_is_named_whatever_else_it_says() {
        let error =
            Offer::read(b"{\"firsthop_handover\":2,\"cores\":\"many\"}").expect_err("newer");
        let error = error.to_string();
        assert!(
            error.contains("version 2") && error.contains("without --takeover"),
            "{error}"
        );
    }

    #[test]
    fn only_a_relay_that_serves_the_same_can_follow() {
        let serving = description();
        serving.can_follow(&serving).expect("the same");
        let mut larger = description();
        (larger.flows, larger.program) = (2_000, "1.3.0".to_owned());
        larger
            .can_follow(&serving)
            .expect("more room, another version");

        let refused = |setting: &str, alter: fn(&mut Description)| {
            let mut own = description();
            alter(&mut own);
            let error = own.can_follow(&serving).expect_err(setting).to_string();
            assert!(error.starts_with(&format!("{setting}: ")), "{error}");
            assert!(error.contains("without --takeover"), "{error}");
        };
        refused("--cores", |own| own.cores = 2);
        refused("--listen", |own| own.listen.truncate(1));
        refused("--listen", |own| own.listen.reverse());
        refused("--listen", |own| own.listen[1].ingress = IngressId(3));
        refused("--internal", |own| {
            own.internal = "10.0.0.2:4000".parse().expect("an address");
        });
        refused("--internal-port", |own| own.internal.set_port(4_100));
        refused("--cluster", |own| own.cluster = 8);
        refused("--steering-seed", |own| own.steering_seed = 0);
        refused("--flows-per-core", |own| own.flows = 999);
        refused("--takeover", |own| own.flow_format += 1);
    }
}
