#!/usr/bin/env python3
"""Writes the golden vectors of Firsthop's call ids and client secrets.

This is a second implementation, written from the format description and sharing no code with the Rust one, so that the
vectors test both. It needs the `cryptography` package. Usage: generate.py [folder]
"""

import base64
import hashlib
import ipaddress
import json
import pathlib
import struct
import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MASTERS = {1: bytes(range(32)), 300: bytes(range(100, 132))}


def derive(key_id, label):
    info = f"{label} {key_id}".encode()
    return HKDF(hashes.SHA256(), 32, b"firsthop/1", info).derive(MASTERS[key_id])


def b64(data):
    return base64.b64encode(data).decode()


def keyring():
    text = "active = 1\n"
    for key_id in MASTERS:
        text += f"\n[[key]]\nid = {key_id}\n"
        text += "".join(f'{label} = "{b64(derive(key_id, label))}"\n' for label in ("call", "secret"))
    return text


def head(bits):
    return "rtc_" + ALPHABET[bits >> 6] + ALPHABET[bits & 63]


def seal_under(key, bits, plain):
    sealed = AESSIV(key).encrypt(plain, [head(bits).encode()])
    return head(bits) + base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def seal(key_id, call):
    control = ipaddress.ip_address(call["control_ip"])
    plain = struct.pack(">HHIQ", call["cluster"], call["control_port"], call["session"], call["created"])
    plain += hashlib.sha256(call["tenant"].encode()).digest()[:10] + struct.pack(">Q", call["secret"])
    bits = (control.version == 6) << 9 | key_id
    return seal_under(derive(key_id, "call"), bits, plain + control.packed)


def write(name, content):
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    (folder / name).write_text(json.dumps(content, indent=1) + "\n")


def secret_head(bits):
    return "ek_" + ALPHABET[bits >> 6] + ALPHABET[bits & 63]


def secret_under(key, bits, plain):
    sealed = AESSIV(key).encrypt(plain, [secret_head(bits).encode()])
    return secret_head(bits) + base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def client_secrets():
    short = dict(key="dev", created=1_790_000_000, expires=1_790_000_600, nonce=7)
    # In the order of the format description; objects within the session are sorted by name.
    full = dict(
        key="shop@example",
        created=1_790_000_000,
        expires=1_790_007_200,
        nonce=2**64 - 1,
        session={"audio": {"output": {"voice": "marin"}}, "instructions": "Sprich höflich.", "type": "realtime"},
        max_seconds=900,
        origins=["https://shop.example"],
    )
    text = lambda claims: json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode()  # noqa: E731
    valid = [
        dict(key=key_id, claims=claims, secret=secret_under(derive(key_id, "secret"), key_id, text(claims)))
        for key_id, claims in [(1, short), (300, full)]
    ]
    good = valid[0]["secret"]
    other = lambda c: "A" if c != "A" else "B"  # noqa: E731
    invalid = [
        ("empty", "", "prefix"),
        ("no prefix", good[3:], "prefix"),
        ("prefix of another kind", "rtc_" + good[3:], "prefix"),
        ("prefix alone", "ek_", "length"),
        ("one character of K", "ek_A", "length"),
        ("shorter than a tag", good[:21], "length"),
        ("standard alphabet", good[:20] + "+" + good[21:], "alphabet"),
        ("padding", good + "=", "alphabet"),
        ("unknown version", secret_head(1 << 9 | 1) + good[5:], "version"),
        ("a key that is not in the ring", secret_head(2) + good[5:], "unknown_key"),
        ("key id 511", secret_head(511) + good[5:], "unknown_key"),
        ("another key of the ring", secret_head(300) + good[5:], "forged"),
        ("one character altered", good[:30] + other(good[30]) + good[31:], "forged"),
        ("sealed under the key of call ids", secret_under(derive(1, "call"), 1, text(short)), "forged"),
        ("not JSON", secret_under(derive(1, "secret"), 1, b"{"), "forged"),
        ("an unknown claim", secret_under(derive(1, "secret"), 1, text(dict(short, admin=True))), "forged"),
        ("without an expiry", secret_under(derive(1, "secret"), 1, text(dict(key="dev"))), "forged"),
    ]
    return {
        "api_keyring": keyring(),
        "valid": valid,
        "invalid": [dict(name=n, secret=i, error=e) for n, i, e in invalid],
    }


def main():
    shop = dict(tenant="shop", secret=0)
    page = dict(tenant="shop@example", secret=2**64 - 1)
    calls = [
        (1, dict(cluster=1, control_ip="127.0.0.1", control_port=5080, session=0x01020304, created=1_790_000_000_000)),
        (1, dict(cluster=65535, control_ip="10.255.0.9", control_port=65535, session=0xFFFFFFFF, created=2**63 - 1)),
        (300, dict(cluster=0, control_ip="192.0.2.1", control_port=1, session=0, created=0)),
        (1, dict(cluster=513, control_ip="2001:db8::7", control_port=5080, session=77, created=1_790_000_000_001)),
        (300, dict(cluster=2, control_ip="fd00::1:2", control_port=5081, session=0x0A0B0C0D, created=1)),
    ]
    calls = [(key_id, call | placed) for (key_id, call), placed in zip(calls, [shop, page, page, page, shop])]
    valid = [{"key": key_id, "call": call, "id": seal(key_id, call)} for key_id, call in calls]
    good = valid[0]["id"]
    good_v6 = valid[3]["id"]
    other = lambda c: "A" if c != "A" else "B"  # noqa: E731
    call_key = derive(1, "call")
    invalid = [
        ("empty", "", "prefix"),
        ("no prefix", good[4:], "prefix"),
        ("prefix of another kind", "ek_" + good[4:], "prefix"),
        ("prefix in capitals", "RTC_" + good[4:], "prefix"),
        ("prefix alone", "rtc_", "length"),
        ("one character short", good[:-1], "length"),
        ("one character long", good + "A", "length"),
        ("without who placed it, as ids once were", seal_under(call_key, 1, bytes(20)), "length"),
        ("IPv6 length, cut", good_v6[:-1], "length"),
        ("standard alphabet", good[:20] + "+" + good[21:], "alphabet"),
        ("padding", good[:-1] + "=", "alphabet"),
        ("alphabet, in the key id", good[:4] + "." + good[5:], "alphabet"),
        ("not ASCII", good[:-2] + "é", "alphabet"),
        ("IPv6 format on an IPv4 length", head(1 << 9 | 1) + good[6:], "format"),
        ("IPv4 format on an IPv6 length", head(1) + good_v6[6:], "format"),
        ("unknown format", head(2 << 9 | 1) + good[6:], "format"),
        ("a key that is not in the ring", head(2) + good[6:], "unknown_key"),
        ("key id 511", head(511) + good[6:], "unknown_key"),
        ("another key of the ring", head(300) + good[6:], "forged"),
        ("first character of the tag altered", good[:6] + other(good[6]) + good[7:], "forged"),
        ("last character altered", good[:-1] + other(good[-1]), "forged"),
        ("sealed by a stranger", seal_under(bytes(32), 1, bytes(38)), "forged"),
        ("sealed under the key of client secrets", seal_under(derive(1, "secret"), 1, bytes(38)), "forged"),
        (
            "sealed for another prefix",
            head(1) + base64.urlsafe_b64encode(AESSIV(call_key).encrypt(bytes(38), [head(1)[4:].encode()])).decode(),
            "forged",
        ),
    ]
    content = {
        "api_keyring": keyring(),
        "valid": valid,
        "invalid": [dict(name=n, id=i, error=e) for n, i, e in invalid],
    }
    write("call_id.json", content)
    write("client_secret.json", client_secrets())


main()
