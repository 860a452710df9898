"""systemd units, read as systemd reads them, as far as the tests ask."""

import re
import subprocess
from pathlib import Path


def read(path: Path) -> dict[str, list[str]]:
    """All settings of a unit, each with its values in their order."""
    settings: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        match = re.match(r"(\w+)=(.*)$", line)
        if match:
            settings.setdefault(match[1], []).append(match[2])
    return settings


def environment(path: Path) -> dict[str, str]:
    """The variables of an EnvironmentFile."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def system_calls(filters: list[str]) -> set[str]:
    """The system calls that lines of SystemCallFilter= allow, the first of which is a list of what is."""
    found: set[str] = set()
    for line in filters:
        names = {call for name in line.removeprefix("~").split() for call in _group(name)}
        found = found - names if line.startswith("~") else found | names
    return found


def _group(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    said = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    members = [line.strip() for line in said.stdout.splitlines()[1:]]
    return {call for one in members if one and not one.startswith("#") for call in _group(one)}
