"""A caller: an aiortc peer that speaks a WAV, records what it hears, and collects the events of the channel.

Runs on a thread of its own inside a network namespace, with its own event loop; the methods may be called from a
test's thread. It offers as a browser does, but without candidates (real clients do that), so that the server has
nothing to go by but the packets that arrive.
"""

import asyncio
import concurrent.futures
import fractions
import http.client
import json
import re
import secrets
import threading
import time
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame

from .audio import RATE, Samples
from .namespaces import Namespace

T = TypeVar("T")

FRAME_SAMPLES = RATE // 50


@dataclass
class Answer:
    """What signaling said to an offer."""

    status: int
    headers: dict[str, str]
    body: str

    def error(self) -> dict[str, Any]:
        """The error object of a refusal."""
        return dict(json.loads(self.body)["error"])


def request(
    url: str,
    method: str,
    path: str,
    body: str = "",
    content_type: str | None = "application/sdp",
    key: str | None = "dev",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One HTTP request to signaling, from the namespace of the calling thread."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=15)
    fields = dict(headers or {})
    if content_type:
        fields["Content-Type"] = content_type
    if key is not None:
        fields["Authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, body.encode(), fields)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read().decode())
    finally:
        connection.close()


class Voice(MediaStreamTrack):
    """Plays samples in real time, 20 ms at a time: once and then silence, or over and over."""

    kind = "audio"

    def __init__(self, samples: Samples, repeat: bool) -> None:
        super().__init__()
        self._repeat = repeat
        self._samples = (np.clip(samples, -1, 1) * 32767).astype(np.int16)
        self._position = 0
        self._start: float | None = None
        self.speaking = False

    def start(self) -> None:
        """From the next frame on the samples are played, from their beginning; before, silence."""
        self._position = 0
        self.speaking = True

    async def recv(self) -> AudioFrame:
        """The next frame, when it is due."""
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start, self._frames = loop.time(), 0
        await asyncio.sleep(self._start + self._frames * 0.02 - loop.time())
        piece = np.zeros(FRAME_SAMPLES, np.int16)
        if self.speaking:
            if self._repeat and self._position >= len(self._samples):
                self._position = 0
            rest = self._samples[self._position : self._position + FRAME_SAMPLES]
            piece[: len(rest)] = rest
            self._position += FRAME_SAMPLES
        frame = AudioFrame.from_ndarray(piece[np.newaxis, :], format="s16", layout="mono")
        frame.sample_rate = RATE
        frame.pts = self._frames * FRAME_SAMPLES
        frame.time_base = fractions.Fraction(1, RATE)
        self._frames += 1
        return frame


class Caller:
    """One client of one call; with `whip`, the name of an application, one that is listened to and hears nothing.

    One that is `impatient` waits for nothing any more once the server has told of an error that does not pass.
    """

    def __init__(
        self,
        namespace: Namespace,
        url: str,
        samples: Samples,
        key: str = "dev",
        repeat: bool = False,
        codec: str | None = None,
        whip: str | None = None,
        impatient: bool = False,
    ) -> None:
        self._whip = whip
        self._impatient = impatient
        self._namespace = namespace
        self._repeat = repeat
        self._url = url
        self._key = key
        self._codec = codec
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"caller in {namespace.name}", daemon=True)
        self._thread.start()
        self._news = threading.Condition()
        self.events: list[dict[str, Any]] = []
        #: When each of them came, on the monotonic clock.
        self.event_times: list[float] = []
        self.states: list[str] = []
        self._heard: list[tuple[int, Samples]] = []
        self.answer: Answer | None = None
        self._voice: Voice | None = None
        self._peer: RTCPeerConnection | None = None
        self._listening: asyncio.Future[None] | None = None
        self._samples = samples

    # The thread and its loop.

    def _run(self) -> None:
        self._namespace.enter()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise AssertionError(f"the caller was not done within {timeout:g} s") from None

    # The call.

    def offer(self) -> str:
        """Makes the peer connection and its offer, without candidates."""
        return self._do(self._offer(), 20)

    async def _offer(self) -> str:
        # The default configuration names a public STUN server; there is no such thing here.
        peer = self._peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._voice = Voice(self._samples, self._repeat)
        peer.addTransceiver(self._voice, direction="sendrecv" if self._whip is None else "sendonly")
        if self._codec is not None:
            # The offer then has this codec and no other.
            codecs = RTCRtpSender.getCapabilities("audio").codecs
            wanted = [codec for codec in codecs if codec.mimeType == self._codec]
            peer.getTransceivers()[0].setCodecPreferences(wanted)
        if self._whip is None:
            channel = peer.createDataChannel("oai-events")
            self._channel: RTCDataChannel = channel
            channel.on("message", self._event)
            peer.on("track", self._track)

        def state() -> None:
            with self._news:
                self.states.append(peer.connectionState)
                self._news.notify_all()

        peer.on("connectionstatechange", state)
        await peer.setLocalDescription(await peer.createOffer())
        lines = peer.localDescription.sdp.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(("a=candidate", "a=end-of-candidates")))

    def post(self, offer: str) -> Answer:
        """Sends an offer and keeps the answer."""
        self.answer = self._do(asyncio.to_thread(self._post, offer), 30)
        return self.answer

    def _post(self, offer: str) -> Answer:
        path = "/v1/realtime/calls" if self._whip is None else f"/whip/{self._whip}"
        return request(self._url, "POST", path, offer, key=self._key)

    def accept(self, sdp: str | None = None) -> None:
        """Takes the answer (or `sdp` in its place); connecting begins."""
        assert self.answer is not None
        text = sdp or self.answer.body
        self._do(self._accept(text), 30)

    async def _accept(self, sdp: str) -> None:
        assert self._peer is not None
        await self._peer.setRemoteDescription(RTCSessionDescription(sdp, "answer"))

    def call(self, timeout: float = 30) -> None:
        """Offers, takes the answer, and waits until connected and the channel has opened."""
        answer = self.post(self.offer())
        assert answer.status == 201, f"signaling answered {answer.status}: {answer.body}"
        self.accept()
        self.wait_for_state("connected", timeout)
        self.wait_for_event("session.created", timeout)

    def speak(self) -> None:
        """Begins to speak the samples, or to speak them anew."""
        assert self._voice is not None
        self._loop.call_soon_threadsafe(self._voice.start)

    def hang_up(self) -> Answer:
        """Ends the call through signaling, as an app does."""
        assert self.answer is not None
        location = self.answer.headers["location"]
        method, path = ("POST", f"{location}/hangup") if self._whip is None else ("DELETE", location)
        return self._do(asyncio.to_thread(request, self._url, method, path, "", None, self._key), 30)

    def restart_ice(self, patch: Callable[[str], Answer]) -> Answer:
        """Restarts ICE, with a fragment that `patch` brings to signaling (RFC 9725 section 4.3.2).

        aiortc cannot; so its connection is given new credentials where it stands, and nominates its pair with them.
        """
        fresh = secrets.token_hex(4), secrets.token_hex(12)
        answer = patch(f"a=ice-ufrag:{fresh[0]}\r\na=ice-pwd:{fresh[1]}\r\n")
        assert answer.status == 200, answer.body
        self._do(self._nominate_anew(fresh, _credentials(answer.body)), 20)
        return answer

    async def _nominate_anew(self, local: tuple[str, str], remote: tuple[str, str]) -> None:
        connection = self._ice()
        connection._local_username, connection._local_password = local
        connection.remote_username, connection.remote_password = remote
        for pair in connection._nominated.values():
            check = connection.build_request(pair, nominate=True)
            await pair.protocol.request(check, pair.remote_addr, integrity_key=remote[1].encode())

    def _ice(self) -> Any:
        assert self._peer is not None
        return self._peer.sctp.transport.transport._connection  # type: ignore[union-attr]

    def send(self, event: dict[str, Any]) -> None:
        """Sends an event up the channel."""
        self._loop.call_soon_threadsafe(self._channel.send, json.dumps(event))

    def close(self) -> None:
        """Closes the peer connection and ends the thread."""
        if not self._loop.is_running():
            return
        try:
            if self._peer is not None:
                self._do(self._end(self._peer), 15)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(15)

    async def _end(self, peer: RTCPeerConnection) -> None:
        await peer.close()
        # A call that never connected leaves its listener waiting.
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    # What the caller learns.

    def _event(self, message: str) -> None:
        now = time.monotonic()
        with self._news:
            self.events.append(json.loads(message))
            self.event_times.append(now)
            self._news.notify_all()

    def _track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio":
            self._listening = asyncio.ensure_future(self._listen(track))

    async def _listen(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert frame.format.name == "s16"
            mono = frame.to_ndarray().reshape(-1, frame.layout.nb_channels).mean(axis=1)
            # G.711 comes at 8 kHz: each sample is held until the next. What a telephone leaves out stays out.
            ratio = RATE // frame.sample_rate
            mono = np.repeat(mono, ratio)
            with self._news:
                self._heard.append((frame.pts * ratio, mono.astype(np.float32) / 32768))
                self._news.notify_all()

    def _wait(self, what: str, timeout: float, condition: Any) -> Any:
        deadline = time.monotonic() + timeout
        with self._news:
            while not (found := condition()):
                if self._impatient and (said := self._told_error()):
                    raise AssertionError(said)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f"the caller did not see within {timeout:g} s: {what}; "
                        f"states {self.states}, events {self.event_types()}"
                    )
                self._news.wait(left)
            return found

    def _told_error(self) -> str | None:
        """What the server has said is wrong."""
        errors = (event.get("error", {}) for event in self.events if event.get("type") == "error")
        lasting = (error for error in errors if error.get("code") != "backend_disconnected")
        return next((str(error.get("message")) for error in lasting), None)

    def wait_for_state(self, state: str, timeout: float) -> None:
        """Waits until the peer connection has been in a state."""
        self._wait(f"state {state}", timeout, lambda: state in self.states)

    def wait_for_event(self, kind: str, timeout: float, nth: int = 1) -> dict[str, Any]:
        """The nth event of a type."""

        def find() -> dict[str, Any] | None:
            found = [event for event in self.events if event.get("type") == kind]
            return found[nth - 1] if len(found) >= nth else None

        return dict(self._wait(f"event {kind} ({nth})", timeout, find))

    def times_of(self, kind: str) -> list[float]:
        """When the events of a type came, on the monotonic clock."""
        with self._news:
            both = zip(self.events, self.event_times, strict=True)
            return [when for event, when in both if event.get("type") == kind]

    def event_types(self) -> list[str]:
        """The types of the events so far, in order."""
        return [str(event.get("type")) for event in self.events]

    def heard(self) -> Samples:
        """All that was received so far, each frame at the place that its timestamp gives it."""
        with self._news:
            return _assemble(self._heard)

    def listen(self, seconds: float, timeout: float) -> Samples:
        """What is received from now on, once so much sound has come (a silence in which nothing came not counted)."""
        begin = len(self._heard)

        def enough() -> bool:
            return sum(len(samples) for _, samples in self._heard[begin:]) >= seconds * RATE

        self._wait(f"{seconds:g} s more of sound", timeout, enough)
        with self._news:
            return _assemble(self._heard[begin:])

    def wait_for_heard(self, seconds: float, timeout: float) -> Samples:
        """What was received, once it is this long."""
        self._wait(f"{seconds:g} s of sound", timeout, lambda: self._heard_samples() >= seconds * RATE)
        return self.heard()

    def seconds_heard(self) -> float:
        """How long what was received is, gaps included."""
        with self._news:
            return self._heard_samples() / RATE

    def _heard_samples(self) -> int:
        # Frames come in order from the receiver's jitter buffer.
        if not self._heard:
            return 0
        last, samples = self._heard[-1]
        return last + len(samples) - self._heard[0][0]

    def candidates(self) -> list[tuple[str, int]]:
        """The addresses that the answer advertises, in its order."""
        assert self.answer is not None
        found = re.findall(r"^a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", self.answer.body, re.MULTILINE | re.I)
        unique = dict.fromkeys((address, int(port)) for address, port in found)
        return list(unique)

    def answer_with_only(self, address: str) -> str:
        """The answer, less every candidate that is not at this address."""
        assert self.answer is not None
        return "".join(
            line
            for line in self.answer.body.splitlines(keepends=True)
            if not line.startswith("a=candidate:") or line.split()[4] == address
        )

    def server_credentials(self) -> tuple[str, str]:
        """The server's ICE ufrag and password, from the answer."""
        assert self.answer is not None
        return _credentials(self.answer.body)

    def selected_pair(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Local and remote address of the pair that ICE has selected."""

        async def look() -> tuple[tuple[str, int], tuple[str, int]]:
            pair = self._ice()._nominated[1]
            return pair.local_addr, pair.remote_addr

        return self._do(look(), 5)


def _assemble(frames: list[tuple[int, Samples]]) -> Samples:
    """Puts each frame at the place that its timestamp gives it."""
    if not frames:
        return np.zeros(0, np.float32)
    first = frames[0][0]
    whole = np.zeros(max(pts - first + len(samples) for pts, samples in frames), np.float32)
    for pts, samples in frames:
        if pts >= first:
            whole[pts - first : pts - first + len(samples)] = samples
    return whole


def _credentials(sdp: str) -> tuple[str, str]:
    ufrag = re.search(r"^a=ice-ufrag:(\S+)", sdp, re.MULTILINE)
    password = re.search(r"^a=ice-pwd:(\S+)", sdp, re.MULTILINE)
    assert ufrag, sdp
    assert password, sdp
    return ufrag[1], password[1]
