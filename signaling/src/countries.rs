//! Where countries lie: a rough middle of each, for clients of which no more than the country is known.
//!
//! Whole degrees are enough to choose between sites that are hundreds of kilometres apart; where people live weighs more than where the
//! borders are (Canada's and Russia's middles are drawn towards their cities). Codes are ISO 3166-1 alpha-2.

use crate::steering::Position;

/// The middle of a country, by its two-letter code in either case.
#[must_use]
pub fn position(code: &str) -> Option<Position> {
    let code = code.to_ascii_uppercase();
    TABLE
        .binary_search_by(|(known, _, _)| (*known).cmp(code.as_str()))
        .ok()
        .map(|at| Position {
            latitude: f64::from(TABLE[at].1),
            longitude: f64::from(TABLE[at].2),
        })
}

/// Code, latitude, longitude; sorted by code.
#[rustfmt::skip]
const TABLE: [(&str, i16, i16); 245] = [
    ("AD", 43, 2), ("AE", 24, 54), ("AF", 34, 66), ("AG", 17, -62), ("AI", 18, -63), ("AL", 41, 20), ("AM", 40, 45), ("AO", -12, 18),
    ("AQ", -80, 0), ("AR", -35, -62), ("AS", -14, -171), ("AT", 48, 14), ("AU", -33, 147), ("AW", 13, -70), ("AX", 60, 20), ("AZ", 40, 48),
    ("BA", 44, 18), ("BB", 13, -60), ("BD", 24, 90), ("BE", 51, 4), ("BF", 12, -2), ("BG", 43, 25), ("BH", 26, 51), ("BI", -3, 30),
    ("BJ", 9, 2), ("BL", 18, -63), ("BM", 32, -65), ("BN", 5, 115), ("BO", -17, -65), ("BQ", 12, -68), ("BR", -20, -47), ("BS", 25, -77),
    ("BT", 27, 90), ("BW", -22, 24), ("BY", 54, 28), ("BZ", 17, -88), ("CA", 46, -78), ("CC", -12, 97), ("CD", -4, 22), ("CF", 7, 21),
    ("CG", -2, 15), ("CH", 47, 8), ("CI", 7, -5), ("CK", -21, -160), ("CL", -33, -71), ("CM", 5, 12), ("CN", 33, 114), ("CO", 5, -74),
    ("CR", 10, -84), ("CU", 22, -79), ("CV", 16, -24), ("CW", 12, -69), ("CX", -10, 106), ("CY", 35, 33), ("CZ", 50, 15), ("DE", 51, 10),
    ("DJ", 12, 43), ("DK", 56, 11), ("DM", 15, -61), ("DO", 19, -70), ("DZ", 36, 3), ("EC", -2, -79), ("EE", 59, 25), ("EG", 30, 31),
    ("EH", 25, -13), ("ER", 15, 39), ("ES", 40, -3), ("ET", 9, 39), ("FI", 61, 25), ("FJ", -18, 178), ("FK", -52, -59), ("FM", 7, 158),
    ("FO", 62, -7), ("FR", 47, 2), ("GA", 0, 11), ("GB", 52, -1), ("GD", 12, -62), ("GE", 42, 44), ("GF", 5, -53), ("GG", 49, -3),
    ("GH", 7, -1), ("GI", 36, -5), ("GL", 64, -52), ("GM", 13, -16), ("GN", 10, -12), ("GP", 16, -62), ("GQ", 2, 10), ("GR", 38, 23),
    ("GS", -54, -37), ("GT", 15, -90), ("GU", 13, 145), ("GW", 12, -15), ("GY", 6, -58), ("HK", 22, 114), ("HN", 15, -87), ("HR", 45, 16),
    ("HT", 19, -72), ("HU", 47, 19), ("ID", -7, 108), ("IE", 53, -7), ("IL", 32, 35), ("IM", 54, -5), ("IN", 21, 78), ("IO", -7, 72),
    ("IQ", 33, 44), ("IR", 34, 52), ("IS", 64, -21), ("IT", 43, 12), ("JE", 49, -2), ("JM", 18, -77), ("JO", 32, 36), ("JP", 36, 138),
    ("KE", -1, 37), ("KG", 42, 75), ("KH", 12, 105), ("KI", 1, 173), ("KM", -12, 44), ("KN", 17, -63), ("KP", 39, 126), ("KR", 37, 127),
    ("KW", 29, 48), ("KY", 19, -81), ("KZ", 46, 72), ("LA", 18, 103), ("LB", 34, 36), ("LC", 14, -61), ("LI", 47, 10), ("LK", 7, 80),
    ("LR", 6, -10), ("LS", -29, 28), ("LT", 55, 24), ("LU", 50, 6), ("LV", 57, 25), ("LY", 32, 15), ("MA", 33, -7), ("MC", 44, 7),
    ("MD", 47, 29), ("ME", 42, 19), ("MF", 18, -63), ("MG", -19, 47), ("MH", 7, 171), ("MK", 42, 22), ("ML", 13, -7), ("MM", 18, 96),
    ("MN", 47, 106), ("MO", 22, 114), ("MP", 15, 146), ("MQ", 15, -61), ("MR", 18, -15), ("MS", 17, -62), ("MT", 36, 14), ("MU", -20, 58),
    ("MV", 4, 73), ("MW", -14, 34), ("MX", 20, -100), ("MY", 3, 102), ("MZ", -19, 35), ("NA", -22, 17), ("NC", -22, 166), ("NE", 14, 5),
    ("NF", -29, 168), ("NG", 8, 6), ("NI", 12, -86), ("NL", 52, 5), ("NO", 60, 10), ("NP", 28, 85), ("NR", -1, 167), ("NU", -19, -170),
    ("NZ", -40, 175), ("OM", 23, 58), ("PA", 9, -80), ("PE", -12, -76), ("PF", -18, -149), ("PG", -7, 146), ("PH", 14, 121), ("PK", 31, 71),
    ("PL", 52, 19), ("PM", 47, -56), ("PR", 18, -66), ("PS", 32, 35), ("PT", 39, -9), ("PW", 7, 134), ("PY", -25, -57), ("QA", 25, 51),
    ("RE", -21, 56), ("RO", 45, 25), ("RS", 44, 21), ("RU", 56, 42), ("RW", -2, 30), ("SA", 24, 46), ("SB", -9, 160), ("SC", -5, 55),
    ("SD", 15, 32), ("SE", 59, 16), ("SG", 1, 104), ("SH", -16, -6), ("SI", 46, 15), ("SJ", 78, 16), ("SK", 49, 19), ("SL", 8, -12),
    ("SM", 44, 12), ("SN", 14, -16), ("SO", 3, 45), ("SR", 5, -55), ("SS", 6, 31), ("ST", 0, 7), ("SV", 14, -89), ("SX", 18, -63),
    ("SY", 34, 37), ("SZ", -27, 31), ("TC", 22, -72), ("TD", 13, 16), ("TF", -49, 70), ("TG", 7, 1), ("TH", 14, 101), ("TJ", 39, 70),
    ("TL", -9, 126), ("TM", 38, 59), ("TN", 36, 10), ("TO", -21, -175), ("TR", 40, 32), ("TT", 11, -61), ("TV", -8, 179), ("TW", 24, 121),
    ("TZ", -6, 37), ("UA", 49, 31), ("UG", 0, 32), ("US", 39, -92), ("UY", -34, -56), ("UZ", 41, 66), ("VA", 42, 12), ("VC", 13, -61),
    ("VE", 10, -67), ("VG", 18, -65), ("VI", 18, -65), ("VN", 16, 107), ("VU", -17, 168), ("WF", -13, -176), ("WS", -14, -172), ("XK", 43, 21),
    ("YE", 15, 44), ("YT", -13, 45), ("ZA", -28, 28), ("ZM", -15, 28), ("ZW", -18, 30),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_on_earth() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(
            TABLE
                .iter()
                .all(|(code, lat, lon)| code.len() == 2 && lat.abs() <= 90 && lon.abs() <= 180)
        );
    }

    #[test]
    fn codes_are_found_in_either_case_and_others_are_not() {
        let japan = position("jp").expect("listed");
        assert_eq!((japan.latitude, japan.longitude), (36.0, 138.0));
        // What CDNs say of clients they cannot place.
        for unknown in ["XX", "T1", "", "DEU", "É"] {
            assert!(position(unknown).is_none(), "{unknown}");
        }
    }
}
