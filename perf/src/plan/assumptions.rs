//! What a plan takes for granted: every number of it that was not measured is a flag here, and is printed with the plan.

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::quantity::{
    Quantity, Regions, at_least_one, less_than_all, number, regions, share, some_time, time, whole,
};

/// What is planned for, and what is taken for granted.
#[derive(Args, Clone, PartialEq, Debug, Serialize)]
pub struct Assumptions {
    /// How many people use it.
    #[arg(long, value_parser = number)]
    pub users: Quantity,
    /// The share of users that are in a call at the busiest moment.
    #[arg(long, value_parser = share, default_value = "0.2%")]
    pub concurrent: Quantity,
    /// Regions, each with its share of the calls: NAME=SHARE,NAME=SHARE.
    #[arg(long, value_parser = regions, default_value = "all=100%")]
    pub regions: Regions,
    /// How long a call is, on average.
    #[arg(long, value_parser = some_time, default_value = "3min")]
    pub call_length: Quantity,
    /// How many times as many set-ups a second there are at the worst moment as on average at the busiest.
    #[arg(long, value_parser = at_least_one, default_value = "3")]
    pub set_up_peak: Quantity,
    /// The share of calls whose audio is decoded and encoded (Opus); that of the others is passed through (G.711).
    #[arg(long, value_parser = share, default_value = "100%")]
    pub transcoding: Quantity,
    /// The share of calls that come in at a relay of another cluster, and so pass two relays.
    #[arg(long, value_parser = share, default_value = "0%")]
    pub far: Quantity,
    /// Packets a second, each way, of a call.
    #[arg(long, value_parser = number, default_value = "50")]
    pub packet_rate: Quantity,
    /// Bytes of audio in a packet of a call that is decoded and encoded: 80 are 32 kbit/s.
    #[arg(long, value_parser = number, default_value = "80")]
    pub opus_bytes: Quantity,
    /// Bytes of audio in a packet of a call that is passed through.
    #[arg(long, value_parser = number, default_value = "160")]
    pub g711_bytes: Quantity,
    /// Bytes around the audio: RTP with its extensions, and the tag of SRTP.
    #[arg(long, value_parser = number, default_value = "36")]
    pub media_header: Quantity,
    /// Bytes around that: UDP, IP and Ethernet (62 with IPv6).
    #[arg(long, value_parser = number, default_value = "42")]
    pub packet_header: Quantity,
    /// Bytes a second to a model server, and as many back, of a call that is decoded: PCM of 24 kHz in base64, JSON, WebSocket, TLS, TCP.
    #[arg(long, value_parser = number, default_value = "72k")]
    pub model_rate_pcm: Quantity,
    /// The same of a call that is passed through.
    #[arg(long, value_parser = number, default_value = "19k")]
    pub model_rate_g711: Quantity,
    /// The share of what a core was measured to carry, and of a network link, that is kept free.
    #[arg(long, value_parser = less_than_all, default_value = "30%")]
    pub headroom: Quantity,
    /// Machines of each kind that may be down at once in each region, beside those that are needed.
    #[arg(long, value_parser = whole, default_value = "1")]
    pub failures: Quantity,
    /// Cores of a machine that runs a relay.
    #[arg(long, value_parser = at_least_one, default_value = "8")]
    pub relay_cores: Quantity,
    /// Bits a second, each way, of its network link.
    #[arg(long, value_parser = at_least_one, default_value = "10G")]
    pub relay_link: Quantity,
    /// Cores of a machine that runs a transceiver.
    #[arg(long, value_parser = at_least_one, default_value = "16")]
    pub transceiver_cores: Quantity,
    /// Cores of a machine that runs signaling.
    #[arg(long, value_parser = at_least_one, default_value = "4")]
    pub signaling_cores: Quantity,
    /// Processor time of signaling for a client's TLS handshake, which was not measured; 0 where a proxy before it has the certificate.
    #[arg(long, value_parser = time, default_value = "1ms")]
    pub tls_handshake: Quantity,
    /// How often a minute a relay renews a flow in Redis.
    #[arg(long, value_parser = number, default_value = "2")]
    pub redis_renewals: Quantity,
    /// Bytes that a flow takes in Redis.
    #[arg(long, value_parser = number, default_value = "200")]
    pub redis_entry: Quantity,
}

/// An assumption as it is printed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Told {
    /// The flag that sets it.
    pub flag: String,
    /// What it is.
    pub value: String,
    /// Whether nobody set it to something else.
    pub default: bool,
    /// What it means.
    pub meaning: String,
}

impl Assumptions {
    /// Every one of them, with its flag, in the order of the help. What the help has cannot be missing here.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        let values = match serde_json::to_value(self) {
            Ok(Value::Object(values)) => values,
            _ => unreachable!("assumptions are an object of texts"),
        };
        let command = Self::augment_args(clap::Command::new("plan"));
        let told = |argument: &clap::Arg| {
            let value = values.get(argument.get_id().as_str())?.as_str()?.to_owned();
            let defaults = argument.get_default_values();
            Some(Told {
                flag: format!("--{}", argument.get_long()?),
                default: defaults.iter().any(|default| *default == *value),
                value,
                meaning: argument
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            })
        };
        command.get_arguments().filter_map(told).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        assumptions: Assumptions,
    }

    /// Assumptions as a command line gives them.
    pub(in crate::plan) fn assume(line: &str) -> Result<Assumptions, String> {
        Cli::try_parse_from(std::iter::once("plan").chain(line.split_whitespace()))
            .map(|cli| cli.assumptions)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_is_told_and_what_was_set_is_told_from_what_was_not() {
        let told = assume("--users 900e6 --headroom 40% --regions eu=40%,us=60%")
            .expect("good")
            .told();
        let flags = Assumptions::augment_args(clap::Command::new("plan"));
        assert_eq!(told.len(), flags.get_arguments().count());
        let one = |flag: &str| {
            told.iter()
                .find(|one| one.flag == flag)
                .expect("it is there")
        };
        assert_eq!(
            (one("--users").value.as_str(), one("--users").default),
            ("900e6", false)
        );
        assert_eq!(
            (one("--headroom").value.as_str(), one("--headroom").default),
            ("40%", false)
        );
        assert_eq!(one("--regions").value, "eu=40%,us=60%");
        assert!(
            one("--packet-rate").default
                && one("--packet-rate").meaning.contains("Packets a second")
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_flag_and_the_fix() {
        for (line, flag, says) in [
            ("", "--users", "required"),
            ("--users many", "--users", "write 900e6"),
            ("--users 1 --concurrent 200", "--concurrent", "write 0.2%"),
            ("--users 1 --regions a=10%", "--regions", "make them 100 %"),
            ("--users 1 --call-length 0s", "--call-length", "write 180s"),
            ("--users 1 --headroom 100%", "--headroom", "less than 100%"),
            ("--users 1 --relay-cores 0", "--relay-cores", "from 1 on"),
        ] {
            let error = assume(line).expect_err(line);
            assert!(
                error.contains(flag) && error.contains(says),
                "{line}: {error}"
            );
        }
    }
}
