"""What `scripts/run` refuses of what it is told, in a line that names the setting, and before anything is built."""

import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firsthop.namespaces import Testbed
from firsthop.processes import Program
from firsthop.script import programs_in, run


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


def test_all_taken_ports_are_named_at_once_and_a_folder_that_was_made_for_nothing_goes_again(
    bed: Testbed, launch: Callable[..., Program], clone: Path, environment: dict[str, str]
) -> None:
    def take() -> list[socket.socket]:
        taken = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for one, port in zip(taken, (4000, 5000), strict=True):
            one.bind(("127.0.0.1", port))
        return taken

    taken = bed.server.call(take)
    script = run(launch, bed, clone, environment, "--state", "refused")
    assert script.wait(20) == 2
    for one in taken:
        one.close()
    for port, option in ((4000, "--internal-port"), (5000, "--trunk-port")):
        assert re.search(rf"port {port} on 127\.0\.0\.1 is taken .* choose another with {option}\.", script.text())
    assert not (clone / "refused").exists()
    # What there was stays, though it is empty.
    (clone / "refused").mkdir()
    script = run(launch, bed, clone, environment, "--state", "refused", "--trunk-port", "3478")
    assert script.wait(20) == 2
    assert (clone / "refused").exists()


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
        (["--demo", "x"], "unknown argument x\n  --demo takes no value."),
        (["--demo", "--fleet=3"], "unknown argument 3\n  --fleet takes no value."),
        (["--http", "1", "x"], "unknown argument x\n  See scripts/run --help."),
        (["--http"], "--http needs a value"),
    ):
        script = run(launch, bed, clone, environment, *options)
        assert script.wait(20) == 2
        assert told in script.text()


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


def test_the_tests_refuse_to_run_nothing(clone: Path) -> None:
    for only in ("--only=", "--only=,", "--only=everything"):
        done = subprocess.run([clone / "scripts/test", only], capture_output=True, text=True, check=False)
        assert done.returncode == 2, only
        assert "Passed" not in done.stdout
