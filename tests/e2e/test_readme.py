"""What the documents name exists: who follows them word by word must not end at a file that was moved.

And what they say that a failure costs is what was measured.
"""

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: Made by building or running, so not there in a clone.
MADE = ("target/", ".firsthop/", "fuzz/failures", "node_modules/")


def documents() -> list[Path]:
    return [REPOSITORY / "README.md", REPOSITORY / "ARCHITECTURE.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_every_link_and_path_of_a_document_leads_somewhere(document: Path) -> None:
    text = document.read_text()
    folders = "|".join(
        entry.name for entry in REPOSITORY.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )
    named = {
        *(link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link),
        *re.findall(r'(?:src|srcset)="([^"]+)"', text),
        *re.findall(r"@([\w./-]+\.sdp)", text),
        *re.findall(rf"`((?:{folders})/[\w./-]*)`", text),
    }
    assert named or document.name != "README.md", "no path was found: this test no longer sees them"
    missing = [
        path
        for path in sorted(named)
        if not path.startswith(MADE) and not (document.parent / path).exists() and not (REPOSITORY / path).exists()
    ]
    assert missing == []


def test_the_table_of_failures_has_what_the_test_world_has_measured() -> None:
    results = json.loads((REPOSITORY / "perf/results/testnet.json").read_text())
    rows = re.findall(
        r"^\| .* \| `([a-z-]+)` \| ([\d,]+) ms \| ([\d,]+) ms \| ([\d,]+) \|",
        (REPOSITORY / "ARCHITECTURE.md").read_text(),
        flags=re.MULTILINE,
    )
    assert sorted(rows) == sorted(
        (
            one["scenario"],
            f"{one['down']['worst_gap_ms']:,.0f}",
            f"{one['up']['worst_gap_ms']:,.0f}",
            f"{one['packets_lost']:,}",
        )
        for one in results
    )
