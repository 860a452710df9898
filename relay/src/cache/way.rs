//! The way to Redis: a TCP connection, TLS over one, or a Unix socket, and a guard over what comes back by it.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::reply::{Refused, Replies};
use crate::limits::CACHE_ADDRESSES;

/// Where Redis is, and what is between.
#[derive(Clone)]
pub(super) enum Way {
    /// TCP, to a port of a host by name or address.
    Tcp { host: String, port: u16 },
    /// The same with TLS, to a server whose certificate is for that name.
    Tls {
        host: String,
        port: u16,
        name: ServerName<'static>,
        connector: TlsConnector,
    },
    /// A socket in the file system.
    Unix { path: PathBuf },
}

/// What each of these is.
trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

impl Way {
    /// Goes it. What was refused on it, if anything is, will be found in the cell.
    pub(super) async fn go(&self) -> io::Result<(Guarded, Arc<OnceLock<Refused>>)> {
        let stream: Box<dyn Stream> = match self {
            Self::Tcp { host, port } => Box::new(tcp(host, *port).await?),
            Self::Tls {
                host,
                port,
                name,
                connector,
            } => {
                let stream = tcp(host, *port).await?;
                Box::new(connector.connect(name.clone(), stream).await?)
            }
            Self::Unix { path } => Box::new(UnixStream::connect(path).await?),
        };
        let refused = Arc::default();
        let guarded = Guarded {
            stream,
            replies: Replies::default(),
            refused: Arc::clone(&refused),
        };
        Ok((guarded, refused))
    }
}

/// The first of a host's addresses that answers.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in lookup_host((host, port)).await?.take(CACHE_ADDRESSES) {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(stream) => {
                // A question shall not wait until the one before is acknowledged.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A connection on which each reply is followed, and the first that may not be is an error in the place of what was read.
pub(super) struct Guarded {
    stream: Box<dyn Stream>,
    replies: Replies,
    refused: Arc<OnceLock<Refused>>,
}

impl AsyncRead for Guarded {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if let Err(refused) = this.replies.take(&buffer.filled()[before..]) {
            buffer.set_filled(before);
            let _ = this.refused.set(refused);
            return Poll::Ready(Err(refused.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
