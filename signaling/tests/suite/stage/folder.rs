//! The files of a small fleet, and what may stand in them.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use firsthop_shared::keyring::Masters;
use sha2::{Digest as _, Sha256};

use super::{KEY, SECRET};

/// A folder with the files of a small fleet, removed at the end.
pub(crate) struct Stage {
    folder: PathBuf,
}

impl Stage {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firsthop-signaling-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Secrets are in it: a folder that others can look into is warned of.
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private
            .create(&folder)
            .expect("a writable temporary folder");
        let stage = Self { folder };
        stage.write_keyrings(&Masters::new([7; 32]));
        stage.write(
            "fleet.toml",
            "[[cluster]]\nid = 1\nname = \"one\"\n[[ingress]]\nid = 4\nipv4 = \"127.0.0.1:3478\"\n\
             [[ingress]]\nid = 2\nipv6 = \"[::1]:3478\"\n",
        );
        stage.write("keys.toml", &key_file(&[("dev", KEY)]));
        stage.write("secret", SECRET);
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Replaces a file at once, as a careful editor or a config map does.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let fresh = self.path(&format!("{name}.new"));
        std::fs::write(&fresh, text).expect("a writable folder");
        std::fs::rename(&fresh, self.path(name)).expect("a writable folder");
    }

    pub(crate) fn write_keyrings(&self, masters: &Masters) {
        self.write("data.toml", &masters.data_toml());
        self.write("api.toml", &masters.api_toml());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A certificate for that name which signed itself, and its private key, both in PEM.
pub(crate) fn certificate(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let key = pem::Pem::new("PRIVATE KEY", made.signing_key.serialize_der());
    let certificate = pem::Pem::new("CERTIFICATE", made.cert.der().to_vec());
    (pem::encode(&certificate), pem::encode(&key))
}

/// The text of a file of API keys.
pub(crate) fn key_file(keys: &[(&str, &str)]) -> String {
    keys.iter()
        .map(|(name, key)| {
            let hash: String = Sha256::digest(key)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n")
        })
        .collect()
}
