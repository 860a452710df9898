"""A call to a bot built with pipecat-ai, its protobuf serializer and its WebSocket server transport."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firsthop import audio
from firsthop.audio import Samples
from firsthop.caller import Caller
from firsthop.processes import Program
from firsthop.stack import Stack
from firsthop.waiting import until

PORT = 8765
PYTHON = Path(__file__).parent / ".venv-pipecat" / "bin" / "python"
BOT = Path(__file__).parent / "firsthop" / "pipecat_bot.py"


class Bot:
    """The bot in the server's namespace, and what it was sent."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        command = stack.bed.server.command(str(PYTHON), str(BOT), f"--port={PORT}")
        self.program = Program("bot", command, directory / "bot.log")
        until("the bot listens", lambda: self.notes("ready"), 90)

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """What it told of this kind."""
        lines = [json.loads(line) for _, line in self.program.lines if line.startswith("{")]
        return [line for line in lines if line["kind"] == kind]


@pytest.fixture
def bot(stack: Stack, tmp_path: Path) -> Iterator[Bot]:
    """The bot; the stack's calls go to it."""
    stack.transceiver_settings |= {"backend": "pipecat", "backend-url": f"ws://127.0.0.1:{PORT}"}
    made = Bot(stack, tmp_path)
    yield made
    made.program.kill()


def test_a_bot_is_heard_and_told_what_the_client_writes(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples, bot: Bot
) -> None:
    stack.start()
    call = caller(samples=sentence)
    call.call()
    call.speak()
    call.wait_for_event("output_audio_buffer.started", 40)
    heard = call.listen(len(sentence) / audio.RATE + 2, 60)
    pieces = audio.likeness(sentence, heard)
    print("likeness by seconds:", [round(piece, 2) for piece in pieces])
    assert float(np.median(pieces)) > 0.6
    assert [(note["rate"], note["channels"]) for note in bot.notes("audio")] == [(16_000, 1)]
    text = "What time is it?"
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    call.send({"type": "conversation.item.create", "item": item})
    assert call.wait_for_event("parrot.said", 20)["text"] == text
    # The bot's own messages, of RTVI.
    call.wait_for_event("bot-ready", 20)
    call.send({"type": "response.cancel"})
    call.wait_for_event("output_audio_buffer.cleared", 20)
    call.wait_for_event("conversation.item.truncated", 20)
    assert call.hang_up().status == 200
