//! What programs say of themselves: their `/metrics`, read over HTTP/1.1 with nothing but a socket.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// The samples of one reading, by name with labels as the relay writes them; one core's each.
#[derive(Clone, Default, Debug)]
pub struct Metrics(BTreeMap<String, u64>);

/// What the names of a relay's metrics begin with.
const RELAY: &str = "firsthop_relay_";

/// What those of a transceiver begin with.
pub const TRANSCEIVER: &str = "firsthop_transceiver_";

/// Asks for a page, without a key; returns the answer with its head.
///
/// # Errors
/// Nobody answers with 200.
pub fn get(address: SocketAddrV4, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    if text.starts_with("HTTP/1.1 200") {
        Ok(text)
    } else {
        Err(io::Error::other(format!("{address} has no {path}")))
    }
}

impl Metrics {
    /// Asks the relay.
    ///
    /// # Errors
    /// It does not answer.
    pub fn read(admin: SocketAddrV4) -> io::Result<Self> {
        Ok(Self::parse(&get(admin, "/metrics")?))
    }

    /// Asks a transceiver, at its control port.
    ///
    /// # Errors
    /// It does not answer.
    pub fn read_transceiver(control: SocketAddrV4) -> io::Result<Self> {
        Ok(Self::parse_of(TRANSCEIVER, &get(control, "/metrics")?))
    }

    pub(crate) fn parse(text: &str) -> Self {
        Self::parse_of(RELAY, text)
    }

    fn parse_of(prefix: &str, text: &str) -> Self {
        let mut samples = BTreeMap::new();
        for line in text.lines() {
            if let Some(line) = line.strip_prefix(prefix)
                && let Some((name, value)) = line.rsplit_once(' ')
                && let Ok(value) = value.parse::<f64>()
            {
                samples.insert(name.to_owned(), value as u64);
            }
        }
        Self(samples)
    }

    /// The sum of a metric over all cores and labels; 0 when there is none of that name.
    #[must_use]
    pub fn sum(&self, name: &str) -> u64 {
        self.0
            .iter()
            .filter(|(key, _)| key.split('{').next() == Some(name))
            .map(|(_, value)| value)
            .sum()
    }

    /// Drops by reason since `before`, those that are not zero.
    #[must_use]
    pub fn drops_since(&self, before: &Self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for (key, value) in &self.0 {
            let since = value.saturating_sub(before.0.get(key).copied().unwrap_or(0));
            let label = |name: &str| {
                key.split_once(&format!("{name}=\""))
                    .and_then(|(_, rest)| rest.split('"').next())
            };
            if since == 0 {
                continue;
            }
            if key.starts_with("drops_total{")
                && let Some(reason) = label("reason")
            {
                *drops.entry(reason.to_owned()).or_default() += since;
            }
            if key.starts_with("socket_receive_drops_total{")
                && let Some(socket) = label("socket")
            {
                *drops.entry(format!("kernel_{socket}")).or_default() += since;
            }
        }
        drops
    }
}

/// How late a relay's timers were: a histogram, as the relay publishes it.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Lateness {
    /// Upper bound of each bucket in microseconds, ascending, and how many timers fired so late or less; the last has no
    /// bound.
    cumulative: Vec<(f64, u64)>,
}

impl Lateness {
    /// Takes another histogram in, of the same buckets.
    pub fn add(&mut self, other: &Self) {
        if self.cumulative.is_empty() {
            self.cumulative.clone_from(&other.cumulative);
            return;
        }
        for ((_, count), (_, more)) in self.cumulative.iter_mut().zip(&other.cumulative) {
            *count += more;
        }
    }

    /// How many timers were looked at.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative.last().map_or(0, |&(_, count)| count)
    }

    /// An upper bound for a quantile, in milliseconds: that of its bucket. Infinite when it is in the last; nothing when no
    /// timer was looked at.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let rank = (quantile * self.count() as f64).ceil().max(1.0) as u64;
        let hit = self.cumulative.iter().find(|&&(_, count)| count >= rank);
        hit.map(|&(bound, _)| bound / 1e3)
    }
}

impl Metrics {
    /// How late timers were since `before`, all cores together.
    #[must_use]
    pub fn lateness_since(&self, before: &Self) -> Lateness {
        let mut cumulative: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
        for (key, value) in &self.0 {
            let Some(bound) = key
                .strip_prefix("timer_lateness_seconds_bucket{")
                .and_then(|labels| labels.split_once("le=\""))
                .and_then(|(_, rest)| rest.split('"').next()?.parse::<f64>().ok())
            else {
                continue;
            };
            let since = value.saturating_sub(before.0.get(key).copied().unwrap_or(0));
            // Bounds are not negative, so that their bits are in their order.
            let entry = cumulative
                .entry(bound.to_bits())
                .or_insert((bound * 1e6, 0));
            entry.1 += since;
        }
        Lateness {
            cumulative: cumulative.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_and_compared() {
        let before = Metrics::parse("firsthop_relay_drops_total{core=\"0\",reason=\"empty\"} 3\n");
        let now = Metrics::parse(
            "HTTP/1.1 200 OK\n# HELP x\nfirsthop_relay_uplink_packets_total{core=\"0\"} 5\n\
             firsthop_relay_uplink_packets_total{core=\"1\"} 6\n\
             firsthop_relay_drops_total{core=\"0\",reason=\"empty\"} 7\n\
             firsthop_relay_drops_total{core=\"0\",reason=\"oversize\"} 0\n\
             firsthop_relay_socket_receive_drops_total{core=\"0\",socket=\"public\"} 2\n",
        );
        assert_eq!(now.sum("uplink_packets_total"), 11);
        assert_eq!(now.sum("nothing"), 0);
        let drops = now.drops_since(&before);
        assert_eq!(drops.get("empty"), Some(&4));
        assert_eq!(drops.get("kernel_public"), Some(&2));
        assert_eq!(drops.len(), 2);
    }

    #[test]
    fn programs_are_told_apart() {
        let text =
            "firsthop_transceiver_sessions{worker=\"0\"} 3\nfirsthop_relay_flows{core=\"0\"} 4\n";
        assert_eq!(Metrics::parse_of(TRANSCEIVER, text).sum("sessions"), 3);
        assert_eq!(Metrics::parse(text).sum("sessions"), 0);
        assert_eq!(Metrics::parse(text).sum("flows"), 4);
    }

    fn buckets(of: &[(&str, &str, u64)]) -> Metrics {
        let lines = of.iter().map(|(core, bound, count)| {
            format!("firsthop_relay_timer_lateness_seconds_bucket{{le=\"{bound}\",core=\"{core}\"}} {count}\n")
        });
        Metrics::parse(&lines.collect::<String>())
    }

    #[test]
    fn lateness_is_that_of_all_cores_since_the_first_reading() {
        let before = buckets(&[("0", "0.001", 10), ("0", "0.015", 10), ("0", "+Inf", 90)]);
        let now = buckets(&[
            ("0", "0.001", 1_000),
            ("0", "0.015", 1_009),
            ("0", "+Inf", 1_090),
            ("1", "0.001", 1),
            ("1", "0.015", 1),
            ("1", "+Inf", 1),
        ]);
        let lateness = now.lateness_since(&before);
        assert_eq!(lateness.count(), 1_001);
        assert_eq!(lateness.quantile(0.5), Some(1.0));
        // 991 within a millisecond, nine more within fifteen, one later than every bound.
        assert_eq!(lateness.quantile(0.999), Some(15.0));
        assert_eq!(lateness.quantile(1.0), Some(f64::INFINITY));
    }

    #[test]
    fn lateness_of_several_runs_is_one_histogram() {
        let run = |early, all| {
            buckets(&[("0", "0.001", early), ("0", "+Inf", all)])
                .lateness_since(&Metrics::default())
        };
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.5), None);
        lateness.add(&run(9, 9));
        lateness.add(&run(0, 1));
        assert_eq!(lateness.count(), 10);
        assert_eq!(lateness.quantile(0.9), Some(1.0));
        assert_eq!(lateness.quantile(0.91), Some(f64::INFINITY));
    }
}
