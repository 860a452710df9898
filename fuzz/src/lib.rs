//! What the fuzz targets share: keys under which their seeds open, and how an input is cut into pieces.
//!
//! Each program in `targets/` feeds one parser of bytes from the network with what libFuzzer makes of its seeds, and checks what must hold
//! beside "no panic". `scripts/fuzz` builds and runs them.

mod caller;
mod stage;

use std::sync::LazyLock;

use firsthop_shared::keyring::{ApiKeyring, DataKeyring, Masters};
use serde_json::Value;

pub use caller::Caller;
pub use stage::Stage;

/// The master secrets of the golden vectors (`shared/vectors/keys.json`), so that the vectors are seeds that open.
pub const MASTERS: &str = "active = 1\nnewest = 300\n\n\
    [[master]]\nid = 1\nsecret = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\n\
    [[master]]\nid = 300\nsecret = \"ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=\"\n";

/// What stands between the pieces of an input that has several.
pub const CUT: &[u8] = b"\n%%\n";

static DATA: LazyLock<DataKeyring> =
    LazyLock::new(|| DataKeyring::parse(&masters().data_toml()).expect("a data keyring"));

static API: LazyLock<ApiKeyring> =
    LazyLock::new(|| ApiKeyring::parse(&masters().api_toml()).expect("an API keyring"));

fn masters() -> Masters {
    Masters::parse(MASTERS).expect("master secrets")
}

/// The data keyring of the vectors: keys 1 (active) and 300.
#[must_use]
pub fn data_keyring() -> &'static DataKeyring {
    &DATA
}

/// The API keyring of the vectors: keys 1 (active) and 300.
#[must_use]
pub fn api_keyring() -> &'static ApiKeyring {
    &API
}

/// Cuts an input at each [`CUT`].
pub fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let cut = data.windows(CUT.len()).position(|window| window == CUT);
        let Some(at) = cut else {
            ended = true;
            return Some(data);
        };
        let piece = &data[..at];
        data = &data[at + CUT.len()..];
        Some(piece)
    })
}

/// Whether a value is the same after it was written and read: fractions may differ in their last bit then.
#[must_use]
pub fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(fields) => fields.values().all(is_exact),
        _ => true,
    }
}
