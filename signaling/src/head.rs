//! The heads of requests within bounds: one that is larger is refused in words.
//!
//! hyper refuses by itself what is no HTTP/1.1 request (400), a URL above 65,534 bytes (414), and heads above what it was told to
//! parse (431, see [`firsthop_service::limits`]). It closes the connection after a status without a body, and gives nobody the chance to say
//! more; the metric `connections_refused` counts these. So the bounds here are below those: whoever meets one is told by how much.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::ApiError;
use crate::limits::{HEADERS_BYTES_MAX, HEADERS_MAX, URL_MAX};

/// Refuses a request whose head is above its bounds.
pub async fn bounded(request: Request, next: Next) -> Response {
    match check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(url: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let bytes = url.authority().map_or(0, |part| part.as_str().len())
        + url.path_and_query().map_or(0, |part| part.as_str().len());
    if bytes > URL_MAX {
        let message = format!(
            "The URL has {bytes} bytes; at most {URL_MAX} are taken. What is long belongs into the body."
        );
        return Err(ApiError::new(StatusCode::URI_TOO_LONG, "url_too_long", message).about("url"));
    }
    let too_large = |message: String| {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Err(ApiError::new(status, "headers_too_large", message).about("headers"))
    };
    let count = headers.len();
    if count > HEADERS_MAX {
        return too_large(format!(
            "The request has {count} headers; at most {HEADERS_MAX} are taken. Leave out what this API does not read."
        ));
    }
    // A colon, a blank, and the end of the line.
    let line = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        name.as_str().len() + value.len() + 4
    };
    let bytes: usize = headers.iter().map(line).sum();
    if bytes > HEADERS_BYTES_MAX {
        return too_large(format!(
            "The headers have {bytes} bytes; at most {HEADERS_BYTES_MAX} are taken. Leave out what this API does not read, such as cookies."
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(count: usize, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            headers.append("x-test", value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn what_fits_exactly_is_taken_and_one_more_is_told_by_its_number() {
        let url = |bytes: usize| {
            let text = format!("/{}", "x".repeat(bytes - 1));
            text.parse::<Uri>().expect("a URL")
        };
        let few = HeaderMap::new();
        assert_eq!(check(&url(URL_MAX), &few), Ok(()));
        let error = check(&url(URL_MAX + 1), &few).expect_err("too long");
        assert_eq!((error.status.as_u16(), error.code), (414, "url_too_long"));
        assert!(error.message.contains("8193 bytes"), "{}", error.message);
        let absolute = format!("http://a.example/{}", "x".repeat(URL_MAX - 4));
        let error = check(&absolute.parse().expect("a URL"), &few).expect_err("too long");
        assert_eq!(error.code, "url_too_long");

        let short = url(1);
        assert_eq!(check(&short, &headers(HEADERS_MAX, "v")), Ok(()));
        let error = check(&short, &headers(HEADERS_MAX + 1, "v")).expect_err("too many");
        assert_eq!(
            (error.status.as_u16(), error.code),
            (431, "headers_too_large")
        );
        assert!(error.message.contains("101 headers"), "{}", error.message);

        // "x-test: ", and the end of the line.
        let value = "v".repeat(HEADERS_BYTES_MAX / 4 - 10);
        assert_eq!(check(&short, &headers(4, &value)), Ok(()));
        let mut more = headers(4, &value);
        more.insert("x", "".parse().expect("a value"));
        let error = check(&short, &more).expect_err("too large");
        assert_eq!(error.code, "headers_too_large");
        assert!(error.message.contains("65541 bytes"), "{}", error.message);
    }
}
