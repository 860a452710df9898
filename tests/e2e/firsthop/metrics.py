"""Reading a program's metrics and health over HTTP."""

import http.client
import re
from dataclasses import dataclass

from .namespaces import Namespace

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass
class Metrics:
    """One scrape: every sample by name and labels."""

    samples: dict[str, list[tuple[dict[str, str], float]]]

    @classmethod
    def parse(cls, text: str) -> "Metrics":
        """Reads the Prometheus text format."""
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in text.splitlines():
            match = _SAMPLE.match(line)
            if line.startswith("#") or not match:
                continue
            name, labels, value = match.groups()
            samples.setdefault(name, []).append((dict(_LABEL.findall(labels or "")), float(value)))
        return cls(samples)

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all samples that have these labels; a name that is not there at all fails."""
        if name not in self.samples:
            raise AssertionError(f"no metric {name}; there are: {', '.join(sorted(self.samples))}")
        return sum(
            value
            for have, value in self.samples[name]
            if all(have.get(label) == wanted for label, wanted in labels.items())
        )


def get(namespace: Namespace, port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and body of a GET from inside `namespace`."""

    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection(host, port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    return namespace.call(ask)


def scrape(namespace: Namespace, port: int) -> Metrics:
    """One scrape of the program whose metrics are on this port of loopback."""
    status, text = get(namespace, port, "/metrics")
    assert status == 200, f"/metrics on port {port} answered {status}: {text}"
    return Metrics.parse(text)
