"""A session without a peer: made over HTTP, then used with packets of our own making.

For what no WebRTC library would do: one socket for two sessions, forged addresses, thousands of clients at once.
"""

import os
import re
import secrets
import socket
import struct
from dataclasses import dataclass

from . import stun
from .caller import request

_OFFER = """\
v=0
o=- {number} 1 IN IP4 0.0.0.0
s=-
t=0 0
a=group:BUNDLE 0 1
m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=mid:0
a=sendrecv
a=rtcp-mux
a=rtpmap:111 opus/48000/2
a=fmtp:111 minptime=10;useinbandfec=1
a=ice-ufrag:{ufrag}
a=ice-pwd:{password}
a=fingerprint:sha-256 {fingerprint}
a=setup:actpass
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=mid:1
a=sctp-port:5000
a=max-message-size:262144
a=ice-ufrag:{ufrag}
a=ice-pwd:{password}
a=fingerprint:sha-256 {fingerprint}
a=setup:actpass
"""


def plain_offer(ufrag: str, password: str) -> str:
    """An offer as a browser makes it, without candidates, for a certificate that nobody has."""
    fingerprint = ":".join(f"{byte:02X}" for byte in os.urandom(32))
    text = _OFFER.format(number=secrets.randbits(62), ufrag=ufrag, password=password, fingerprint=fingerprint)
    return text.replace("\n", "\r\n")


@dataclass(frozen=True)
class RawSession:
    """A session by its ICE credentials, on both sides."""

    location: str
    ufrag: str
    password: str
    client_ufrag: str
    client_password: str

    def check(self, transaction: bytes | None = None) -> bytes:
        """A valid Binding request to the server."""
        return stun.binding_request(f"{self.ufrag}:{self.client_ufrag}", self.password, transaction)


def create(url: str, key: str = "dev") -> RawSession:
    """Makes a session, from the namespace of the calling thread."""
    client_ufrag, client_password = secrets.token_hex(4), secrets.token_hex(12)
    answer = request(url, "POST", "/v1/realtime/calls", plain_offer(client_ufrag, client_password), key=key)
    assert answer.status == 201, f"signaling answered {answer.status}: {answer.body}"
    ufrag = re.search(r"^a=ice-ufrag:(\S+)", answer.body, re.MULTILINE)
    password = re.search(r"^a=ice-pwd:(\S+)", answer.body, re.MULTILINE)
    assert ufrag, answer.body
    assert password, answer.body
    return RawSession(answer.headers["location"], ufrag[1], password[1], client_ufrag, client_password)


def send_forged(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> None:
    """Sends a UDP packet with a source address that is not ours; IPv4, from the namespace of the calling thread."""
    udp = struct.pack("!HHHH", source[1], destination[1], 8 + len(payload), 0)  # 0: no checksum, which IPv4 allows
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
    # The kernel fills in the length, the id and the checksum of the IP header.
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, socket.IPPROTO_UDP, 0) + addresses
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        sender.sendto(ip + udp + payload, (destination[0], 0))
