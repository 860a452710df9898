//! The relay's sockets: one public socket per core and listen address, one internal socket per core.
//!
//! All of them are opened by one thread before any core starts, because in a `SO_REUSEPORT` group the order of `bind` is the
//! numbering that the steering program speaks of. A group is opened only when nobody else holds its address: the kernel
//! would let a second relay of the same user join silently, and renumber the cores of the first.

#![allow(unsafe_code)] // Socket options that no safe wrapper offers: the steering program, path MTU discovery.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use firsthop_relay_core::{Instruction, Steering};
use firsthop_service::settings::SettingError;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::limits::{BIND_PATIENCE, BIND_RETRY, SOCKET_BUFFER};

/// The sockets of one core, ready for its ring.
#[derive(Debug)]
pub struct CoreSockets {
    /// One per listen address, in the order of the settings.
    pub public: Vec<OwnedFd>,
    /// The trunk's end.
    pub internal: OwnedFd,
    /// The address of the internal socket.
    pub internal_address: SocketAddr,
}

/// The smallest buffer that the kernel granted to any socket, in bytes as asked for (half of what it accounts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedBuffers {
    /// Receive buffer.
    pub receive: usize,
    /// Send buffer.
    pub send: usize,
}

impl GrantedBuffers {
    /// Whether the kernel gave less than was asked for.
    #[must_use]
    pub fn capped(&self) -> bool {
        self.receive < SOCKET_BUFFER || self.send < SOCKET_BUFFER
    }
}

/// A socket that could not be opened, with the setting that asked for it.
#[derive(Debug, thiserror::Error)]
#[error("{}", SettingError::cannot_listen(*setting, address, error))]
pub struct SocketError {
    /// The setting.
    pub setting: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub error: io::Error,
}

/// Opens all sockets of all cores: public groups bound in core order and steered, internal ports `internal_port + core`.
///
/// # Errors
/// The first address that cannot be had.
pub fn open(
    listen: &[SocketAddr],
    internal: IpAddr,
    internal_port: u16,
    steering: &Steering,
) -> Result<(Vec<CoreSockets>, GrantedBuffers), SocketError> {
    let mut granted = GrantedBuffers {
        receive: usize::MAX,
        send: usize::MAX,
    };
    let mut cores = Vec::with_capacity(usize::from(steering.cores()));
    for core in 0..steering.cores() {
        let address = SocketAddr::new(internal, internal_port + core);
        let socket =
            patiently(|| internal_socket(address, &mut granted)).map_err(|error| SocketError {
                setting: "--internal",
                address,
                error,
            })?;
        cores.push(CoreSockets {
            public: Vec::with_capacity(listen.len()),
            internal: socket.into(),
            internal_address: address,
        });
    }
    for &address in listen {
        let group =
            patiently(|| public_group(address, steering, &mut granted)).map_err(|error| {
                SocketError {
                    setting: "--listen",
                    address,
                    error,
                }
            })?;
        for (core, socket) in cores.iter_mut().zip(group) {
            core.public.push(socket.into());
        }
    }
    Ok((cores, granted))
}

/// Tries again for a moment while an address is in use.
///
/// The kernel takes an io_uring apart after its process has ended, and so its sockets live on for some milliseconds: a relay
/// that is started anew at once would find its own ports taken.
fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(BIND_RETRY);
            }
            result => return result,
        }
    }
}

fn udp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        // IPv4 clients have a socket of their own; the IPv6 steering program reads IPv6 headers.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn internal_socket(address: SocketAddr, granted: &mut GrantedBuffers) -> io::Result<Socket> {
    let socket = udp(address)?;
    size_buffers(&socket, granted)?;
    // Follows the path's MTU, and lets the kernel fragment the rare client packet that is too large for it.
    set_mtu_discovery(&socket, address, MtuDiscovery::Want)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn public_group(
    address: SocketAddr,
    steering: &Steering,
    granted: &mut GrantedBuffers,
) -> io::Result<Vec<Socket>> {
    // Without SO_REUSEPORT, this bind fails whoever holds the address, be it a group.
    drop({
        let alone = udp(address)?;
        alone.bind(&address.into())?;
        alone
    });
    let group = (0..steering.cores())
        .map(|_| {
            let socket = udp(address)?;
            socket.set_reuse_port(true)?;
            size_buffers(&socket, granted)?;
            // Packets are small, anybody can forge the ICMP message that would make the kernel fragment them, and a packet
            // that must not be fragmented needs no number of its own from the kernel's shared counters.
            set_mtu_discovery(&socket, address, MtuDiscovery::Probe)?;
            socket.bind(&address.into())?;
            Ok(socket)
        })
        .collect::<io::Result<Vec<_>>>()?;
    if let [first, _, ..] = &group[..] {
        let program = if address.is_ipv6() {
            steering.program_v6()
        } else {
            steering.program_v4()
        };
        attach_steering(first, &program)?;
    }
    Ok(group)
}

/// Sizes the buffers of sockets that another process has opened, as this one would have.
///
/// # Errors
/// What the system says.
pub fn size_inherited(cores: &[CoreSockets]) -> io::Result<GrantedBuffers> {
    let mut granted = GrantedBuffers {
        receive: usize::MAX,
        send: usize::MAX,
    };
    for core in cores {
        for socket in core.public.iter().chain([&core.internal]) {
            size_buffers(&SockRef::from(socket), &mut granted)?;
        }
    }
    Ok(granted)
}

fn size_buffers(socket: &Socket, granted: &mut GrantedBuffers) -> io::Result<()> {
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    // Linux doubles what it is asked for, to account for its own overhead, and reports that.
    granted.receive = granted.receive.min(socket.recv_buffer_size()? / 2);
    granted.send = granted.send.min(socket.send_buffer_size()? / 2);
    Ok(())
}

#[derive(Clone, Copy)]
enum MtuDiscovery {
    /// Use what ICMP taught the kernel; set "don't fragment" where a packet fits.
    Want,
    /// Ignore it: the interface's MTU holds, and "don't fragment" is always set.
    Probe,
}

fn set_mtu_discovery(socket: &Socket, address: SocketAddr, how: MtuDiscovery) -> io::Result<()> {
    let (level, name, value) = match (address.is_ipv6(), how) {
        (false, MtuDiscovery::Want) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_WANT,
        ),
        (false, MtuDiscovery::Probe) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        (true, MtuDiscovery::Want) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_WANT,
        ),
        (true, MtuDiscovery::Probe) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
    };
    set_option(socket, level, name, &value)
}

/// Attaches the program that picks a member for each packet to the whole SO_REUSEPORT group of `socket`.
///
/// # Errors
/// The socket is in no group, or the kernel does not take the program.
pub fn attach_steering(socket: &Socket, program: &[Instruction]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        })
        .collect();
    let filter = libc::sock_fprog {
        len: u16::try_from(code.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: code.as_mut_ptr(),
    };
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &filter,
    )
}

/// How many datagrams the kernel dropped because the socket's receive buffer was full. Wraps at 2^32.
///
/// # Errors
/// Not a socket.
pub fn dropped(socket: &impl AsRawFd) -> io::Result<u32> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is the last of nine.
    const DROPS: usize = 8;
    let mut memory = [0u32; DROPS + 1];
    let mut len = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `memory`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(memory[DROPS])
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_option<T>(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, the size of `value`, and follows a pointer in it only while the call lasts.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            len,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
