"""`scripts/run`, as a newcomer uses it: from a clean clone, and on a machine that is not quite ready."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import REPOSITORY
from firsthop import metrics
from firsthop.audio import Samples
from firsthop.caller import Caller
from firsthop.capture import capture
from firsthop.namespaces import Testbed
from firsthop.processes import Program, is_complaint
from firsthop.stack import HTTP_PORT, UDP_PORT, flows, sessions
from firsthop.waiting import until
from test_call import ONE_TURN, alike

READY_SECONDS = 30.0
#: Most is built already; what is not has features that only the tests' own build adds to.
BUILD_SECONDS = 500.0


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone, with what is not committed yet laid over it, as a commit of it would be."""
    folder = tmp_path_factory.mktemp("clone") / "firsthop"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, folder], check=True)
    changes = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=REPOSITORY, capture_output=True, check=True)
    if changes.stdout:
        subprocess.run(["git", "apply"], cwd=folder, input=changes.stdout, check=True)
    return folder


@pytest.fixture
def environment(binaries: Path) -> dict[str, str]:
    """Runs what is built already."""
    return {"FIRSTHOP_PROGRAMS": str(binaries.resolve())}


@pytest.fixture
def building(binaries: Path) -> dict[str, str]:
    """Builds as a newcomer does, but into the folder where most of it is built already."""
    return {"FIRSTHOP_PROFILE": "dev", "CARGO_TARGET_DIR": str(binaries.resolve().parent)}


@pytest.fixture
def calls(bed: Testbed, sentence: Samples) -> Iterator[Callable[[str], Caller]]:
    made: list[Caller] = []

    def make(url: str) -> Caller:
        made.append(Caller(bed.client, url, sentence))
        return made[-1]

    yield make
    for one in made:
        one.close()


def run(
    launch: Callable[..., Program], bed: Testbed, clone: Path, environment: dict[str, str], *options: str
) -> Program:
    command = bed.server.command(clone / "scripts/run", *options)
    return launch("scripts/run", command, clone / "run.log", environment, clone)


def programs_in(bed: Testbed) -> dict[str, int]:
    """What runs in the server's namespace: names and process ids."""
    pids = subprocess.run(["ip", "netns", "pids", bed.server.name], capture_output=True, text=True, check=True)
    found = {}
    for pid in pids.stdout.split():
        with contextlib.suppress(OSError):  # it has ended since
            found[Path(f"/proc/{pid}/comm").read_text().strip()] = int(pid)
    return found


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


@pytest.mark.parametrize(
    ("protocol", "address", "option"),
    [
        (socket.SOCK_DGRAM, ("127.0.0.1", 3478), "--udp-port"),
        (socket.SOCK_DGRAM, ("0.0.0.0", 4000), "--internal-port"),
        (socket.SOCK_DGRAM, ("127.0.0.1", 5000), "--trunk-port"),
        (socket.SOCK_STREAM, ("127.0.0.1", 5080), "--control-port"),
        (socket.SOCK_STREAM, ("0.0.0.0", 8080), "--http"),
        (socket.SOCK_STREAM, ("127.0.0.1", 9101), "--admin-port"),
        (socket.SOCK_STREAM, ("127.0.0.1", 9103), "--metrics-port"),
    ],
)
def test_a_taken_port_is_named_with_its_holder_and_the_option_before_anything_starts(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    environment: dict[str, str],
    protocol: socket.SocketKind,
    address: tuple[str, int],
    option: str,
) -> None:
    def take() -> socket.socket:
        taken = socket.socket(socket.AF_INET, protocol)
        # As a relay would, whose group another relay could join unseen.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(address)
        if protocol == socket.SOCK_STREAM:
            taken.listen()
        return taken

    with bed.server.call(take):
        script = run(launch, bed, clone, environment)
        assert script.wait(20) == 2
        assert str(address[1]) in script.text()
        assert f"(process {os.getpid()})" in script.text()
        assert option in script.text()
        assert "Building" not in script.text()
        assert programs_in(bed) == {}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--udp-port", "70000"], "--udp-port"),
        (["--cores", "none"], "--cores"),
        (["--public", "0.0.0.0"], "--public"),
        (["--public", "example"], "--public"),
        (["--spin", "maybe"], "--spin"),
        (["--profile", "fast"], "--profile"),
        (["--frobnicate", "1"], "--frobnicate"),
    ],
)
def test_a_bad_option_is_named_before_anything_starts(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    environment: dict[str, str],
    options: list[str],
    named: str,
) -> None:
    script = run(launch, bed, clone, environment, *options)
    assert script.wait(20) == 2
    assert named in script.text()
    assert "Building" not in script.text()


@pytest.mark.parametrize(
    "value",
    [
        "example",
        "300.1.1.1",
        "1.2.3",
        "01.2.3.4",
        "127.0.0.1,,::1",
        ":::",
        "1:2",
        "1::2::3",
        "12345::",
        "0.0.0.0",
        "::",
    ],
)
def test_a_public_address_in_the_environment_that_is_none_is_named_at_once(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], value: str
) -> None:
    script = run(launch, bed, clone, {**environment, "FIRSTHOP_PUBLIC": value})
    assert script.wait(20) == 2
    assert "FIRSTHOP_PUBLIC" in script.text().splitlines()[0]
    assert "Building" not in script.text()


def test_an_old_kernel_is_refused(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    uname = tmp_path / "uname"
    uname.write_text("#!/bin/sh\necho 5.10.0-28-amd64\n")
    uname.chmod(0o755)
    script = run(launch, bed, clone, {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert script.wait(20) == 2
    assert "5.10.0-28-amd64" in script.text()
    assert "6.1 or newer" in script.text()


def test_too_little_lockable_memory_is_named_with_the_fix(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    command = ["prlimit", "--memlock=65536:65536", *bed.server.command(clone / "scripts/run")]
    script = launch("scripts/run", command, clone / "run.log", environment, clone)
    assert script.wait(20) == 2
    assert "64 KiB" in script.text()
    assert "memlock" in script.text()


def test_without_cargo_the_script_says_what_to_install(
    bed: Testbed, launch: Callable[..., Program], clone: Path, building: dict[str, str], tmp_path: Path
) -> None:
    bare = {**building, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CARGO_HOME": str(tmp_path)}
    script = run(launch, bed, clone, bare)
    assert script.wait(20) == 2
    assert "cargo is not installed" in script.text()
    assert "rustup" in script.text()
