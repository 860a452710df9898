//! Applications from files, and what is told when they cannot be used.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use firsthop_shared::reload::MISSING_POLLS;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use super::super::tls::{Roots, config};
use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "firsthop-apps-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        // By another file's rename, as Secrets are replaced: a new inode is always seen.
        let new = self.0.join(format!("{name}.new"));
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, &path).expect("renamed");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const VOICE: &str = "[app.voice]\nbackend = \"realtime\"\nurl = \"wss://models.example/v1/realtime\"\nmodel = \"m 1\"\n\
    key_file = \"key\"\nsession = { instructions = \"Be brief.\" }\n";

#[test]
fn applications_say_whether_any_of_them_wants_tls() {
    let folder = Folder::new();
    let plain = "[app.bot]\nbackend = \"pipecat\"\nurl = \"ws://127.0.0.1:8765\"\n[app.echo]\nbackend = \"echo\"\n";
    let secure =
        "[app.voice]\nbackend = \"realtime\"\nurl = \"wss://models.example/v1/realtime\"\n";
    for (text, wants) in [
        (plain.to_owned(), false),
        (format!("{plain}{secure}"), true),
    ] {
        let file = folder.write("apps.toml", &text);
        let read = AppsReloader::new(App::default(), None, Some(&file));
        let (_, apps) = read.expect("usable");
        assert_eq!(apps.want_tls(), wants, "{text}");
    }
}

fn shown(app: &App) -> (String, Vec<(String, String)>) {
    let tls = config(Roots::None, None).expect("TLS");
    let target = app.target(Some("asked"), &tls).expect("a target");
    let headers = target.headers.iter();
    let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
    let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
    (target.url.to_string(), headers.collect())
}

/// What a change has made of the applications, when all files can be used.
fn taken(watch: &mut AppsReloader) -> Apps {
    let look = watch.poll().expect("a change");
    assert!(look.errors.is_empty() && !look.failing, "{look:?}");
    look.apps.expect("usable")
}

/// Why a change is not taken.
fn refused(watch: &mut AppsReloader) -> String {
    let look = watch.poll().expect("a change");
    assert!(look.apps.is_none() && look.failing, "{look:?}");
    let [error] = look.errors.as_slice() else {
        panic!("{look:?}");
    };
    error.to_string()
}

#[test]
fn a_call_finds_its_application_and_no_other() {
    let folder = Folder::new();
    folder.write("key", "s3cret\n");
    let file = folder.write("apps.toml", VOICE);
    let (_, apps) = AppsReloader::new(App::default(), None, Some(&file)).expect("usable");
    let voice = apps.find(Some("voice")).expect("there");
    assert_eq!(
        shown(&voice),
        (
            "wss://models.example/v1/realtime?model=m%201".to_owned(),
            vec![("authorization".to_owned(), "Bearer s3cret".to_owned())]
        )
    );
    assert_eq!(voice.session["instructions"], "Be brief.");
    assert!(apps.find(Some("other")).is_none());
    assert_eq!(apps.find(None).expect("the flags'").kind, Kind::Echo);
    let shown = format!("{apps:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn calls_without_an_application_go_to_the_default_one() {
    let folder = Folder::new();
    let text = "[app.default]\nbackend = \"realtime\"\nurl = \"ws://127.0.0.1:9?model=fixed\"\nauth = \"api-key\"\n";
    let file = folder.write("apps.toml", text);
    let (_, apps) = AppsReloader::new(App::default(), None, Some(&file)).expect("usable");
    let app = apps.find(None).expect("there");
    assert_eq!(app.auth, Auth::ApiKey);
    assert_eq!(shown(&app).0, "ws://127.0.0.1:9/?model=fixed");
}

#[test]
fn without_a_file_every_call_goes_where_the_flags_say() {
    let folder = Folder::new();
    let key = folder.write("key", "k1");
    let app = App {
        kind: Kind::Realtime,
        url: Some(parse_url("wss://models.example/openai?x=1").expect("a URL")),
        auth: Auth::ApiKey,
        ..App::default()
    };
    let (mut watch, apps) = AppsReloader::new(app, Some(&key), None).expect("usable");
    let found = apps.find(Some("whatever")).expect("there");
    let expected = (
        "wss://models.example/openai?x=1&model=asked".to_owned(),
        vec![("api-key".to_owned(), "k1".to_owned())],
    );
    assert_eq!(shown(&found), expected);
    assert!(watch.poll().is_none());
    folder.write("key", "k2");
    let apps = taken(&mut watch);
    assert_eq!(shown(&apps.find(None).expect("there")).1[0].1, "k2");
}

#[test]
fn a_change_of_the_file_or_of_a_key_is_taken_and_a_bad_one_is_not() {
    let folder = Folder::new();
    folder.write("key", "k1");
    let file = folder.write("apps.toml", VOICE);
    let (mut watch, _) = AppsReloader::new(App::default(), None, Some(&file)).expect("usable");
    folder.write("key", "k2");
    let apps = taken(&mut watch);
    assert_eq!(
        shown(&apps.find(Some("voice")).expect("there")).1[0].1,
        "Bearer k2"
    );
    folder.write("apps.toml", "[app.voice]\nbackend = \"realtime\"\n");
    let error = refused(&mut watch);
    assert_eq!(error, "app.voice.url: is missing");
    // A key is taken all the same, and the file is no better for it.
    folder.write("key", "k3");
    let look = watch.poll().expect("a change");
    assert!(look.errors.is_empty() && look.failing, "{look:?}");
    let apps = look.apps.expect("another key");
    assert_eq!(
        shown(&apps.find(Some("voice")).expect("still there")).1[0].1,
        "Bearer k3"
    );
}

#[test]
fn a_file_that_is_gone_is_told_of_and_keeps_nobody_from_another_key() {
    let folder = Folder::new();
    let path = |name: &str| folder.0.join(name);
    let one = folder.write("one", "k1");
    folder.write("other", "k1");
    let voice = |name: &str| {
        format!(
            "[app.{name}]\nbackend = \"realtime\"\nurl = \"ws://127.0.0.1:9\"\nkey_file = \"{name}\"\n"
        )
    };
    let text = voice("one") + &voice("other");
    let file = folder.write("apps.toml", &text);
    let (mut watch, _) = AppsReloader::new(App::default(), None, Some(&file)).expect("usable");
    let key = |apps: &Apps, name: &str| {
        let app = apps.find(Some(name)).expect("there");
        shown(&app).1[0].1.clone()
    };
    let gone = |watch: &mut AppsReloader, path: &Path| {
        std::fs::remove_file(path).expect("removed");
        for _ in 1..MISSING_POLLS {
            assert!(watch.poll().is_none(), "it may be being replaced");
        }
    };

    // The very poll that finds a key missing publishes another.
    gone(&mut watch, &one);
    folder.write("other", "k2");
    let look = watch.poll().expect("a change");
    let [error] = look.errors.as_slice() else {
        panic!("{look:?}");
    };
    let told = error.to_string();
    assert!(told.contains(&one.display().to_string()), "{told}");
    assert!(look.failing);
    let apps = look.apps.expect("another key");
    assert_eq!(key(&apps, "other"), "Bearer k2");
    assert_eq!(key(&apps, "one"), "Bearer k1", "the last good one");
    assert!(watch.poll().is_none(), "told once");

    // What was told stays so, whatever else changes.
    folder.write("other", "k3");
    let look = watch.poll().expect("a change");
    assert!(look.errors.is_empty() && look.failing, "{look:?}");
    assert_eq!(key(&look.apps.expect("another key"), "other"), "Bearer k3");

    // The file of all, gone as well: it is well again when both are back.
    gone(&mut watch, &path("apps.toml"));
    assert!(refused(&mut watch).contains("apps.toml"));
    folder.write("one", "k4");
    let look = watch.poll().expect("a change");
    assert!(look.errors.is_empty() && look.failing, "{look:?}");
    assert_eq!(key(&look.apps.expect("another key"), "one"), "Bearer k4");
    folder.write("apps.toml", &text);
    assert_eq!(key(&taken(&mut watch), "one"), "Bearer k4");

    // A file that no longer names the key does without it.
    gone(&mut watch, &one);
    assert!(refused(&mut watch).contains("one"));
    folder.write("apps.toml", &voice("other"));
    assert!(taken(&mut watch).find(Some("one")).is_none());

    // A key may come later than the file that names it.
    folder.write("apps.toml", &voice("later"));
    assert!(refused(&mut watch).contains("later"));
    assert!(watch.poll().is_none(), "told once");
    folder.write("later", "k5");
    assert_eq!(key(&taken(&mut watch), "later"), "Bearer k5");
    assert!(watch.poll().is_none(), "taken once");
}

#[test]
fn a_file_that_says_nothing_of_applications_is_no_change_but_one_that_says_there_are_none_is() {
    let folder = Folder::new();
    let text = "[app.voice]\nbackend = \"echo\"\n";
    let file = folder.write("apps.toml", text);
    let (mut watch, apps) = AppsReloader::new(App::default(), None, Some(&file)).expect("usable");
    assert!(apps.find(Some("voice")).is_some());
    for half_written in ["", "# Our voices:\n"] {
        folder.write("apps.toml", half_written);
        let error = refused(&mut watch);
        assert!(error.contains("write [app] alone"), "{error}");
        assert!(watch.poll().is_none(), "told once");
    }
    folder.write("apps.toml", "[app]\n");
    let apps = taken(&mut watch);
    assert!(apps.find(Some("voice")).is_none());
    folder.write("apps.toml", text);
    let apps = taken(&mut watch);
    assert!(apps.find(Some("voice")).is_some());

    // Nothing is taken from anybody at the start.
    folder.write("apps.toml", "");
    let (mut watch, apps) = AppsReloader::new(App::default(), None, Some(&file)).expect("usable");
    assert!(apps.find(Some("voice")).is_none());
    folder.write("apps.toml", text);
    let apps = taken(&mut watch);
    assert!(apps.find(Some("voice")).is_some());
}

#[test]
fn what_cannot_be_used_is_told_with_the_fix() {
    let folder = Folder::new();
    folder.write("empty", " \n");
    let cases = [
        (
            "[app.a]\nbackend=\"realtim\"\n",
            "unknown variant `realtim`",
        ),
        (
            "[app.\"a b\"]\nbackend=\"echo\"\n",
            "[app.\"a b\"]: no URL can name it; give it 1 to 64 letters",
        ),
        ("[app.\"\"]\nbackend=\"echo\"\n", "[app.\"\"]: no URL"),
        ("[app.\"a/b\"]\nbackend=\"echo\"\n", "[app.\"a/b\"]: no URL"),
        (
            "[app.a]\nbackend=\"echo\"\nurl=\"ws://x\"\n",
            "app.a.url: an echo has no server",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"https://x\"\n",
            "app.a.url: 'https://x' is not the URL of a WebSocket; give ws:// or wss://",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"wss://u:p@x\"\n",
            "a password in it",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"wss://x/v1?key=my secret\"\n",
            "app.a.url: 'wss://x/v1' is not a URL (",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"wss://u:my secret@x\"\n",
            "app.a.url: what is given is not a URL (",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"ws://x:99999/?key=my secret\"\n",
            "app.a.url: 'ws://x:99999/' is not a URL (",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"ws://x:99999/?key=secret\"\n",
            "app.a.url: 'ws://x:99999/': ':99999' in it is no port; give one from 1 to 65535",
        ),
        (
            "[app.a]\nbackend=\"pipecat\"\nurl=\"wss://x:0\"\n",
            "app.a.url: 'wss://x:0': ':0' in it is no port",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"https://x/#my secret\"\n",
            "app.a.url: 'https://x/' is not the URL of a WebSocket;",
        ),
        (
            "[app.a]\nbackend=\"realtime\"\nurl=\"wss://x/?key=secret\n",
            "line 3: ",
        ),
        (
            "[app.a]\nbackend=\"echo\"\nkey_file=\"nowhere\"\n",
            "cannot read",
        ),
        (
            "[app.a]\nbackend=\"echo\"\nkey_file=\"empty\"\n",
            "the key is empty",
        ),
        (
            "[app.a]\nbackend=\"echo\"\ntypo=1\n",
            "unknown field `typo`",
        ),
    ];
    for (text, expected) in cases {
        let file = folder.write("apps.toml", text);
        let error = AppsReloader::new(App::default(), None, Some(&file)).err();
        let error = error.expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
