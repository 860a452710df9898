"""One call from offer to hang-up."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from firsthop import audio
from firsthop.audio import RATE, Samples
from firsthop.caller import Caller
from firsthop.capture import Packet, capture, missing
from firsthop.namespaces import Testbed
from firsthop.stack import UDP_PORT, Stack
from firsthop.waiting import until

#: The events of one turn with the echo backend, in the order that its documentation promises.
ONE_TURN = [
    "session.created",
    "input_audio_buffer.speech_started",
    "output_audio_buffer.started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "output_audio_buffer.stopped",
]


def alike(said: Samples, heard: Samples) -> bool:
    """Whether what was heard is what was said, after two passes through Opus: second by second, for the most part."""
    pieces = audio.likeness(said, heard)
    print("likeness by seconds:", [round(piece, 2) for piece in pieces])
    return float(np.median(pieces)) > 0.65


def test_a_caller_hears_itself_through_the_relay_alone(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples
) -> None:
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(samples=sentence)
        call.call()
        call.speak()
        call.wait_for_event("output_audio_buffer.stopped", 20)
        heard = call.heard()

        assert call.event_types() == ONE_TURN
        assert alike(sentence, heard)

        assert call.selected_pair()[1] in call.candidates()
        # Whoever the client spoke with or heard of was one of the relay's public addresses.
        ends = {address for packet in wire.packets() for address in (packet.source, packet.destination)}
        servers = {address for address in ends if address[0] not in (Testbed.CLIENT, Testbed.CLIENT_V6)}
        assert servers <= set(call.candidates())
        assert missing(wire.packets(lambda packet: packet.is_rtp() and packet.is_uplink())) == 0
        assert missing(wire.packets(lambda packet: packet.is_rtp() and packet.is_downlink())) == 0
    assert stack.bed.refused() == 0, "something knocked at a port of the server that is not public"


@pytest.mark.parametrize(("codec", "payload_type"), [("audio/PCMU", 0), ("audio/PCMA", 8)])
def test_a_caller_with_one_law_of_g711_alone_hears_itself(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, codec: str, payload_type: int
) -> None:
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(samples=sentence, codec=codec)
        offer = call.offer()
        assert f"m=audio 9 UDP/TLS/RTP/SAVPF {payload_type}" in re.sub(r"m=audio \d+", "m=audio 9", offer)
        assert call.post(offer).status == 201
        assert call.answer is not None
        assert re.search(rf"^m=audio \d+ UDP/TLS/RTP/SAVPF {payload_type}\r?$", call.answer.body, re.MULTILINE)
        call.accept()
        call.wait_for_state("connected", 30)
        call.wait_for_event("session.created", 30)
        call.speak()
        call.wait_for_event("output_audio_buffer.stopped", 20)
        assert call.event_types() == ONE_TURN
        assert alike(audio.telephone(sentence), audio.telephone(call.heard()))
        for way in (Packet.is_uplink, Packet.is_downlink):
            packets = wire.packets(lambda packet, way=way: packet.is_rtp() and way(packet))
            assert len(packets) > 50
            assert {packet.payload[1] & 0x7F for packet in packets} == {payload_type}
            assert missing(packets) == 0


def test_hanging_up_ends_session_and_flow(stack: Stack, caller: Callable[..., Caller]) -> None:
    stack.start()
    call = caller()
    call.call()
    assert stack.sessions() == 1
    until("the relay has a flow", lambda: stack.flows() >= 1, 5)

    assert call.hang_up().status == 200
    until("the session is gone", lambda: stack.sessions() == 0, 5)
    until("its flows are gone", lambda: stack.flows() == 0, 5)
    again = call.hang_up()
    assert again.status == 404
    assert again.error()["code"] == "call_not_found"


def test_a_client_that_closes_ends_session_and_flow(stack: Stack, caller: Callable[..., Caller]) -> None:
    stack.start()
    call = caller()
    call.call()
    call.close()
    until("the session is gone", lambda: stack.sessions() == 0, 5)
    until("its flows are gone", lambda: stack.flows() == 0, 5)


@pytest.mark.parametrize("address", [Testbed.SERVER, Testbed.SERVER_SECOND, Testbed.SERVER_V6])
def test_a_call_works_through_each_advertised_address(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, address: str
) -> None:
    stack.start()
    call = caller(samples=sentence)
    assert call.post(call.offer()).status == 201
    assert (address, UDP_PORT) in call.candidates()
    call.accept(call.answer_with_only(address))
    call.wait_for_state("connected", 20)
    call.wait_for_event("session.created", 20)
    call.speak()
    call.wait_for_event("output_audio_buffer.stopped", 20)
    assert call.selected_pair()[1] == (address, UDP_PORT)
    assert alike(sentence, call.heard())


def test_two_calls_at_once_do_not_hear_each_other(
    stack: Stack, caller: Callable[..., Caller], spoken: Samples, sentence: Samples
) -> None:
    stack.transceiver_settings["workers"] = "2"
    stack.relay_settings["cores"] = "2"
    stack.start()
    first, second = caller(samples=sentence), caller(samples=spoken[: 4 * RATE])
    for call in (first, second):
        call.call()
        call.speak()
    for call in (first, second):
        call.wait_for_event("output_audio_buffer.stopped", 20)
    assert alike(sentence, first.heard())
    assert alike(spoken[: 4 * RATE], second.heard())
    assert not alike(sentence, second.heard())
