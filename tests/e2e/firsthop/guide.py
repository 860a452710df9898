"""The operations guide: its commands, and machines on which they can be tried as they stand there.

The machines are loopback addresses of one namespace, each with an /etc/firsthop of its own. In place of `ssh` and
`systemctl` there are scripts: the one changes into the other machine's folder, the other asks a supervisor that starts
and stops the programs.
"""

import json
import os
import re
import signal
import socket
import subprocess
import textwrap
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from .namespaces import Namespace
from .processes import Program

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "operations.md"

_SSH = """\
#!/bin/sh
# ssh HOST COMMAND: the command line goes to a shell there, as ssh gives it.
host=$1
shift
GUIDE_HOST=$host exec sh -c "$(printf '%s' "$*" | sed "s#/etc/firsthop#$GUIDE_ETC/$host#g")"
"""

_SYSTEMCTL = """\
#!/usr/bin/env python3
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as supervisor:
    supervisor.connect(os.environ["GUIDE_SUPERVISOR"])
    supervisor.sendall(json.dumps([os.environ["GUIDE_HOST"], *sys.argv[1:]]).encode() + b"\\n")
    status, text = json.loads(supervisor.makefile().readline())
print(text, end="")
sys.exit(status)
"""


def blocks() -> dict[str, str]:
    """Every block of commands of the guide that has a name, by it."""
    found = re.findall(r"<!-- ([a-z-]+) -->\n *```sh\n(.*?)^ *```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len({name for name, _ in found}) == len(found), "two blocks have one name"
    return {name: textwrap.dedent(block) for name, block in found}


class Supervisor:
    """Does on each machine what the commands ask systemd for."""

    def __init__(self, path: Path, units: Mapping[tuple[str, str], Callable[[], Program]]) -> None:
        """`units` says for each machine and unit how its program is started; it need not be ready yet then."""
        self.path = path
        self.running: dict[tuple[str, str], Program] = {}
        self._units = units
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, name="supervisor", daemon=True).start()

    def close(self) -> None:
        """Hears nobody any more."""
        self._listener.close()

    def start(self, host: str, unit: str) -> Program:
        """Starts a unit, as when the machine boots."""
        made = self.running[host, unit] = self._units[host, unit]()
        return made

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            host, *words = json.loads(connection.makefile().readline())
            try:
                answer = self._do(host, words)
            except Exception as error:
                answer = (1, f"{' '.join(words)}: {error!r}\n")
            connection.sendall(json.dumps(answer).encode() + b"\n")

    def _do(self, host: str, words: list[str]) -> tuple[int, str]:
        quiet = "--quiet" in words
        action, unit = (word for word in words if not word.startswith("-"))
        program = self.running.get((host, unit))
        active = program is not None and program.running()
        match action:
            case "is-active":
                return (0 if active else 3, "" if quiet else "active\n" if active else "inactive\n")
            case "start":
                if not active:
                    self.start(host, unit)
                return 0, ""
            case "stop":
                if program is not None and active:
                    program.signal(signal.SIGTERM)
                    program.wait(threading.TIMEOUT_MAX)
                return 0, ""
        raise ValueError(f"{action} is nothing that the guide needs so far")


class Desk:
    """The place from which somebody follows the guide: a folder with the master keys, and a shell in a namespace."""

    def __init__(
        self,
        namespace: Namespace,
        directory: Path,
        programs: Path,
        supervisor: Supervisor,
        variables: Mapping[str, str],
    ) -> None:
        """`variables` are those that the guide asks its reader to set."""
        self._namespace = namespace
        self.directory = directory
        tools = directory / "tools"
        tools.mkdir()
        for name, script in (("ssh", _SSH), ("systemctl", _SYSTEMCTL)):
            (tools / name).write_text(script)
            (tools / name).chmod(0o755)
        self.etc = directory / "etc"
        self._environment = {
            "PATH": f"{tools}:{programs}:{os.environ['PATH']}",
            "GUIDE_ETC": str(self.etc),
            "GUIDE_SUPERVISOR": str(supervisor.path),
            **variables,
        }

    def start(self, *names: str) -> subprocess.Popen[str]:
        """Begins to carry out blocks of the guide, one after the other, as one shell script."""
        found = blocks()
        script = "set -euo pipefail\n" + "\n".join(found[name] for name in names)
        return subprocess.Popen(
            self._namespace.command("bash", "-c", script),
            cwd=self.directory,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def follow(self, *names: str) -> str:
        """Carries out blocks of the guide, which must succeed; returns what they printed."""
        return self.finish(self.start(*names))

    def finish(self, shell: subprocess.Popen[str]) -> str:
        """Waits for the end of what was begun, which must be a success; returns what it printed."""
        status, text = self.end_of(shell)
        assert status == 0, f"the guide's commands ended with {status}: {text}"
        return text

    def end_of(self, shell: subprocess.Popen[str]) -> tuple[int, str]:
        """Waits for the end of what was begun; returns its exit status and what it printed."""
        try:
            text, _ = shell.communicate()
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
        return shell.returncode, text
