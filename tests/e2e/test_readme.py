"""What the documents name exists: who follows them word by word must not end at a file that was moved.

And every figure in them that was measured is what the files of results say.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: Made by building or running, so not there in a clone.
MADE = ("target/", "perf/results/quick/", ".firsthop/", "fuzz/failures", "node_modules/")


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


def test_the_report_and_the_figures_of_the_readme_are_those_of_the_results(binaries: Path, tmp_path: Path) -> None:
    readme = REPOSITORY / "README.md"
    copy = tmp_path / "README.md"
    copy.write_text(readme.read_text())
    page = tmp_path / "report.html"
    subprocess.run(
        [binaries / "perf", "report", "--out", page, "--document", copy],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    again = "scripts/bench report writes it anew"
    assert copy.read_text() == readme.read_text(), again
    assert page.read_text() == (REPOSITORY / "perf/results/report.html").read_text(), again


def test_the_plan_of_the_readme_can_be_made_from_the_results(binaries: Path) -> None:
    command = re.search(r"^scripts/perf (plan .*)$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert command is not None
    plan = subprocess.run(
        [binaries / "perf", *command[1].split(), "--json"], cwd=REPOSITORY, check=True, capture_output=True
    )
    assert len(json.loads(plan.stdout)["regions"]) == 3


def test_the_guide_sizes_by_what_was_measured() -> None:
    capacity = json.loads((REPOSITORY / "perf/results/capacity.json").read_text())
    carried = {(one["service"], one["work"]): one["per_core"] for one in capacity["carried"]}
    rows = {
        "relay": ("relay", "forwarding"),
        "transceiver, G.711 passed through": ("transceiver", "passthrough"),
        "transceiver, Opus decoded and encoded": ("transceiver", "transcoding"),
        "signaling": ("signaling", "set_up"),
    }
    guide = (REPOSITORY / "docs/operations.md").read_text()
    for part, measured in rows.items():
        row = re.search(rf"^\| {re.escape(part)} \| ([\d,]+) ", guide, re.MULTILINE)
        assert row is not None, part
        assert row[1] == f"{carried[measured]:,.0f}", part


def test_the_ratios_of_the_architecture_are_those_of_the_results() -> None:
    results = json.loads((REPOSITORY / "perf/results/relay.json").read_text())
    musts = {target["name"]: target["must"] for target in results["targets"]}
    named = {
        "up, to one receive": ["uplink_vs_floor_1500"],
        "MTU 9000": ["uplink_vs_floor_9000"],
        "MTU 1500, 64 owners": ["uplink_vs_floor_64dest"],
        "down, to one send": ["downlink_vs_floor"],
        "both ways": ["vs_go", "vs_nginx"],
        "a million flows": ["million_flows_vs_thousand"],
        "bytes per flow": ["bytes_per_flow"],
        "delay at half load": ["latency_p99_vs_single"],
        "timers late": ["timer_lateness_p999_ms"],
        "live loss": ["flood_live_loss"],
        "delay with 1,000 calls, p99, while": ["latency_p99_expiring_vs_not"],
        "junk, to forwarding": [
            f"junk_{kind}_vs_forwarding" for kind in ("random", "empty", "forged_ufrag", "replayed")
        ],
    }
    part = (REPOSITORY / "ARCHITECTURE.md").read_text().split("\n## Decided by measuring\n")[1]
    rows = re.findall(r"^\| (?P<what>\S.*) \| (?P<found>[\d./ -]+) \| (?P<must>[\d./ ]+) \|$", part, re.MULTILINE)
    assert len(rows) == len(named)
    for what, found, must in rows:
        names = next(names for begin, names in named.items() if what.startswith(begin))
        for column, figures in ((found, results["ratios"]), (must, musts)):
            for text, name in zip(column.split(" / "), names, strict=True):
                # What could not be measured has no figure.
                if text == "-":
                    assert name not in figures, f"{what}: {name}"
                    continue
                assert name in figures, f"{what}: {name} was not measured"
                decimals = len(text.partition(".")[2])
                assert f"{figures[name]:.{decimals}f}" == text, f"{what}: {name}"


def test_all_figures_that_the_readme_says_were_measured_stand_in_its_table() -> None:
    """What is outside of the table is checked by nothing, so no figure may stand there that a run could change."""
    part = re.search(r"^## Measure it$(.*?)^## ", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert part is not None
    text = part[1]
    table = re.search(r"<!-- measured: .*?<!-- /measured -->", text, re.DOTALL)
    assert table is not None
    assert len(re.findall(r"^\| \S", table[0], re.MULTILINE)) > 5, "the table has no rows"
    # Commands and their flags, links and the picture say nothing that was measured.
    for other in (re.escape(table[0]), r"```.*?```", r"`[^`]*`", r"<picture>.*?</picture>", r"\]\([^)]*\)"):
        text = re.sub(other, " ", text, flags=re.DOTALL)
    # How many packets a second a flow of a load has, and a status that a command exits with.
    assert re.findall(r"\d[\d.,]*", text) == ["50", "1"]
