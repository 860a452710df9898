//! The page at `/`: files that are part of the binary, served so that nothing else can run in it.
//!
//! They are held in memory with a strong ETag each and sent with `no-cache`: a browser asks again on every load, gets 304 while the
//! program is the same, and never runs modules of two versions. The content security policy lets the page load from and talk to its
//! own origin only; it forbids inline scripts and styles, frames, and forms that would put a key into a URL.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// What the page may do (CSP level 3).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Which device features it may use: the microphone, and the sound system that measures and plays.
const PERMISSIONS: &str = "microphone=(self), autoplay=(self), camera=(), geolocation=()";

/// Every file: its path, its media type, its content.
macro_rules! files {
    ($($path:literal $kind:ident $file:literal,)*) => {
        vec![$(File::new($path, $kind, include_bytes!(concat!("../web/", $file)))),*]
    };
}

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    files![
        "/" HTML "index.html",
        "/base.css" CSS "base.css",
        "/stage.css" CSS "stage.css",
        "/cards.css" CSS "cards.css",
        "/sizes.css" CSS "sizes.css",
        "/icon.svg" SVG "icon.svg",
        "/answering.js" JAVASCRIPT "answering.js",
        "/call.js" JAVASCRIPT "call.js",
        "/compose.js" JAVASCRIPT "compose.js",
        "/log.js" JAVASCRIPT "log.js",
        "/meters.js" JAVASCRIPT "meters.js",
        "/network.js" JAVASCRIPT "network.js",
        "/page.js" JAVASCRIPT "page.js",
        "/plots.js" JAVASCRIPT "plots.js",
        "/ribbon.js" JAVASCRIPT "ribbon.js",
        "/setup.js" JAVASCRIPT "setup.js",
        "/source.js" JAVASCRIPT "source.js",
        "/stats.js" JAVASCRIPT "stats.js",
        "/voice.js" JAVASCRIPT "voice.js",
        "/words.js" JAVASCRIPT "words.js",
    ]
});

struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
    tag: HeaderValue,
}

/// The page's paths, for a router of any state.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(
            file.path,
            get(async move |headers: HeaderMap| file.respond(&headers)),
        )
    })
}

impl File {
    fn new(path: &'static str, kind: &'static str, content: &'static [u8]) -> Self {
        let digest = URL_SAFE_NO_PAD.encode(&Sha256::digest(content)[..16]);
        let tag = HeaderValue::from_str(&format!("\"{digest}\""));
        Self {
            path,
            kind,
            content,
            tag: tag.unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
        }
    }

    fn respond(&self, request: &HeaderMap) -> Response {
        let mut response = if self.is_held(request) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            (
                [(CONTENT_TYPE, self.kind)],
                Bytes::from_static(self.content),
            )
                .into_response()
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, self.tag.clone());
        let mut say = |name: HeaderName, value| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        say(CACHE_CONTROL, "no-cache");
        say(CONTENT_SECURITY_POLICY, POLICY);
        say(HeaderName::from_static("permissions-policy"), PERMISSIONS);
        say(REFERRER_POLICY, "no-referrer");
        say(X_CONTENT_TYPE_OPTIONS, "nosniff");
        response
    }

    /// Whether the client has this very content (RFC 9110 section 13.1.2: the comparison is weak, as proxies weaken tags).
    fn is_held(&self, request: &HeaderMap) -> bool {
        let tags = request.get_all(IF_NONE_MATCH).iter();
        tags.flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == self.tag.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tags: &'static str) -> StatusCode {
        let mut request = HeaderMap::new();
        request.insert(IF_NONE_MATCH, HeaderValue::from_static(tags));
        File::new("/x", HTML, b"x").respond(&request).status()
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        let file = File::new("/x", HTML, b"x");
        assert_eq!(file.tag, "\"LXEWQrcmsEQBYnyp-6wy9Q\"");
        assert_eq!(asked("\"LXEWQrcmsEQBYnyp-6wy9Q\""), 304);
        assert_eq!(asked("\"a\", W/\"LXEWQrcmsEQBYnyp-6wy9Q\""), 304);
        assert_eq!(asked("*"), 304);
        assert_eq!(asked("\"a\""), 200);
        assert_eq!(asked("LXEWQrcmsEQBYnyp-6wy9Q"), 200);
    }

    #[test]
    fn every_file_that_the_page_names_is_served_and_every_served_file_is_named() {
        let mut named = vec!["/".to_owned()];
        for file in FILES.iter() {
            let text = String::from_utf8_lossy(file.content);
            // In HTML as src="/x" or href="/x", in modules as from './x'.
            for part in text.split(['"', '\'']) {
                let path = part.strip_prefix("./").or_else(|| part.strip_prefix('/'));
                named.extend(
                    path.filter(|path| is_file(path))
                        .map(|path| format!("/{path}")),
                );
            }
        }
        named.sort();
        named.dedup();
        let mut served: Vec<_> = FILES.iter().map(|file| file.path.to_owned()).collect();
        served.sort();
        assert_eq!(named, served);
    }

    fn is_file(path: &str) -> bool {
        [".js", ".css", ".svg"]
            .iter()
            .any(|kind| path.ends_with(kind))
            && !path.contains('/')
    }

    #[test]
    fn the_page_has_nothing_inline_that_its_policy_forbids() {
        let html = String::from_utf8_lossy(FILES[0].content);
        for forbidden in [
            "<style",
            " style=",
            "javascript:",
            " onclick=",
            " onload=",
            " onsubmit=",
        ] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        for script in html.split("<script").skip(1) {
            assert!(script.starts_with(" type=\"module\" src=\"/"), "{script}");
        }
    }
}
