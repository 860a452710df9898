"""Starting, watching and stopping the programs under test."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: Seconds a program has to stop by itself after SIGTERM.
STOP_SECONDS = 15.0

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LEVEL = re.compile(r"^\S+Z?\s+(WARN|ERROR)\b|panicked at|^(thread '.*' panicked)|^Error:")


def is_complaint(line: str) -> bool:
    """Whether a log line is a warning, an error or a panic: none may appear in a passing test.

    Understands both log formats of the programs, JSON and text.
    """
    line = _COLOURS.sub("", line).strip()
    if line.startswith("{"):
        try:
            return json.loads(line).get("level") in ("WARN", "ERROR")
        except ValueError:
            return True
    return bool(_LEVEL.search(line))


class Program:
    """One running program and all that it has printed."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        told: bool = False,
    ) -> None:
        """Starts `command`. One that is `told` things by `tell` keeps its standard input open."""
        self.name = name
        self.log = log
        self.lines: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # The programs read their settings from the environment too: none may come in from outside.
            env={**{k: v for k, v in os.environ.items() if not k.startswith("FIRSTHOP_")}, **(environment or {})},
            cwd=directory,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name=f"log of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("a") as copy:
            for line in self._process.stdout:
                copy.write(line)
                copy.flush()
                with self._news:
                    self.lines.append((time.monotonic(), line.rstrip("\n")))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def tell(self, line: str) -> None:
        """Writes a line to the standard input of a program that is told things."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def dismiss(self) -> None:
        """Ends the standard input of a program that is told things: the sign that it may go."""
        if self._process.stdin is not None:
            # What it did not read before it ended is not for anybody.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def text(self) -> str:
        """Everything printed so far."""
        with self._news:
            return "\n".join(line for _, line in self.lines)

    def count(self, found: str) -> int:
        """How many of the lines so far contain `found`."""
        with self._news:
            return sum(found in line for _, line in self.lines)

    def printed(self) -> int:
        """How many lines it has printed so far."""
        with self._news:
            return len(self.lines)

    def wait_for_line(self, found: str | Callable[[str], bool], timeout: float, after: int = 0) -> str:
        """The first line in which `found` appears (or for which it is true), printed within `timeout` seconds.

        The first `after` lines are not looked at.
        """
        test = found if callable(found) else lambda line: found in line
        deadline = time.monotonic() + timeout
        seen = after
        with self._news:
            while True:
                for _, line in self.lines[seen:]:
                    if test(line):
                        return line
                seen = len(self.lines)
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    state = "ended" if self._ended else f"did not say within {timeout:g} s"
                    tail = "\n".join(line for _, line in self.lines[-30:])
                    raise AssertionError(f"{self.name} {state}: {found!r}; its last lines:\n{tail}")
                self._news.wait(left)

    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to this process alone."""
        if self.running():
            self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """The exit status; negative when a signal ended the process."""
        status = self._process.wait(timeout)
        self._reader.join(timeout)
        return status

    def kill(self) -> None:
        """Ends the process as a crash would, and waits until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Asks the process to stop and returns its exit status; one that will not is killed and fails the test."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop within {STOP_SECONDS:g} s of SIGTERM") from None

    def complaints(self) -> list[str]:
        """The warnings, errors and panics that it printed."""
        with self._news:
            return [line for _, line in self.lines if is_complaint(line)]
