"""The three programs in the server's namespace, each with its usual ports, started one by one.

For tests that kill, restart or misconfigure one of them; `scripts/run` has a test of its own.
"""

from collections.abc import Sequence
from pathlib import Path

from . import metrics
from .launching import (
    KEY,
    READY_SECONDS,
    RELAY_ADMIN,
    SIGNALING_METRICS,
    TRANSCEIVER_CONTROL,
    Launcher,
    Settings,
    says_ready,
)
from .metrics import Metrics
from .namespaces import HTTP_PORT, UDP_PORT, Testbed
from .processes import Program
from .waiting import until

__all__ = ["KEY", "READY_SECONDS", "RELAY_ADMIN", "TRANSCEIVER_CONTROL", "UDP_PORT", "Stack", "flows", "sessions"]

_FLEET = """\
[[cluster]]
id = 1
name = "test"
signaling = "http://{server}:{http}"
relays = [{{ address = "127.0.0.1", cores = {cores} }}]

[[ingress]]
id = 0
name = "first"
ipv4 = "{server}:{udp}"
ipv6 = "[{server_v6}]:{udp}"

[[ingress]]
id = 1
name = "second"
ipv4 = "{second}:{udp}"
"""


class Stack(Launcher):
    """Relay, transceiver and signaling of one test bed."""

    def __init__(self, bed: Testbed, binaries: Path, directory: Path) -> None:
        fleet = _FLEET.format(
            server=Testbed.SERVER,
            second=Testbed.SERVER_SECOND,
            server_v6=Testbed.SERVER_V6,
            http=HTTP_PORT,
            udp=UDP_PORT,
            cores=2,
        )
        super().__init__(binaries, directory, fleet)
        self.bed = bed
        self.url = f"http://{Testbed.SERVER}:{HTTP_PORT}"
        #: Settings per program, to be changed before its start: flags without the dashes.
        self.relay_settings: dict[str, str | Sequence[str]] = {
            "listen": [
                f"{Testbed.SERVER}:{UDP_PORT}",
                f"{Testbed.SERVER_SECOND}:{UDP_PORT}",
                f"[{Testbed.SERVER_V6}]:{UDP_PORT}",
            ],
            "cores": "1",
            "spin": "off",
            # A test that means to drain says so.
            "drain": "0",
        }
        self.transceiver_settings: dict[str, str | Sequence[str]] = {
            "workers": "1",
            "backend": "echo",
            # A test that means to drain says so.
            "drain": "0",
        }
        self.signaling_settings: dict[str, str | Sequence[str]] = {
            "listen": f"{Testbed.SERVER}:{HTTP_PORT}",
            "transceivers": f"http://127.0.0.1:{TRANSCEIVER_CONTROL}",
        }
        self.relay: Program | None = None
        self.transceiver: Program | None = None
        self.signaling: Program | None = None

    def _launch(self, program: str, settings: Settings) -> Program:
        made = self.launch(program, settings)
        made.wait_for_line(says_ready, READY_SECONDS)
        return made

    def start_another(self, program: str, settings: Settings) -> Program:
        """Starts one more of a program, with these settings, and waits until it is ready."""
        return self._launch(program, settings)

    def launch(self, program: str, settings: Settings) -> Program:
        """Starts a program with these settings beside the usual files, and does not wait for it."""
        return self.launch_in(self.bed.server, program, settings)

    def start_relay(self) -> None:
        """Starts the relay and waits until it is ready."""
        self.relay = self._launch("relay", self.relay_settings)

    def start_transceiver(self) -> None:
        """Starts the transceiver and waits until it is ready."""
        self.transceiver = self._launch("transceiver", self.transceiver_settings)

    def start_signaling(self) -> None:
        """Starts signaling and waits until it can place calls."""
        self.signaling = self._launch("signaling", self.signaling_settings)
        until("signaling is ready to place calls", self.signaling_ready, READY_SECONDS)

    def start(self) -> None:
        """Starts all three, and closes the server to all but the public ports."""
        self.bed.admit_only(UDP_PORT, HTTP_PORT)
        self.start_transceiver()
        self.start_relay()
        self.start_signaling()

    def signaling_ready(self) -> bool:
        """Whether signaling says that it can place calls."""
        return metrics.get(self.bed.server, HTTP_PORT, "/readyz", Testbed.SERVER)[0] == 200

    def relay_metrics(self) -> Metrics:
        """A scrape of the relay."""
        return metrics.scrape(self.bed.server, RELAY_ADMIN)

    def transceiver_metrics(self) -> Metrics:
        """A scrape of the transceiver."""
        return metrics.scrape(self.bed.server, TRANSCEIVER_CONTROL)

    def signaling_metrics(self) -> Metrics:
        """A scrape of signaling."""
        return metrics.scrape(self.bed.server, SIGNALING_METRICS)

    def sessions(self) -> int:
        """How many sessions the transceiver has."""
        return sessions(self.transceiver_metrics())

    def flows(self) -> int:
        """How many flows the relay has."""
        return flows(self.relay_metrics())

    def sessions_created(self) -> int:
        """How many sessions the transceiver has ever made."""
        return int(self.transceiver_metrics().total("firsthop_transceiver_sessions_created_total"))

    def misdirected(self) -> int:
        """How many trunk datagrams reached a worker that is not the one they name."""
        return int(self.transceiver_metrics().total("firsthop_transceiver_drops_total", reason="foreign_shard"))

    def verified_checks(self) -> int:
        """How many of the clients' checks the relay has verified and routed."""
        return int(self.relay_metrics().total("firsthop_relay_requests_verified_total"))

    def dropped(self, reason: str) -> int:
        """How many packets the relay has dropped for this reason."""
        return int(self.relay_metrics().total("firsthop_relay_drops_total", reason=reason))

    def stop(self) -> None:
        """Stops what still runs; every program must end by itself with exit status 0."""
        failures = []
        for program in (self.signaling, self.relay, self.transceiver):
            if program is not None and program.running():
                status = program.stop()
                if status != 0:
                    failures.append(f"{program.name} ended with status {status} on SIGTERM")
        for program in self.programs:
            if program.running():
                program.kill()
        assert not failures, "; ".join(failures)


def sessions(transceiver: Metrics) -> int:
    """How many sessions a transceiver has, from its metrics."""
    return int(transceiver.total("firsthop_transceiver_sessions"))


def flows(relay: Metrics) -> int:
    """How many flows a relay has, from its metrics."""
    return int(relay.total("firsthop_relay_flows"))
