//! Janus, a WebRTC gateway in C, as a peer: Debian's package with its echo test, which gives every packet back as it came.
//!
//! It runs as its authors advise for many calls on few processors: a fixed number of event loops in place of a thread for each call, ICE
//! lite because it is reached directly, and no plugin or transport but the two that are used. Janus gathers no candidates on loopback
//! interfaces, so its media is at another address of this machine; packets to it stay on the machine.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use super::manner::Sharing;
use super::placing::Desk;
use crate::metrics;
use crate::process::Process;

/// The plugin that gives packets back.
pub const ECHO_TEST: &str = "janus.plugin.echotest";

/// Where its HTTP API begins.
const BASE: &str = "/janus";

/// Plugins of the package that are left out.
const PLUGINS: [&str; 11] = [
    "audiobridge",
    "duktape",
    "lua",
    "nosip",
    "recordplay",
    "sip",
    "streaming",
    "textroom",
    "videocall",
    "videoroom",
    "voicemail",
];

/// Transports of the package that are left out.
const TRANSPORTS: [&str; 5] = ["mqtt", "nanomsg", "pfunix", "rabbitmq", "websockets"];

/// Loggers of the package that are left out.
const LOGGERS: [&str; 1] = ["jsonlog"];

/// How Janus is to run.
#[derive(Clone, Debug)]
pub struct JanusPlan {
    /// Where its configuration and its log go; removed at the end.
    pub directory: PathBuf,
    /// The processor that it runs on.
    pub processor: usize,
    /// Where its HTTP API listens: an interface's own address, as 127.0.0.1 is and the rest of loopback is not.
    pub http: SocketAddrV4,
    /// Where its media is: an address of this machine, not on a loopback interface. See [`own_address`].
    pub media: Ipv4Addr,
    /// Event loops that all calls share; nothing for a thread for each call, as it does by itself.
    pub event_loops: Option<u32>,
    /// Whether it is an ICE lite agent, that checks nothing by itself; else it is a full one, as it is by itself.
    pub lite: bool,
}

impl JanusPlan {
    /// As it is compared with: on this machine, its API at a free port of 127.0.0.1, one event loop on its one processor, ICE lite.
    ///
    /// # Errors
    /// There is no free port, or no address; see [`own_address`].
    pub fn here(directory: PathBuf, processor: usize) -> io::Result<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = free.local_addr()?.port();
        Ok(Self {
            directory,
            processor,
            http: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            media: own_address()?,
            event_loops: Some(1),
            lite: true,
        })
    }
}

/// Janus that runs, until this is dropped.
pub struct Janus {
    plan: JanusPlan,
    /// The process.
    pub process: Process,
}

impl Janus {
    /// Writes its configuration, starts it, and waits until it answers.
    ///
    /// # Errors
    /// It is not installed, or does not start: its log's end is in the message.
    pub fn start(plan: JanusPlan) -> io::Result<Self> {
        fs::create_dir_all(&plan.directory)?;
        let main = plan.directory.join("janus.jcfg");
        fs::write(&main, main_settings(&plan))?;
        let http = plan.directory.join("janus.transport.http.jcfg");
        fs::write(http, http_settings(plan.http))?;
        // Empty: it would complain that there is none.
        let echo = plan.directory.join("janus.plugin.echotest.jcfg");
        fs::write(echo, "general: {\n}\n")?;
        let mut command = Command::new(program()?);
        command.arg("--config").arg(&main);
        command.arg("--configs-folder").arg(&plan.directory);
        let log = plan.directory.join("janus.log");
        let failed = |error: io::Error| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(3).collect();
            io::Error::other(format!(
                "janus: {error}; its last words: {}",
                last.join("; ")
            ))
        };
        let mut process =
            Process::start(plan.processor, &command, fs::File::create(&log)?).map_err(failed)?;
        process
            .wait_until("serve its echo test", || {
                let info = metrics::get(plan.http, &format!("{BASE}/info"));
                Ok(info.is_ok_and(|info| info.contains(ECHO_TEST)))
            })
            .map_err(failed)?;
        Ok(Self { plan, process })
    }

    /// Places calls at its echo test.
    #[must_use]
    pub fn desk(&self) -> Desk {
        Desk::Janus {
            url: format!("http://{}{BASE}", self.plan.http),
        }
    }

    /// The sockets of clients on this machine that reach it: at its own address, since from loopback there is no way to others.
    #[must_use]
    pub fn sockets(&self) -> Sharing {
        Sharing::Own {
            from: self.plan.media,
            bind: self.plan.media,
        }
    }

    /// What it has logged: warnings and errors.
    ///
    /// # Errors
    /// It has no log.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.plan.directory.join("janus.log"))
    }
}

impl Drop for Janus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.plan.directory);
    }
}

/// The program, where the search path has it.
///
/// # Errors
/// It has none.
pub fn program() -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("janus"))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            let words =
                "there is no janus here; install it (apt-get install janus), or leave it out";
            io::Error::new(io::ErrorKind::NotFound, words)
        })
}

/// The address of this machine from which it reaches others. Nothing is sent.
///
/// # Errors
/// The machine has no route to others.
pub fn own_address() -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // For documentation (RFC 5737): the routing table is asked, nobody else.
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9))?;
    match socket.local_addr()?.ip() {
        std::net::IpAddr::V4(address) if !address.is_loopback() => Ok(address),
        other => Err(io::Error::other(format!(
            "this machine has no address but {other}, and Janus serves none of loopback's"
        ))),
    }
}

fn main_settings(plan: &JanusPlan) -> String {
    let list = |kind: &str, names: &[&str]| {
        let files: Vec<String> = names
            .iter()
            .map(|name| format!("libjanus_{name}.so"))
            .collect();
        format!("{kind}: {{\n    disable = \"{}\"\n}}\n", files.join(","))
    };
    let mut text = String::from("general: {\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "    configs_folder = \"{}\"\n    debug_level = 3\n    debug_colors = false",
        plan.directory.display()
    );
    if let Some(loops) = plan.event_loops {
        let _ = writeln!(text, "    event_loops = {loops}");
    }
    let _ = writeln!(
        text,
        "}}\nnat: {{\n    ice_lite = {}\n    ice_enforce_list = \"{}\"\n    ignore_mdns = true\n}}",
        plan.lite, plan.media
    );
    [
        text,
        list("plugins", &PLUGINS),
        list("transports", &TRANSPORTS),
        list("loggers", &LOGGERS),
    ]
    .concat()
}

fn http_settings(listen: SocketAddrV4) -> String {
    format!(
        "general: {{
    json = \"compact\"
    base_path = \"{BASE}\"
    http = true
    ip = \"{}\"
    port = {}
    https = false
    mhd_connection_limit = 16384
}}
admin: {{
    admin_http = false
    admin_https = false
}}
",
        listen.ip(),
        listen.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_settings_say_where_it_is_and_leave_out_what_is_not_used() {
        let plan = JanusPlan {
            directory: "/tmp/j".into(),
            processor: 0,
            http: "127.2.0.9:8088".parse().expect("an address"),
            media: Ipv4Addr::new(10, 0, 0, 7),
            event_loops: Some(1),
            lite: true,
        };
        let text = main_settings(&plan);
        for line in [
            "event_loops = 1",
            "ice_lite = true",
            "ice_enforce_list = \"10.0.0.7\"",
            "configs_folder = \"/tmp/j\"",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            !text.contains("echotest") && !text.contains("libjanus_http"),
            "{text}"
        );
        let text = main_settings(&JanusPlan {
            event_loops: None,
            ..plan.clone()
        });
        assert!(!text.contains("event_loops"), "{text}");
        let text = http_settings(plan.http);
        assert!(
            text.contains("ip = \"127.2.0.9\"\n    port = 8088\n"),
            "{text}"
        );
    }
}
