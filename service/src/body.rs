//! Request bodies: read whole, within a size and a time, or refused as early as that is known.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http_body_util::LengthLimitError;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Why a body could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyFault {
    /// It is larger than allowed.
    #[error("the body is too large")]
    TooLarge,
    /// It did not arrive within [`Limits::body`](crate::server::Limits::body).
    #[error("the body did not arrive in time")]
    TooSlow,
    /// It broke off, or is not valid HTTP.
    #[error("the body broke off or is not valid HTTP")]
    Broken,
}

/// Reads a body whole, of `max` bytes at the most.
///
/// # Errors
/// [`BodyFault`]
pub async fn read(body: Body, max: usize) -> Result<Bytes, BodyFault> {
    axum::body::to_bytes(body, max)
        .await
        .map_err(|error| fault(&error))
}

/// The error of a body comes wrapped by each layer that it passed.
fn fault(error: &(dyn Error + 'static)) -> BodyFault {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref::<BodyFault>() {
            return *fault;
        }
        if error.is::<LengthLimitError>() {
            return BodyFault::TooLarge;
        }
        cause = error.source();
    }
    BodyFault::Broken
}

/// Puts a bound of `max` bytes on all bodies that the router takes; `refusal` makes the response (413) to a larger one.
///
/// A request that declares more is refused at once: nobody waits for what is thrown away. One that declares nothing meets the bound when
/// its handler reads it.
pub fn bounded<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    max: usize,
    refusal: fn(max: usize) -> Response,
) -> Router<S> {
    let check = move |request: Request, next: Next| async move {
        if declares_more(request.headers(), max) {
            refusal(max)
        } else {
            next.run(request).await
        }
    };
    router
        .layer(DefaultBodyLimit::max(max))
        .layer(from_fn(check))
}

fn declares_more(headers: &HeaderMap, max: usize) -> bool {
    headers.get(CONTENT_LENGTH).is_some_and(|length| {
        // The server has refused what is no number already; one that does not fit here is a large one.
        let length = length.to_str().ok().and_then(|text| text.parse().ok());
        length.is_none_or(|length: usize| length > max)
    })
}

/// A body as the server hands it out: late after a time, and known to have been read or not.
pub(crate) struct Timed<B> {
    body: B,
    time: Duration,
    late: Option<Pin<Box<Sleep>>>,
    whole: Arc<AtomicBool>,
}

impl<B: HttpBody> Timed<B> {
    /// The other value says whether the body has been read to its end.
    pub(crate) fn new(body: B, time: Duration) -> (Self, Arc<AtomicBool>) {
        let whole = Arc::new(AtomicBool::new(body.is_end_stream()));
        let timed = Self {
            body,
            time,
            late: None,
            whole: Arc::clone(&whole),
        };
        (timed, whole)
    }
}

impl<B> HttpBody for Timed<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if frame.is_none() || this.body.is_end_stream() {
                this.whole.store(true, Relaxed);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let late = this.late.get_or_insert_with(|| Box::pin(sleep(this.time)));
        ready!(late.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyFault::TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
