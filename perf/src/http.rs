//! As much of HTTP/1.1 (RFC 9112) as measuring takes: requests written as they are, and messages with a `Content-Length`
//! read whole. A library's client would cost this side more than what is measured costs the other.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The largest message that is read.
const MESSAGE_MAX: usize = 64 << 10;

/// Reads messages off a connection, one after another.
pub struct Messages<S> {
    stream: S,
    /// What has been read, with the message that was returned last at its beginning.
    buffer: Vec<u8>,
    /// How long that message is.
    last: usize,
}

impl<S: AsyncRead + Unpin> Messages<S> {
    /// Of this connection.
    pub fn of(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            last: 0,
        }
    }

    /// The connection, to write to.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The next message's head, when all of the message is there; nothing when the connection ended before it.
    ///
    /// # Errors
    /// The connection broke in the middle, or it is no message that can be read here.
    pub async fn next(&mut self) -> io::Result<Option<&str>> {
        self.buffer.drain(..self.last);
        self.last = 0;
        loop {
            if let Some((head, whole)) = lengths(&self.buffer)?
                && self.buffer.len() >= whole
            {
                self.last = whole;
                let head = std::str::from_utf8(&self.buffer[..head]);
                return head.map(Some).map_err(io::Error::other);
            }
            if self.buffer.len() > MESSAGE_MAX {
                return Err(io::Error::other("a message that is too long"));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// How long the head of a message is, and the whole of it; nothing while the head is not complete.
fn lengths(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>())
        .map_err(io::Error::other)?;
    Ok(Some((end, (end + 4).saturating_add(length))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Option<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut messages = Messages::of(bytes);
            let mut heads = Vec::new();
            while let Ok(head) = messages.next().await {
                heads.push(head.map(str::to_owned));
                if heads.last() == Some(&None) {
                    break;
                }
            }
            heads
        })
    }

    #[test]
    fn messages_are_read_one_after_another() {
        let two = b"HTTP/1.1 200 OK\r\nContent-length: 3\r\n\r\nabcPOST / HTTP/1.1\r\n\r\n";
        let heads = read(two);
        let heads: Vec<Option<&str>> = heads.iter().map(Option::as_deref).collect();
        let first = "HTTP/1.1 200 OK\r\nContent-length: 3";
        assert_eq!(heads, [Some(first), Some("POST / HTTP/1.1"), None]);
    }

    #[test]
    fn a_message_that_is_cut_is_an_error() {
        for cut in [
            &b"HTTP/1.1 200"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nab",
        ] {
            assert!(read(cut).is_empty(), "{cut:?}");
        }
    }
}
