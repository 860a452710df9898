//! What a client does as a browser does, where its engine alone would not.
//!
//! Browsers begin SCTP as soon as DTLS is up, whatever their part in DTLS is; str0m begins it as client of DTLS alone. A server that knows
//! that the client will begin SCTP can begin DTLS itself, and saves a round trip: ours knows it of offers that look like libwebrtc's. So that
//! what is measured is what browsers get, these clients begin SCTP, too, and their offers have what libwebrtc's are known by.

use str0m::Rtc;

/// An offer of the engine's, with the origin and the attributes of the session that libwebrtc writes.
pub(crate) fn offer(engine: &str) -> String {
    let lines = engine.split_inclusive('\n').map(|line| {
        if let Some(origin) = line.strip_prefix("o=") {
            let mut fields = origin.split(' ').skip(1);
            let mut field = || fields.next().unwrap_or("1");
            format!("o=- {} {} IN IP4 127.0.0.1\r\n", field(), field())
        } else if line.starts_with("t=") {
            format!("{line}a=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n")
        } else {
            line.to_owned()
        }
    });
    lines.collect()
}

/// Has the client begin SCTP where the answer takes its channel. To be called before the engine is given the answer, which would have it wait
/// where it is the server of DTLS; a later answer changes nothing.
pub(crate) fn begin_sctp(rtc: &mut Rtc, answer: &str) {
    let mut channels = answer.lines().filter(|l| l.starts_with("m=application "));
    if channels.any(|line| !line.starts_with("m=application 0 ")) {
        rtc.direct_api().start_sctp(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_what_libwebrtc_s_are_known_by() {
        let engine =
            "v=0\r\no=str0m-0.25.0 77 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n";
        assert_eq!(
            offer(engine),
            "v=0\r\no=- 77 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n\
             a=group:BUNDLE 0\r\n"
        );
    }
}
