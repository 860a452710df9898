"""A bot built with pipecat-ai, as its users build them: it plays back what it hears, and tells what it was sent.

It runs in an environment of its own, from `tests/e2e/pipecat.lock`, and not in that of the tests.
"""

import argparse
import asyncio
import json
import sys
import time
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageUrgentFrame,
    TranscriptionFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.server import (
    SingleClientWebsocketServerParams,
    SingleClientWebsocketServerTransport,
)
from pipecat.workers.runner import WorkerRunner


def note(kind: str, **members: Any) -> None:
    """Tells the test."""
    print(json.dumps({"time": time.time(), "kind": kind, **members}), flush=True)


class Parrot(FrameProcessor):
    """Says what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0
        self.rates: set[tuple[int, int]] = set()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Turns the sound around; anything else goes on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            form = (frame.sample_rate, frame.num_channels)
            if form not in self.rates:
                self.rates.add(form)
                note("audio", rate=form[0], channels=form[1])
            sound = OutputAudioRawFrame(audio=frame.audio, sample_rate=form[0], num_channels=form[1])
            await self.push_frame(sound)
            return
        if isinstance(frame, TranscriptionFrame):
            note("transcription", text=frame.text, user=frame.user_id)
            message = {"type": "parrot.said", "text": frame.text}
            await self.push_frame(OutputTransportMessageUrgentFrame(message=message))
        elif isinstance(frame, InputTransportMessageFrame):
            note("message", message=frame.message)
        elif isinstance(frame, InterruptionFrame):
            note("interruption")
        await self.push_frame(frame, direction)


async def main() -> None:
    """Serves one client at a time until it is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    transport = SingleClientWebsocketServerTransport(
        params=SingleClientWebsocketServerParams(
            serializer=ProtobufFrameSerializer(), audio_in_enabled=True, audio_out_enabled=True
        ),
        host="127.0.0.1",
        port=arguments.port,
    )

    @transport.event_handler("on_websocket_ready")
    async def ready(_transport: Any) -> None:
        note("ready")

    pipeline = Pipeline([transport.input(), Parrot(), transport.output()])
    # The pipeline's own rates, 16 kHz in and 24 kHz out, as a bot has them that sets none.
    worker = PipelineWorker(pipeline, params=PipelineParams(), idle_timeout_secs=None)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    asyncio.run(main())
