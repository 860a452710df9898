"""The programs of the test world, each on its host, and what can be done to them."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from firsthop import metrics
from firsthop.instruments import Instrument
from firsthop.launching import (
    READY_SECONDS,
    RELAY_ADMIN,
    SIGNALING_METRICS,
    TRANSCEIVER_CONTROL,
    Launcher,
    says_ready,
)
from firsthop.metrics import Metrics
from firsthop.namespaces import HTTP_PORT, UDP_PORT
from firsthop.processes import Program
from firsthop.waiting import until

from .topology import INNER, INTERNAL, LINK_ENDS, PUBLIC, REDIS, VIP, Topology

REDIS_PORT = 6_379
MODEL_PORT = 9_000
#: A second signaling of cluster 1, whose answers name each ingress relay's own address in place of the VIP.
OWN_ADDRESSES_PORT = 8_081

#: The cluster of each relay. That of the ingress relays has no transceivers.
RELAYS = {"A": 9, "B": 9, "1a": 1, "1b": 1, "2a": 2}
TRANSCEIVERS = {"1x": 1, "1y": 1, "2x": 2}
CLUSTERS = (1, 2)

#: What a line between regions does to packets when nothing is wrong.
LINE = ("--delay", "20ms", "--jitter", "2ms")

#: The ids of ingress points in the fleet file.
INGRESS_VIP, INGRESS_A, INGRESS_B = 10, 11, 12


def fleet(cores_of_a: int = 1) -> str:
    """The fleet file of the world; relay A may have another number of cores than the others."""
    lines = []
    for cluster in sorted(set(RELAYS.values())):
        relays = ", ".join(
            f'{{ address = "{INNER[name]}", cores = {cores_of_a if name == "A" else 1} }}'
            for name, its in RELAYS.items()
            if its == cluster
        )
        lines += ["[[cluster]]", f"id = {cluster}", f'name = "cluster {cluster}"', f"relays = [{relays}]"]
        if cluster in CLUSTERS:
            lines.append(f'signaling = "{signaling_url(cluster)}"')
    points = ((INGRESS_VIP, VIP), (INGRESS_A, PUBLIC["A"]), (INGRESS_B, PUBLIC["B"]))
    for number, address in points:
        lines += ["[[ingress]]", f"id = {number}", f'ipv4 = "{address}:{UDP_PORT}"']
    return "\n".join(lines) + "\n"


def signaling_url(cluster: int) -> str:
    """Where the signaling of a cluster takes calls."""
    return f"http://{PUBLIC[f's{cluster}']}:{HTTP_PORT}"


def _last_processor() -> str:
    """As relays are told it. Workers of transceivers take processors from the first one on."""
    last = max(os.sched_getaffinity(0))
    return f"{last}-{last}"


class World(Launcher):
    """Two clusters and two ingress relays, with all that calls need."""

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        with_redis: bool = True,
        settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Makes the networks. `settings` are of relays and transceivers, by host, beside their usual ones."""
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(binaries, directory, fleet())
        self.with_redis = with_redis
        self._more = settings or {}
        self.topology = Topology()
        self.relays: dict[str, Program] = {}
        self.transceivers: dict[str, Program] = {}
        self.signalings: dict[int, Program] = {}
        self.models: dict[int, Instrument] = {}
        self.lines: dict[int, Instrument] = {}
        self.redis: Program | None = None

    def start(self) -> None:
        """Starts everything, and waits until calls can be placed and relays know each other."""
        for number in CLUSTERS:
            self.lines[number] = self.instrument(
                f"line {number}", f"link{number}", "impair", "--between", ",".join(LINK_ENDS), *LINE
            )
        for number in CLUSTERS:
            listen = f"{INNER[f's{number}']}:{MODEL_PORT}"
            self.models[number] = self.instrument(f"model {number}", f"s{number}", "model", "--listen", listen)
        if self.with_redis:
            self.start_redis()
        for name in TRANSCEIVERS:
            self.launch_transceiver(name)
        for name in RELAYS:
            self.launch_relay(name)
        for number in CLUSTERS:
            self._launch_signaling(number)
        for program in (*self.transceivers.values(), *self.relays.values(), *self.signalings.values()):
            program.wait_for_line(says_ready, READY_SECONDS)
        self._wait_until_whole()

    def _wait_until_whole(self) -> None:
        for number in CLUSTERS:
            host, owners = self.topology[f"s{number}"], [n for n, its in TRANSCEIVERS.items() if its == number]

            def knows_all(host=host, owners=owners) -> bool:  # noqa: ANN001 - bound, not passed
                page = metrics.scrape(host, SIGNALING_METRICS)
                return page.total("firsthop_signaling_transceivers", standing="ready") == len(owners)

            until(f"signaling {number} knows its transceivers", knows_all, READY_SECONDS)
        for ingress in ("A", "B"):
            until(
                f"relay {ingress} knows the clusters' relays", lambda at=ingress: self.peers_up(at) == 3, READY_SECONDS
            )
        if self.with_redis:
            for ingress in ("A", "B"):
                until(f"relay {ingress} has its Redis", lambda at=ingress: self.has_redis(at), READY_SECONDS)

    # Starting.

    def instrument(self, name: str, host: str, kind: str, *arguments: str) -> Instrument:
        """Starts a program of `perf` on a host, and waits until it is ready."""
        made = Instrument(name, self._binaries, self.topology[host], self._directory, kind, *arguments)
        self.programs.append(made)
        return made

    def launch_relay(self, name: str, **settings: str | Sequence[str]) -> Program:
        """Starts a relay with these settings beside its usual ones, and does not wait until it is ready."""
        its: dict[str, str | Sequence[str]] = {
            "cluster": str(RELAYS[name]),
            "role": "cluster",
            "internal": INNER[name],
            "internal-networks": INTERNAL,
            "cores": _last_processor(),
            "spin": "off",
            # A scenario that means to drain says so.
            "drain": "0",
        }
        if name in PUBLIC:
            its["role"] = "ingress"
            its["listen"] = [f"{VIP}:{UDP_PORT}", f"{PUBLIC[name]}:{UDP_PORT}"]
            its["handover"] = self.handover_path(name)
            if self.with_redis:
                its["redis"] = f"redis://{REDIS}:{REDIS_PORT}"
        made = self.launch_in(
            self.topology[name], "relay", {**its, **self._more.get(name, {}), **settings}, f"relay {name}"
        )
        self.relays[name] = made
        return made

    def start_relay(self, name: str, **settings: str | Sequence[str]) -> Program:
        """Starts a relay, and waits until it is ready."""
        made = self.launch_relay(name, **settings)
        made.wait_for_line(says_ready, READY_SECONDS)
        return made

    def handover_path(self, name: str) -> str:
        """Where a relay hands over to its successor."""
        return str(self._directory / f"handover-{name}")

    def launch_transceiver(self, name: str, **settings: str | Sequence[str]) -> Program:
        """Starts a transceiver, and does not wait until it is ready."""
        model = INNER[f"s{TRANSCEIVERS[name]}"]
        its = {
            "cluster": str(TRANSCEIVERS[name]),
            "trunk": f"{INNER[name]}:5000",
            "control": f"{INNER[name]}:{TRANSCEIVER_CONTROL}",
            "internal-networks": INTERNAL,
            "workers": "1",
            "backend": "realtime",
            "backend-url": f"ws://{model}:{MODEL_PORT}/v1/realtime",
            "backend-format": "pcmu",
            # A scenario that means to drain says so.
            "drain": "0",
        }
        made = self.launch_in(
            self.topology[name], "transceiver", {**its, **self._more.get(name, {}), **settings}, f"transceiver {name}"
        )
        self.transceivers[name] = made
        return made

    def _launch_signaling(self, cluster: int) -> None:
        self.signalings[cluster] = self._launch_front(cluster, HTTP_PORT, SIGNALING_METRICS, [INGRESS_VIP])

    def _launch_front(self, cluster: int, port: int, metrics_port: int, ingresses: list[int]) -> Program:
        host = f"s{cluster}"
        its = {
            "cluster": str(cluster),
            "listen": f"{PUBLIC[host]}:{port}",
            "metrics": f"127.0.0.1:{metrics_port}",
            "transceivers": [
                f"http://{INNER[name]}:{TRANSCEIVER_CONTROL}" for name, its in TRANSCEIVERS.items() if its == cluster
            ],
            "ingresses": ",".join(map(str, ingresses)),
            # All calls come from a few addresses.
            "address-rate": "off",
            "steering": "off",
        }
        name = f"signaling {cluster}" if port == HTTP_PORT else f"signaling {cluster} at {port}"
        return self.launch_in(self.topology[host], "signaling", its, name)

    def start_front_for_own_addresses(self) -> str:
        """Starts the second signaling of cluster 1, whose answers name both ingress relays' own addresses.

        Returns its URL.
        """
        made = self._launch_front(1, OWN_ADDRESSES_PORT, SIGNALING_METRICS + 1, [INGRESS_A, INGRESS_B])
        made.wait_for_line(says_ready, READY_SECONDS)
        host = self.topology["s1"]

        def ready() -> bool:
            return metrics.get(host, OWN_ADDRESSES_PORT, "/readyz", PUBLIC["s1"])[0] == 200

        until("the second signaling can place calls", ready, READY_SECONDS)
        return f"http://{PUBLIC['s1']}:{OWN_ADDRESSES_PORT}"

    def start_redis(self) -> None:
        """Starts the Redis of the ingress site, empty, and waits until it serves."""
        command = f"redis-server --bind {REDIS} --port {REDIS_PORT} --protected-mode no --appendonly no --save"
        made = Program("redis", self.topology["redis"].command(*command.split(), ""), self._directory / "redis.log")
        self.programs.append(made)
        made.wait_for_line("Ready to accept connections", READY_SECONDS)
        self.redis = made

    # Looking.

    def relay_metrics(self, name: str) -> Metrics:
        """A scrape of a relay."""
        return metrics.scrape(self.topology[name], RELAY_ADMIN)

    def flows(self, name: str) -> int:
        """How many flows a relay has."""
        return int(self.relay_metrics(name).total("firsthop_relay_flows"))

    def transceiver_metrics(self, name: str) -> Metrics:
        """A scrape of a transceiver."""
        host = self.topology[name]
        status, text = metrics.get(host, TRANSCEIVER_CONTROL, "/metrics", INNER[name])
        assert status == 200, f"transceiver {name} answers {status}: {text}"
        return Metrics.parse(text)

    def sessions(self, name: str) -> int:
        """How many sessions a transceiver has."""
        return int(self.transceiver_metrics(name).total("firsthop_transceiver_sessions"))

    def relay_ready(self, name: str) -> int:
        """The status with which a relay answers balancers."""
        return metrics.get(self.topology[name], RELAY_ADMIN, "/readyz")[0]

    def peers_up(self, ingress: str) -> int:
        """How many of the clusters' relays answer an ingress relay."""
        page, hosts = self.relay_metrics(ingress), [str(number) for number in CLUSTERS]
        return int(sum(page.total("firsthop_relay_peer_up", core="0", cluster=number) for number in hosts))

    def leads(self, ingress: str, relay: str) -> bool:
        """Whether an ingress relay sends to this relay of a cluster."""
        page = self.relay_metrics(ingress)
        samples = page.samples.get("firsthop_relay_peer_leads", [])
        cores = [value for labels, value in samples if INNER[relay] in labels["relay"]]
        return bool(cores) and all(value == 1 for value in cores)

    def has_redis(self, ingress: str) -> bool:
        """Whether an ingress relay says that its Redis answers."""
        return self.relay_metrics(ingress).total("firsthop_relay_redis_up") == 1

    def ask_redis(self, command: str) -> str:
        """Gives Redis a command and returns the first line of its answer."""

        def ask() -> str:
            with socket.create_connection((REDIS, REDIS_PORT), timeout=5) as connection:
                connection.sendall(command.encode() + b"\r\n")
                return connection.makefile("rb").readline().decode().strip()

        return self.topology["redis"].call(ask)

    def flows_in_redis(self) -> int:
        """How many flows the cache holds."""
        return int(self.ask_redis("DBSIZE").removeprefix(":"))

    # Ending.

    def stop(self) -> list[str]:
        """Stops what still runs, and returns what did not end as it should."""
        faults = []
        for program in reversed(self.programs):
            if not program.running():
                continue
            if isinstance(program, Instrument):
                program.dismiss()
                status = program.wait(READY_SECONDS)
            else:
                status = program.stop()
            if status != 0:
                faults.append(f"{program.name} ended with status {status}")
        return faults

    def close(self) -> None:
        """Ends everything, whatever its state."""
        self.kill_all()
        self.topology.close()
