//! Programs under test: started on one processor, stopped and continued, and what the kernel says they have used.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::signal::{Signal, send};

/// How long a program may take to do what it must.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that runs until it is dropped.
pub struct Process {
    child: Child,
}

/// What the kernel has charged to a program so far.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Time on a processor of all its threads, user and system, in nanoseconds.
    pub cpu_nanos: u64,
    /// Memory that is in use, in bytes.
    pub resident: u64,
}

impl Process {
    /// Starts a program on one processor of this machine.
    ///
    /// Its output goes to `log`, so that a failure can be understood.
    ///
    /// # Errors
    /// It cannot be started, or `taskset` (util-linux) is missing.
    pub fn start(processor: usize, program: &Command, log: fs::File) -> io::Result<Self> {
        let mut pinned = Command::new("taskset");
        pinned
            .arg("-c")
            .arg(processor.to_string())
            .arg(program.get_program())
            .args(program.get_args())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => pinned.env(name, value),
                None => pinned.env_remove(name),
            };
        }
        Ok(Self {
            child: pinned.spawn()?,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program receives on a UDP address.
    ///
    /// # Errors
    /// It ended, or it does not in time.
    pub fn wait_udp(&mut self, address: SocketAddr) -> io::Result<()> {
        self.wait_until(&format!("listen on {address}"), || {
            udp_queue(address).map(|queue| queue.is_some())
        })
    }

    /// Waits until `question` is answered with yes.
    ///
    /// # Errors
    /// The program ended, or it takes too long; what `question` says.
    pub fn wait_until(
        &mut self,
        what: &str,
        mut question: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !question()? {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("does not {what}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Halts every thread of the program, and returns once they stand: what they have used is exact then.
    ///
    /// # Errors
    /// It has ended.
    pub fn halt(&mut self) -> io::Result<()> {
        send(self.child.id(), Signal::Stop)?;
        let pid = self.child.id();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if every_thread(pid, |thread| {
                let stat = fs::read_to_string(format!("{thread}/stat"))?;
                Ok(stat
                    .rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.starts_with('T')))
            })? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("does not stop"));
            }
            std::hint::spin_loop();
        }
    }

    /// Lets the program run on.
    ///
    /// # Errors
    /// It has ended.
    pub fn go_on(&mut self) -> io::Result<()> {
        send(self.child.id(), Signal::Continue)
    }

    /// What the program has used. Exact while it is halted; else the running thread's last moments may be missing.
    ///
    /// # Errors
    /// It has ended.
    pub fn usage(&self) -> io::Result<Usage> {
        Usage::of(self.child.id())
    }
}

impl Usage {
    /// What any process has used; see [`Process::usage`].
    ///
    /// # Errors
    /// It has ended.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut usage = Self::default();
        every_thread(pid, |thread| {
            let text = fs::read_to_string(format!("{thread}/schedstat"))?;
            usage.cpu_nanos += number(text.split(' ').next());
            Ok(true)
        })?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        usage.resident = number(resident.and_then(|l| l.split_whitespace().next())) * 1_024;
        Ok(usage)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Some stop by themselves when asked; whoever does not within a moment is killed.
        let _ = send(self.child.id(), Signal::Continue);
        let _ = send(self.child.id(), Signal::Terminate);
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

fn every_thread(pid: u32, mut test: impl FnMut(&str) -> io::Result<bool>) -> io::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        match test(&thread?.path().display().to_string()) {
            Ok(true) => {}
            // A thread that has just ended needs no answer.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Ok(true)
}

/// How many bytes wait in the receive queue of the UDP socket that is bound to an IPv4 address; nothing when there is none.
///
/// # Errors
/// `/proc` is not readable.
pub fn udp_queue(address: SocketAddr) -> io::Result<Option<u64>> {
    let SocketAddr::V4(address) = address else {
        return Err(io::Error::other("an IPv4 address"));
    };
    let wanted = format!(
        "{:08X}:{:04X}",
        u32::from(*address.ip()).swap_bytes(),
        address.port()
    );
    let table = fs::read_to_string("/proc/net/udp")?;
    Ok(table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        if fields.nth(1)? != wanted {
            return None;
        }
        let queues = fields.nth(2)?;
        u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
    }))
}

/// How many datagrams this process's own UDP sockets over IPv4 had no room for, since they were opened.
///
/// # Errors
/// `/proc` is not readable.
pub fn own_drops() -> io::Result<u64> {
    let mut own = Vec::new();
    for descriptor in fs::read_dir("/proc/self/fd")? {
        // One is that of the directory itself, which is gone by now.
        if let Ok(target) = fs::read_link(descriptor?.path())
            && let Some(inode) = target
                .to_str()
                .and_then(|name| name.strip_prefix("socket:["))
        {
            own.push(inode.trim_end_matches(']').to_owned());
        }
    }
    let table = fs::read_to_string("/proc/net/udp")?;
    let drops = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode = fields.get(9)?;
        own.iter().find(|own| own == inode)?;
        fields.last()?.parse::<u64>().ok()
    });
    Ok(drops.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_a_socket_of_this_process_has_no_room_for_is_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("an address");
        socket2::SockRef::from(&socket)
            .set_recv_buffer_size(0)
            .expect("the smallest buffer");
        let before = own_drops().expect("readable");
        for _ in 0..100 {
            socket.send_to(&[1; 100], address).expect("sent");
        }
        assert!(own_drops().expect("readable") > before);
    }

    #[test]
    fn a_queue_is_seen_while_it_waits() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("an address");
        assert_eq!(udp_queue(address).expect("readable"), Some(0));
        socket.send_to(&[1; 100], address).expect("sent");
        assert!(udp_queue(address).expect("readable") > Some(0));
        drop(socket);
        assert_eq!(udp_queue(address).expect("readable"), None);
    }

    #[test]
    fn a_halted_program_uses_no_time() {
        let log = fs::File::create("/dev/null").expect("a file");
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let processors = core_affinity::get_core_ids().expect("processors");
        let mut process = Process::start(processors[0].id, &busy, log).expect("started");
        process
            .wait_until("work", || Ok(true))
            .expect("a running program");
        process.halt().expect("halted");
        let before = process.usage().expect("usage");
        std::thread::yield_now();
        assert_eq!(process.usage().expect("usage"), before);
        process.go_on().expect("runs");
    }
}
