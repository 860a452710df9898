//! The lines for files that cannot be used at the start: which setting names them, and the fix.

use std::fmt;
use std::path::Path;

use firsthop_service::settings::SettingError;

use super::error;
use crate::files::{FilesError, Paths};
use crate::tls::TlsError;

/// The line for a certificate or key that cannot be used.
#[must_use]
pub fn bad_tls(fault: &TlsError) -> SettingError {
    let (setting, fix) = match fault {
        TlsError::Certificate { .. } => (
            "--tls-certificate",
            "give a PEM file with the certificate and those between it and its root",
        ),
        TlsError::Key { .. } => ("--tls-key", "give a PEM file with the private key"),
        TlsError::Pair(_) => (
            "--tls-key",
            "give the key that the certificate was made for",
        ),
    };
    error(setting, fault.to_string(), fix)
}

/// The line for a database of places that cannot be used.
#[must_use]
pub fn bad_places(path: &Path, cause: &dyn fmt::Display) -> SettingError {
    error(
        "--places",
        format!("{}: {cause}", path.display()),
        "give a MaxMind database (.mmdb) of cities or countries",
    )
}

/// The line for a file that cannot be used at the start.
#[must_use]
pub fn bad_file(fault: &FilesError, paths: Paths<'_>) -> SettingError {
    match fault {
        FilesError::Keyring(cause) => SettingError::in_file(
            "--keyring",
            paths.keyring,
            cause,
            "make one with `keys init`, and give its data keyring",
        ),
        FilesError::ApiKeyring(cause) => SettingError::in_file(
            "--api-keyring",
            paths.api_keyring,
            cause,
            "make one with `keys init`, and give its API keyring",
        ),
        FilesError::Fleet(cause) => {
            SettingError::in_file("--fleet", paths.fleet, cause, "correct the fleet file")
        }
        FilesError::ApiKeys(cause) => SettingError::in_file(
            "--api-keys",
            paths.api_keys,
            cause,
            "correct the file of API keys",
        ),
    }
}
