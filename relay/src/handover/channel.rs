//! The Unix socket of a hand-over: packets with descriptors, between two processes of one user.

#![allow(unsafe_code)] // Descriptors, credentials and waiting: no safe wrapper among the crates used here.

use std::fs::{self, File, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::limits::{HANDOVER_DESCRIPTORS, HANDOVER_MESSAGE, HANDOVER_STEP};

/// A socket that successors connect to.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    path: PathBuf,
    /// Device and number of the file: whether the path still leads to this socket.
    identity: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at a path, for this user alone. A socket that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when somebody does, [`io::ErrorKind::AlreadyExists`] when what is there is no socket; or
    /// what the system says.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let socket = seqpacket()?;
        // The file gets the mode that the socket has: there is no moment in which others could connect.
        let socket = OwnedFd::from(socket);
        let as_file = File::from(socket);
        as_file.set_permissions(Permissions::from_mode(0o600))?;
        let socket = Socket::from(OwnedFd::from(as_file));
        let address = SockAddr::unix(path)?;
        match socket.bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
                fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !is_socket(path) => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            result => result?,
        }
        socket.listen(4)?;
        socket.set_nonblocking(true)?;
        Ok(Self::over(socket, path))
    }

    /// The listener that a predecessor has passed on.
    #[must_use]
    pub fn inherit(fd: OwnedFd, path: &Path) -> Self {
        Self::over(Socket::from(fd), path)
    }

    fn over(socket: Socket, path: &Path) -> Self {
        Self {
            socket,
            path: path.to_owned(),
            identity: identity(path),
        }
    }

    /// The next connection, if there is one.
    ///
    /// # Errors
    /// What the system says: too many open files, mostly.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        match self.socket.accept() {
            Ok((socket, _)) => Connection::over(socket).map(Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The socket, to wait for a connection.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }

    /// Removes the file, if it still leads here.
    pub fn remove(&self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// Whether a path leads to a socket, by a link or not.
fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// Whether a socket stands there that nobody listens at.
fn is_left_over(path: &Path) -> bool {
    // To connect to a file of another kind is refused in the same way.
    let socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    socket && Connection::connect(path).is_err_and(refused)
}

fn seqpacket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::SEQPACKET, None)
}

/// One end of a hand-over.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

/// What came.
#[derive(Debug)]
pub enum Arrived {
    /// A message, and the descriptors with it.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// The other end has closed, or died.
    End,
    /// Nothing in time.
    Nothing,
    /// The event that was to interrupt the wait.
    Interrupted,
}

impl Connection {
    /// Connects to whoever listens at a path.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] when nobody does; [`io::ErrorKind::WouldBlock`]
    /// when whoever does accepts nobody; or what the system says.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = seqpacket()?;
        let address = SockAddr::unix(path)?;
        let deadline = Instant::now() + HANDOVER_STEP;
        loop {
            // It bounds the wait for a listener whose queue is full, too.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            socket.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
            match socket.connect(&address) {
                // A wait with a time-out is not begun anew by the kernel when a signal or an io_uring that this thread has used ends it.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    result?;
                    return Self::over(socket);
                }
            }
        }
    }

    fn over(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        // A peer that reads nothing is given up like one that says nothing.
        socket.set_write_timeout(Some(HANDOVER_STEP))?;
        Ok(Self { socket })
    }

    /// Whether the other end's process is of this user, or root's.
    ///
    /// # Errors
    /// Not a Unix socket.
    pub fn is_trusted(&self) -> io::Result<bool> {
        let mut who = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of_val(&who) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `who`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut who).cast(),
                &raw mut len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: takes and returns plain numbers.
        let own = unsafe { libc::geteuid() };
        Ok(who.uid == own || who.uid == 0)
    }

    /// Sends a message, with copies of descriptors.
    ///
    /// # Errors
    /// The other end has closed, or takes nothing for a time.
    ///
    /// # Panics
    /// With more descriptors than a message may carry.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(fds.len() <= HANDOVER_DESCRIPTORS, "the bound of a message");
        let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        let mut control = Control::default();
        let mut vector = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let mut header = header(&mut vector);
        if !raw.is_empty() {
            let bytes = size_of_val(&raw[..]);
            header.msg_control = (&raw mut control).cast();
            // SAFETY: computes with a length alone.
            header.msg_controllen = unsafe { libc::CMSG_SPACE(bytes as u32) } as _;
            // SAFETY: the control buffer is aligned for a header and has room for it and for `HANDOVER_DESCRIPTORS` numbers,
            // which is asserted at its definition and above.
            unsafe {
                let first = libc::CMSG_FIRSTHDR(&raw const header);
                (*first).cmsg_level = libc::SOL_SOCKET;
                (*first).cmsg_type = libc::SCM_RIGHTS;
                (*first).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
                std::ptr::copy_nonoverlapping(
                    raw.as_ptr().cast::<u8>(),
                    libc::CMSG_DATA(first),
                    bytes,
                );
            }
        }
        loop {
            // SAFETY: the header points to the vector and the control buffer above, and the vector to the message; the
            // kernel only reads them, during the call.
            let sent = unsafe {
                libc::sendmsg(
                    self.socket.as_raw_fd(),
                    &raw const header,
                    libc::MSG_NOSIGNAL,
                )
            };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Waits for the next message, for `time` at the most, or until `interrupt` can be read.
    ///
    /// # Errors
    /// The message is longer than any may be, or what the system says.
    pub fn receive(
        &self,
        time: Duration,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> io::Result<Arrived> {
        let own = std::os::fd::AsFd::as_fd(&self.socket);
        match wait(own, interrupt, Some(time))? {
            Ready::First => {}
            Ready::Second => return Ok(Arrived::Interrupted),
            Ready::None => return Ok(Arrived::Nothing),
        }
        let mut message = vec![0; HANDOVER_MESSAGE];
        let mut control = Control::default();
        let mut vector = libc::iovec {
            iov_base: message.as_mut_ptr().cast(),
            iov_len: message.len(),
        };
        let mut header = header(&mut vector);
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        // SAFETY: the header points to the vector and the control buffer above, and the vector to the message, each with its
        // length; the kernel writes no more than that, during the call.
        let len = unsafe {
            libc::recvmsg(
                self.socket.as_raw_fd(),
                &raw mut header,
                libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT,
            )
        };
        let Ok(len) = usize::try_from(len) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Arrived::Nothing),
                // The other end closed without reading all; the kernel says so once, before what it had said itself.
                io::ErrorKind::ConnectionReset => self.receive(Duration::ZERO, None),
                _ => Err(error),
            };
        };
        let fds = descriptors(&header);
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message is longer than any",
            ));
        }
        if len == 0 && fds.is_empty() {
            return Ok(Arrived::End);
        }
        message.truncate(len);
        Ok(Arrived::Message(message, fds))
    }
}

/// Room for the control message with the descriptors, aligned for its header.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

const CONTROL: usize = 16 + 4 * HANDOVER_DESCRIPTORS;

const _: () = {
    // SAFETY: computes with a length alone.
    let space = unsafe { libc::CMSG_SPACE(4 * HANDOVER_DESCRIPTORS as u32) };
    assert!(space as usize <= size_of::<Control>());
    assert!(align_of::<Control>() >= align_of::<libc::cmsghdr>());
};

impl Default for Control {
    fn default() -> Self {
        Self([0; CONTROL])
    }
}

fn header(vector: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: `msghdr` is integers and pointers, for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    header
}

/// Takes the descriptors that came with a message.
fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control buffer that the header points to, and its length. The macros walk inside it;
    // each number in a message of rights is a fresh descriptor that nobody else owns.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while !next.is_null() {
            let one = &*next;
            if one.cmsg_level == libc::SOL_SOCKET && one.cmsg_type == libc::SCM_RIGHTS {
                let bytes = one.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(next).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    fds
}

/// Which of two descriptors can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// The first alone.
    First,
    /// The second, and perhaps the first.
    Second,
    /// None in time.
    None,
}

/// Waits until one of two descriptors can be read, or has ended; for ever when no time is given.
///
/// # Errors
/// What the system says.
pub fn wait(
    first: BorrowedFd<'_>,
    second: Option<BorrowedFd<'_>>,
    time: Option<Duration>,
) -> io::Result<Ready> {
    let entry = |fd: RawFd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // The kernel passes over a negative number.
    let second = second.map_or(-1, |fd| fd.as_raw_fd());
    let mut entries = [entry(first.as_raw_fd()), entry(second)];
    // Rounded up: a wait that ends early would be begun anew for nothing, again and again.
    let millis = time.map_or(-1, |time| {
        i32::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the kernel reads and writes the entries, as many as said, during the call.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(Ready::None),
            _ => Err(error),
        };
    }
    Ok(if entries[1].revents != 0 {
        Ready::Second
    } else if entries[0].revents != 0 {
        Ready::First
    } else {
        Ready::None
    })
}
