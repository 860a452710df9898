"""`scripts/run --demo`, on a machine without microphone, browser or page."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import REPOSITORY
from firsthop.audio import Samples
from firsthop.namespaces import Testbed
from firsthop.processes import Program
from test_call import ONE_TURN
from test_realtime import Model


@pytest.fixture
def demo(bed: Testbed, launch: Callable[..., Program], binaries: Path, tmp_path: Path) -> Callable[..., Program]:
    def start(programs: Path = binaries, **environment: str) -> Program:
        options = ["--demo", "--programs", str(programs.resolve()), "--state", str(tmp_path / "state")]
        command = bed.server.command(REPOSITORY / "scripts/run", *options)
        return launch("scripts/run", command, tmp_path / "run.log", environment, REPOSITORY)

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


@pytest.mark.parametrize("named", ["in the environment", "in a file of applications"])
def test_the_demo_is_content_with_another_voice_when_a_model_answers(
    bed: Testbed, demo: Callable[..., Program], tmp_path: Path, sentence: Samples, named: str
) -> None:
    model = Model(bed, tmp_path, sentence)
    model.start()
    url = model.settings()["backend-url"]
    settings = {"FIRSTHOP_BACKEND": "realtime", "FIRSTHOP_BACKEND_URL": url}
    settings["FIRSTHOP_BACKEND_KEY_FILE"] = str(model.key_file)
    if named == "in a file of applications":
        apps = tmp_path / "apps.toml"
        apps.write_text(f'[app.default]\nbackend = "realtime"\nurl = "{url}"\nkey_file = "{model.key_file}"\n')
        settings = {"FIRSTHOP_APPS": str(apps)}
    try:
        script = demo(**settings)
        assert script.wait(90) == 0, script.text()
    finally:
        assert model.program is not None
        model.program.kill()
    said = script.text()
    assert "A voice answered." in said
    heard = re.search(r"heard +([0-9.]+) s of a voice", said)
    assert heard, said
    # All of the answer but its silence, and silence that a slow machine puts in.
    assert float(heard[1]) > 0.8 * model.seconds, said
    assert len(model.events("out", "response.done")) == 1


def test_the_demo_wants_its_own_voice_back_from_an_echo_in_a_file_of_applications(
    demo: Callable[..., Program], tmp_path: Path
) -> None:
    apps = tmp_path / "apps.toml"
    apps.write_text('[app.notes]\nbackend = "echo"\n\n[app.default]\nbackend = "echo"\n')
    script = demo(FIRSTHOP_APPS=str(apps))
    assert script.wait(90) == 0, script.text()
    assert "The voice came back." in script.text()


def test_the_demo_says_why_a_call_fails_and_fails_itself(
    demo: Callable[..., Program], binaries: Path, tmp_path: Path
) -> None:
    # A signaling that knows another key than the caller's.
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("keys", "relay", "transceiver"):
        (programs / name).symlink_to(binaries.resolve() / name)
    forget = f"""sed -i 's/sha256 = ".*"/sha256 = "{"0" * 64}"/' {tmp_path}/state/api-keys.toml"""
    signaling = programs / "signaling"
    signaling.write_text(f'#!/bin/sh\n{forget}\nexec "{binaries.resolve()}/signaling" "$@"\n')
    signaling.chmod(0o755)

    script = demo(programs)
    assert script.wait(60) == 1
    assert "The call failed: signaling answered 401" in script.text()
    assert "Traceback" not in script.text()


def test_the_demo_says_what_the_server_told_it_of_the_model(
    demo: Callable[..., Program], bed: Testbed, launch: Callable[..., Program], tmp_path: Path
) -> None:
    # A web server in the model server's place.
    options = ["-u", "-m", "http.server", "--protocol", "HTTP/1.1", "--bind", "127.0.0.1", "8765"]
    other = launch("http.server", bed.server.command(sys.executable, *options), tmp_path / "other.log")
    other.wait_for_line("Serving HTTP", 20)
    script = demo(FIRSTHOP_BACKEND="realtime", FIRSTHOP_BACKEND_URL="ws://127.0.0.1:8765/v1/realtime")
    assert script.wait(60) == 1
    said = script.text()
    assert "The call failed: There is no connection to the model server: it answered with HTTP status 404." in said
    assert "logs are in" in said
    assert "Without --demo" not in said
    log = (tmp_path / "state/logs/transceiver.log").read_text()
    assert "ws://127.0.0.1:8765/v1/realtime" in log
