"""`scripts/run`, as a newcomer uses it: from a clean clone, and on a machine that is not quite ready."""

import contextlib
import os
import shlex
import shutil
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
def building() -> dict[str, str]:
    """Builds as a newcomer does, but into the folder where most of it is built already."""
    return {
        "FIRSTHOP_PROFILE": "dev",
        "CARGO_TARGET_DIR": str(REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")),
    }


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


def test_the_tests_refuse_to_run_nothing(clone: Path) -> None:
    for only in ("--only=", "--only=,", "--only=everything"):
        done = subprocess.run([clone / "scripts/test", only], capture_output=True, text=True, check=False)
        assert done.returncode == 2, only
        assert "Passed" not in done.stdout


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
        ("--udp-port 70000", "--udp-port"),
        ("--internal-port 65535 --cores 2", "--internal-port"),
        ("--cores none", "--cores"),
        ("--cores 0", "--cores"),
        ("--cores 99", "--cores"),
        ("--cores 0,0", "--cores"),
        ("--cores 0,4000", "--cores"),
        ("--cores 3-2", "--cores"),
        ("--workers 300", "--workers"),
        ("--public 0.0.0.0", "--public"),
        ("--public example", "--public"),
        ("--public 8.8.8.8", "--public"),
        ("--public fd77:99::1", "--public"),
        ("--public 127.0.0.1,127.0.0.1", "--public"),
        ("--public ::1,0:0:0::1", "--public"),
        ("--public 127.0.0.1,", "--public"),
        ("--http http://localhost:8080", "--http"),
        ("--http :8080", "--http"),
        ("--http localhost", "--http"),
        ("--http localhost:0", "--http"),
        ("--http foo.bar.invalid:8080", "--http"),
        ("--http 8.8.8.8:8080", "--http"),
        ("--trunk-port 3478", "--trunk-port"),
        ("--control-port 8080", "--http"),
        ("--backend nobody", "--backend"),
        ("--backend realtime", "FIRSTHOP_BACKEND_URL"),
        ("--apps /nonexistent", "--apps"),
        ("--apps /proc", "--apps"),
        ("--log bananas=zz", "--log"),
        ("--key=", "--key"),
        ("--spin maybe", "--spin"),
        ("--profile fast", "--profile"),
        ("--state=", "--state"),
        ("--state /proc/state", "--state"),
        ("--state scripts", "--state"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_in_one_line_before_anything_is_built(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    building: dict[str, str],
    options: str,
    named: str,
) -> None:
    script = run(launch, bed, clone, building, *options.split())
    assert script.wait(20) == 2
    lines = script.text().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("run: ")
    assert named in lines[0]
    # Neither there nor beside it was anything left for a commit to take along.
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert [line for line in status.stdout.splitlines() if line.startswith("??") and "run.log" not in line] == []


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("URL", "notaurl", "'notaurl'"),
        ("URL", "http://model.example/v1?key=secret", "'http://model.example/v1'"),
        ("URL", "ws://me:secret@model.example", "a password"),
        ("URL", "wss://model.example:port/v1", "'wss://model.example:port/v1'"),
        ("KEY_FILE", "/nonexistent", "/nonexistent"),
    ],
)
def test_a_model_server_that_cannot_be_used_is_named_before_anything_is_built(
    bed: Testbed,
    launch: Callable[..., Program],
    clone: Path,
    building: dict[str, str],
    setting: str,
    value: str,
    told: str,
) -> None:
    named = f"FIRSTHOP_BACKEND_{setting}"
    settings = {"FIRSTHOP_BACKEND": "realtime", "FIRSTHOP_BACKEND_URL": "wss://[::1]:9/v1?a=b", named: value}
    script = run(launch, bed, clone, {**building, **settings})
    assert script.wait(20) == 2
    lines = script.text().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"run: {named}: ")
    assert told in lines[0]
    assert "secret" not in lines[0]


def test_an_unknown_option_is_named(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    for options, told in (
        (["--frobnicate", "1"], "unknown option --frobnicate"),
        (["demo"], "Did you mean --demo?"),
        (["--http"], "--http needs a value"),
    ):
        script = run(launch, bed, clone, environment, *options)
        assert script.wait(20) == 2
        assert told in script.text()


def test_applications_are_taken_from_a_file_and_the_ready_text_names_it(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    # It counts from where the user stands: the tests stand in the clone.
    (clone / "apps.toml").write_text('[app.default]\nbackend = "echo"\n\n[app.notes]\nbackend = "echo"\n')
    script = run(launch, bed, clone, environment, "--apps", "apps.toml")
    script.wait_for_line("Ctrl-C stops everything.", READY_SECONDS)
    assert f"backend: [app.default] of {clone}/apps.toml" in script.text()
    assert script.stop() == 0
    (clone / "apps.toml").unlink()


def test_what_only_a_program_can_judge_is_named_as_the_script_calls_it(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    for setting, value, named in (
        ("FIRSTHOP_BACKEND_CA", "/nonexistent", "FIRSTHOP_BACKEND_CA: "),
        ("FIRSTHOP_BACKEND_URL", "wss://models.example", "FIRSTHOP_BACKEND_URL: "),
    ):
        script = run(launch, bed, clone, {**environment, setting: value})
        assert script.wait(20) == 2
        lines = script.text().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"run: {named}")
        assert programs_in(bed) == {}


def test_the_backends_that_the_script_knows_are_those_of_the_transceiver(
    bed: Testbed, launch: Callable[..., Program], clone: Path, binaries: Path, environment: dict[str, str]
) -> None:
    def names(words: str) -> str:
        return words.split("give one of ")[1].strip()

    told = subprocess.run(
        [binaries.resolve() / "transceiver", "--backend=nobody"], capture_output=True, text=True, check=False
    )
    script = run(launch, bed, clone, environment, "--backend", "nobody")
    assert script.wait(20) == 2
    assert names(script.text()) == names(told.stderr)


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


def test_a_machine_without_io_uring_is_told_how_to_allow_it(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    cat = tmp_path / "cat"
    cat.write_text(
        f"""#!/bin/sh
[ "$*" != /proc/sys/kernel/io_uring_disabled ] || {{ echo 2; exit 0; }}
exec {shutil.which("cat")} "$@"
"""
    )
    cat.chmod(0o755)
    script = run(launch, bed, clone, {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert script.wait(20) == 2
    assert "io_uring is disabled on this machine (kernel.io_uring_disabled = 2)" in script.text()
    assert "sysctl -w kernel.io_uring_disabled=0" in script.text()
    assert programs_in(bed) == {}


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
