"""What a client may send by mistake or malice, over HTTP and UDP."""

import os
import re

import pytest

from firsthop import session
from firsthop.caller import Answer, request
from firsthop.namespaces import Testbed
from firsthop.stack import UDP_PORT, Stack
from firsthop.waiting import until
from test_addresses import answered, open_socket

CALLS = "/v1/realtime/calls"
OFFER = session.plain_offer("abcd", "0123456789abcdef01234567")


def ask(stack: Stack, body: str, content_type: str | None = "application/sdp", key: str | None = "dev") -> Answer:
    return stack.bed.client.call(lambda: request(stack.url, "POST", CALLS, body, content_type, key))


@pytest.mark.parametrize(
    ("body", "content_type", "key", "status"),
    [
        ("", "application/sdp", "dev", 400),
        ("hello", "application/sdp", "dev", 400),
        ("v=0\r\n", "application/sdp", "dev", 400),
        (OFFER.replace("a=fingerprint", "a=finger"), "application/sdp", "dev", 400),
        (OFFER.replace("a=ice-pwd", "a=ice"), "application/sdp", "dev", 400),
        (OFFER[: len(OFFER) // 3], "application/sdp", "dev", 400),
        (OFFER.replace("sha-256", "sha-3"), "application/sdp", "dev", 400),
        (re.sub(r"(sha-256 ..):..", r"\1", OFFER), "application/sdp", "dev", 400),
        (OFFER.replace("a=setup:actpass", "a=setup:bogus"), "application/sdp", "dev", 400),
        (OFFER.replace("a=mid:0", "a=mid:\x01"), "application/sdp", "dev", 400),
        (re.sub(r"a=sctp-port:\d+", "a=sctp-port:65536", OFFER), "application/sdp", "dev", 400),
        (re.sub(r"(m=\w+) \d+", r"\1 0", OFFER), "application/sdp", "dev", 422),
        (OFFER, "text/plain", "dev", 415),
        (OFFER, None, "dev", 415),
        (OFFER, "application/sdp", "wrong", 401),
        (OFFER, "application/sdp", "", 401),
        (OFFER, "application/sdp", None, 401),
        (OFFER + "a=" + "x" * 200_000, "application/sdp", "dev", 413),
    ],
)
def test_a_bad_request_is_refused_with_a_reason(
    shared_stack: Stack, body: str, content_type: str | None, key: str | None, status: int
) -> None:
    answer = ask(shared_stack, body, content_type, key)
    assert answer.status == status, answer.body
    error = answer.error()
    assert error["message"]
    assert error["code"]
    assert error["type"] == "invalid_request_error"
    assert shared_stack.sessions() == 0


def test_an_unknown_call_is_not_found(shared_stack: Stack) -> None:
    for call_id in ("rtc_nonsense", "rtc_" + "A" * 64, "x"):
        answer = shared_stack.bed.client.call(
            lambda call_id=call_id: request(shared_stack.url, "POST", f"{CALLS}/{call_id}/hangup", "", None)
        )
        assert answer.status == 404
        assert answer.error()["code"] == "call_not_found"


def test_whatever_is_not_of_a_call_is_dropped_counted_and_never_answered(shared_stack: Stack) -> None:
    stack = shared_stack
    call = stack.bed.client.call(lambda: session.create(stack.url))
    check = call.check()
    flipped = bytearray(check)
    flipped[-20] ^= 1
    packets: dict[str, list[bytes]] = {
        "empty": [b""],
        "unknown_class": [b"\x04hello", b"\xff" * 100, b"G"],
        "stun_malformed": [b"\x00\x01", b"\x00\x01" + os.urandom(30), check[:19], check[:-3]],
        "stun_method": [b"\x00\x03" + check[2:]],
        "stun_no_ufrag": [b"\x00\x01\x00\x00" + check[4:20]],
        "no_flow_dtls": [b"\x16\xfe\xff" + bytes(60)],
        "no_flow_rtp": [b"\x80\x6f" + bytes(170)],
        "no_flow_stun": [b"\x01\x01\x00\x00" + check[4:20], b"\x00\x11\x00\x00" + check[4:20]],
        "oversize": [b"\x80" + bytes(1_999)],
        "ufrag_length": [session_with(call.ufrag[:-1], call)],
        "ufrag_forged": [session_with(call.ufrag[:-1] + ("A" if call.ufrag[-1] != "A" else "B"), call)],
    }
    before = {reason: stack.dropped(reason) for reason in packets}

    def client() -> None:
        with open_socket() as unknown, open_socket() as known:
            for several in packets.values():
                for packet in several:
                    unknown.sendto(packet, (Testbed.SERVER, UDP_PORT))
            # The packets of one socket keep their order, and both went through one relay core: once this is
            # answered, all that would have been answered before it has been.
            answered(known, call, (Testbed.SERVER, UDP_PORT))
            until("all are counted", counted, 5)
            unknown.setblocking(False)
            with pytest.raises(BlockingIOError):
                unknown.recvfrom(2048)

    def counted() -> bool:
        return all(stack.dropped(reason) - before[reason] == len(packets[reason]) for reason in packets)

    stack.bed.client.call(client, timeout=60)


def session_with(ufrag: str, call: session.RawSession) -> bytes:
    """A check of a call with another server ufrag."""
    return session.RawSession(call.location, ufrag, call.password, call.client_ufrag, call.client_password).check()


def test_a_check_with_the_wrong_password_is_dropped(shared_stack: Stack) -> None:
    stack = shared_stack
    call = stack.bed.client.call(lambda: session.create(stack.url))
    forged = session.RawSession(call.location, call.ufrag, "x" * 24, call.client_ufrag, call.client_password)
    before = stack.dropped("stun_integrity")

    def client() -> None:
        with open_socket() as sock:
            sock.sendto(forged.check(), (Testbed.SERVER, UDP_PORT))
            until("it is counted", lambda: stack.dropped("stun_integrity") == before + 1, 5)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recvfrom(2048)

    stack.bed.client.call(client)


def test_a_full_transceiver_is_503_with_retry_after(stack: Stack) -> None:
    stack.transceiver_settings["sessions-per-worker"] = "1"
    stack.start()
    assert ask(stack, OFFER).status == 201
    refused = ask(stack, OFFER)
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    assert refused.error()["type"] == "server_error"


def test_without_a_transceiver_calls_are_503_until_one_comes(stack: Stack) -> None:
    stack.bed.admit_only(UDP_PORT, 8080)
    stack.start_relay()
    stack.signaling = stack.launch("signaling", stack.signaling_settings)
    until("signaling answers", lambda: healthy(stack), 15)
    refused = ask(stack, OFFER)
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    assert not stack.signaling_ready()

    stack.start_transceiver()
    until("signaling is ready", stack.signaling_ready, 15)
    assert ask(stack, OFFER).status == 201


def healthy(stack: Stack) -> bool:
    try:
        return bool(stack.bed.client.call(lambda: request(stack.url, "GET", "/healthz")).status == 200)
    except OSError:
        return False
