"""`scripts/bench` measures everything, in its short form, and makes a page of it.

That it works is tested here; how well the programs do, a machine that builds and tests beside cannot say. So peers are
left out, which would have to be installed, and no figure is looked at but for being there.
"""

import json
import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

#: Elements that have no end.
VOID = {"meta", "br"}

#: What each file of results must have something of.
FILES: dict[str, list[str]] = {
    "relay": ["costs", "ratios", "flows", "latency", "floods"],
    "signaling": ["loads", "calls_per_core"],
    "calls": ["capacity", "memory", "churn"],
    "capacity": ["carried", "costs"],
    "setup": ["rungs", "round_trips", "echoes", "beside"],
}


class Page(HTMLParser):
    """A page as a tree without text; fails where it is none."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "these are never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes an element."""
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Takes its end."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Takes its text."""
        self.text.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [attributes for name, attributes in self.seen if name == tag]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, binaries: Path) -> Path:
    """The folder with what the whole benchmark, in its short form, has written."""
    folder = tmp_path_factory.mktemp("bench") / "results"
    before = state_of_results()
    subprocess.run(
        ["scripts/bench", "--quick", "--without-peers", "--results", folder],
        cwd=REPOSITORY,
        env={**os.environ, "FIRSTHOP_BINARIES": str(binaries)},
        check=True,
    )
    assert state_of_results() == before, "results of a whole run were touched"
    return folder


def state_of_results() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (REPOSITORY / "perf/results").glob("*.*")}


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("name", FILES)
def test_each_measurement_leaves_a_file_that_says_what_was_measured(results: Path, name: str) -> None:
    found: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
    assert found["machine"]["processors"] >= 2
    assert found["commit"].endswith("(build of FIRSTHOP_BINARIES)")
    assert found["date"].endswith("Z")
    assert [part for part in FILES[name] if not found[part]] == []


@pytest.mark.timeout(1_500)
def test_set_ups_beside_calls_were_placed_by_the_relay_and_past_it(results: Path) -> None:
    passes = json.loads((results / "setup.json").read_text())["beside"]["passes"]
    assert [[way["subject"] for way in both] for both in passes] == [["relay", "direct"]]
    for way in passes[0]:
        assert way["set_up"], f"no set-up came about: {way}"
        assert way["set_up"]["count"] > 0
        assert 0 < way["set_up"]["p50"] <= way["set_up"]["p99"]


@pytest.mark.timeout(1_500)
def test_the_page_shows_all_of_it_and_needs_nothing_else(results: Path) -> None:
    page = Page((results / "report.html").read_text())
    sections = [attributes.get("id") for attributes in page.attributes("section")]
    assert sections[1:] == ["relay", "calls", "signaling", "setup", "capacity", "testnet", "history", "method"]
    # The test world alone was not part of this.
    assert [text for text in page.text if text.startswith("Not measured yet")] == ["Not measured yet: "]
    assert len(page.attributes("figure")) > 10
    assert not [tag for tag, _ in page.seen if tag in ("script", "link", "img", "iframe", "object")]
    assert {attributes["href"][:1] for attributes in page.attributes("a") if attributes["href"]} == {"#"}
    for drawing in page.attributes("div"):
        assert drawing.get("role") != "img" or drawing["aria-label"]
    for _, attributes in page.seen:
        assert not {"src", "style", "onload", "onerror", "srcset"} & attributes.keys()


def test_a_plan_is_made_of_files_of_results(binaries: Path) -> None:
    """Of a sample: on a machine that is busy with tests it may be that nothing keeps to its limits."""
    command = [binaries / "perf", "plan", "--results", Path(__file__).parent / "sample", "--json"]
    users = "--users 100000 --concurrent 10% --transcoding 0% --call-length 100s --set-up-peak 2 --failures 2"
    machines = "--headroom 50% --tls-handshake 0 --relay-cores 2 --transceiver-cores 10 --signaling-cores 1"
    planned = subprocess.run([*command, *users.split(), *machines.split()], capture_output=True, text=True, check=True)
    plan = json.loads(planned.stdout)
    total = plan["total"]
    assert (total["calls"], total["set_ups"]) == (10_000, 200)
    # 300 calls on a core kept to the limits, and 200 set-ups of 4 ms are 0.8 of one: 34.1 of 5 that a machine may use.
    assert total["transceivers"]["machines"] == 7 + 2
    # 300 µs of a call, and 0.5 ms of a set-up: 3.1 of 1.
    assert total["relays"]["machines"] == 4 + 2
    assert total["signaling"]["machines"] == 1 + 2
    assert len(plan["fitted"]) == 7
    assert plan["cautions"] == []


def test_a_plan_says_which_file_it_lacks(binaries: Path, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "sample" / "relay.json", tmp_path)
    command = [binaries / "perf", "plan", "--users", "1e6", "--results", tmp_path]
    planned = subprocess.run(command, capture_output=True, text=True, check=False)
    assert planned.returncode != 0
    assert "no file of results says" in planned.stderr
    assert "scripts/bench calls" in planned.stderr
