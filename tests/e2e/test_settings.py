"""Values that cannot be used: one line that names the setting and the fix, and exit status 2."""

import json
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from firsthop.launching import READY_SECONDS, says_ready
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


SECRETS = {
    "relay": {"keyring": "data.toml"},
    "transceiver": {"keyring": "data.toml", "control-secret-file": "control-secret"},
    "signaling": {"keyring": "data.toml", "api-keyring": "api.toml", "control-secret-file": "control-secret"},
}


@pytest.fixture
def everybodys(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user of the machine can reach, as those of other tests are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder)
        path.chmod(0o755)
        for name in {name for files in SECRETS.values() for name in files.values()}:
            shutil.copy(tmp_path / name, path)
        yield path


@pytest.mark.parametrize("program", SECRETS)
@pytest.mark.parametrize(("mode", "exposed"), [(0o644, True), (0o640, False)])
def test_a_secret_that_everybody_can_read_is_warned_of(
    stack: Stack, everybodys: Path, program: str, mode: int, exposed: bool
) -> None:
    settings: dict[str, str | Sequence[str]] = {
        "relay": stack.relay_settings,
        "transceiver": stack.transceiver_settings,
        "signaling": stack.signaling_settings,
    }[program]
    own = {setting: str(everybodys / name) for setting, name in SECRETS[program].items()}
    for path in own.values():
        Path(path).chmod(mode)
    launched = stack.launch(program, {**settings, **own})
    launched.wait_for_line(says_ready, READY_SECONDS)
    warned = [json.loads(line)["fields"] for line in launched.complaints()]
    # By setting and file, and what it holds is not told.
    assert {one["setting"]: one["path"] for one in warned} == (own if exposed else {})
    secret = (everybodys / "control-secret").read_text().strip()
    assert secret not in launched.text()
    stack.expected_complaints.append("every user of this machine can read this secret")


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
