//! The `keys` tool, run as an operator runs it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use firsthop_shared::keyring::{ApiKeyring, DataKeyring};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("firsthop-keys-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn keys(&self, command: &str, id: Option<&str>) -> Output {
        Command::new(env!("CARGO_BIN_EXE_keys"))
            .arg(command)
            .arg(&self.0)
            .args(id)
            .output()
            .expect("the tool runs")
    }

    fn data(&self) -> DataKeyring {
        DataKeyring::load(&self.0.join("data.toml")).expect("a valid keyring")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_rotation_goes_through_with_the_old_key_accepted_until_it_is_removed() {
    let folder = Folder::new("rotation");
    assert!(folder.keys("init", None).status.success());
    let first = folder.data().active().id();
    assert!(folder.keys("add", None).status.success());
    assert_eq!(folder.data().active().id(), first);
    assert_eq!(folder.data().len(), 2);
    assert!(folder.keys("activate", Some("2")).status.success());
    assert_eq!(folder.data().active().id().get(), 2);
    assert!(folder.data().get(first).is_some());
    assert!(folder.keys("remove", Some("1")).status.success());
    assert!(folder.data().get(first).is_none());
    let api = ApiKeyring::load(&folder.0.join("api.toml")).expect("a valid keyring");
    assert_eq!(api.active().id().get(), 2);
}

#[test]
fn files_are_readable_by_their_owner_alone() {
    let folder = Folder::new("modes");
    assert!(folder.keys("init", None).status.success());
    for name in ["masters.toml", "data.toml", "api.toml"] {
        let meta = std::fs::metadata(folder.0.join(name)).expect("the file");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_left_over_temporary_file_does_not_lend_its_mode() {
    let folder = Folder::new("left-over");
    assert!(folder.keys("init", None).status.success());
    let left = folder.0.join("data.toml.new");
    std::fs::write(&left, "cut short").expect("writable");
    std::fs::set_permissions(&left, std::fs::Permissions::from_mode(0o644)).expect("ours");
    assert!(folder.keys("derive", None).status.success());
    let meta = std::fs::metadata(folder.0.join("data.toml")).expect("the file");
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
}

#[test]
fn init_never_replaces_keyrings_whose_masters_are_kept_elsewhere() {
    let folder = Folder::new("elsewhere");
    assert!(folder.keys("init", None).status.success());
    std::fs::remove_file(folder.0.join("masters.toml")).expect("the file");
    let before = std::fs::read(folder.0.join("data.toml")).expect("the file");
    assert_eq!(folder.keys("init", None).status.code(), Some(2));
    assert_eq!(
        std::fs::read(folder.0.join("data.toml")).expect("the file"),
        before
    );
}

#[test]
fn mistakes_end_with_one_line_that_says_what_to_do() {
    let folder = Folder::new("mistakes");
    assert!(folder.keys("init", None).status.success());
    let cases = [
        ("init", None, "keys add"),
        ("remove", Some("1"), "activate another"),
        ("activate", Some("9"), "keys show"),
    ];
    for (command, id, part) in cases {
        let output = folder.keys(command, id);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(message.trim().lines().count(), 1, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn show_lists_ids_and_no_secret() {
    let folder = Folder::new("show");
    assert!(folder.keys("init", None).status.success());
    assert!(folder.keys("add", None).status.success());
    let shown = String::from_utf8(folder.keys("show", None).stdout).expect("UTF-8");
    assert_eq!(shown, "1 active\n2\n");
}
