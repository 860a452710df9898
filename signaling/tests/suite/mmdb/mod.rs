//! Writes small MaxMind databases (MaxMind DB file format 2.0), so that no real one has to be kept.

use std::net::{IpAddr, Ipv6Addr};

/// What a database says of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum City {
    /// Latitude and longitude.
    At(f64, f64),
    /// No more than the country.
    Country(&'static str),
}

/// Where a record of the search tree leads.
#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(usize),
    Data(usize),
}

/// The bytes of a database with these networks; IPv4 ones lie in `::/96`, as the format has it.
pub(crate) fn write(networks: &[(&str, u8, City)]) -> Vec<u8> {
    let mut nodes: Vec<[Record; 2]> = vec![[Record::Nothing; 2]];
    let mut data = Vec::new();
    for (address, length, city) in networks {
        let (bits, length) = match address.parse::<IpAddr>().expect("an address") {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), length + 96),
            IpAddr::V6(v6) => (u128::from(Ipv6Addr::from(v6.octets())), *length),
        };
        let mut node = 0;
        for depth in 0..length {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == length {
                nodes[node][side] = Record::Data(data.len());
                break;
            }
            node = match nodes[node][side] {
                Record::Node(next) => next,
                _ => {
                    nodes.push([Record::Nothing; 2]);
                    let next = nodes.len() - 1;
                    nodes[node][side] = Record::Node(next);
                    next
                }
            };
        }
        city.write(&mut data);
    }
    let count = nodes.len();
    let mut file = Vec::new();
    for record in nodes.iter().flatten() {
        let value = match record {
            Record::Nothing => count,
            Record::Node(node) => *node,
            Record::Data(at) => count + 16 + at,
        };
        file.extend_from_slice(&u32::try_from(value).expect("small").to_be_bytes());
    }
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(&data);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    metadata(&mut file, count);
    file
}

impl City {
    fn write(self, out: &mut Vec<u8>) {
        map(out, 1);
        match self {
            Self::At(latitude, longitude) => {
                text(out, "location");
                map(out, 2);
                for (name, value) in [("latitude", latitude), ("longitude", longitude)] {
                    text(out, name);
                    out.push(3 << 5 | 8);
                    out.extend_from_slice(&value.to_be_bytes());
                }
            }
            Self::Country(code) => {
                text(out, "country");
                map(out, 1);
                text(out, "iso_code");
                text(out, code);
            }
        }
    }
}

fn metadata(out: &mut Vec<u8>, nodes: usize) {
    map(out, 9);
    let number = |out: &mut Vec<u8>, name: &str, value: u32| {
        text(out, name);
        out.push(6 << 5 | 4);
        out.extend_from_slice(&value.to_be_bytes());
    };
    let short = |out: &mut Vec<u8>, name: &str, value: u16| {
        text(out, name);
        out.push(5 << 5 | 2);
        out.extend_from_slice(&value.to_be_bytes());
    };
    number(out, "node_count", u32::try_from(nodes).expect("small"));
    short(out, "record_size", 32);
    short(out, "ip_version", 6);
    text(out, "database_type");
    text(out, "Firsthop-Test-City");
    text(out, "languages");
    // An array (extended type 11) of nothing.
    out.extend_from_slice(&[0, 4]);
    short(out, "binary_format_major_version", 2);
    short(out, "binary_format_minor_version", 0);
    text(out, "build_epoch");
    // A 64-bit number (extended type 9).
    out.extend_from_slice(&[8, 2]);
    out.extend_from_slice(&1_790_000_000_u64.to_be_bytes());
    text(out, "description");
    map(out, 0);
}

fn map(out: &mut Vec<u8>, pairs: u8) {
    out.push(7 << 5 | pairs);
}

fn text(out: &mut Vec<u8>, value: &str) {
    let length = u8::try_from(value.len()).expect("short");
    assert!(length < 29, "longer texts need another length");
    out.push(2 << 5 | length);
    out.extend_from_slice(value.as_bytes());
}
