"""Who owns an address: several ingress addresses for one client, several sessions for one address."""

import socket
import time
from collections.abc import Callable

import numpy as np

from firsthop import session, stun
from firsthop.audio import RATE, Samples
from firsthop.caller import Caller
from firsthop.capture import capture, missing
from firsthop.namespaces import Testbed
from firsthop.session import RawSession
from firsthop.stack import UDP_PORT, Stack
from firsthop.waiting import until
from test_call import alike

INGRESSES = [(Testbed.SERVER, UDP_PORT), (Testbed.SERVER_SECOND, UDP_PORT)]
ANSWER_SECONDS = 5.0


def answered(sock: socket.socket, call: RawSession, ingress: tuple[str, int]) -> tuple[str, int]:
    """Sends a check and awaits its answer, which must come from the address that was hit; returns what was mapped.

    The server's own checks, which come meanwhile, are passed over. Lost packets are sent again: UDP promises nothing.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        request = call.check()
        sock.sendto(request, ingress)
        sock.settimeout(0.5)
        try:
            while True:
                packet, source = sock.recvfrom(2048)
                message = stun.parse(packet)
                if message.kind == stun.BINDING_SUCCESS and message.transaction == request[8:20]:
                    assert source == ingress, f"asked {ingress}, answered from {source}"
                    return message.mapped_address()
        except TimeoutError:
            continue
    raise AssertionError(f"no answer from {ingress}")


def open_socket() -> socket.socket:
    """A UDP socket of the client."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((Testbed.CLIENT, 0))
    return made


def test_one_socket_is_answered_by_each_ingress_from_the_address_that_it_hit(stack: Stack) -> None:
    stack.start()

    def client() -> None:
        call = session.create(stack.url)
        with open_socket() as sock:
            for ingress in INGRESSES * 2:
                assert answered(sock, call, ingress) == sock.getsockname()

    stack.bed.client.call(client)
    until("one socket at two ingress addresses is two flows", lambda: stack.flows() == 2, 5)


def test_the_ufrag_of_a_request_wins_over_the_flow_of_its_address(stack: Stack) -> None:
    stack.start()

    def client() -> None:
        first, second = session.create(stack.url), session.create(stack.url)
        with open_socket() as sock:
            for call in (first, second, first, second, second, first):
                answered(sock, call, INGRESSES[0])

    stack.bed.client.call(client)


def test_a_forged_claim_on_the_address_of_a_live_call_costs_it_nothing(
    stack: Stack, caller: Callable[..., Caller], spoken: Samples
) -> None:
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(repeat=True)
        assert call.post(call.offer()).status == 201
        call.accept(call.answer_with_only(Testbed.SERVER))
        call.wait_for_state("connected", 20)
        call.speak()
        call.wait_for_heard(1, 15)
        local, remote = call.selected_pair()
        other = stack.bed.client.call(lambda: session.create(stack.url))

        checks = stack.verified_checks()
        began = time.monotonic()
        sent = 0
        heard = call.seconds_heard()
        # A hundred forged checks of the other session while the call speaks for four seconds more, at least.
        while sent < 100 or call.seconds_heard() < heard + 4:
            assert time.monotonic() < began + 20, "the call went silent"
            if sent < 100:
                stack.bed.stranger.call(lambda: session.send_forged(local, remote, other.check()))
                sent += 1
            call.wait_for_heard(call.seconds_heard() + 0.01, 5)
        # Nobody has answered for the other session, which is forgotten when it does not connect.
        until("the forged checks are counted as verified", lambda: stack.verified_checks() >= checks + sent, 5)
        assert stack.transceiver_metrics().total("firsthop_transceiver_sessions", state="connecting") == 1
        assert stack.sessions() == 2

        up = wire.packets(lambda packet: packet.is_rtp() and packet.source == local, since=began)
        down = wire.packets(lambda packet: packet.is_rtp() and packet.destination == local, since=began)
        assert len(up) > 150
        assert len(down) > 150
        assert missing(down) == 0, "audio to the client was lost"
        assert wire.packets(lambda packet: packet.is_handshake(), since=began) == []
        # What came back is what was said, second by second: the uplink lost nothing either.
        tail = call.heard()[-4 * RATE :]
        assert alike(tail, np.concatenate([spoken, spoken]))
        # The forged checks were routed to their own session, not dropped before it.
        assert stack.relay_metrics().total("firsthop_relay_drops_total") == 0
    assert call.states == ["connecting", "connected"]
