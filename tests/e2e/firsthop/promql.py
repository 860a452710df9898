"""What a query asks of which metrics.

As much of PromQL as it takes to hold dashboards and alerts against the metrics that there are.
"""

import re
from dataclasses import dataclass

#: Labels that a scrape gives to every series, and the buckets' own.
SCRAPED_LABELS = frozenset({"job", "instance", "le"})

_STRING = r'"(?:[^"\\]|\\.)*"'
_METRIC = re.compile(rf"\b((?:firsthop_[a-z0-9_]+|up))\b(?!\s*\()\s*(\{{(?:[^}}\"]|{_STRING})*\}})?")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRING})")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
#: Functions that make labels: the names are among their strings.
_MADE = re.compile(r"\b(?:label_replace|count_values)\s*\(")
_NAME = re.compile(r'"(\w+)"')


@dataclass(frozen=True)
class Matcher:
    """A label that is asked for."""

    label: str
    operator: str
    value: str

    def each(self) -> list["Matcher"]:
        """Itself; or one for each of the alternatives of a plain regular expression."""
        if self.operator == "=~" and re.fullmatch(r"[\w|]+", self.value):
            return [Matcher(self.label, "=", one) for one in self.value.split("|")]
        return [self]

    def __str__(self) -> str:
        """As a query has it."""
        return f'{self.label}{self.operator}"{self.value}"'


@dataclass(frozen=True)
class Selector:
    """A metric, and what its labels must be."""

    name: str
    matchers: tuple[Matcher, ...]

    def each(self) -> list["Selector"]:
        """One for each combination of alternatives, so that each can be looked for by itself."""
        found: list[tuple[Matcher, ...]] = [()]
        for matcher in self.matchers:
            found = [(*before, one) for before in found for one in matcher.each()]
        return [Selector(self.name, matchers) for matchers in found]

    def __str__(self) -> str:
        """As a query has it."""
        return f"{self.name}{{{','.join(map(str, self.matchers))}}}" if self.matchers else self.name


def selectors(query: str) -> list[Selector]:
    """Every metric that a query names, with its matchers."""
    return [
        Selector(match[1], tuple(Matcher(a, b, c[1:-1]) for a, b, c in _MATCHER.findall(match[2] or "")))
        for match in _METRIC.finditer(query)
    ]


def grouped_labels(query: str) -> set[str]:
    """Every label that a query groups or joins by."""
    labels = (label.strip() for match in _GROUPING.finditer(query) for label in match[1].split(","))
    return {label for label in labels if label}


def made_labels(query: str) -> set[str]:
    """Labels that a query makes itself."""
    return set(_NAME.findall(query)) if _MADE.search(query) else set()
