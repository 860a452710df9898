//! What the holder of calls can be told, in words.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;
use std::time::Duration;

/// The longest attack.
const LONGEST: f64 = 600.0;

/// The highest rate of an attack, in packets a second.
const RATE_MAX: f64 = 200_000.0;

/// One command.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// What was heard before does not count.
    Mark,
    /// What was heard since the mark, in sum.
    Measure,
    /// The same, call by call.
    Calls,
    /// Every client gets another port, or another address too, and tells nobody.
    Rebind(Option<Ipv4Addr>),
    /// Every client moves to another address and restarts ICE.
    Move(Ipv4Addr),
    /// Clients use only this of the server's candidates.
    Via(SocketAddrV4),
    /// One more client floods its relay.
    Storm(Attack),
    /// Requests of live calls are replayed and forged, from these addresses or else the clients' own.
    Spoof(Attack, Vec<Ipv4Addr>),
    /// All calls are hung up.
    HangUp,
}

/// How long, and how fast.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attack {
    /// How long.
    pub time: Duration,
    /// Packets a second.
    pub rate: f64,
}

/// What there is.
pub const COMMANDS: &str = "mark, measure, calls, rebind [IP], move IP, via IP:PORT, storm SECONDS RATE, \
                            spoof SECONDS RATE [IP …], hang-up";

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["mark"] => Ok(Self::Mark),
            ["measure"] => Ok(Self::Measure),
            ["calls"] => Ok(Self::Calls),
            ["rebind"] => Ok(Self::Rebind(None)),
            ["rebind", ip] => Ok(Self::Rebind(Some(parsed(ip, "an IPv4 address")?))),
            ["move", ip] => Ok(Self::Move(parsed(ip, "an IPv4 address")?)),
            ["via", address] => Ok(Self::Via(parsed(address, "an IPv4 address and a port")?)),
            ["storm", time, rate] => Ok(Self::Storm(attack(time, rate)?)),
            ["spoof", time, rate, ref from @ ..] => {
                let from: Result<_, _> = from
                    .iter()
                    .map(|ip| parsed(ip, "an IPv4 address"))
                    .collect();
                Ok(Self::Spoof(attack(time, rate)?, from?))
            }
            ["hang-up"] => Ok(Self::HangUp),
            _ => Err(format!(
                "{line:?} is no command here; there are: {COMMANDS}"
            )),
        }
    }
}

fn parsed<T: FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is not {what}"))
}

fn attack(time: &str, rate: &str) -> Result<Attack, String> {
    let number = |word: &str, most: f64, what: &str| match word.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= most => Ok(number),
        _ => Err(format!(
            "{word:?} is not {what}, more than 0 and at most {most}"
        )),
    };
    Ok(Attack {
        time: Duration::from_secs_f64(number(time, LONGEST, "a number of seconds")?),
        rate: number(rate, RATE_MAX, "a number of packets a second")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_what_is_wrong_is_named() {
        let attack = Attack {
            time: Duration::from_millis(2_500),
            rate: 1_000.0,
        };
        for (line, command) in [
            ("mark", Command::Mark),
            ("  rebind ", Command::Rebind(None)),
            ("move 10.0.0.7", Command::Move(Ipv4Addr::new(10, 0, 0, 7))),
            (
                "via 203.0.113.10:3478",
                Command::Via("203.0.113.10:3478".parse().expect("an address")),
            ),
            ("storm 2.5 1000", Command::Storm(attack)),
            ("spoof 2.5 1000", Command::Spoof(attack, Vec::new())),
            (
                "spoof 2.5 1000 10.0.0.8 10.0.0.9",
                Command::Spoof(
                    attack,
                    vec![Ipv4Addr::new(10, 0, 0, 8), Ipv4Addr::new(10, 0, 0, 9)],
                ),
            ),
            ("hang-up", Command::HangUp),
        ] {
            assert_eq!(line.parse(), Ok(command), "{line}");
        }
        for (line, expected) in [
            ("sing", "there are: mark"),
            ("move", "there are: mark"),
            ("move home", "\"home\" is not an IPv4 address"),
            ("via 10.0.0.1", "a port"),
            ("storm 0 10", "seconds"),
            ("storm 1 1e9", "at most 200000"),
            ("spoof 1 NaN", "packets a second"),
            ("spoof 1 1 x", "an IPv4 address"),
        ] {
            let error = line.parse::<Command>().expect_err("refused");
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
