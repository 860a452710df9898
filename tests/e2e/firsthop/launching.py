"""What it takes to start the programs: their files, their command lines, and what became of them."""

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .namespaces import Namespace
from .processes import Program

#: Settings of a program: flags without the dashes; a list repeats its flag.
Settings = Mapping[str, str | Sequence[str]]

RELAY_ADMIN, TRANSCEIVER_CONTROL, SIGNALING_METRICS = 9101, 5080, 9103
KEY = "dev"
READY_SECONDS = 30.0


class Launcher:
    """Starts the programs with one set of files: keyrings, secrets, API keys and the fleet."""

    def __init__(self, binaries: Path, directory: Path, fleet: str) -> None:
        self.programs: list[Program] = []
        #: Regular expressions for the warnings that this test means to cause.
        self.expected_complaints: list[str] = []
        self._binaries = binaries
        self._directory = directory
        self.keys("init")
        (directory / "control-secret").write_text(os.urandom(24).hex() + "\n")
        # As the guide has it: programs warn of a secret that everybody can read.
        (directory / "control-secret").chmod(0o600)
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        (directory / "api-keys.toml").write_text(f'[[key]]\nname = "test"\nsha256 = "{digest}"\n')
        self.write_fleet(fleet)

    def write_fleet(self, text: str) -> None:
        """Writes the fleet file, whole or not at all: programs that run read it again."""
        new = self._directory / "fleet.toml.new"
        new.write_text(text)
        new.rename(self._directory / "fleet.toml")

    def keys(self, *arguments: str) -> None:
        """Runs the keys tool on the folder of these keyrings: `keys("activate", "2")`."""
        command = [self._binaries / "keys", arguments[0], self._directory, *arguments[1:]]
        subprocess.run(command, check=True, capture_output=True)

    def launch_in(self, namespace: Namespace, program: str, settings: Settings, name: str | None = None) -> Program:
        """Starts a program in a namespace with these settings beside the usual files, and does not wait for it.

        `name` tells several of a program apart, in messages and by their logs.
        """
        directory, name = self._directory, name or program
        every: dict[str, str | Sequence[str]] = {
            "keyring": f"{directory}/data.toml",
            "fleet": f"{directory}/fleet.toml",
            "cluster": "1",
            "log-format": "json",
        }
        if program != "relay":
            every["control-secret-file"] = f"{directory}/control-secret"
        if program == "signaling":
            every["api-keyring"] = f"{directory}/api.toml"
            every["api-keys"] = f"{directory}/api-keys.toml"
        flags = [
            f"--{flag}={one}"
            for flag, value in {**every, **settings}.items()
            for one in ([value] if isinstance(value, str) else value)
        ]
        made = Program(name, namespace.command(self._binaries / program, *flags), directory / f"{name}.log")
        self.programs.append(made)
        return made

    def kill_all(self) -> None:
        """Ends what still runs."""
        for program in self.programs:
            program.kill()

    def complaints(self) -> list[str]:
        """What any of the programs, dead ones too, warned of and the test did not expect."""
        return [
            f"{program.name}: {line}"
            for program in self.programs
            for line in program.complaints()
            if not any(re.search(expected, line) for expected in self.expected_complaints)
        ]


def says_ready(line: str) -> bool:
    """Whether a program says in this line of its log that it serves."""
    return '"ready"' in line or " ready" in line
