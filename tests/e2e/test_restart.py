"""The relay dies in the middle of a call and comes back."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from firsthop.audio import RATE, Samples
from firsthop.caller import Caller
from firsthop.capture import Packet, capture
from firsthop.namespaces import Testbed
from firsthop.stack import Stack
from test_call import alike

#: How long after the check that heals the path the first packet may take to come back: one round trip on this machine,
#: and what a busy one may add.
ROUND_TRIP_SECONDS = 3.0

#: The client checks every 4 to 6 seconds.
CHECK_SECONDS = 8.0


def to_client(packet: Packet) -> bool:
    return packet.is_rtp() and packet.is_downlink()


def to_server(packet: Packet) -> bool:
    return packet.is_check() and packet.is_uplink()


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1)])
def test_audio_flows_again_after_the_relay_was_killed(
    stack: Stack, caller: Callable[..., Caller], spoken: Samples, before: int, after: int
) -> None:
    stack.relay_settings["cores"] = str(before)
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(repeat=True)
        call.call()
        call.speak()
        call.wait_for_heard(2, 15)

        assert stack.relay is not None
        stack.relay.kill()
        killed = time.monotonic()
        stack.relay_settings["cores"] = str(after)
        stack.start_relay()
        ready = time.monotonic()

        # Whichever comes first heals: a downlink packet of the owner, or the client's next check.
        check = wire.wait_for("the client's next check", to_server, CHECK_SECONDS, since=ready)
        audio_again = wire.wait_for("audio to the client", to_client, ROUND_TRIP_SECONDS, since=ready)
        assert audio_again.time <= check.time + ROUND_TRIP_SECONDS

        # What the caller hears now is what it says now: the uplink works too, not only what was left in the playout.
        heard = call.listen(4, 15)[-3 * RATE :]
        assert alike(heard, np.concatenate([spoken, spoken]))

        assert wire.packets(Packet.is_handshake, since=killed) == [], "there was a new DTLS handshake"
        assert call.states == ["connecting", "connected"]
        assert stack.sessions() == 1
        assert stack.sessions_created() == 1


def test_a_call_outlives_consent_after_the_relay_was_killed(stack: Stack, caller: Callable[..., Caller]) -> None:
    """Consent expires after 30 seconds (RFC 7675): a path that only looks healed would be given up by then."""
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(repeat=True)
        call.call()
        call.speak()
        call.wait_for_heard(1, 15)
        assert stack.relay is not None
        stack.relay.kill()
        stack.start_relay()
        ready = time.monotonic()
        wire.wait_for("audio after consent would have expired", to_client, 45, since=ready + 35)
        assert call.states == ["connecting", "connected"]
        assert stack.sessions() == 1
