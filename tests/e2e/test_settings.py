"""Values that cannot be used: one line that names the setting and the fix, and exit status 2."""

import re
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from firsthop.stack import Stack


@pytest.mark.parametrize(
    ("program", "setting", "value"),
    [
        ("relay", "listen", "nonsense"),
        ("relay", "listen", "10.77.1.1:3478=10.99.99.99:3478"),
        ("relay", "cores", "0"),
        ("relay", "internal-networks", "10.0.0.0/64"),
        ("relay", "keyring", "/nonexistent/data.toml"),
        ("relay", "fleet", "/nonexistent/fleet.toml"),
        ("relay", "cluster", "77"),
        ("relay", "spin", "perhaps"),
        ("relay", "admin", "here"),
        ("transceiver", "trunk", "nonsense"),
        ("transceiver", "owner", "0.0.0.0:5000"),
        ("transceiver", "workers", "0"),
        ("transceiver", "workers", "1000"),
        ("transceiver", "backend", "nobody"),
        ("transceiver", "control-secret-file", "/nonexistent/secret"),
        ("transceiver", "keyring", "/nonexistent/data.toml"),
        ("signaling", "listen", "nonsense"),
        ("signaling", "transceivers", "not a url"),
        ("signaling", "ingresses", "99"),
        ("signaling", "api-keys", "/nonexistent/keys.toml"),
        ("signaling", "api-keyring", "/nonexistent/api.toml"),
        ("signaling", "cluster", "77"),
        ("signaling", "log-format", "xml"),
    ],
)
def test_a_bad_setting_stops_the_start_with_one_line(stack: Stack, program: str, setting: str, value: str) -> None:
    settings: dict[str, str | Sequence[str]] = {
        "relay": stack.relay_settings,
        "transceiver": stack.transceiver_settings,
        "signaling": stack.signaling_settings,
    }[program]
    launched = stack.launch(program, {**settings, setting: value})
    assert launched.wait(10) == 2
    lines = launched.text().strip().splitlines()
    assert len(lines) == 1, launched.text()
    assert setting in lines[0], lines[0]
    stack.expected_complaints.append(".")


def test_each_program_may_have_as_many_files_open_as_the_hard_limit_allows(stack: Stack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What systemd gives a service: the programs inherit it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1_024, hard), hard))
    try:
        stack.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for program in (stack.relay, stack.transceiver, stack.signaling):
        assert program is not None
        limits = Path(f"/proc/{program.pid}/limits").read_text()
        assert re.findall(r"^Max open files +(\d+) +(\d+) ", limits, re.M) == [(str(hard), str(hard))]
