"""A small STUN (RFC 8489) of our own, to send what no well-behaved client would and to read what comes back."""

import binascii
import hashlib
import hmac
import ipaddress
import os
import struct
from dataclasses import dataclass, field

COOKIE = 0x2112A442
BINDING_REQUEST = 0x0001
BINDING_SUCCESS = 0x0101
USERNAME, MESSAGE_INTEGRITY, PRIORITY, XOR_MAPPED_ADDRESS = 0x0006, 0x0008, 0x0024, 0x0020
FINGERPRINT, ICE_CONTROLLING = 0x8028, 0x802A


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("!HH", kind, len(value)) + value + bytes(-len(value) % 4)


def _header(kind: int, length: int, transaction: bytes) -> bytes:
    return struct.pack("!HHI", kind, length, COOKIE) + transaction


def binding_request(username: str, password: str, transaction: bytes | None = None) -> bytes:
    """A valid Binding request of a controlling agent: USERNAME, PRIORITY, MESSAGE-INTEGRITY, FINGERPRINT."""
    transaction = transaction or os.urandom(12)
    body = _attribute(USERNAME, username.encode())
    body += _attribute(PRIORITY, struct.pack("!I", 0x6E7F1EFF))
    body += _attribute(ICE_CONTROLLING, os.urandom(8))
    # Both checksums count themselves in the length that they cover (RFC 8489, sections 14.5 and 14.7).
    signed = _header(BINDING_REQUEST, len(body) + 24, transaction) + body
    body += _attribute(MESSAGE_INTEGRITY, hmac.digest(password.encode(), signed, hashlib.sha1))
    summed = _header(BINDING_REQUEST, len(body) + 8, transaction) + body
    return summed + _attribute(FINGERPRINT, struct.pack("!I", binascii.crc32(summed) ^ 0x5354554E))


@dataclass
class Message:
    """A parsed STUN message."""

    kind: int
    transaction: bytes
    attributes: dict[int, bytes] = field(default_factory=dict)

    def mapped_address(self) -> tuple[str, int]:
        """XOR-MAPPED-ADDRESS: the address that the answering side saw."""
        value = self.attributes[XOR_MAPPED_ADDRESS]
        port = struct.unpack("!H", value[2:4])[0] ^ (COOKIE >> 16)
        mask = struct.pack("!I", COOKIE) + self.transaction
        address = bytes(a ^ b for a, b in zip(value[4:], mask, strict=False))
        return str(ipaddress.ip_address(address)), port


def is_stun(packet: bytes) -> bool:
    """Whether a packet is STUN by its first byte and cookie (RFC 7983)."""
    return len(packet) >= 20 and packet[0] < 4 and struct.unpack("!I", packet[4:8])[0] == COOKIE


def parse(packet: bytes) -> Message:
    """Reads a STUN message; raises ValueError for anything else."""
    if not is_stun(packet):
        raise ValueError("not STUN")
    kind, length = struct.unpack("!HH", packet[:4])
    message = Message(kind, packet[8:20])
    offset = 20
    while offset + 4 <= min(len(packet), 20 + length):
        attribute, size = struct.unpack("!HH", packet[offset : offset + 4])
        message.attributes.setdefault(attribute, packet[offset + 4 : offset + 4 + size])
        offset += 4 + size + (-size % 4)
    return message
