"""Metrics, dashboard and alerts fit together, and a Prometheus that scrapes running programs finds all of it."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from firsthop import metrics, namespaces, session
from firsthop.caller import Caller, request
from firsthop.catalogue import Family, families, family_of, table
from firsthop.launching import READY_SECONDS, RELAY_ADMIN, SIGNALING_METRICS, TRANSCEIVER_CONTROL
from firsthop.namespaces import Testbed
from firsthop.processes import Program
from firsthop.prometheus import ALERTS, DASHBOARD, OBSERVABILITY, Prometheus, alerts, promtool
from firsthop.promql import SCRAPED_LABELS, grouped_labels, made_labels, selectors
from firsthop.stack import Stack
from firsthop.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE, GUIDE = REPOSITORY / "docs" / "metrics.md", REPOSITORY / "docs" / "operations.md"

PROGRAMS = {"relay": RELAY_ADMIN, "transceiver": TRANSCEIVER_CONTROL, "signaling": SIGNALING_METRICS}
REDIS_PORT = 6_379

#: What samples may be told apart by: none of these grows with calls or clients.
LABELS = frozenset(
    [
        "answer",
        "cause",
        "cluster",
        "commit",
        "core",
        "direction",
        "fault",
        "file",
        "outcome",
        "phase",
        "reason",
        "relay",
    ]
    + ["route", "socket", "standing", "state", "status", "to", "value", "version", "worker"]
)
#: Of each metric a program has no more series than this, in the test bed's small fleet.
SERIES_MAX = 150

#: Variables of Grafana's, as a query has them when it reaches Prometheus.
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}


class Observed(Stack):
    """A stack whose relay has a flow cache and knows another cluster's relay, and a Prometheus that scrapes it all."""

    def __init__(self, bed: Testbed, binaries: Path, directory: Path) -> None:
        super().__init__(bed, binaries, directory)
        self.keyring = directory / "data.toml"
        self.redis: Program | None = None
        self.relay_settings["redis"] = f"redis://127.0.0.1:{REDIS_PORT}"
        other = '[[cluster]]\nid = 2\nname = "other"\nrelays = [{ address = "127.0.0.9", cores = 1 }]\n'
        self.write_fleet((directory / "fleet.toml").read_text() + other)
        # Redis and the transceiver go away, a file is spoilt, and the fleet file names two cores.
        self.expected_complaints += ["flow cache", "transceiver", "cannot be used", "fleet"]

    def start_redis(self) -> Program:
        """Starts the relay's Redis, empty, and waits until it serves."""
        command = f"redis-server --bind 127.0.0.1 --port {REDIS_PORT} --appendonly no --save"
        made = Program("redis", self.bed.server.command(*command.split(), ""), self._directory / "redis.log")
        self.programs.append(made)
        made.wait_for_line("Ready to accept connections", READY_SECONDS)
        return made

    def start_prometheus(self, directory: Path) -> None:
        """Starts the Prometheus that scrapes all three programs."""
        jobs = {f"firsthop-{name}": [f"127.0.0.1:{port}"] for name, port in PROGRAMS.items()}
        self.prometheus = Prometheus(self.bed.server, directory, jobs)
        self.programs.append(self.prometheus)

    def pages(self) -> dict[str, dict[str, Family]]:
        """The metrics of each program."""
        return {name: families(metrics.get(self.bed.server, port, "/metrics")[1]) for name, port in PROGRAMS.items()}


@pytest.fixture(scope="module")
def observed(binaries: Path, tmp_path_factory: pytest.TempPathFactory, sentence: Any) -> Iterator[Observed]:
    """Programs that have carried a call, and look as they do then to whoever scrapes them."""
    with namespaces.testbed() as bed:
        made = Observed(bed, binaries, tmp_path_factory.mktemp("observed"))
        try:
            made.redis = made.start_redis()
            made.start()
            made.start_prometheus(tmp_path_factory.mktemp("prometheus") / "it")
            caller = Caller(bed.client, made.url, sentence)
            caller.call()
            caller.speak()
            caller.wait_for_heard(1, 15)
            assert caller.hang_up().status == 200
            caller.close()
            yield made
            made.stop()
            assert made.complaints() == []
        finally:
            made.kill_all()


def expressions() -> list[tuple[str, str, set[str]]]:
    """Every query of the dashboard and the alerts: where it stands, the query, and which labels are shown of it."""
    found = []
    for rule in alerts():
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        found.append((rule["alert"], rule["expr"], shown))
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            found.append((panel["title"], query, set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))))
    return found


def test_names_and_labels_follow_the_rules(observed: Observed) -> None:
    for program, page in observed.pages().items():
        for family in page.values():
            shown = family.shown
            assert re.fullmatch(rf"firsthop_{program}_[a-z][a-z0-9_]*", shown), shown
            assert not re.search(r"milli|micro|nano|kilo|minute|percent|_(ms|us|ns|kb|mb)(_|$)", shown), shown
            assert family.kind in ("counter", "gauge", "histogram", "info"), shown
            assert (family.kind == "counter") == shown.endswith("_total"), shown
            for unit in ("seconds", "bytes"):
                if unit in shown:
                    assert shown.removesuffix("_total").removesuffix("_limit").endswith(unit), f"{shown}: unit last"
            assert len(family.help) > 10, f"{shown} says nothing"
            assert set(family.labels) <= LABELS, f"{shown}: {set(family.labels) - LABELS}"


def test_histograms_of_every_program_end_in_a_bucket_without_bound(observed: Observed) -> None:
    seen = set()
    for program, port in PROGRAMS.items():
        status, text = metrics.get(observed.bed.server, port, "/metrics")
        assert status == 200
        page = metrics.Metrics.parse(text)
        for family in families(text).values():
            series = sum(len(page.samples.get(sample, [])) for sample in family.samples)
            assert series <= SERIES_MAX * (20 if family.kind == "histogram" else 1), family.name
            if family.kind != "histogram":
                continue
            seen.add(program)
            for labels, count in page.samples[f"{family.name}_count"]:
                buckets = [
                    (float(of["le"]), value)
                    for of, value in page.samples[f"{family.name}_bucket"]
                    if {k: v for k, v in of.items() if k != "le"} == labels
                ]
                assert buckets == sorted(buckets), family.name
                assert buckets[-1] == (float("inf"), count), family.name
                assert buckets[-2][0] < 1e9, family.name
    assert seen == set(PROGRAMS)


def test_the_metrics_table_is_what_the_programs_say(observed: Observed) -> None:
    made = table({program: page.values() for program, page in observed.pages().items()})
    if os.environ.get("FIRSTHOP_WRITE_DOCS"):
        TABLE.write_text(made)
    assert TABLE.read_text() == made, f"{TABLE} is stale: its first lines say how to write it anew"


def documented() -> dict[str, Family]:
    """The metrics of the table, by name without suffix."""
    found = {}
    for line in TABLE.read_text().splitlines():
        match = re.fullmatch(r"\| `(firsthop_\w+)` \| (\w+) \| (.*?) \| .* \|", line)
        if match:
            name = match[1].removesuffix({"counter": "_total", "info": "_info"}.get(match[2], ""))
            labels = {label: set() for label in re.findall(r"`(\w+)`", match[3])}
            found[name] = Family(name, match[2], "", labels)
    return found


def test_queries_use_documented_metrics_and_labels_alone() -> None:
    known = documented()
    assert len(known) > 100
    for where, query, shown in expressions():
        allowed = set(SCRAPED_LABELS) | made_labels(query)
        asked = selectors(query)
        assert asked, f"{where} asks for no metric: {query}"
        for one in asked:
            if one.name == "up":
                continue
            family = family_of(one.name, known)
            assert family, f"{where}: {one.name} is not in {TABLE.name}"
            labels = set(family.labels) | SCRAPED_LABELS
            assert {matcher.label for matcher in one.matchers} <= labels, f"{where}: {one}"
            allowed |= labels
        used = grouped_labels(query) | shown
        assert used <= allowed, f"{where}: {used - allowed} in {query}"


def test_queries_parse(tmp_path: Path) -> None:
    """As recording rules: promtool parses these as Prometheus would."""
    rules = [{"record": f"query:{number}", "expr": query} for number, (_, query, _) in enumerate(expressions())]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", "--lint=none", tmp_path / "queries.yaml")


def test_alerts_wait_as_long_as_they_should() -> None:
    promtool("check", "rules", ALERTS)
    tests = OBSERVABILITY / "alerts.test.yaml"
    assert "SUCCESS" in promtool("test", "rules", tests)
    tested = {
        case["alertname"] for test in yaml.safe_load(tests.read_text())["tests"] for case in test["alert_rule_test"]
    }
    assert tested == {rule["alert"] for rule in alerts()}


def test_each_alert_has_its_place_in_the_guide() -> None:
    headings = re.findall(r"^#+ (.+)$", GUIDE.read_text(), flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in alerts():
        file, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert REPOSITORY / file == GUIDE
        assert anchor == rule["alert"].lower(), rule["alert"]
        assert anchor in anchors, f"{GUIDE.name} does not say what {rule['alert']} means"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    named = {heading for heading in headings if heading.startswith("Firsthop")}
    assert named == {rule["alert"] for rule in alerts()}


def test_pods_are_found_by_their_annotations(tmp_path: Path) -> None:
    """The relabelling, on what Kubernetes would tell: Debian's Prometheus knows no Kubernetes."""
    said = {
        "__meta_kubernetes_pod_label_app_kubernetes_io_part_of": "firsthop",
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": "signaling",
        "__meta_kubernetes_pod_annotation_prometheus_io_scrape": "true",
        "__meta_kubernetes_pod_annotation_prometheus_io_port": "9103",
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_ip": "10.2.0.7",
        "__meta_kubernetes_namespace": "firsthop",
        "__meta_kubernetes_pod_node_name": "node-a",
        "__meta_kubernetes_pod_name": "signaling-1",
    }
    foreign = {**said, "__meta_kubernetes_pod_label_app_kubernetes_io_part_of": "other"}
    unscraped = {**said, "__meta_kubernetes_pod_annotation_prometheus_io_scrape": ""}
    ended, failed = ({**said, "__meta_kubernetes_pod_phase": phase} for phase in ("Succeeded", "Failed"))
    # Its init container fails: that it cannot start is seen by a target that does not answer.
    stuck = {**said, "__meta_kubernetes_pod_phase": "Pending", "__meta_kubernetes_pod_ip": "10.2.0.12"}
    pods = [
        ("10.2.0.7:8080", said),
        ("10.2.0.7:9103", said),
        ("10.2.0.8:1", foreign),
        ("10.2.0.9:1", unscraped),
        ("10.2.0.10:1", ended),
        ("10.2.0.11:1", failed),
        ("10.2.0.12:1", stuck),
    ]
    (tmp_path / "pods.json").write_text(json.dumps([{"targets": [at], "labels": labels} for at, labels in pods]))
    (job,) = yaml.safe_load((OBSERVABILITY / "scrape-pods.yaml").read_text())["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["firsthop"]}}]
    job["file_sd_configs"] = [{"files": [str(tmp_path / "pods.json")]}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    found = json.loads(
        promtool("check", "service-discovery", "--timeout=10s", tmp_path / "prometheus.yaml", job["job_name"])
    )
    kept = [target["labels"] for target in found if target["labels"]]
    assert sorted(labels["__address__"] for labels in kept) == ["10.2.0.12:9103", "10.2.0.7:9103", "10.2.0.7:9103"]
    for labels in kept:
        assert (labels["job"], labels["instance"]) == ("firsthop-signaling", labels["__address__"])
        assert (labels["namespace"], labels["node"], labels["pod"]) == ("firsthop", "node-a", "signaling-1")


def test_the_autoscaler_asks_by_labels_that_the_scrape_gives() -> None:
    (rule,) = yaml.safe_load((OBSERVABILITY.parent / "adapter.yaml").read_text())["rules"]["custom"]
    (job,) = yaml.safe_load((OBSERVABILITY / "scrape-pods.yaml").read_text())["scrape_configs"]
    given = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    (asked,) = selectors(rule["seriesQuery"])
    assert {matcher.label for matcher in asked.matchers} | set(rule["resources"]["overrides"]) <= given


def test_the_component_carries_what_it_names() -> None:
    component = yaml.safe_load((OBSERVABILITY / "kustomization.yaml").read_text())
    assert component["kind"] == "Component"
    guide = GUIDE.read_text()
    policies = [*yaml.safe_load_all((OBSERVABILITY.parent / "base/transceiver/network-policy.yaml").read_text())]
    for generated in component["configMapGenerator"]:
        # Who mounts it is in this namespace, or cannot; it is the one that may scrape.
        assert f"kubernetes.io/metadata.name': '{generated['namespace']}'" in str(policies)
        assert f"`{generated['name']}`" in guide
        assert f"`{generated['namespace']}`" in guide
        for file in generated["files"]:
            assert (OBSERVABILITY / file.rpartition("=")[2]).is_file(), file


def test_prometheus_finds_all_that_dashboard_and_alerts_ask_for(observed: Observed) -> None:
    def all_up() -> bool:
        return len(observed.prometheus.query('up{job=~"firsthop-.+"} == 1')) == len(PROGRAMS)

    until("all programs are scraped", all_up, READY_SECONDS)
    wanted = {str(each): each for _, query, _ in expressions() for one in selectors(query) for each in one.each()}
    # What has not happened: requests that fail.
    wanted = {text: one for text, one in wanted.items() if not any(m.label == "status" for m in one.matchers)}
    # The call is in what the last scrape brought.
    ended = "sum(firsthop_transceiver_sessions_ended_total) == 1"
    until("the call is counted", lambda: observed.prometheus.query(ended), READY_SECONDS)
    missing = [text for text in wanted if not observed.prometheus.query(text)]
    assert missing == []
    for name in ("setup_seconds_count", "decode_seconds_total", "encoded_frames_total"):
        assert observed.prometheus.query(f"sum(firsthop_transceiver_{name}) > 0"), name
    faults = [one for one in observed.prometheus.get("targets")["activeTargets"] if one["lastError"]]
    assert faults == []
    broken = [
        rule
        for group in observed.prometheus.get("rules")["groups"]
        for rule in group["rules"]
        if rule["health"] == "err"
    ]
    assert broken == []


def test_alerts_fire_when_something_breaks_and_resolve_when_it_is_mended(observed: Observed) -> None:
    watched = observed.prometheus
    # The test bed's other cluster has no relay that runs: nobody misses one that never answered.
    assert watched.firing() == set()

    assert observed.redis is not None
    observed.redis.kill()
    observed.redis = None
    keyring = observed.keyring
    good = keyring.read_text()
    keyring.write_text("active = ")
    watched.wait_for_alerts("FirsthopRelayRedisDown", "FirsthopFileUnusable")
    assert watched.firing() == {"FirsthopRelayRedisDown", "FirsthopFileUnusable"}
    keyring.write_text(good)
    observed.redis = observed.start_redis()
    watched.wait_for_silence("FirsthopRelayRedisDown", "FirsthopFileUnusable")

    assert observed.transceiver is not None
    observed.transceiver.kill()
    watched.wait_for_alerts("FirsthopDown", "FirsthopNoTransceiver", "FirsthopTransceiversAway")

    def refused() -> bool:
        offer = session.plain_offer("abcd", "0123456789abcdef01234567")
        ask = request(observed.url, "POST", "/v1/realtime/calls", offer)
        return ask.status == 503

    # One that is refused makes the series, more make its rate: a few in five minutes are not worth a word.
    until("calls are refused", lambda: observed.bed.client.call(refused), READY_SECONDS)
    failed = 'firsthop_signaling_requests_total{route="/v1/realtime/calls", status="503"} > 0'
    until("that is scraped", lambda: watched.query(failed), READY_SECONDS)
    assert observed.bed.client.call(lambda: all([refused() for _ in range(10)]))
    watched.wait_for_alerts("FirsthopCallsRefused")
    observed.start_transceiver()
    watched.wait_for_silence("FirsthopDown", "FirsthopNoTransceiver", "FirsthopTransceiversAway")
