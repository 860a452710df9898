"""Many short calls, several at once: when they are over, all that they took has been given back."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsthop.launching import KEY
from firsthop.processes import Program
from firsthop.stack import Stack
from firsthop.waiting import until

CALLS = 250
PER_SECOND = 25
#: How long each lasts, in seconds, and so how many there are at once.
SECONDS = 1.5
#: For everything beside the calls, on a machine that is busy.
PATIENCE = 60.0

#: Memory that a program may have more of, in bytes for each call. A session that is not let go takes 65,000 in the
#: engine alone; what the allocator keeps in pieces after one round and not after the other is a small part of that.
GROWTH = 8_192
#: Connections between the programs that are kept for the next request: as many as were needed at once.
SPARE = 32


@dataclass(frozen=True)
class Held:
    """What a program has of the kernel."""

    resident: int
    descriptors: int
    threads: int

    @classmethod
    def by(cls, program: Program) -> "Held":
        """By this one, now."""
        process = Path("/proc") / str(program.pid)
        pages = int((process / "statm").read_text().split()[1])
        descriptors, threads = (len(list((process / folder).iterdir())) for folder in ("fd", "task"))
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), descriptors, threads)


def test_hundreds_of_short_calls_leave_nothing_behind(stack: Stack, binaries: Path, tmp_path: Path) -> None:
    # Tables and buffers of a relay's core are made at its start, and are memory once something has been everywhere in
    # them: the first round shall do that, so that there are few.
    stack.relay_settings |= {"cores": "1", "flows-per-core": "1024"}
    stack.transceiver_settings["workers"] = "2"
    stack.start()
    programs = [stack.transceiver, stack.relay, stack.signaling]

    def held() -> list[Held]:
        return [Held.by(program) for program in programs if program is not None]

    # Buffers, connections and threads are made by the first that need them.
    place_calls(stack, binaries, tmp_path / "first.log")
    before = held()
    place_calls(stack, binaries, tmp_path / "second.log")

    def given_back() -> bool:
        pairs = zip(held(), before, strict=True)
        return all(now.threads <= then.threads and now.descriptors <= then.descriptors + SPARE for now, then in pairs)

    until("descriptors and threads are given back", given_back, PATIENCE)
    after = held()
    assert stack.sessions_created() == 2 * CALLS
    for program, then, now in zip(programs, before, after, strict=True):
        assert program is not None
        grown = (now.resident - then.resident) / CALLS
        print(f"{program.name}: {then} -> {now}, {grown:.0f} bytes for each call")
        assert grown <= GROWTH, program.name


def place_calls(stack: Stack, binaries: Path, log: Path) -> None:
    """Half of them end by the client's closing, half by a hang-up; all come about, and nothing of them is left."""
    command = stack.bed.client.command(
        binaries / "perf", "calls", "--url", stack.url, "--key", KEY, "--calls", str(CALLS), "--ramp",
        f"{PER_SECOND}/s", "--duration", str(SECONDS), "--settle", "0", "--codec", "pcmu", "--no-marks", "--end",
        "told", "--json",
    )  # fmt: skip
    program = Program("perf calls", command, log)
    try:
        assert program.wait(CALLS / PER_SECOND + PATIENCE) == 0, program.text()
    finally:
        program.kill()
    text = program.text()
    report: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
    assert report["connected"] == CALLS, text
    until("the sessions are gone", lambda: stack.sessions() == 0, PATIENCE)
    until("the flows are gone", lambda: stack.flows() == 0, PATIENCE)
