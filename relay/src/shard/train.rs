//! Packets for clients that can leave as one train, which the kernel cuts (`UDP_SEGMENT`).

use std::net::SocketAddr;
use std::ops::Range;

use crate::limits;

/// A packet for a client, in a receive buffer.
pub(super) struct Outgoing {
    /// The public socket that it leaves by.
    pub(super) socket: u8,
    pub(super) client: SocketAddr,
    /// Where its bytes lie.
    pub(super) range: Range<usize>,
}

/// How many of the packets at the front can leave as one train: to one client, all of one length, the last perhaps shorter.
pub(super) fn train_len(packets: &[Outgoing]) -> usize {
    let Some(first) = packets.first() else {
        return 0;
    };
    let mut train = 1;
    for packet in &packets[1..] {
        let fits = train < limits::TRAIN_MAX
            && packet.socket == first.socket
            && packet.client == first.client
            && (1..=first.range.len()).contains(&packet.range.len());
        if !fits {
            break;
        }
        train += 1;
        if packet.range.len() < first.range.len() {
            break;
        }
    }
    train
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(list: &[(u8, u16, usize)]) -> Vec<Outgoing> {
        list.iter()
            .map(|&(socket, port, len)| Outgoing {
                socket,
                client: SocketAddr::from(([192, 0, 2, 1], port)),
                range: 100..100 + len,
            })
            .collect()
    }

    #[test]
    fn a_train_ends_with_a_shorter_packet_and_before_a_longer_one_or_another_client() {
        for (list, train) in [
            (&[][..], 0),
            (&[(0, 1, 92)], 1),
            (&[(0, 1, 92), (0, 1, 92), (0, 1, 92)], 3),
            (&[(0, 1, 92), (0, 1, 40), (0, 1, 40)], 2),
            (&[(0, 1, 40), (0, 1, 92)], 1),
            (&[(0, 1, 92), (0, 2, 92)], 1),
            (&[(0, 1, 92), (1, 1, 92)], 1),
            (&[(0, 1, 92), (0, 1, 0)], 1),
            (&[(0, 1, 0), (0, 1, 0)], 1),
        ] {
            assert_eq!(train_len(&packets(list)), train, "{list:?}");
        }
        let many = packets(&vec![(0, 1, 20); limits::TRAIN_MAX + 1]);
        assert_eq!(train_len(&many), limits::TRAIN_MAX);
    }
}
