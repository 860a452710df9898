"""Network namespaces joined by veth pairs: the hosts of a test, all on this machine.

The test bed is a line of three hosts:

    client  ── 10.77.1.0/24, fd77:1::/64 ──  server  ── 10.77.2.0/24 ──  stranger
     .2                                   .1, .3    .1                    .2

The server runs the programs; its firewall admits from outside only the relay's public port and signaling's, and
counts what else knocks. The client has no route to anything but the server. The stranger is a host from which
packets with a forged source come.
"""

import contextlib
import ctypes
import itertools
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

#: The two ports of the server that are public.
UDP_PORT, HTTP_PORT = 3478, 8080

CLONE_NEWNET = 0x40000000
PREFIX = "firsthop"
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count(1)


def ip(*arguments: str) -> None:
    """Runs iproute2's `ip`; a failure raises with its words."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Namespace:
    """One network namespace."""

    def __init__(self, role: str) -> None:
        self.name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}-{role}"
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")

    def delete(self) -> None:
        """Removes the namespace; its interfaces go with the last process in it."""
        ip("netns", "delete", self.name)

    def command(self, *arguments: str | os.PathLike[str]) -> list[str]:
        """The command line that runs `arguments` in here; the process id stays that of the program."""
        return ["ip", "netns", "exec", self.name, *map(str, arguments)]

    def check(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs a short command in here and returns what it printed; a failure raises with its words."""
        done = subprocess.run(self.command(*arguments), input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def enter(self) -> None:
        """Moves the calling thread, and the threads and sockets it makes from now on, into this namespace."""
        with open(f"/run/netns/{self.name}", "rb") as handle:
            if _libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns to {self.name}")

    def set_kernel(self, setting: str, value: str) -> None:
        """Sets one of the kernel's network settings in here, named by its path under /proc/sys."""

        def write() -> None:
            with open(f"/proc/sys/{setting}", "w") as file:
                file.write(value)

        self.call(write)

    def call(self, function: Callable[[], T], timeout: float = 30) -> T:
        """Runs `function` on a thread in here and returns its result, or raises what it raised."""
        results: queue.Queue[tuple[bool, object]] = queue.Queue()

        def run() -> None:
            try:
                self.enter()
                results.put((True, function()))
            except BaseException as error:
                results.put((False, error))

        threading.Thread(target=run, name=self.name, daemon=True).start()
        good, result = results.get(timeout=timeout)
        if not good:
            raise result  # type: ignore[misc]
        return result  # type: ignore[return-value]


def join(left: Namespace, left_name: str, right: Namespace, right_name: str) -> None:
    """Joins two namespaces by a veth pair, whose ends get these names."""
    ip("link", "add", left_name, "netns", left.name, "type", "veth", "peer", "name", right_name, "netns", right.name)
    for namespace, link in ((left, left_name), (right, right_name)):
        # A train of packets that the kernel cuts for its sender (UDP_SEGMENT) would cross as one, as on no real wire.
        ip("-n", namespace.name, "link", "set", link, "gso_max_segs", "1")
        ip("-n", namespace.name, "link", "set", link, "up")


def give_address(namespace: Namespace, link: str, address: str) -> None:
    """Adds an address, with the length of its prefix, to a link."""
    # Without duplicate address detection an IPv6 address works at once.
    extra = ["nodad"] if ":" in address else []
    ip("-n", namespace.name, "address", "add", address, "dev", link, *extra)


class Testbed:
    """Client, server and stranger, as the module's picture shows them."""

    __test__ = False  # pytest: not a test class

    CLIENT = "10.77.1.2"
    CLIENT_V6 = "fd77:1::2"
    CLIENT_LINK = "to-server"
    SERVER = "10.77.1.1"
    SERVER_SECOND = "10.77.1.3"
    SERVER_V6 = "fd77:1::1"
    SERVER_LINK = "to-client"
    STRANGER = "10.77.2.2"

    def __init__(self) -> None:
        self._made: list[Namespace] = []
        try:
            self.client = self._namespace("client")
            self.server = self._namespace("server")
            self.stranger = self._namespace("stranger")
            join(self.client, self.CLIENT_LINK, self.server, self.SERVER_LINK)
            join(self.stranger, "to-server", self.server, "to-stranger")
            give_address(self.client, self.CLIENT_LINK, f"{self.CLIENT}/24")
            give_address(self.client, self.CLIENT_LINK, f"{self.CLIENT_V6}/64")
            give_address(self.server, self.SERVER_LINK, f"{self.SERVER}/24")
            give_address(self.server, self.SERVER_LINK, f"{self.SERVER_SECOND}/24")
            give_address(self.server, self.SERVER_LINK, f"{self.SERVER_V6}/64")
            give_address(self.stranger, "to-server", f"{self.STRANGER}/24")
            give_address(self.server, "to-stranger", "10.77.2.1/24")
            ip("-n", self.stranger.name, "route", "add", "10.77.1.0/24", "via", "10.77.2.1")
            # The kernel would drop forged packets by itself; here the relay has to deal with them.
            for link in ("all", self.SERVER_LINK, "to-stranger"):
                self.server.set_kernel(f"net/ipv4/conf/{link}/rp_filter", "0")
        except BaseException:
            self.close()
            raise

    def _namespace(self, role: str) -> Namespace:
        made = Namespace(role)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Removes the three hosts."""
        while self._made:
            self._made.pop().delete()

    def admit_only(self, udp: int, tcp: int) -> None:
        """Closes the server to all but the two ports; `refused` counts the rest."""
        rules = f"""
            table inet front {{
                counter refused {{ }}
                chain arriving {{
                    type filter hook input priority filter; policy accept
                    iifname "lo" accept
                    meta l4proto ipv6-icmp accept
                    udp dport {udp} accept
                    tcp dport {tcp} accept
                    tcp flags & (syn | ack) != syn meta l4proto tcp accept
                    counter name refused drop
                }}
            }}
        """
        self.server.check("nft", "-f", "-", stdin="\n".join(line.strip() for line in rules.splitlines()))

    def cut_client(self) -> None:
        """From now on nothing that client or server sends the other by UDP arrives, and no sender is told."""
        for namespace, link in ((self.server, self.SERVER_LINK), (self.client, self.CLIENT_LINK)):
            rules = f"""
                table inet cut {{
                    chain arriving {{
                        type filter hook prerouting priority raw; policy accept
                        iifname "{link}" meta l4proto udp drop
                    }}
                }}
            """
            namespace.check("nft", "-f", "-", stdin="\n".join(line.strip() for line in rules.splitlines()))

    def mend_client(self) -> None:
        """Takes that back."""
        for namespace in (self.server, self.client):
            namespace.check("nft", "delete", "table", "inet", "cut")

    def refused(self) -> int:
        """How many packets from outside asked for something else than the two admitted ports."""
        line = self.server.check("nft", "list", "counter", "inet", "front", "refused")
        return int(line.split("packets")[1].split()[0])


def remove_stale() -> None:
    """Removes what an earlier run left whose process is gone (it was killed before it could clean up)."""
    for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines():
        name = line.split()[0]
        parts = name.split("-")
        if parts[0] == PREFIX and len(parts) == 4 and not os.path.exists(f"/proc/{parts[1]}"):
            with contextlib.suppress(RuntimeError):
                ip("netns", "delete", name)


@contextlib.contextmanager
def testbed() -> Iterator[Testbed]:
    """A test bed for the length of the block."""
    bed = Testbed()
    try:
        yield bed
    finally:
        bed.close()
