//! `keys`: makes and rotates the fleet's keyrings.
//!
//! One folder holds three files: `masters.toml` (the master secrets, which no service reads), `data.toml` and `api.toml`
//! (the keyrings derived from them, which services read and reload). Every change rewrites the keyrings atomically.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use firsthop_shared::keyring::Masters;
use firsthop_shared::reload::read_small_file;
use zeroize::Zeroizing;

/// Make and rotate Firsthop keyrings.
///
/// To rotate: `add` on every machine first, then `activate`, and `remove` the old key after the longest session.
#[derive(Parser)]
#[command(version, name = "keys")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a new folder of keyrings with one active key.
    Init {
        /// The folder; it is made if it is not there.
        dir: PathBuf,
    },
    /// Add a key that is accepted and not yet used.
    Add {
        /// The folder.
        dir: PathBuf,
    },
    /// Make a key the one that new tokens and datagrams use.
    Activate {
        /// The folder.
        dir: PathBuf,
        /// The key's id, as `show` lists it.
        id: u16,
    },
    /// Remove a key: what was made with it is refused from then on.
    Remove {
        /// The folder.
        dir: PathBuf,
        /// The key's id, as `show` lists it.
        id: u16,
    },
    /// Write the keyrings anew from the master secrets.
    Derive {
        /// The folder.
        dir: PathBuf,
    },
    /// List key ids; no secret is shown.
    Show {
        /// The folder.
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("keys: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Init { dir } => {
            std::fs::create_dir_all(&dir)
                .map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
            // A keyring without its masters is one whose masters are kept elsewhere: it is in use.
            for name in [MASTERS, DATA, API] {
                let path = dir.join(name);
                if path.exists() {
                    return Err(format!(
                        "{} exists: use `keys add` to add a key, or choose another folder",
                        path.display()
                    ));
                }
            }
            save(&dir, &Masters::new(random()?))
        }
        Command::Add { dir } => {
            let mut masters = load(&dir)?;
            let id = masters.add(random()?).map_err(|e| e.to_string())?;
            save(&dir, &masters)?;
            println!("added key {id}: distribute the keyrings, then `keys activate` it");
            Ok(())
        }
        Command::Activate { dir, id } => {
            let mut masters = load(&dir)?;
            masters.activate(id).map_err(|e| e.to_string())?;
            save(&dir, &masters)
        }
        Command::Remove { dir, id } => {
            let mut masters = load(&dir)?;
            masters.remove(id).map_err(|e| e.to_string())?;
            save(&dir, &masters)
        }
        Command::Derive { dir } => save(&dir, &load(&dir)?),
        Command::Show { dir } => {
            for (id, active) in load(&dir)?.ids() {
                println!("{id}{}", if active { " active" } else { "" });
            }
            Ok(())
        }
    }
}

const MASTERS: &str = "masters.toml";
const DATA: &str = "data.toml";
const API: &str = "api.toml";

fn load(dir: &Path) -> Result<Masters, String> {
    let path = dir.join(MASTERS);
    let text = Zeroizing::new(read_small_file(&path).map_err(|e| e.to_string())?);
    Masters::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes the masters first: a run that is cut short is completed by `keys derive`, and no derived key is ever lost.
fn save(dir: &Path, masters: &Masters) -> Result<(), String> {
    write_private(&dir.join(MASTERS), &masters.to_toml())?;
    write_private(&dir.join(DATA), &masters.data_toml())?;
    write_private(&dir.join(API), &masters.api_toml())?;
    // The new names last only when the folder has reached the disk.
    std::fs::File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| format!("cannot write {}: {e}", dir.display()))
}

/// Replaces a file atomically, readable by its owner alone.
fn write_private(path: &Path, text: &str) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    let temporary = path.with_extension("toml.new");
    // One that was left behind keeps its mode when it is written to: it has to go.
    if let Err(error) = std::fs::remove_file(&temporary)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(fail(error));
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)?;
    file.sync_all().map_err(fail)?;
    std::fs::rename(&temporary, path).map_err(fail)
}

fn random() -> Result<[u8; 32], String> {
    let mut secret = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut secret))
        .map_err(|e| format!("cannot read /dev/urandom: {e}"))?;
    Ok(secret)
}
