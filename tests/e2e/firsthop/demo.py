"""A caller for machines without a microphone: speaks by itself, listens, and says what came back.

`scripts/run --demo` runs it against what it has started; by hand, beside a running `scripts/run`:

    PYTHONPATH=tests/e2e tests/e2e/.venv/bin/python -m firsthop.demo --url http://localhost:8080 --key dev
"""

import argparse
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


def demo(url: str, key: str) -> bool:
    """One call; prints its course. Whether the voice came back."""
    with tempfile.TemporaryDirectory() as folder:
        spoken = audio.load(audio.speak(TEXT, Path(folder) / "spoken.wav"))
    onset = int(np.argmax(np.abs(spoken) > LOUD)) / RATE
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
        until("a voice comes back", lambda: bool(np.any(np.abs(caller.heard()[before:]) > LOUD)), 20)
        delay = time.monotonic() - began - onset
        caller.wait_for_event("output_audio_buffer.stopped", 30)

        heard = caller.heard()
        # Second by second: a player that slips by some milliseconds has lost no word.
        likeness = float(np.median(audio.likeness(spoken, heard)))
        place = max(0, int(audio.correlation(spoken, heard)[1] * RATE))
        _say("heard", f"{_decibels(heard[place : place + len(spoken)]):.0f} dB, {100 * likeness:.0f} % alike")
        _say("delay", f"about {max(0.0, 1000 * delay):.0f} ms there and back, codecs and buffers included")
        _say("events", "\n            ".join(caller.event_types()))
        caller.hang_up()
        return likeness > ALIKE
    finally:
        caller.close()


def main() -> int:
    """Reads the command line; the exit status says whether the voice came back."""
    parser = argparse.ArgumentParser(prog="firsthop.demo", description="Speaks to a Firsthop, and listens.")
    parser.add_argument("--url", default="http://localhost:8080", help="signaling (%(default)s)")
    parser.add_argument("--key", default="dev", help="API key (%(default)s)")
    given = parser.parse_args()
    try:
        alike = demo(given.url, given.key)
    except (AssertionError, OSError) as error:
        print(f"The call failed: {error}", file=sys.stderr)
        return 1
    print("The voice came back." if alike else "What came back is not the voice that was sent.", flush=True)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
