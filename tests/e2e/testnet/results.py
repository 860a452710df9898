"""What the scenarios have shown: a table for people, and a file for programs."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .trial import Row

_HEAD = ("scenario", "calls", "gap down", "gap up", "before", "lost down", "lost up", "handshakes", "target", "verdict")


@dataclass(frozen=True)
class Occasion:
    """What was measured, where, and when."""

    commit: str
    date: str
    profile: str


def machine() -> str:
    """Processor, number of them, and kernel."""
    model = platform.processor() or platform.machine()
    cores = 0
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model, cores = value.strip(), cores + 1
    return f"{cores or 1} x {model}, Linux {platform.release()}"


def record(row: Row, occasion: Occasion) -> dict[str, Any]:
    """A row as the results file has it. Gaps are pauses in any call's audio, less the 20 ms that each packet takes."""
    down, up = row.down, row.up
    measured: dict[str, Any] = {"worst_gap_ms": None, "packets_lost": None}
    if down and up:
        measured = {
            "worst_gap_ms": max(down.gap_ms, up.gap_ms),
            "packets_lost": down.lost + up.lost,
            "down": {"worst_gap_ms": down.gap_ms, "packets_lost": down.lost, "packets": down.packets},
            "up": {"worst_gap_ms": up.gap_ms, "packets_lost": up.lost, "packets": up.packets},
        }
    return {
        "scenario": row.scenario.name,
        "what": row.scenario.what,
        "calls": row.calls,
        **measured,
        "before_ms": max(row.calm_down_ms, row.calm_up_ms),
        "handshakes": row.handshakes,
        "target": row.scenario.target,
        "down_most_ms": row.scenario.limits.down_ms,
        "up_most_ms": row.scenario.limits.up_ms,
        "verdict": "pass" if row.passed else "fail",
        "why": row.faults,
        "worst_call": row.worst,
        **row.facts,
        "machine": machine(),
        "commit": occasion.commit,
        "profile": occasion.profile,
        "date": occasion.date,
    }


def write(path: Path, rows: list[Row], occasion: Occasion) -> None:
    """Writes the results, whole or not at all. Scenarios of an earlier run that this one did not repeat stay."""
    records = {one["scenario"]: one for one in _earlier(path)}
    records.update({row.scenario.name: record(row, occasion) for row in rows})
    new = path.with_suffix(".tmp")
    new.write_text(json.dumps(list(records.values()), indent=1, ensure_ascii=False) + "\n")
    new.rename(path)


def _earlier(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


def table(rows: list[Row]) -> str:
    """The rows as aligned text, with what failed below it."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text += [f"{row.scenario.name}: {fault}" for row in rows for fault in row.faults]
    return "\n".join(text)


def _cells(row: Row) -> tuple[str, ...]:
    down, up = row.down, row.up
    return (
        row.scenario.name,
        str(row.calls),
        f"{down.gap_ms:.0f} ms" if down else "-",
        f"{up.gap_ms:.0f} ms" if up else "-",
        f"{max(row.calm_down_ms, row.calm_up_ms):.0f} ms",
        str(down.lost) if down else "-",
        str(up.lost) if up else "-",
        str(row.handshakes),
        row.scenario.target,
        "pass" if row.passed else "FAIL",
    )
