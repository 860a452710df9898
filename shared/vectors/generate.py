#!/usr/bin/env python3
"""Writes the golden vectors of Firsthop's wire formats.

This is a second implementation, written from the format descriptions and sharing no code with the Rust one, so that the
vectors test both. It needs the `cryptography` package. Usage: generate.py [folder]
"""

import base64
import hashlib
import hmac
import ipaddress
import json
import pathlib
import struct
import sys
import zlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MASTERS = {1: bytes(range(32)), 300: bytes(range(100, 132))}
LENGTHS = {"ufrag": 32, "ice": 32, "trunk": 16, "call": 32, "secret": 32}


def derive(key_id, label):
    info = f"{label} {key_id}".encode()
    return HKDF(hashes.SHA256(), LENGTHS[label], b"firsthop/1", info).derive(MASTERS[key_id])


def b64(data):
    return base64.b64encode(data).decode()


def keyring(active, labels):
    text = f"active = {active}\n"
    for key_id in MASTERS:
        text += f"\n[[key]]\nid = {key_id}\n"
        text += "".join(f'{label} = "{b64(derive(key_id, label))}"\n' for label in labels)
    return text


def mint(key_id, route):
    owner = ipaddress.ip_address(route["owner_ip"])
    plain = struct.pack(
        ">HHBBI", route["cluster"], route["owner_port"], route["shard"], route["restart"], route["session"]
    )
    bits = (owner.version == 6) << 9 | key_id
    prefix = (ALPHABET[bits >> 6] + ALPHABET[bits & 63]).encode()
    sealed = AESSIV(derive(key_id, "ufrag")).encrypt(plain + owner.packed, [prefix])
    return prefix.decode() + b64(sealed).rstrip("=")


def ice_password(key_id, ufrag):
    return b64(hmac.digest(derive(key_id, "ice"), ufrag.encode(), "sha256"))[:24]


def ufrag_vectors():
    routes = [
        (1, dict(cluster=1, owner_ip="10.0.0.7", owner_port=5000, shard=0, restart=0, session=0x01020304)),
        (1, dict(cluster=65535, owner_ip="192.0.2.255", owner_port=65535, shard=255, restart=255, session=0xFFFFFFFF)),
        (300, dict(cluster=0, owner_ip="127.0.0.1", owner_port=1, shard=3, restart=1, session=0)),
        (1, dict(cluster=1, owner_ip="2001:db8::7", owner_port=5000, shard=1, restart=0, session=0x0A0B0C0D)),
        (300, dict(cluster=513, owner_ip="fd00::1:2", owner_port=5001, shard=2, restart=9, session=77)),
    ]
    valid = []
    for key_id, route in routes:
        ufrag = mint(key_id, route)
        valid.append({"key": key_id, "route": route, "ufrag": ufrag, "password": ice_password(key_id, ufrag)})
    good = valid[0]["ufrag"]
    good_v6 = valid[3]["ufrag"]
    other = lambda c: "A" if c != "A" else "B"  # noqa: E731
    prefix = lambda bits: ALPHABET[bits >> 6] + ALPHABET[bits & 63]  # noqa: E731
    invalid = [
        ("empty", "", "length"),
        ("one character short", good[:-1], "length"),
        ("one character long", good + "A", "length"),
        ("IPv6 length, cut", good_v6[:-1], "length"),
        ("a character outside of the alphabet", good[:20] + "-" + good[21:], "alphabet"),
        ("padding", good[:-1] + "=", "alphabet"),
        ("alphabet, in the key id", "=" + good[1:], "alphabet"),
        ("IPv6 format on an IPv4 length", prefix(1 << 9 | 1) + good[2:], "format"),
        ("IPv4 format on an IPv6 length", prefix(1) + good_v6[2:], "format"),
        ("unknown format", prefix(2 << 9 | 1) + good[2:], "format"),
        ("a key that is not in the ring", prefix(2) + good[2:], "unknown_key"),
        ("key id 511", prefix(511) + good[2:], "unknown_key"),
        ("another key of the ring", prefix(300) + good[2:], "forged"),
        ("first character of the tag altered", good[:2] + other(good[2]) + good[3:], "forged"),
        ("last character altered", good[:-1] + other(good[-1]), "forged"),
        ("sealed by a stranger", prefix(1) + b64(AESSIV(bytes(32)).encrypt(bytes(14), [prefix(1).encode()])), "forged"),
    ]
    for entry in valid:
        check_opens(entry["key"], entry["ufrag"])
    return {"valid": valid, "invalid": [dict(name=n, ufrag=u, error=e) for n, u, e in invalid]}


def check_opens(key_id, ufrag):
    sealed = base64.b64decode(ufrag[2:] + "=" * (-len(ufrag[2:]) % 4))
    try:
        AESSIV(derive(key_id, "ufrag")).decrypt(sealed, [ufrag[:2].encode()])
    except InvalidTag:
        raise SystemExit("a valid ufrag does not open")


def siphash24(key, data):
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    rotate = lambda x, n: (x << n | x >> (64 - n)) & mask  # noqa: E731

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    tail = len(data) % 8
    words = list(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) - tail]))
    words.append((len(data) & 0xFF) << 56 | int.from_bytes(data[len(data) - tail :], "little"))
    for word in words:
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


KINDS = {"packet": 0, "close": 1, "unknown_session": 2, "keepalive": 3}


def record_header(record):
    client = ipaddress.ip_address(record["client_ip"])
    flags = KINDS[record["kind"]] << 5 | (client.version == 6) | record["tcp"] << 1 | record["proven"] << 4
    tail = b""
    if record["owner_ip"]:
        owner = ipaddress.ip_address(record["owner_ip"])
        flags |= 4 | (owner.version == 6) << 3
        tail = struct.pack(">H", record["owner_port"]) + owner.packed
    fixed = struct.pack(
        ">HBBIIH",
        len(bytes.fromhex(record["payload"])),
        flags,
        record["ingress"],
        record["session"],
        record["handle"],
        record["client_port"],
    )
    return fixed + client.packed + tail


def datagram(header, records, tag_key=None):
    head = b"FH" + struct.pack(
        ">BBHHII", 1, header["shard"], header["key"], 0, header["boot"], header["sequence"]
    )
    headers = [record_header(r) for r in records]
    key = derive(header["key"], "trunk") if tag_key is None else tag_key
    tag = struct.pack(">Q", siphash24(key, head + b"".join(headers)))
    return head + tag + b"".join(h + bytes.fromhex(r["payload"]) for h, r in zip(headers, records))


def record(kind="packet", client=("198.51.100.7", 40000), payload=b"\x80payload", **more):
    fields = dict(
        kind=kind,
        client_ip=client[0],
        client_port=client[1],
        tcp=False,
        proven=False,
        ingress=0,
        session=0x01020304,
        handle=0xA0B0C0D0,
        owner_ip=None,
        owner_port=None,
        payload=payload.hex(),
    )
    return {**fields, **more}


def trunk_vectors():
    header = dict(shard=2, key=1, boot=0xDEADBEEF, sequence=7)
    v6 = ("2001:db8::9", 50000)
    cases = [
        ("one IPv4 packet", header, [record()]),
        ("one IPv6 packet under another key", {**header, "key": 300}, [record(client=v6, ingress=9)]),
        ("several records of both families", header, [
            record(payload=b"\x90" * 60),
            record(client=v6, proven=True, payload=b""),
            record(kind="close", payload=b""),
            record(kind="unknown_session", client=v6, payload=b""),
            record(tcp=True, payload=b"\x16" * 3),
        ]),
        ("owner follows, IPv4", header, [record(owner_ip="10.0.0.7", owner_port=5000)]),
        ("owner follows, IPv6 client and owner", header, [record(client=v6, owner_ip="fd00::7", owner_port=5000)]),
        ("keepalive", header, [record(kind="keepalive", payload=b"12345678")]),
        ("largest numbers", dict(shard=255, key=1, boot=2**32 - 1, sequence=2**32 - 1), [
            record(client=("255.255.255.254", 65535), ingress=255, session=2**32 - 1, handle=2**32 - 1),
        ]),
    ]
    valid = [
        dict(name=n, header=h, records=r, datagram=datagram(h, r).hex()) for n, h, r in cases
    ]
    good = datagram(header, [record()])
    flip = lambda data, at, bit=1: data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]  # noqa: E731
    mapped = datagram(header, [record(client=("::ffff:198.51.100.7", 40000))])
    invalid = [
        ("empty", b"", "length"),
        ("header alone", good[:24], "length"),
        ("cut in the record header", good[:40], "length"),
        ("longer than any datagram", good + bytes(9000), "length"),
        ("wrong magic", flip(good, 0), "magic"),
        ("wrong version", flip(good, 2, 3), "magic"),
        ("reserved bytes set", flip(good, 7), "magic"),
        ("unknown key", flip(good, 5, 2), "unknown_key"),
        ("key id 511", good[:4] + b"\x01\xff" + good[6:], "unknown_key"),
        ("shard altered", flip(good, 3), "tag"),
        ("boot id altered", flip(good, 8), "tag"),
        ("sequence altered", flip(good, 15), "tag"),
        ("tag altered", flip(good, 23), "tag"),
        ("ingress altered", flip(good, 27), "tag"),
        ("client altered", flip(good, 40), "tag"),
        ("tagged by a stranger", datagram(header, [record()], bytes(16)), "tag"),
        ("payload cut", good[:-1], "record"),
        ("one byte behind the last record", good + b"\0", "record"),
        ("payload length too large", flip(good, 25, 64), "record"),
        ("unknown record type", flip(good, 26, 0x80), "record"),
        ("IPv6 owner flag without an owner", flip(good, 26, 8), "record"),
        ("IPv4-mapped client", mapped, "record"),
        ("more than 128 records", datagram(header, [record(kind="close", payload=b"")] * 129), "record"),
    ]
    return {"valid": valid, "invalid": [dict(name=n, datagram=d.hex(), error=e) for n, d, e in invalid]}


def attribute(kind, value):
    return struct.pack(">HH", kind, len(value)) + value + bytes(-len(value) % 4)


def stun(kind, attributes, password=None, fingerprint=True, cookie=0x2112A442, after=b""):
    def head(length):
        return struct.pack(">HHI", kind, length, cookie) + bytes(range(12))

    body = b"".join(attribute(k, v) for k, v in attributes)
    if password is not None:
        mac = hmac.digest(password, head(len(body) + 24) + body, hashlib.sha1)
        body += attribute(0x0008, mac)
    body += after
    if fingerprint:
        crc = zlib.crc32(head(len(body) + 8) + body) ^ 0x5354554E
        body += attribute(0x8028, struct.pack(">I", crc))
    return head(len(body)) + body


def stun_vectors():
    password = b"a password of an agent"
    username = (0x0006, b"serverfrag:clientfrag")
    check = [username, (0x0024, struct.pack(">I", 0x6E0001FF)), (0x802A, bytes(8)), (0x0025, b"")]
    good = stun(0x0001, check, password)
    valid = [
        ("a check that nominates", good, dict(
            stun_class="request", method=1, username="serverfrag:clientfrag", use_candidate=True,
            integrity=True, fingerprint=True)),
        ("no fingerprint", stun(0x0001, [username], password, fingerprint=False), dict(
            stun_class="request", method=1, username="serverfrag:clientfrag", use_candidate=False,
            integrity=True, fingerprint=None)),
        ("wrong integrity", stun(0x0001, check, b"another password"), dict(
            stun_class="request", method=1, username="serverfrag:clientfrag", use_candidate=True,
            integrity=False, fingerprint=True)),
        ("no attributes", stun(0x0001, [], fingerprint=False), dict(
            stun_class="request", method=1, username=None, use_candidate=False, integrity=False, fingerprint=None)),
        ("indication", stun(0x0011, []), dict(
            stun_class="indication", method=1, username=None, use_candidate=False, integrity=False, fingerprint=True)),
        ("success response", stun(0x0101, [(0x0020, bytes(8))], password), dict(
            stun_class="success", method=1, username=None, use_candidate=False, integrity=True, fingerprint=True)),
        ("error response", stun(0x0111, [(0x0009, b"\0\0\x04\x87")], password), dict(
            stun_class="error", method=1, username=None, use_candidate=False, integrity=True, fingerprint=True)),
        ("allocate, of TURN", stun(0x0003, []), dict(
            stun_class="request", method=3, username=None, use_candidate=False, integrity=False, fingerprint=True)),
        ("largest method", stun(0x3EEF, []), dict(
            stun_class="request", method=0xFFF, username=None, use_candidate=False, integrity=False, fingerprint=True)),
        ("username behind the integrity does not count", stun(0x0001, [], password, after=attribute(*username)), dict(
            stun_class="request", method=1, username=None, use_candidate=False, integrity=True, fingerprint=True)),
        ("the first of two usernames counts", stun(0x0001, [username, (0x0006, b"x:y")], password), dict(
            stun_class="request", method=1, username="serverfrag:clientfrag", use_candidate=False,
            integrity=True, fingerprint=True)),
        ("wrong fingerprint", good[:-1] + bytes([good[-1] ^ 1]), dict(
            stun_class="request", method=1, username="serverfrag:clientfrag", use_candidate=True,
            integrity=True, fingerprint=False)),
    ]
    invalid = [
        ("empty", b""),
        ("cut header", good[:19]),
        ("cut by a byte", good[:-1]),
        ("a byte too long", good + b"\0"),
        ("wrong cookie", stun(0x0001, check, password, cookie=0x2112A443)),
        ("top bits set", b"\x80" + good[1:]),
        ("length not a multiple of four", good[:3] + bytes([good[3] + 1]) + good[4:] + b"\0"),
        ("attribute beyond the end", stun(0x0001, [], fingerprint=False)[:2] + b"\0\4" + good[4:20] + b"\0\6\0\5"),
        ("integrity of the wrong length", stun(0x0001, [(0x0008, bytes(16))])),
        ("fingerprint not last", stun(0x0001, [(0x8028, bytes(4)), username], password)),
        ("more than 32 attributes", stun(0x0001, [(0x8022, b"")] * 33, fingerprint=False)),
    ]
    return {
        "password": password.decode(),
        "transaction": bytes(range(12)).hex(),
        "valid": [dict(name=n, message=m.hex(), **rest) for n, m, rest in valid],
        "invalid": [dict(name=n, message=m.hex()) for n, m in invalid],
    }


def key_vectors():
    return {
        "masters": [{"id": key_id, "secret": b64(secret)} for key_id, secret in MASTERS.items()],
        "derived": [
            {"id": key_id, "label": label, "key": derive(key_id, label).hex()}
            for key_id in MASTERS
            for label in LENGTHS
        ],
        "data_keyring": keyring(1, ["ufrag", "ice", "trunk"]),
        "api_keyring": keyring(1, ["call", "secret"]),
    }


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    for name, make in [("keys", key_vectors), ("ufrag", ufrag_vectors), ("trunk", trunk_vectors), ("stun", stun_vectors)]:
        (folder / f"{name}.json").write_text(json.dumps(make(), indent=1) + "\n")


if __name__ == "__main__":
    main()
