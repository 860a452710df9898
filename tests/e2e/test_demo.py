"""`scripts/run --demo`, on a machine without microphone, browser or page."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import REPOSITORY
from firsthop.namespaces import Testbed
from firsthop.processes import Program
from test_call import ONE_TURN


@pytest.fixture
def demo(bed: Testbed, launch: Callable[..., Program], binaries: Path, tmp_path: Path) -> Callable[[Path], Program]:
    def start(programs: Path = binaries) -> Program:
        options = ["--demo", "--programs", str(programs.resolve()), "--state", str(tmp_path / "state")]
        command = bed.server.command(REPOSITORY / "scripts/run", *options)
        return launch("scripts/run", command, tmp_path / "run.log", {}, REPOSITORY)

    return start


def test_the_demo_calls_says_what_it_heard_and_stops_everything(bed: Testbed, demo: Callable[..., Program]) -> None:
    script = demo()
    assert script.wait(90) == 0
    said = script.text()
    assert "The voice came back." in said
    assert "to UDP port 3478 of" in said
    assert [
        line.split()[-1] for line in said.splitlines() if line.split()[-1:] and line.split()[-1] in ONE_TURN
    ] == ONE_TURN
    left = subprocess.run(["ip", "netns", "pids", bed.server.name], capture_output=True, text=True, check=True)
    assert left.stdout == ""


def test_the_demo_fails_when_the_call_does(demo: Callable[..., Program], binaries: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("keys", "relay", "transceiver", "signaling"):
        (programs / name).symlink_to(binaries.resolve() / name)
    # A transceiver that ends as soon as it is asked for its first call is a call that fails.
    (programs / "transceiver").unlink()
    (programs / "transceiver").write_text(
        f'#!/bin/sh\nexec "{binaries.resolve()}/transceiver" "$@" --sessions-per-worker 0\n'
    )
    (programs / "transceiver").chmod(0o755)
    script = demo(programs)
    assert script.wait(90) == 1
    assert "The call failed" in script.text()
