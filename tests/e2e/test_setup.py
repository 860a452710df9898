"""`perf setup` sees the length of its line in every phase of a call, and nothing else in it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

#: A processor each for the programs and for their clients, where there are two.
CALLS = 4


@pytest.mark.timeout(300)
def test_a_phase_takes_the_round_trips_that_it_has(binaries: Path, tmp_path: Path) -> None:
    # On a machine that is busy itself, a line has to be long to be seen.
    command = [binaries / "perf", "setup", "--programs", binaries, "--results", tmp_path]
    limits = ["--rtt", "0,400", "--loss", "0", "--calls", str(CALLS), "--only", "relay,direct"]
    run = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "setup.json").read_text())
    assert all(rung["calls"] == CALLS and not rung["failed"] for rung in found["rungs"]), run.stdout

    def round_trips(phase: str, **case: str) -> float:
        of = {"subject": "relay", "connection": "warm", "channel": "without", "phase": phase} | case
        return one(found["round_trips"], of)["round_trips"]

    # The answer is a round trip, and a connection another; what comes next waits for it.
    assert round_trips("answer") == pytest.approx(1.0, abs=0.5), run.stdout
    cold = round_trips("answer", connection="cold", channel="handshake")
    assert cold == pytest.approx(2.0, abs=0.5), run.stdout
    for subject in ("relay", "direct"):
        steps = [round_trips(phase, subject=subject) for phase in ("answer", "ice", "dtls", "audio")]
        assert all(next_one > step + 0.5 for step, next_one in zip(steps, steps[1:], strict=False)), run.stdout
        assert steps[-1] < 7, run.stdout
    # What an echo holds is left out: it is in what was heard, and in no slope.
    case = {"subject": "relay", "connection": "warm", "channel": "without", "rtt_ms": 400.0}
    phases = one(found["rungs"], case)["phases"]
    held = one(found["echoes"], {"subject": "relay"})["ms"]
    assert phases["first_audio"]["p50"] - phases["audio"]["p50"] == pytest.approx(held)
    assert held > 20


def one(rows: list[dict[str, Any]], of: dict[str, Any]) -> dict[str, Any]:
    """The only row that has all of these."""
    (row,) = (row for row in rows if of.items() <= row.items())
    return row
