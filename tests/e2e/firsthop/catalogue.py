"""What the programs' metrics are: names, types, labels and help, as their own pages tell them.

docs/metrics.md is made of it, and what dashboards and alerts use is held against it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Labels whose values depend on the machine, the site or what was asked for: the table names them without values.
OPEN_LABELS = frozenset({"core", "worker", "cluster", "relay", "route", "status", "version", "commit"})

#: Of more values than these the table says only how many there are.
VALUES_SHOWN = 16

_SAMPLE = re.compile(r"^([a-z_:][\w:]*)(?:\{(.*)\})? \S+$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: What a type appends to the name of its samples.
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",), "gauge": ("",)}

_PREAMBLE = """\
# Metrics

What the three programs say at `/metrics` (OpenMetrics text): relays at `--admin`, transceivers at `--control`,
signaling at `--metrics`. [operations.md](operations.md) says what to watch, and how the dashboard and the alerts in
`k8s/observability/` use it.

Names begin with the program's. Units are in the names, and are seconds and bytes. Counters end in `_total`; a
histogram has `_bucket` (with the label `le`), `_sum` and `_count`. No label takes values from clients.

This page is made from running programs, by a test that fails when it is stale. To write it anew:
`FIRSTHOP_WRITE_DOCS=1 scripts/test --only e2e -- -k metrics_table`.
"""


@dataclass
class Family:
    """One metric with all of its series."""

    name: str
    kind: str
    help: str
    #: Every value that each label has, by label.
    labels: dict[str, set[str]] = field(default_factory=dict)
    #: Samples, by name with the type's suffix.
    samples: set[str] = field(default_factory=set)

    @property
    def shown(self) -> str:
        """The name by which queries know it; a histogram's without suffix."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")

    def _labels(self) -> str:
        parts = []
        for label, values in sorted(self.labels.items()):
            if label in OPEN_LABELS:
                parts.append(f"`{label}`")
            elif len(values) > VALUES_SHOWN:
                parts.append(f"`{label}`: {len(values)} of them")
            else:
                parts.append(f"`{label}`: " + ", ".join(sorted(values)))
        return "; ".join(parts)

    def row(self) -> str:
        """Its line of the table."""
        return f"| `{self.shown}` | {self.kind} | {self._labels()} | {self.help.removesuffix('.')} |"


def families(page: str) -> dict[str, Family]:
    """The metrics of one page, by name without suffix. Fails on a sample that belongs to none."""
    found: dict[str, Family] = {}
    helps: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name, text = line.removeprefix("# HELP ").split(" ", 1)
            helps[name] = text
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            found[name] = Family(name, kind, helps.get(name, ""))
        elif not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match, f"no sample: {line}"
            family = family_of(match[1], found)
            assert family, f"a sample of no metric: {line}"
            family.samples.add(match[1])
            for label, value in _LABEL.findall(match[2] or ""):
                if label != "le":
                    family.labels.setdefault(label, set()).add(value)
    return found


def family_of(sample: str, among: Mapping[str, Family]) -> Family | None:
    """The metric that a sample of this name belongs to."""
    for kind, suffixes in _SUFFIXES.items():
        for suffix in suffixes:
            family = among.get(sample.removesuffix(suffix)) if sample.endswith(suffix) else None
            if family and family.kind == kind:
                return family
    return None


def table(pages: Mapping[str, Iterable[Family]]) -> str:
    """The document: for each program its metrics, in their own order: what belongs together stands together."""
    parts = [_PREAMBLE]
    for program, its in pages.items():
        rows = [family.row() for family in its]
        parts.append(
            f"\n## {program}\n\n| metric | type | labels | says |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "".join(parts)
