"""`perf setup` sees the length of its line in every phase of a call, and nothing else in it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

#: A processor each for the programs and for their clients, where there are two.
CALLS = 4

#: How often it is measured on a machine that is too busy.
TRIES = 3

#: Round trips to first audio without a channel: four and what a machine takes, or five where one that is saved is lost.
SAVED = 4.8


@pytest.mark.timeout(300)
def test_a_phase_takes_the_round_trips_that_it_has(binaries: Path, tmp_path: Path) -> None:
    # On a machine that is busy itself, a line has to be long to be seen, and a packet that is late adds a round trip.
    for _ in range(TRIES):
        found, shown = climb(binaries, tmp_path)
        if all(round_trips(found, "audio", subject=subject) < SAVED for subject in ("relay", "direct")):
            break

    # The answer is a round trip, and a connection another; what comes next waits for it.
    assert round_trips(found, "answer") == pytest.approx(1.0, abs=0.5), shown
    cold = round_trips(found, "answer", connection="cold", channel="handshake")
    assert cold == pytest.approx(2.0, abs=0.5), shown
    for subject in ("relay", "direct"):
        steps = [round_trips(found, phase, subject=subject) for phase in ("answer", "ice", "dtls", "audio")]
        assert all(next_one > step + 0.5 for step, next_one in zip(steps, steps[1:], strict=False)), shown
        assert steps[-1] < SAVED, shown
    # What an echo waits on purpose is left out: it is in what was heard, and in no slope.
    case = {"subject": "relay", "connection": "warm", "channel": "without", "rtt_ms": 400.0}
    phases = one(found["rungs"], case)["phases"]
    echo = one(found["echoes"], {"subject": "relay"})
    assert phases["first_audio"]["p50"] - phases["audio"]["p50"] == pytest.approx(echo["subtracted_ms"])
    assert echo["ms"] > 20


def climb(binaries: Path, tmp_path: Path) -> tuple[dict[str, Any], str]:
    """What a ladder of two lines finds, and how it shows it."""
    command = [binaries / "perf", "setup", "--programs", binaries, "--results", tmp_path]
    limits = ["--rtt", "0,400", "--loss", "0", "--calls", str(CALLS), "--only", "relay,direct"]
    run = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads((tmp_path / "setup.json").read_text())
    assert all(rung["calls"] == CALLS and not rung["failed"] for rung in found["rungs"]), run.stdout
    return found, run.stdout


def round_trips(found: dict[str, Any], phase: str, **case: str) -> float:
    """Of a phase of a call, by default through the relay without a channel."""
    of = {"subject": "relay", "connection": "warm", "channel": "without", "phase": phase} | case
    return float(one(found["round_trips"], of)["round_trips"])


def one(rows: list[dict[str, Any]], of: dict[str, Any]) -> dict[str, Any]:
    """The only row that has all of these."""
    (row,) = (row for row in rows if of.items() <= row.items())
    return row
