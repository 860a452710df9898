"""Calls to a model server over a real WebSocket: the answer, the interruption, a tool call, and what breaks."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firsthop import audio, realtime_server
from firsthop.audio import RATE, Samples
from firsthop.caller import Caller
from firsthop.capture import Packet, capture, missing
from firsthop.namespaces import Testbed
from firsthop.processes import Program
from firsthop.stack import Stack
from firsthop.waiting import until

PORT = 8765
KEY = "model-server-key"


class Model:
    """The test server in the server's namespace, and its books."""

    def __init__(self, bed: Testbed, directory: Path, answer: Samples) -> None:
        self.wav = audio.resampled(answer, realtime_server.RATE, directory / "answer.wav")
        self.key_file = directory / "model-key"
        self.key_file.write_text(KEY + "\n")
        self.seconds = len(answer) / RATE
        self._bed, self._directory = bed, directory
        self.program: Program | None = None

    def settings(self) -> dict[str, str]:
        """Those of a transceiver whose calls go to it."""
        return {
            "backend": "realtime",
            "backend-url": f"ws://127.0.0.1:{PORT}/v1/realtime",
            "backend-key-file": str(self.key_file),
        }

    def start(self, *more: str) -> None:
        """Starts it, and waits until it listens."""
        arguments = [f"--port={PORT}", f"--answer={self.wav}", f"--key={KEY}", *more]
        command = self._bed.server.command(sys.executable, realtime_server.__file__, *arguments)
        self.program = Program("model server", command, self._directory / "model-server.log")
        self.program.wait_for_line("ready", 20)

    def events(self, direction: str, kind: str) -> list[tuple[float, dict[str, Any]]]:
        """The events of a type that it took ("in") or gave ("out"), each with its time."""
        assert self.program is not None
        lines = [json.loads(line) for _, line in self.program.lines if line.startswith("{")]
        return [
            (line["time"], line["event"])
            for line in lines
            if line["direction"] == direction and line["event"]["type"] == kind
        ]

    def wait_for(self, direction: str, kind: str, timeout: float = 10) -> tuple[float, dict[str, Any]]:
        """The first event of a type, when it is there."""
        return until(f"{kind} {direction}", lambda: self.events(direction, kind), timeout)[0]


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What the model answers: several seconds without a pause that would look like a gap."""
    text = "Certainly I am going to tell you all about the weather over there while you are listening to my voice"
    return audio.load(audio.speak(text, tmp_path_factory.mktemp("speech") / "told.wav"))


@pytest.fixture
def model(stack: Stack, tmp_path: Path, told: Samples) -> Iterator[Model]:
    """The server, not yet started; the stack's calls go to it."""
    made = Model(stack.bed, tmp_path, told)
    stack.transceiver_settings |= made.settings()
    yield made
    if made.program is not None:
        made.program.kill()


INTERRUPTIONS = 3

#: How long after the model's event the last packet of what it interrupts may leave, and may come after the client is
#: told of it, in seconds.
LATEST = 0.060

#: After sound that was cut comes silence. The encoder needs so many frames, the fade among them, until nothing is left
#: of the sound.
SETTLING = 5
FRAME = 0.02


def before_the_silence(packets: list[Packet]) -> list[Packet]:
    """The packets of the item that was cut: all but the silence at the end, which is seen by its size.

    None when it is not to be seen: a sender that was held up leaves silence out.
    """
    sizes = [len(packet.payload) for packet in packets]
    silent = next(n for n, size in enumerate(reversed(sizes)) if size != sizes[-1])
    return packets[: -silent - SETTLING] if silent > 1 else []


def pace(packets: list[Packet]) -> float:
    """When the last of these was due, each 20 ms after the one before.

    The beginning is taken from the packet that came soonest for its place: what keeps this machine from looking does
    not count, and what the sender sends too much of does.
    """
    return min(packet.time - FRAME * n for n, packet in enumerate(packets)) + FRAME * (len(packets) - 1)


def share_of_equal_frames(said: NDArray[np.int16], heard: NDArray[np.int_]) -> float:
    """How many of the frames in which something was said came sample by sample.

    Not all need to have: the caller's jitter buffer, when this machine is busy, drops some; also the first ones, by
    which the others have their place.
    """
    size = realtime_server.NARROW // 50
    frames = said[: len(said) // size * size].reshape(-1, size)
    loud = frames.any(axis=1)
    shares = []
    for lost in range(10):
        there = frames[lost:]
        came = np.zeros(there.size, int)
        came[: len(heard)] = heard[: there.size]
        equal = (came.reshape(-1, size) == there).all(axis=1)
        shares.append(float((equal & loud[lost:]).sum() / loud.sum()))
    return max(shares)


def test_the_answer_is_heard_without_a_gap_and_the_events_come_in_order(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, told: Samples, model: Model
) -> None:
    model.start()
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(samples=sentence)
        call.call()
        call.speak()
        call.wait_for_event("output_audio_buffer.stopped", 40)
        downlink = wire.packets(lambda packet: packet.is_rtp() and packet.is_downlink())
    types = call.event_types()
    kept = [kind for kind in types if not kind.startswith(("rate_limits", "conversation"))]
    assert kept[0] == "session.created"
    order = ["input_audio_buffer.speech_started", "input_audio_buffer.committed", "response.created"]
    assert [kind for kind in kept if kind in order] == order
    assert "response.output_audio.delta" not in types
    assert kept[-1] == "output_audio_buffer.stopped"
    # Faster than real time to us, in real time to the client.
    deltas = [time for time, _ in model.events("out", "response.output_audio.delta")]
    assert deltas[-1] - deltas[0] < model.seconds / 2
    assert missing(downlink) == 0
    heard = call.heard()
    pieces = audio.likeness(told, heard)
    print("likeness by seconds:", [round(piece, 2) for piece in pieces])
    assert float(np.median(pieces)) > 0.75
    whole, _ = audio.correlation(told, heard)
    assert whole > 0.6, "a gap anywhere would shift the rest"
    page = stack.transceiver_metrics()
    assert page.total("firsthop_transceiver_backend_connect_seconds_count") == 1
    assert page.total("firsthop_transceiver_backend_first_audio_seconds_count") == 1


def test_an_interruption_is_heard_at_once_and_the_model_is_told_what_was_said(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model
) -> None:
    model.start()
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(samples=sentence)
        call.call()
        call.speak()
        for nth in range(1, INTERRUPTIONS + 1):
            call.wait_for_event("output_audio_buffer.started", 40, nth=nth)
            call.listen(1, 20)
            call.speak()
            call.wait_for_event("output_audio_buffer.cleared", 20, nth=nth)
            call.wait_for_event("conversation.item.truncated", 20, nth=nth)
        # The conversation goes on.
        call.wait_for_event("output_audio_buffer.started", 40, nth=INTERRUPTIONS + 1)
        call.wait_for_event("output_audio_buffer.stopped", 40)
        downlink = wire.packets(lambda packet: packet.is_rtp() and packet.is_downlink())
    began = [time for time, _ in model.events("out", "response.created")]
    spoke = [time for time, _ in model.events("out", "input_audio_buffer.speech_started")]
    truncates = [event for _, event in model.events("in", "conversation.item.truncate")]
    assert len(truncates) == INTERRUPTIONS
    heard = call.times_of("input_audio_buffer.speech_started")
    assert len(heard) == len(spoke), "the client is told of whatever interrupts"
    paced, received = [], []
    for nth in range(INTERRUPTIONS):
        item = [packet for packet in downlink if began[nth] <= packet.time < began[nth + 1]]
        told_ms = truncates[nth]["audio_end_ms"]
        assert told_ms < 1000 * model.seconds
        said = before_the_silence(item)
        if not said:
            continue
        # Of what the client has: the kernel's time of the packet, and its own of the event.
        received.append(said[-1].time - heard[nth + 1])
        paced.append(pace(said) - spoke[nth + 1])
        sent_ms = 20 * (said[-1].rtp_sequence() - item[0].rtp_sequence() + 1)
        print(f"last packet {1000 * received[-1]:.1f} ms after the client is told", end=", ")
        print(f"{1000 * paced[-1]:.1f} after the model's event by its place", end="; ")
        print(f"truncated at {told_ms} ms, sent {sent_ms} ms")
        assert abs(told_ms - sent_ms) <= 40
    assert paced, "an interruption is to be seen"
    # A busy machine may keep the client from reading for once.
    assert float(np.median(received)) <= LATEST
    assert max(paced) <= LATEST


@pytest.mark.parametrize(("codec", "payload_type", "passed"), [("audio/PCMU", 0, "pcmu"), ("audio/PCMA", 8, None)])
def test_a_caller_with_one_law_of_g711_alone_talks_to_a_model(
    stack: Stack,
    caller: Callable[..., Caller],
    sentence: Samples,
    told: Samples,
    model: Model,
    codec: str,
    payload_type: int,
    passed: str | None,
) -> None:
    if passed is not None:
        stack.transceiver_settings["backend-format"] = passed
    model.start()
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(samples=sentence, codec=codec)
        call.call()
        call.speak()
        call.wait_for_event("output_audio_buffer.stopped", 40)
        for way in (Packet.is_uplink, Packet.is_downlink):
            packets = wire.packets(lambda packet, way=way: packet.is_rtp() and way(packet))
            assert {packet.payload[1] & 0x7F for packet in packets} == {payload_type}
            assert missing(packets) == 0
    assert len(model.events("out", "input_audio_buffer.committed")) == 1
    # The caller's own jitter buffer is behind.
    heard = call.wait_for_heard(len(told) / RATE - 0.2, 20)
    if passed is None:
        assert float(np.median(audio.likeness(audio.telephone(told), audio.telephone(heard)))) > 0.75
        return
    # Byte by byte what the model said.
    form = f"audio/{passed}"
    said = realtime_server.to_payload(realtime_server.load(model.wav), form)
    expected = np.array(realtime_server.to_samples(said, form))
    narrow = np.round(heard[:: RATE // realtime_server.NARROW] * 32768).astype(int)
    assert share_of_equal_frames(expected, narrow) > 0.9


def test_a_whip_client_is_listened_to_by_a_model_and_sent_nothing(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model
) -> None:
    model.start()
    stack.start()
    with capture(stack.bed.client, Testbed.CLIENT_LINK) as wire:
        call = caller(samples=sentence, whip="notes")
        assert call.post(call.offer()).status == 201
        call.accept()
        call.wait_for_state("connected", 30)
        call.speak()
        model.wait_for("out", "input_audio_buffer.committed", 40)
        answered, _ = model.wait_for("out", "response.done", 20)
        # The model's answer goes nowhere, and does not keep it from hearing the next turn.
        call.speak()
        until("a second turn", lambda: len(model.events("out", "input_audio_buffer.committed")) == 2, 40)
        assert wire.packets(lambda packet: packet.is_rtp() and packet.is_uplink(), since=answered)
        assert wire.packets(lambda packet: packet.is_rtp() and packet.is_downlink()) == []
    assert call.hang_up().status == 200
    until("the session is gone", lambda: stack.sessions() == 0, 10)
    until("the model is left", lambda: model.events("connection", "ended"), 10)


def test_a_tool_is_called_and_its_result_answered(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model
) -> None:
    model.start("--beta")
    stack.start()
    call = caller(samples=sentence)
    call.call()
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    call.send({"type": "session.update", "session": {"type": "realtime", "tools": tools}})
    call.wait_for_event("session.updated", 10)
    call.speak()
    asked = call.wait_for_event("response.function_call_arguments.done", 40)
    assert asked["name"] == "weather"
    output = {"type": "function_call_output", "call_id": asked["call_id"], "output": "sunny"}
    call.send({"type": "conversation.item.create", "item": output})
    call.send({"type": "response.create"})
    call.wait_for_event("output_audio_buffer.stopped", 40)
    assert model.events("in", "conversation.item.create")[0][1]["item"] == output
    names = set(call.event_types())
    assert "response.output_audio_transcript.done" in names, "today's name, though the server speaks the beta's"
    assert not any(name.startswith("response.audio") for name in names)


def test_a_broken_connection_is_made_again_and_the_client_is_told(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model
) -> None:
    model.start()
    stack.start()
    call = caller(samples=sentence)
    call.call()
    call.send({"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}})
    call.wait_for_event("session.updated", 10)
    call.send({"type": "test.disconnect"})
    error = call.wait_for_event("error", 10)["error"]
    assert error["code"] == "backend_disconnected"
    call.wait_for_event("session.created", 10, nth=2)
    updated = call.wait_for_event("session.updated", 10, nth=2)
    assert updated["session"]["instructions"] == "Be brief.", "the new connection knows the session"
    call.speak()
    call.wait_for_event("output_audio_buffer.stopped", 40)
    assert stack.transceiver_metrics().total("firsthop_transceiver_backend_reconnects_total") == 1


def test_a_server_that_refuses_ends_the_call_with_a_reason(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model
) -> None:
    model.key_file.write_text("another key\n")
    model.start()
    stack.expected_complaints.append("wants a key that it accepts: see FIRSTHOP_BACKEND_KEY")
    stack.start()
    call = caller(samples=sentence)
    answer = call.post(call.offer())
    assert answer.status == 201
    call.accept()
    error = call.wait_for_event("error", 20)["error"]
    assert error["code"] == "backend_refused"
    assert "401" in error["message"]
    until("the session is gone", lambda: stack.sessions() == 0, 10)
    assert stack.transceiver is not None
    ended = stack.transceiver.wait_for_line("session ended", 10)
    assert "backend_failed" in ended
    warned = stack.transceiver.wait_for_line("wants a key that it accepts", 1)
    assert '"WARN"' in warned
    assert f"ws://127.0.0.1:{PORT}/v1/realtime" in warned
    assert KEY not in stack.transceiver.text()
    assert "another key" not in stack.transceiver.text()


def test_an_application_has_its_own_server_and_a_change_of_its_file_is_taken(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model, tmp_path: Path
) -> None:
    model.start()
    apps = tmp_path / "apps.toml"
    table = f'[app.default]\nbackend = "realtime"\nurl = "ws://127.0.0.1:{PORT}"\nkey_file = "model-key"\n'
    apps.write_text(table + 'session = { instructions = "First." }\n')
    for name in ("backend-url", "backend-key-file"):
        del stack.transceiver_settings[name]
    stack.transceiver_settings |= {"backend": "echo", "apps": str(apps)}
    stack.start()
    first = caller(samples=sentence)
    first.call()
    assert first.wait_for_event("session.updated", 10)["session"]["instructions"] == "First."
    # As an editor does: whoever reads in between sees one or the other.
    following = tmp_path / "apps.toml.new"
    following.write_text(table + 'session = { instructions = "And then." }\n')
    following.replace(apps)
    assert stack.transceiver is not None
    stack.transceiver.wait_for_line("applications reloaded", 10)
    second = caller(samples=sentence)
    second.call()
    assert second.wait_for_event("session.updated", 10)["session"]["instructions"] == "And then."


@pytest.mark.parametrize(
    ("url", "settings", "target"),
    [
        ("/openai/v1/realtime", 'model = "voice-1"\n', "/openai/v1/realtime?model=voice-1"),
        # Its preview's.
        ("/openai/realtime?api-version=2025-04-01-preview&deployment=voice-1", "", None),
    ],
)
def test_an_application_of_azure_shows_its_key_in_azures_header_and_in_no_other(
    stack: Stack,
    caller: Callable[..., Caller],
    model: Model,
    tmp_path: Path,
    url: str,
    settings: str,
    target: str | None,
) -> None:
    model.start("--azure")
    apps = tmp_path / "apps.toml"
    table = f'[app.default]\nbackend = "realtime"\nurl = "ws://127.0.0.1:{PORT}{url}"\n'
    apps.write_text(f'{table}auth = "api-key"\nkey_file = "model-key"\n{settings}')
    for name in ("backend-url", "backend-key-file"):
        del stack.transceiver_settings[name]
    stack.transceiver_settings |= {"backend": "echo", "apps": str(apps)}
    stack.start()
    call = caller()
    call.call()
    (opened,) = [event for _, event in model.events("connection", "opened")]
    assert opened["target"] == (target or url)
    headers = opened["headers"]
    assert headers["api-key"] == KEY
    assert headers["host"] == f"127.0.0.1:{PORT}"
    assert "authorization" not in headers
    assert [name for name, value in headers.items() if KEY in value] == ["api-key"]


def test_a_client_that_was_gone_finds_the_same_connection_to_the_model_and_what_the_model_knew(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, model: Model
) -> None:
    model.start()
    stack.start()

    def has(state: str) -> bool:
        return stack.transceiver_metrics().total("firsthop_transceiver_sessions", state=state) == 1

    call = caller(samples=sentence)
    call.call()
    began = call.wait_for_event("session.created", 10)["session"]
    call.send({"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}})
    call.wait_for_event("session.updated", 10)
    call.speak()
    call.wait_for_event("output_audio_buffer.stopped", 40)

    stack.bed.cut_client()
    until("the client is missed", lambda: has("interrupted"), 30)
    assert call.states[-1] == "connected", "it has not given up either"
    stack.bed.mend_client()
    until("the client is back", lambda: has("live"), 15)

    call.send({"type": "session.update", "session": {"type": "realtime", "voice": "cedar"}})
    known = call.wait_for_event("session.updated", 10, nth=2)["session"]
    assert (known["id"], known["instructions"]) == (began["id"], "Be brief.")
    call.speak()
    call.wait_for_event("output_audio_buffer.stopped", 40, nth=2)
    assert len(model.events("out", "input_audio_buffer.committed")) == 2
    assert len(model.events("connection", "opened")) == 1, "one connection from first to last"
    assert model.events("connection", "ended") == []
    assert call.event_types().count("session.created") == 1
    assert "error" not in call.event_types()
    assert stack.sessions_created() == 1
    assert stack.transceiver_metrics().total("firsthop_transceiver_backend_reconnects_total") == 0
