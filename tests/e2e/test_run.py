"""`scripts/run`, as a newcomer uses it: from a clean clone, until everything has stopped again."""

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firsthop import metrics
from firsthop.audio import Samples
from firsthop.caller import Caller
from firsthop.capture import capture
from firsthop.namespaces import Testbed
from firsthop.processes import Program, is_complaint
from firsthop.script import READY_SECONDS, programs_in, run
from firsthop.stack import HTTP_PORT, UDP_PORT, flows, sessions
from firsthop.waiting import until
from test_call import ONE_TURN, alike

#: Most is built already; what is not has features that only the tests' own build adds to.
BUILD_SECONDS = 500.0


@pytest.fixture
def calls(bed: Testbed, sentence: Samples) -> Iterator[Callable[[str], Caller]]:
    made: list[Caller] = []

    def make(url: str) -> Caller:
        made.append(Caller(bed.client, url, sentence))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.timeout(600)
def test_a_clean_clone_builds_runs_takes_a_call_and_stops_on_ctrl_c(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    building: dict[str, str],
    calls: Callable[[str], Caller],
    sentence: Samples,
) -> None:
    bed.admit_only(UDP_PORT, HTTP_PORT)
    # The machine's own address is found by the script; only signaling is asked to listen beyond localhost.
    http = f"{Testbed.SERVER}:{HTTP_PORT}"
    script = run(launch, bed, clone, building, "--http", http)
    script.wait_for_line("Ctrl-C stops everything.", BUILD_SECONDS)
    assert f"http://{http}/v1/realtime/calls" in script.text()

    with capture(bed.client, Testbed.CLIENT_LINK) as wire:
        call = calls(f"http://{http}")
        call.call()
        assert (Testbed.SERVER, UDP_PORT) in call.candidates()
        assert ("127.0.0.1", UDP_PORT) in call.candidates()
        call.speak()
        call.wait_for_event("output_audio_buffer.stopped", 20)
        assert call.event_types() == ONE_TURN
        assert alike(sentence, call.heard())
        assert call.selected_pair()[1] == (Testbed.SERVER, UDP_PORT)
        outside = wire.packets(
            lambda packet: packet.source[0] == Testbed.CLIENT and packet.destination != (Testbed.SERVER, UDP_PORT)
        )
        assert outside == []
    assert bed.refused() == 0

    assert call.hang_up().status == 200
    until("the session is gone", lambda: sessions(metrics.scrape(bed.server, 5080)) == 0, 5)
    until("its flow is gone", lambda: flows(metrics.scrape(bed.server, 9101)) == 0, 5)

    # What Ctrl-C sends, to the script alone: its children have process groups of their own.
    script.signal(signal.SIGINT)
    assert script.wait(20) == 0
    assert "Stopped." in script.text()
    assert programs_in(bed) == {}
    for log in sorted((clone / ".firsthop/logs").iterdir()):
        lines = log.read_text().splitlines()
        assert lines, f"{log.name} is empty"
        assert [line for line in lines if is_complaint(line)] == []

    secrets = [path for path in (clone / ".firsthop").iterdir() if path.is_file()]
    assert secrets
    assert [path.name for path in secrets if path.stat().st_mode & 0o077] == []
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert ".firsthop" not in status.stdout


def test_sigterm_stops_everything_too(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    script = run(launch, bed, clone, environment)
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert script.stop() == 0
    assert programs_in(bed) == {}


def test_callers_hear_at_once_that_everything_stops(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    environment: dict[str, str],
    calls: Callable[[str], Caller],
) -> None:
    http = f"{Testbed.SERVER}:{HTTP_PORT}"
    script = run(launch, bed, clone, environment, "--http", http)
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    call = calls(f"http://{http}")
    call.call()
    call.wait_for_event("session.created", 20)
    script.signal(signal.SIGINT)
    # By the transceiver's goodbye, long before a client would give up by itself.
    call.wait_for_state("closed", 5)
    assert script.wait(20) == 0


def test_a_second_run_with_the_same_state_is_told_who_uses_it_and_breaks_nothing(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    first = run(launch, bed, clone, environment)
    first.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    state = clone / ".firsthop"

    def written() -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(state.iterdir()) if path.is_file()}

    before = written()
    # The same folder by another way.
    link = tmp_path / "state"
    link.symlink_to(state)
    ports = {"udp": 3479, "internal": 4100, "trunk": 5001, "control": 5081, "admin": 9111, "metrics": 9113}
    others = [f"--{name}-port={port}" for name, port in ports.items()]
    others += ["--http", "localhost:8081", "--key", "another", "--state", str(link)]
    second = run(launch, bed, clone, environment, *others)
    assert second.wait(20) == 2
    assert len(second.text().splitlines()) == 1
    assert f"in use by process {first.pid}" in second.text()
    assert "--state" in second.text()
    assert written() == before

    # With a folder of its own it runs beside the first.
    beside = run(launch, bed, clone, environment, *others[:-1], str(tmp_path / "own"))
    beside.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert beside.stop() == 0
    # Whoever was killed holds it no longer, and what it had started ends with it.
    first.kill()
    until("the killed script's programs are gone", lambda: programs_in(bed) == {}, 15)
    again = run(launch, bed, clone, environment)
    again.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert again.stop() == 0


def stand_in(binaries: Path, tmp_path: Path, name: str, does: str) -> dict[str, str]:
    """The environment with the programs, one of which is a shell script."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for other in {"keys", "relay", "transceiver", "signaling"} - {name}:
        (programs / other).symlink_to(binaries.resolve() / other)
    (programs / name).write_text(f"#!/bin/sh\n{does}\n")
    (programs / name).chmod(0o755)
    return {"FIRSTHOP_PROGRAMS": str(programs)}


def test_a_program_is_not_ready_by_the_words_of_an_earlier_run(
    bed: Testbed, launch: Callable[..., Program], clone: Path, binaries: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "state/logs"
    logs.mkdir(parents=True)
    (tmp_path / "state/lock").touch()
    for name in ("relay", "transceiver", "signaling"):
        (logs / f"{name}.log").write_text("INFO ready\n")
    # The relay says nothing before it ends; what comes after it must never start.
    environment = stand_in(binaries, tmp_path, "relay", "sleep 1; echo I give up; exit 3")
    script = run(launch, bed, clone, environment, "--state", str(tmp_path / "state"))
    assert script.wait(30) == 1
    assert "relay ended with status 3" in script.text()
    assert "I give up" in script.text()
    assert (logs / "signaling.log").read_text() == "INFO ready\n"


@pytest.mark.parametrize("victim", ["relay", "transceiver", "signaling"])
def test_a_program_that_ends_before_calls_can_be_placed_is_named_at_once(
    bed: Testbed, launch: Callable[..., Program], clone: Path, binaries: Path, tmp_path: Path, victim: str
) -> None:
    environment = stand_in(binaries, tmp_path, victim, "echo ready; exit 7")
    script = run(launch, bed, clone, environment)
    # Far sooner than it would wait for a program that is alive.
    assert script.wait(25) == 1
    assert f"{victim} ended with status 7" in script.text()
    assert programs_in(bed) == {}


@pytest.mark.parametrize("missing", [("data.toml", "api.toml"), ("api.toml",), ("control-secret",)])
def test_a_first_start_that_was_broken_off_is_completed_by_the_next(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    environment: dict[str, str],
    binaries: Path,
    tmp_path: Path,
    missing: tuple[str, ...],
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "lock").touch()
    subprocess.run([binaries.resolve() / "keys", "init", state], check=True, capture_output=True)
    (state / "control-secret").write_text("")
    masters = (state / "masters.toml").read_bytes()
    for name in missing:
        (state / name).unlink()
    script = run(launch, bed, clone, environment, "--state", str(state))
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert (state / "masters.toml").read_bytes() == masters
    assert script.stop() == 0


@pytest.mark.parametrize("name", ["control-secret", "api-keys.toml", "fleet.toml"])
def test_a_full_disk_is_named_and_leaves_no_half_of_a_file(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "lock").touch()
    (state / f"{name}.new").symlink_to("/dev/full")
    script = run(launch, bed, clone, environment, "--state", str(state))
    assert script.wait(READY_SECONDS) == 2
    assert script.text().splitlines()[-1] == (
        f"run: --state (FIRSTHOP_STATE): {state}/{name} cannot be written; make room there, or choose another folder"
    )
    assert not (state / name).exists()
    assert programs_in(bed) == {}


def test_the_state_folder_counts_from_where_the_user_stands_and_commits_no_keys(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    # From elsewhere, by a link.
    link = tmp_path / "firsthop"
    link.symlink_to(clone / "scripts/run")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=elsewhere, check=True)
    command = bed.server.command(link, "--state", "some/state")
    script = launch("scripts/run", command, tmp_path / "run.log", environment, elsewhere)
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    state = elsewhere / "some/state"
    assert (state / "data.toml").exists()
    assert f"{state}/logs" in script.text()
    assert [path.name for path in state.iterdir() if path.stat().st_mode & 0o077] == []
    assert b"\x1b" not in b"".join(log.read_bytes() for log in (state / "logs").iterdir())
    assert script.stop() == 0
    status = subprocess.run(["git", "status", "--porcelain"], cwd=elsewhere, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_a_key_of_ones_own_is_said_how_to_use(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    key = "it's-$HOME-mine"
    script = run(launch, bed, clone, environment, "--key", key)
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    page = script.wait_for_line("page ", 1)
    assert "enter the key" in page
    text = script.text()
    command = text[text.index("  curl ") :].split("\n\n")[0]
    assert f"Authorization: Bearer {key}" in shlex.split(command)
    assert script.stop() == 0


def test_the_relay_runs_on_listed_processors(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    first = min(os.sched_getaffinity(0))
    script = run(launch, bed, clone, environment, "--cores", f"{first}-{first}")
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert script.stop() == 0


@pytest.mark.parametrize("victim", ["relay", "transceiver", "signaling"])
def test_when_a_program_dies_the_script_says_which_and_stops_the_others(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], victim: str
) -> None:
    script = run(launch, bed, clone, environment)
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    os.kill(programs_in(bed)[victim], signal.SIGKILL)
    assert script.wait(20) == 1
    assert f"{victim} ended with status 137" in script.text()
    assert programs_in(bed) == {}


def test_a_program_that_dies_while_the_script_still_speaks_is_missed_too(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    # What prints the last words kills the script's signaling, and gives it time to die, before the script waits for it.
    cat = tmp_path / "cat"
    cat.write_text(
        '#!/bin/sh\n/bin/cat "$@"\n[ $# -gt 0 ] || pkill -KILL -P $PPID signaling\n'
        "while pgrep -P $PPID signaling >/dev/null && [ $# -eq 0 ]; do sleep 0.05; done\n"
    )
    cat.chmod(0o755)
    script = run(launch, bed, clone, {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert script.wait(20) == 1
    assert "signaling ended with status 137" in script.text()
    assert programs_in(bed) == {}


def test_applications_are_taken_from_a_file_and_the_ready_text_names_it(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    # It counts from where the user stands: the tests stand in the clone.
    (clone / "apps.toml").write_text('[app.default]\nbackend = "echo"\n\n[app.notes]\nbackend = "echo"\n')
    script = run(launch, bed, clone, environment, "--apps", "apps.toml")
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert f"backend: [app.default] of {clone}/apps.toml" in script.text()
    # What it says to paste sends an offer that is there.
    _, _, pasted = script.text().partition("--data-binary ")
    assert Path(shlex.split(pasted.splitlines()[0])[0].removeprefix("@")).read_text().startswith("v=0")
    assert script.stop() == 0
    (clone / "apps.toml").unlink()
