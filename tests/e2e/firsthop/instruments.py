"""The programs of `perf` that are told what to do while they run: impairment forwarder, model server, callers.

Each reads commands from its standard input, a line each, and answers each with one line of JSON. Everything else it
prints begins otherwise. It ends when its standard input does.
"""

import json
from pathlib import Path
from typing import Any

from .namespaces import Namespace
from .processes import Program

Answer = dict[str, Any]

READY_SECONDS = 30.0
ANSWER_SECONDS = 15.0


class Instrument(Program):
    """One of these programs, which runs and is ready."""

    def __init__(
        self, name: str, binaries: Path, namespace: Namespace, directory: Path, kind: str, *arguments: str
    ) -> None:
        command = namespace.command(binaries / "perf", kind, *arguments)
        super().__init__(name, command, directory / f"{name}.log", told=True)
        self.wait_for_line(lambda line: _is_answer(line) and "ready" in json.loads(line), READY_SECONDS)

    def ask(self, command: str, timeout: float = ANSWER_SECONDS) -> Answer:
        """Gives a command and returns the answer, or fails with what the program says is wrong.

        One command at a time: whoever asks is the only one that does.
        """
        before = self.printed()
        self.tell(command)
        answer: Answer = json.loads(self.wait_for_line(_is_answer, timeout, after=before))
        if "error" in answer:
            raise AssertionError(f"{self.name}: {command}: {answer['error']}")
        return answer

    def wait_for_answer(self, field: str, timeout: float) -> Answer:
        """The first answer so far, or within `timeout` seconds, that has this field: what it says unasked."""
        return json.loads(self.wait_for_line(lambda line: _is_answer(line) and field in json.loads(line), timeout))


def _is_answer(line: str) -> bool:
    return line.startswith("{")
