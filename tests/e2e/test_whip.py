"""WHIP sessions, and ICE restarts by a fragment, through signaling, owner and relay."""

import re
import secrets
from collections.abc import Callable

import pytest

from firsthop import session
from firsthop.caller import Answer, request
from firsthop.namespaces import Testbed
from firsthop.session import RawSession
from firsthop.stack import UDP_PORT, Stack
from firsthop.waiting import until
from test_addresses import answered, open_socket

FRAGMENT = "application/trickle-ice-sdpfrag"
INGRESS = (Testbed.SERVER, UDP_PORT)


def whip_offer(ufrag: str, password: str) -> str:
    """An offer of audio alone that the client sends."""
    whole = session.plain_offer(ufrag, password)
    audio = whole[: whole.index("m=application")]
    return audio.replace("a=sendrecv", "a=sendonly").replace("BUNDLE 0 1", "BUNDLE 0")


def ask(
    stack: Stack, method: str, path: str, body: str = "", kind: str | None = "application/sdp", **headers: str
) -> Answer:
    return stack.bed.client.call(lambda: request(stack.url, method, path, body, kind, headers=headers))


def credentials(sdp: str) -> tuple[str, str]:
    ufrag = re.search(r"^a=ice-ufrag:(\S+)", sdp, re.MULTILINE)
    password = re.search(r"^a=ice-pwd:(\S+)", sdp, re.MULTILINE)
    assert ufrag, sdp
    assert password, sdp
    return ufrag[1], password[1]


@pytest.mark.parametrize(("path", "offer"), [("/whip/notes", whip_offer), ("/v1/realtime/calls", session.plain_offer)])
def test_a_fragment_restarts_ice_and_the_relay_routes_by_the_new_ufrag(
    shared_stack: Stack, path: str, offer: Callable[[str, str], str]
) -> None:
    stack = shared_stack
    client = secrets.token_hex(4), secrets.token_hex(12)
    made = ask(stack, "POST", path, offer(*client))
    assert made.status == 201, made.body
    location = made.headers["location"]
    first = RawSession(location, *credentials(made.body), *client)
    sock = stack.bed.client.call(open_socket)
    with sock:
        answered(sock, first, INGRESS)

        fresh = secrets.token_hex(4), secrets.token_hex(12)
        fragment = f"a=ice-ufrag:{fresh[0]}\r\na=ice-pwd:{fresh[1]}\r\n"
        restarted = ask(stack, "PATCH", location, fragment, FRAGMENT, **{"If-Match": "*"})
        assert restarted.status == 200, restarted.body
        assert restarted.headers["content-type"] == FRAGMENT
        assert restarted.headers["etag"] != made.headers.get("etag")
        second = RawSession(location, *credentials(restarted.body), *fresh)
        assert second.ufrag != first.ufrag
        assert restarted.body.count("a=candidate:") == made.body.split("m=application")[0].count("a=candidate:")
        answered(sock, second, INGRESS)

        trickled = ask(stack, "PATCH", location, fragment, FRAGMENT, **{"If-Match": restarted.headers["etag"]})
        assert trickled.status == 204
        stale = ask(stack, "PATCH", location, fragment, FRAGMENT, **{"If-Match": '"ice-0"'})
        assert stale.status == 412
    assert ask(stack, "DELETE", location, kind=None).status == 200
    until("the session is gone", lambda: stack.sessions() == 0, 5)


def test_a_whip_session_is_listened_to_and_refused_whole_or_not_at_all(shared_stack: Stack) -> None:
    client = secrets.token_hex(4), secrets.token_hex(12)
    good = whip_offer(*client)
    made = ask(shared_stack, "POST", "/whip/notes", good)
    assert made.status == 201, made.body
    assert "a=recvonly" in made.body
    assert made.body.count("m=") == 1
    assert ask(shared_stack, "DELETE", made.headers["location"], kind=None).status == 200
    video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\na=rtpmap:96 VP8/90000\r\n"
    for offer in (
        good + video,
        session.plain_offer(*client),
        good.replace("a=sendonly", "a=recvonly"),
        good.replace("opus", "speex"),
    ):
        refused = ask(shared_stack, "POST", "/whip/notes", offer)
        assert refused.status == 422, refused.body
        assert refused.error()["code"] == "unsupported_offer"
        assert refused.error()["message"]
    until("no session is left", lambda: shared_stack.sessions() == 0, 5)
