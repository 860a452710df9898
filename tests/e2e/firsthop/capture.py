"""Watching a link: every UDP packet that passes, with its time and both addresses.

Knows nothing of the client or the programs, so that a test judges by what was on the wire and not by what either
side believes. Headers of RTP and of DTLS records are in the clear.
"""

import contextlib
import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import stun
from .namespaces import UDP_PORT, Namespace

ETH_P_ALL = 0x0003
DTLS_HANDSHAKE = 22
#: Both the option and the type of the control message (asm-generic/socket.h).
SO_TIMESTAMPNS = 35

Address = tuple[str, int]


@dataclass(frozen=True)
class Packet:
    """One UDP datagram seen on the link; `time` is when the kernel had it, on the monotonic clock, in seconds."""

    time: float
    source: Address
    destination: Address
    payload: bytes

    def is_uplink(self) -> bool:
        """To the relay's public port."""
        return self.destination[1] == UDP_PORT

    def is_downlink(self) -> bool:
        """From the relay's public port."""
        return self.source[1] == UDP_PORT

    def is_stun(self) -> bool:
        """A STUN message."""
        return stun.is_stun(self.payload)

    def is_check(self) -> bool:
        """A Binding request."""
        return self.is_stun() and self.payload[:2] == b"\x00\x01"

    def is_dtls(self) -> bool:
        """One or more DTLS records."""
        return len(self.payload) >= 13 and 20 <= self.payload[0] <= 63

    def is_handshake(self) -> bool:
        """DTLS whose first record belongs to a handshake (in the clear or, after epoch 0, encrypted)."""
        return self.is_dtls() and self.payload[0] == DTLS_HANDSHAKE

    def is_rtp(self) -> bool:
        """RTP and not RTCP (RFC 5761, section 4)."""
        return len(self.payload) >= 12 and 128 <= self.payload[0] <= 191 and not 192 <= self.payload[1] <= 223

    def rtp_sequence(self) -> int:
        """The 16-bit sequence number of an RTP packet."""
        return int(struct.unpack("!H", self.payload[2:4])[0])


def missing(packets: list[Packet]) -> int:
    """How many RTP sequence numbers between the first and the last of these packets never appeared."""
    if not packets:
        return 0
    first = packets[0].rtp_sequence()
    last = highest = 0
    seen = {0}
    for packet in packets[1:]:
        # Extends the 16-bit number around the last one seen.
        step = (packet.rtp_sequence() - first - last + 0x8000) % 0x10000 - 0x8000
        last += step
        highest = max(highest, last)
        seen.add(last)
    return highest + 1 - len([number for number in seen if number >= 0])


class Capture:
    """Records a link of a namespace from its construction until `close`."""

    def __init__(self, namespace: Namespace, link: str) -> None:
        self._packets: list[Packet] = []
        self._news = threading.Condition()
        self._closing = False
        self._socket = namespace.call(lambda: self._open(link))
        self._thread = threading.Thread(target=self._record, name=f"capture on {link}", daemon=True)
        self._thread.start()

    @staticmethod
    def _open(link: str) -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        # Whatever keeps this thread from running, the packets' times stay right.
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.bind((link, ETH_P_ALL))
        made.settimeout(0.2)  # to notice `close`
        return made

    def _record(self) -> None:
        while not self._closing:
            try:
                data, control, _, _ = self._socket.recvmsg(65536, 64)
            except TimeoutError:
                continue
            packet = _decode(data, _time_of(control))
            if packet:
                with self._news:
                    self._packets.append(packet)
                    self._news.notify_all()

    def close(self) -> None:
        """Ends the recording; what was recorded stays."""
        self._closing = True
        self._thread.join()
        self._socket.close()

    def packets(self, wanted: Callable[[Packet], bool] = lambda _: True, since: float = 0.0) -> list[Packet]:
        """The packets so far that are `wanted` and came at or after `since`."""
        with self._news:
            return [packet for packet in self._packets if packet.time >= since and wanted(packet)]

    def wait_for(self, what: str, wanted: Callable[[Packet], bool], timeout: float, since: float = 0.0) -> Packet:
        """The first wanted packet at or after `since`, awaited for `timeout` seconds at most."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._news:
            while True:
                for packet in self._packets[seen:]:
                    if packet.time >= since and wanted(packet):
                        return packet
                seen = len(self._packets)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"not on the wire within {timeout:g} s: {what}")
                self._news.wait(left)


def _time_of(control: list[tuple[int, int, bytes]]) -> float:
    """The kernel's time stamp, which is of the wall clock, on the monotonic clock."""
    (stamp,) = [data for level, kind, data in control if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)]
    seconds, nanoseconds = struct.unpack("@qq", stamp)
    return seconds + nanoseconds / 1e9 + time.monotonic() - time.time()


def _decode(data: bytes, now: float) -> Packet | None:
    if len(data) < 28:
        return None
    if data[0] >> 4 == 4 and data[9] == socket.IPPROTO_UDP:
        start = (data[0] & 0x0F) * 4
        source, destination = data[12:16], data[16:20]
        end = struct.unpack("!H", data[2:4])[0]
    elif data[0] >> 4 == 6 and len(data) >= 48 and data[6] == socket.IPPROTO_UDP:
        start, end = 40, len(data)
        source, destination = data[8:24], data[24:40]
    else:
        return None
    source_port, destination_port = struct.unpack("!HH", data[start : start + 4])
    return Packet(
        now,
        (str(ipaddress.ip_address(source)), source_port),
        (str(ipaddress.ip_address(destination)), destination_port),
        data[start + 8 : end],
    )


@contextlib.contextmanager
def capture(namespace: Namespace, link: str) -> Iterator[Capture]:
    """A capture for the length of the block."""
    made = Capture(namespace, link)
    try:
        yield made
    finally:
        made.close()
