"""A Prometheus that scrapes the programs of a stack, as k8s/observability has it: jobs, alerts, dashboard."""

import json
import re
import subprocess
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from . import metrics
from .namespaces import Namespace
from .processes import Program
from .waiting import until

OBSERVABILITY = Path(__file__).resolve().parents[3] / "k8s" / "observability"
ALERTS, SCRAPE, DASHBOARD = (OBSERVABILITY / name for name in ("alerts.yaml", "scrape.yaml", "dashboard.json"))

PORT = 9_090
START_SECONDS = 60.0
#: Two scrapes and an evaluation, and what a busy machine makes of them.
NOTICE_SECONDS = 60.0

#: Where the scrape configuration looks for the lists of programs.
_LISTS = "/etc/prometheus/firsthop/"


def promtool(*arguments: str | Path) -> str:
    """Runs promtool and returns what it said; a failure raises with its words."""
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"promtool {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def alerts() -> list[dict[str, Any]]:
    """Every alert, as its file has it."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


class Prometheus(Program):
    """One that runs in a namespace, and asks these programs (addresses by job) twice a second."""

    def __init__(self, namespace: Namespace, directory: Path, jobs: Mapping[str, list[str]]) -> None:
        self._namespace = namespace
        directory.mkdir()
        for job, targets in jobs.items():
            listed = yaml.safe_dump([{"targets": targets}])
            (directory / f"{job.removeprefix('firsthop-')}.yaml").write_text(listed)
        scrape = SCRAPE.read_text()
        assert _LISTS in scrape
        # How long each alert waits, its own tests say; here the faults are real.
        rules = re.sub(r"^( +for: ).*$", r"\g<1>0s", ALERTS.read_text(), flags=re.MULTILINE)
        (directory / "alerts.yaml").write_text(rules)
        (directory / "prometheus.yaml").write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
                    "rule_files": [f"{directory}/alerts.yaml"],
                    **yaml.safe_load(scrape.replace(_LISTS, f"{directory}/")),
                }
            )
        )
        command = namespace.command(
            "prometheus",
            f"--config.file={directory}/prometheus.yaml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address=127.0.0.1:{PORT}",
        )
        super().__init__("prometheus", command, directory / "prometheus.log")
        until("Prometheus is ready", lambda: self._ask("/-/ready")[0] == 200, START_SECONDS)

    def _ask(self, path: str) -> tuple[int, str]:
        try:
            return metrics.get(self._namespace, PORT, path)
        except OSError:
            assert self.running(), self.text()
            return 0, ""

    def get(self, path: str, **query: str) -> Any:
        """What its API answers."""
        status, text = self._ask(f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert status == 200, f"{path} {query}: {status} {text}"
        return json.loads(text)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that a query finds now."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"}

    def wait_for_alerts(self, *names: str) -> None:
        """Waits until all of these fire."""
        until(f"{', '.join(names)} fire", lambda: set(names) <= self.firing(), NOTICE_SECONDS)

    def wait_for_silence(self, *names: str) -> None:
        """Waits until none of these fires."""
        until(f"{', '.join(names)} do not fire", lambda: not set(names) & self.firing(), NOTICE_SECONDS)
