"""docs/faults.md: the faults seen elsewhere, and the tests that it says hold them off."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def _rows() -> list[tuple[int, str]]:
    text = (REPOSITORY / "docs" / "faults.md").read_text()
    return [(int(number), held) for number, held in ROW.findall(text)]


def test_each_fault_has_a_number_and_a_test_that_exists() -> None:
    rows = _rows()
    assert [number for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 26
    for number, held in rows:
        for place in held.split("; "):
            file, *names = re.findall(r"`([^`]+)`", place)
            text = (REPOSITORY / file).read_text()
            assert names, f"fault {number}: no test in {file}"
            for name in names:
                keyword = "def" if file.endswith(".py") else "fn"
                assert re.search(rf"\b{keyword} {name}\(", text), f"fault {number}: {file} has no {name}"


def test_each_number_that_code_names_is_a_fault() -> None:
    numbers = {number for number, _ in _rows()}
    for folder in ("relay", "transceiver", "signaling", "shared", "service"):
        for file in (REPOSITORY / folder).rglob("*.rs"):
            for number in re.findall(r"\b[Ff]ault (\d+)\b", file.read_text()):
                assert int(number) in numbers, f"{file}: fault {number}"
