//! What signaling reads of a request's head: one piece is one value, tried wherever a client may write it.

#![no_main]

use std::net::IpAddr;
use std::sync::LazyLock;

use firsthop_fuzz::pieces;
use firsthop_shared::address::Networks;
use firsthop_signaling::client::Proxies;
use firsthop_signaling::credentials::bearer;
use firsthop_signaling::resource::IfMatch;
use firsthop_signaling::{body, sideband};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use libfuzzer_sys::fuzz_target;

static PROXIES: LazyLock<Proxies> = LazyLock::new(|| Proxies {
    trusted: Networks::parse("10.0.0.0/8,fd00::/8").expect("networks"),
    latitude: HeaderName::from_static("cf-iplatitude"),
    longitude: HeaderName::from_static("cf-iplongitude"),
    country: HeaderName::from_static("cf-ipcountry"),
});

fuzz_target!(|data: &[u8]| {
    let mut headers = HeaderMap::new();
    for (index, piece) in pieces(data).take(8).enumerate() {
        if let Ok(key) = bearer(Some(piece)) {
            assert!(!key.is_empty() && key.trim_ascii() == key);
        }
        if let Ok(uri) = Uri::try_from(piece)
            && let Some(id) = sideband::call_id(&uri)
        {
            assert!(!id.contains('&'));
        }
        let Ok(value) = HeaderValue::from_bytes(piece) else {
            continue;
        };
        if let Ok(text) = value.to_str()
            && let IfMatch::Tags(tags) = IfMatch::parse(text)
        {
            assert!(tags.iter().all(|tag| tag.starts_with('"')));
        }
        headers.insert(CONTENT_TYPE, value.clone());
        if let Some(kind) = body::media_type(&headers) {
            assert!(!kind.contains(';') && kind.trim() == kind);
        }
        let name = match index % 4 {
            0 => HeaderName::from_static("x-forwarded-for"),
            1 => PROXIES.latitude.clone(),
            2 => PROXIES.longitude.clone(),
            _ => PROXIES.country.clone(),
        };
        headers.append(name, value);
    }
    let proxy = IpAddr::from([10, 0, 0, 1]);
    let client = PROXIES.client(proxy, &headers);
    assert!(PROXIES.trusted.contains(client) || headers.contains_key("x-forwarded-for"));
    let _ = PROXIES.place(proxy, &headers);
    // A stranger is believed nothing.
    let stranger = IpAddr::from([198, 51, 100, 7]);
    assert_eq!(PROXIES.client(stranger, &headers), stranger);
    assert!(PROXIES.place(stranger, &headers).is_none());
});
