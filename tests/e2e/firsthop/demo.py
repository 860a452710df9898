"""A caller for machines without a microphone: speaks by itself, listens, and says what came back.

`scripts/run --demo` runs it against what it has started; by hand, beside a running `scripts/run`:

    PYTHONPATH=tests/e2e tests/e2e/.venv/bin/python -m firsthop.demo --url http://localhost:8080 --key dev
"""

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

import aioice.ice
import numpy as np

from . import audio
from .audio import RATE, Samples
from .caller import Caller
from .namespaces import Namespace
from .waiting import until

TEXT = "Hello! This is a voice without a microphone, and I am listening for its echo"

#: What two passes through Opus leave of a second of spoken sound; of unrelated speech one second in ten is above 0.3.
ALIKE = 0.6

#: Above this a sample is voice and not the noise of a codec.
LOUD = 0.02


_own_addresses = aioice.ice.get_host_addresses


def _addresses(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    """Where the caller may be reached: loopback counts when there is nothing else, as on a laptop without a network."""
    return _own_addresses(use_ipv4, use_ipv6) or ["127.0.0.1"]


class _ThisMachine(Namespace):
    """Where the demo already is."""

    def __init__(self) -> None:
        self.name = "this machine"

    def enter(self) -> None:
        """Stays here."""


def _decibels(samples: Samples) -> float:
    """How loud the loud parts are, in dB of full scale."""
    loud = samples[np.abs(samples) > LOUD]
    return 10 * float(np.log10(np.mean(loud**2))) if len(loud) else float("-inf")


def _say(what: str, text: str) -> None:
    print(f"  {what:<10}{text}", flush=True)


def _span(samples: Samples) -> tuple[float, float]:
    """When the first and the last loud sample come, in seconds."""
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    return (loud[0] / RATE, (loud[-1] + 1) / RATE) if len(loud) else (0.0, 0.0)


def _wait_for_voice(caller: Caller, after: int, timeout: float) -> float:
    """When a voice is heard that came after so many samples, by the monotonic clock."""
    until("a voice comes back", lambda: bool(np.any(np.abs(caller.heard()[after:]) > LOUD)), timeout)
    return time.monotonic()


def _echoed(caller: Caller, spoken: Samples, before: int, began: float) -> bool:
    """Waits for one's own voice, and describes it. Whether it was that."""
    onset, _ = _span(spoken)
    delay = _wait_for_voice(caller, before, 20) - began - onset
    caller.wait_for_event("output_audio_buffer.stopped", 30)
    heard = caller.heard()
    # Second by second: a player that slips by some milliseconds has lost no word.
    likeness = float(np.median(audio.likeness(spoken, heard)))
    place = max(0, int(audio.correlation(spoken, heard)[1] * RATE))
    _say("heard", f"{_decibels(heard[place : place + len(spoken)]):.0f} dB, {100 * likeness:.0f} % alike")
    _say("delay", f"about {max(0.0, 1000 * delay):.0f} ms there and back, codecs and buffers included")
    return likeness > ALIKE


def _answered(caller: Caller, spoken: Samples, before: int, began: float) -> None:
    """Waits for an answer in whatever voice, and describes it."""
    _, last_word = _span(spoken)
    delay = _wait_for_voice(caller, before, 60) - began - last_word
    # A model answers as long as it likes.
    caller.wait_for_event("output_audio_buffer.stopped", 300)
    answer = caller.heard()[before:]
    first, last = _span(answer)
    _say("heard", f"{last - first:.1f} s of a voice, {_decibels(answer):.0f} dB")
    if delay >= 0:
        _say("delay", f"about {1000 * delay:.0f} ms from the last word until the answer, codecs and buffers included")
    else:
        _say("delay", f"none: the voice began {-delay:.1f} s before the last word")


def demo(url: str, key: str, answers: str) -> bool:
    """One call to an "echo" or a "model"; prints its course. False when an echo has not given the voice back."""
    with tempfile.TemporaryDirectory() as folder:
        spoken = audio.load(audio.speak(TEXT, Path(folder) / "spoken.wav"))
    aioice.ice.get_host_addresses = _addresses
    caller = Caller(_ThisMachine(), url, spoken, key, impatient=True)
    try:
        began = time.monotonic()
        caller.call()
        address, port = caller.selected_pair()[1]
        _say("connected", f"in {1000 * (time.monotonic() - began):.0f} ms, to UDP port {port} of {address}")

        _say("said", f"“{TEXT}.” ({len(spoken) / RATE:.1f} s at {_decibels(spoken):.0f} dB)")
        before = len(caller.heard())
        caller.speak()
        began = time.monotonic()
        back = True
        if answers == "echo":
            back = _echoed(caller, spoken, before, began)
        else:
            _answered(caller, spoken, before, began)
        # A model's words come in hundreds of events.
        runs = [(kind, len(list(run))) for kind, run in itertools.groupby(caller.event_types())]
        lines = [kind if times == 1 else f"{kind} ({times} times)" for kind, times in runs]
        _say("events", "\n            ".join(lines))
        caller.hang_up()
        return back
    finally:
        caller.close()


def main() -> int:
    """Reads the command line; the exit status says whether a voice came back: the caller's own, of an echo."""
    parser = argparse.ArgumentParser(prog="firsthop.demo", description="Speaks to a Firsthop, and listens.")
    parser.add_argument("--url", default="http://localhost:8080", help="signaling (%(default)s)")
    parser.add_argument("--key", default="dev", help="API key (%(default)s)")
    parser.add_argument("--answers", choices=("echo", "model"), default="echo", help="who answers (%(default)s)")
    given = parser.parse_args()
    try:
        back = demo(given.url, given.key, given.answers)
    except (AssertionError, OSError) as error:
        print(f"The call failed: {error}", file=sys.stderr)
        return 1
    if not back:
        print("What came back is not the voice that was sent.", flush=True)
        return 1
    print("The voice came back." if given.answers == "echo" else "A voice answered.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
