"""The keys are rotated while calls go on."""

import time
from collections.abc import Callable

from firsthop import session
from firsthop.caller import Caller
from firsthop.capture import capture
from firsthop.namespaces import UDP_PORT, Testbed
from firsthop.stack import Stack
from firsthop.waiting import until
from test_addresses import answered, open_socket

#: Files are looked at once a second.
RELOAD_SECONDS = 10.0


def rotate(stack: Stack, step: int, *arguments: str) -> None:
    """Takes one step of the keys tool and waits until all three programs have read the new keyring."""
    stack.keys(*arguments)
    for program in (stack.relay, stack.transceiver):
        assert program is not None
        until(
            f"{program.name} has reloaded",
            lambda p=program: p.count('"file reloaded","setting":"keyring"') >= step,
            RELOAD_SECONDS,
        )
    reloads = "firsthop_signaling_file_reloads_total"
    # Signaling reads the API keyring too, which is written with the other.
    until("signaling has reloaded", lambda: stack.signaling_metrics().total(reloads) >= 2 * step, RELOAD_SECONDS)


def test_keys_rotate_and_no_call_drops(stack: Stack, caller: Callable[..., Caller]) -> None:
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        old = caller(repeat=True)
        old.call()
        old.speak()
        old.wait_for_heard(1, 15)

        rotate(stack, 1, "add")
        rotate(stack, 2, "activate", "2")
        new = caller(repeat=True)
        new.call()
        new.speak()
        assert old.server_credentials()[0][:2] != new.server_credentials()[0][:2], "both ufrags name the same key"

        # The old call goes on under the new trunk key: sound comes, and its checks under the old key are answered.
        rotated = time.monotonic()
        check = wire.wait_for(
            "a check of the old call",
            lambda packet: packet.is_check() and packet.is_uplink() and packet.source == old.selected_pair()[0],
            10,
            since=rotated,
        )
        wire.wait_for(
            "its answer",
            lambda packet: packet.is_downlink() and packet.payload[8:20] == check.payload[8:20],
            2,
            since=check.time,
        )
        old.listen(2, 10)
        new.listen(2, 10)
    assert old.states == ["connecting", "connected"]


def test_what_was_minted_with_a_removed_key_is_refused(stack: Stack) -> None:
    stack.start()
    call = stack.bed.client.call(lambda: session.create(stack.url))
    ingress = (Testbed.SERVER, UDP_PORT)

    def check() -> None:
        with open_socket() as sock:
            answered(sock, call, ingress)

    stack.bed.client.call(check)
    rotate(stack, 1, "add")
    rotate(stack, 2, "activate", "2")
    stack.bed.client.call(check)
    rotate(stack, 3, "remove", "1")

    def refused() -> None:
        with open_socket() as sock:
            sock.sendto(call.check(), ingress)

    before = stack.dropped("ufrag_unknown_key")
    stack.bed.client.call(refused)
    until("it is dropped for its key", lambda: stack.dropped("ufrag_unknown_key") == before + 1, 5)
