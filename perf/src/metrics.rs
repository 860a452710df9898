//! What a relay says of itself: its `/metrics`, read over HTTP/1.1 with nothing but a socket.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// The samples of one reading, by name with labels as the relay writes them; one core's each.
#[derive(Clone, Default, Debug)]
pub struct Metrics(BTreeMap<String, u64>);

const PREFIX: &str = "firsthop_relay_";

impl Metrics {
    /// Asks the relay.
    ///
    /// # Errors
    /// It does not answer.
    pub fn read(admin: SocketAddrV4) -> io::Result<Self> {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        if !text.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other("no metrics there"));
        }
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut samples = BTreeMap::new();
        for line in text.lines() {
            if let Some(line) = line.strip_prefix(PREFIX)
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
}
