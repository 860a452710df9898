"""A model server for tests: OpenAI's Realtime protocol over a real WebSocket, with answers faster than real time.

    python realtime_server.py --port 8765 --answer answer.wav [--key KEY [--azure]] [--beta]

It hears a turn by its loudness (so that an interruption is one), answers each with the sound of the WAV, and keeps the
books that a test compares with what the client received: every event, either way, is one line of JSON on its output,
with the time of the monotonic clock, which is the same in every namespace, and that of the wall, which a browser has
too. An event's time is that at which it has left, or has come. The line of a connection that opens has what was asked
for, and the headers. It speaks PCM and both laws of G.711, as the session has it. A session with tools calls the first
of them at its first turn. The client's own event `test.disconnect` makes it drop the connection without a word:
at once, or with `at: response.created` when it has begun to answer.
"""

import argparse
import array
import asyncio
import base64
import bisect
import hashlib
import itertools
import json
import math
import struct
import time
import wave
from pathlib import Path
from typing import Any

#: 16-bit samples.
Samples = array.array
RATE = 24_000
#: RFC 6455, section 1.3.
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
#: Of the samples of G.711.
NARROW = 8_000
#: One delta of audio.
DELTA_MS = 100
#: Speech is louder than this for so many milliseconds, and its end is so many without.
LOUD, BEGINS_MS, ENDS_MS = 600.0, 60, 500


def _mu_law(code: int) -> int:
    code ^= 0xFF
    value = (((code & 0xF) << 3) + 132 << (code >> 4 & 7)) - 132
    return -value if code & 0x80 else value


def _a_law(code: int) -> int:
    code ^= 0x55
    segment, value = code >> 4 & 7, ((code & 0xF) << 4) + 8
    value = value + 256 << segment - 1 if segment else value
    return value if code & 0x80 else -value


#: What each byte of a law stands for (ITU-T G.711), in samples of 16 bits.
LAWS = {
    "audio/pcmu": [_mu_law(code) for code in range(256)],
    "audio/pcma": [_a_law(code) for code in range(256)],
}


def to_samples(payload: bytes, form: str) -> Samples:
    """The samples of audio in a form of the protocol's."""
    table = LAWS.get(form)
    return array.array("h", payload) if table is None else array.array("h", [table[byte] for byte in payload])


def to_payload(samples: Samples, form: str) -> bytes:
    """Samples of RATE in a form of the protocol's; those of G.711 are the mean of each three."""
    table = LAWS.get(form)
    if table is None:
        return samples.tobytes()
    order = sorted(range(256), key=lambda code: table[code])
    values = [table[code] for code in order]
    means = (sum(samples[at : at + 3]) // 3 for at in range(0, len(samples) - 2, 3))
    return bytes(order[min(bisect.bisect_left(values, mean), 255)] for mean in means)


class Gone(Exception):
    """The other end has closed, or broken off."""


class WebSocket:
    """The server's half of RFC 6455, as much as a test needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        #: What the handshake asked for, and its headers, their names in small letters.
        self.target = ""
        self.headers: dict[str, str] = {}

    async def accept(self, shown: tuple[str, str] | None) -> bool:
        """Answers the handshake; false when the client does not show a header that it should."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.split("\r\n")
        self.target = request.split(" ")[1]
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        headers = self.headers = {name.lower(): value for name, value in headers.items()}
        if shown is not None and headers.get(shown[0]) != shown[1]:
            self._writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
            return False
        digest = hashlib.sha1(headers["sec-websocket-key"].encode() + MAGIC).digest()
        answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self._writer.write(f"{answer}Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n".encode())
        return True

    def send(self, text: str) -> None:
        """Sends a text message; `drain` should follow."""
        self._frame(TEXT, text.encode())

    def abort(self) -> None:
        """Breaks the connection off."""
        self._writer.close()

    async def drain(self) -> None:
        """Waits as long as the client takes slowly what was sent."""
        await self._writer.drain()

    def _frame(self, opcode: int, payload: bytes) -> None:
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | opcode, length)
        elif length < 0x10000:
            head = struct.pack("!BBH", 0x80 | opcode, 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 127, length)
        self._writer.write(head + payload)

    async def receive(self) -> str:
        """The next text message."""
        message = b""
        while True:
            first, second = await self._read(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", await self._read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self._read(8))
            mask = await self._read(4)
            payload = await self._read(length)
            stream = itertools.cycle(mask)
            payload = bytes(byte ^ key for byte, key in zip(payload, stream, strict=False))
            opcode = first & 0xF
            if opcode == CLOSE:
                self._frame(CLOSE, payload)
                raise Gone("closed")
            if opcode == PING:
                self._frame(PONG, payload)
            elif opcode != PONG:
                message += payload
                if first & 0x80:
                    return message.decode()

    async def _read(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Gone("broken off") from error


class Session:
    """One conversation."""

    def __init__(self, socket: WebSocket, answer: Samples, beta: bool) -> None:
        self._socket, self._answer, self._beta = socket, answer, beta
        self._ids = itertools.count(1)
        self._config: dict[str, Any] = {"type": "realtime", "id": f"sess_{id(self):x}", "audio": {}}
        self._loud_ms = self._quiet_ms = 0
        self._heard_ms = 0
        self._speaking = False
        self._called = self._breaks = False
        self._speech: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serves the conversation until the client has gone."""
        await self._say("session.created", session=self._config)
        try:
            while True:
                await self._take(json.loads(await self._socket.receive()))
        finally:
            if self._speech is not None:
                self._speech.cancel()

    async def _say(self, kind: str, **members: Any) -> None:
        event = {"type": kind, "event_id": f"event_{next(self._ids)}", **members}
        self._socket.send(json.dumps(event))
        note("out", {**event, "delta": len(event["delta"])} if "audio.delta" in kind else event)
        await self._socket.drain()

    async def _take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "input_audio_buffer.append":
            await self._hear(base64.b64decode(event["audio"]))
            return
        note("in", event)
        if kind == "session.update":
            self._config = {**self._config, **event["session"]}
            await self._say("session.updated", session=self._config)
        elif kind == "conversation.item.create":
            item = {"id": f"item_{next(self._ids)}", "status": "completed", **event["item"]}
            await self._say("conversation.item.added", item=item)
        elif kind == "response.create":
            self._respond()
        elif kind == "conversation.item.truncate":
            names = ("item_id", "content_index", "audio_end_ms")
            await self._say("conversation.item.truncated", **{name: event[name] for name in names})
        elif kind == "test.disconnect" and event.get("at") == "response.created":
            self._breaks = True
        elif kind == "test.disconnect":
            raise Gone("as asked")

    def _form(self, way: str) -> str:
        """The form of audio, "input" or "output"."""
        form = self._config["audio"].get(way, {}).get("format", {})
        return str(form.get("type", "audio/pcm"))

    async def _hear(self, payload: bytes) -> None:
        form = self._form("input")
        samples = to_samples(payload, form)
        ms = len(samples) * 1000 // (NARROW if form in LAWS else RATE)
        self._heard_ms += ms
        loud = math.sqrt(sum(s * s for s in samples) / max(1, len(samples))) > LOUD
        self._loud_ms = self._loud_ms + ms if loud else 0
        self._quiet_ms = 0 if loud else self._quiet_ms + ms
        if not self._speaking and self._loud_ms >= BEGINS_MS:
            self._speaking = True
            if self._speech is not None:
                self._speech.cancel()
            start = self._heard_ms - self._loud_ms
            await self._say("input_audio_buffer.speech_started", audio_start_ms=start, item_id="item_user")
        elif self._speaking and self._quiet_ms >= ENDS_MS:
            self._speaking = False
            await self._say("input_audio_buffer.speech_stopped", audio_end_ms=self._heard_ms, item_id="item_user")
            await self._say("input_audio_buffer.committed", item_id="item_user", previous_item_id=None)
            self._respond()

    def _respond(self) -> None:
        # The client is heard meanwhile.
        self._speech = asyncio.create_task(self._respond_now())

    async def _respond_now(self) -> None:
        number = next(self._ids)
        response, item = f"resp_{number}", f"item_{number}"
        of_it = {"response_id": response, "item_id": item, "output_index": 0}
        await self._say("response.created", response={"id": response, "status": "in_progress"})
        if self._breaks:
            self._socket.abort()
            return
        tools = self._config.get("tools") or []
        if tools and not self._called:
            self._called = True
            call = {"call_id": f"call_{number}", "name": tools[0]["name"], "arguments": "{}"}
            await self._say("response.function_call_arguments.done", **of_it, **call)
            done = {"id": item, "type": "function_call", "status": "completed", **call}
            await self._say("response.output_item.done", response_id=response, output_index=0, item=done)
        else:
            name = "response.audio" if self._beta else "response.output_audio"
            part = {**of_it, "content_index": 0}
            form = self._form("output")
            answer = to_payload(self._answer, form)
            step = (NARROW if form in LAWS else 2 * RATE) * DELTA_MS // 1000
            for at in range(0, len(answer), step):
                delta = base64.b64encode(answer[at : at + step]).decode()
                await self._say(f"{name}.delta", **part, delta=delta)
            await self._say(f"{name}_transcript.done", **part, transcript="spoken")
            await self._say(f"{name}.done", **part)
        await self._say("response.done", response={"id": response, "status": "completed"})


def note(direction: str, event: dict[str, Any]) -> None:
    """Writes an event into the books."""
    now = {"time": time.monotonic(), "wall": time.time()}
    print(json.dumps({**now, "direction": direction, "event": event}), flush=True)


def load(path: Path) -> Samples:
    """The samples of a WAV."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2), path
        return array.array("h", file.readframes(file.getnframes()))


async def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--key")
    parser.add_argument("--azure", action="store_true", help="want the key in Azure's header")
    parser.add_argument("--beta", action="store_true", help="speak the names of the beta")
    settings = parser.parse_args()
    answer = load(settings.answer)
    shown = None
    if settings.key is not None:
        shown = ("api-key", settings.key) if settings.azure else ("authorization", f"Bearer {settings.key}")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        socket = WebSocket(reader, writer)
        try:
            if await socket.accept(shown):
                note("connection", {"type": "opened", "target": socket.target, "headers": socket.headers})
                await Session(socket, answer, settings.beta).run()
        except (Gone, ConnectionError, asyncio.IncompleteReadError) as gone:
            note("connection", {"type": "ended", "why": str(gone)})
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", settings.port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
