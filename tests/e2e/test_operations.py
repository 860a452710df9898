"""Somebody follows the operations guide through an upgrade, a key rotation and a drain, and no call notices."""

import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firsthop import metrics, namespaces, session
from firsthop.guide import GUIDE, Desk, Supervisor, blocks
from firsthop.instruments import Answer, Instrument
from firsthop.launching import KEY, READY_SECONDS, RELAY_ADMIN, SIGNALING_METRICS, TRANSCEIVER_CONTROL, says_ready
from firsthop.metrics import Metrics
from firsthop.namespaces import HTTP_PORT, UDP_PORT, Testbed
from firsthop.processes import Program
from firsthop.stack import Stack
from firsthop.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]

RELAY, FIRST, SECOND, SIGNALING, OTHER = (f"127.0.0.{number}" for number in range(10, 15))
#: Where clients reach the relay of another region.
OTHER_PUBLIC = "203.0.113.20"
MODEL_PORT = 9_000
CALLS = 6

SET_UP_SECONDS = 90.0
#: How long calls may take until they are heard again, on a machine that does much else.
HEAL_SECONDS = 60.0

#: What the guide's blocks are for; each runs in one of the tests.
PROCEDURES = frozenset(
    ["first-secrets", "conntrack", "upgrade-relay", "drain-transceiver", "watch-drain", "new-region", "add-region"]
    + ["rotate-functions", "rotate-add", "rotate-activate", "rotate-remove"]
)


#: What a program says of its keyrings.
PAGE = 'firsthop_x_keyring_keys{{file="keyring"}} {data}\nfirsthop_x_keyring_keys{{file="api-keyring"}} {api}\n'


class Site(Stack):
    """A relay with a unit to take turns with, two transceivers, signaling and a model server, each on its machine."""

    def __init__(self, bed: Testbed, binaries: Path, directory: Path) -> None:
        files = directory / "keys"
        files.mkdir()
        super().__init__(bed, binaries, files)
        self._logs = directory
        self.relay_settings |= {
            "admin": f"{RELAY}:{RELAY_ADMIN}",
            "handover": f"{directory}/relay.sock",
            "takeover": "true",
        }
        self.transceiver_settings |= {
            "drain": "600",
            "backend": "realtime",
            "backend-url": f"ws://127.0.0.1:{MODEL_PORT}/v1/realtime",
            "backend-format": "pcmu",
        }
        self.signaling_settings |= {
            "transceivers": [f"http://{host}:{TRANSCEIVER_CONTROL}" for host in (FIRST, SECOND)],
            "metrics": f"{SIGNALING}:{SIGNALING_METRICS}",
            "address-rate": "off",
        }
        for host in (RELAY, FIRST, SECOND, SIGNALING):
            (directory / "etc" / host).mkdir(parents=True)
            for name in ("data.toml", "fleet.toml", "control-secret", "api.toml", "api-keys.toml"):
                shutil.copy(files / name, directory / "etc" / host)
        self.supervisor = Supervisor(
            directory / "supervisor",
            {
                (RELAY, "firsthop-relay@a"): lambda: self.unit(RELAY, "relay", "relay a"),
                (RELAY, "firsthop-relay@b"): lambda: self.unit(RELAY, "relay", "relay b"),
                (FIRST, "firsthop-transceiver"): lambda: self.unit(FIRST, "transceiver", "first"),
                (SECOND, "firsthop-transceiver"): lambda: self.unit(SECOND, "transceiver", "second"),
                (SIGNALING, "firsthop-signaling"): lambda: self.unit(SIGNALING, "signaling", "signaling"),
            },
        )
        pages = [f"http://{RELAY}:{RELAY_ADMIN}", f"http://{SIGNALING}:{SIGNALING_METRICS}"]
        pages += [f"http://{host}:{TRANSCEIVER_CONTROL}" for host in (FIRST, SECOND)]
        variables = {
            "RELAY": RELAY,
            "TRANSCEIVER": FIRST,
            "HOSTS": f"{RELAY} {FIRST} {SECOND} {SIGNALING}",
            "SIGNALINGS": SIGNALING,
            "TRANSCEIVERS": f"{FIRST} {SECOND}",
            "NEW": OTHER,
            "METRICS": " ".join(f"{page}/metrics" for page in pages),
        }
        self.desk = Desk(bed.server, directory, binaries, self.supervisor, variables)

    def unit(self, host: str, program: str, name: str) -> Program:
        """Starts the program of a unit, with the files of its machine."""
        etc = self.desk.etc / host
        own: dict[str, Any] = {"keyring": f"{etc}/data.toml", "fleet": f"{etc}/fleet.toml"}
        if program == "relay":
            own |= self.relay_settings
        if program == "transceiver":
            own |= {"trunk": f"{host}:5000", "control": f"{host}:{TRANSCEIVER_CONTROL}", **self.transceiver_settings}
        if program == "signaling":
            own |= {"api-keyring": f"{etc}/api.toml", **self.signaling_settings}
        return self.launch_in(self.bed.server, program, own, name)

    def start(self) -> None:
        """Boots all machines, relay `a` first, and waits until calls can be placed at both transceivers."""
        self.bed.admit_only(UDP_PORT, HTTP_PORT)
        listen = f"127.0.0.1:{MODEL_PORT}"
        model = Instrument("model", self._binaries, self.bed.server, self._logs, "model", "--listen", listen)
        self.programs.append(model)
        boot = [(FIRST, "transceiver"), (SECOND, "transceiver"), (RELAY, "relay@a"), (SIGNALING, "signaling")]
        for host, unit in boot:
            self.supervisor.start(host, f"firsthop-{unit}").wait_for_line(says_ready, READY_SECONDS)
        until("signaling knows both transceivers", lambda: self.standing("ready") == 2, READY_SECONDS)

    def draft_other_region(self) -> None:
        """Writes what step 2 of the guide has added to the fleet file, and installs that region's machine."""
        fleet = (self.desk.directory / "keys" / "fleet.toml").read_text().replace("cores = 2", "cores = 1")
        fleet += f'[[cluster]]\nid = 2\nname = "other"\nrelays = [{{ address = "{OTHER}", cores = 1 }}]\n'
        health = f"http://{OTHER}:{RELAY_ADMIN}/readyz"
        fleet += f'[[ingress]]\nid = 2\nname = "third"\nipv4 = "{OTHER_PUBLIC}:{UDP_PORT}"\nhealth = "{health}"\n'
        (self.desk.directory / "fleet.toml").write_text(fleet)
        namespaces.give_address(self.bed.server, "lo", f"{OTHER_PUBLIC}/32")
        etc = self.desk.etc / OTHER
        etc.mkdir()
        # What an installation leaves there, and no keyring.
        shutil.copy(REPOSITORY / "scripts/systemd/settings/fleet.toml", etc)

    def start_other_region(self) -> None:
        """Starts the relay of a second cluster, with what is on its machine."""
        etc = self.desk.etc / OTHER
        its = {
            "keyring": f"{etc}/data.toml",
            "fleet": f"{etc}/fleet.toml",
            "cluster": "2",
            "listen": f"{OTHER_PUBLIC}:{UDP_PORT}",
            "internal": OTHER,
            "admin": f"{OTHER}:{RELAY_ADMIN}",
            "cores": "1",
            "spin": "off",
            "drain": "0",
        }
        made = self.launch_in(self.bed.server, "relay", its, "other relay")
        self.supervisor.running[OTHER, "firsthop-relay@a"] = made
        made.wait_for_line(says_ready, READY_SECONDS)

    def page(self, host: str, port: int) -> Metrics:
        """A scrape of a program of a machine."""
        status, text = metrics.get(self.bed.server, port, "/metrics", host)
        assert status == 200, text
        return Metrics.parse(text)

    def standing(self, how: str) -> float:
        """How many transceivers stand like this with signaling."""
        return self.page(SIGNALING, SIGNALING_METRICS).total("firsthop_signaling_transceivers", standing=how)

    def sessions_of(self, host: str) -> int:
        """How many sessions a transceiver has."""
        return int(self.page(host, TRANSCEIVER_CONTROL).total("firsthop_transceiver_sessions"))

    def hold(self, name: str, calls: int) -> "Held":
        """Places calls that speak and listen until they are hung up."""
        return Held(self, name, calls)

    def end(self) -> None:
        """Stops everything. Transceivers drain no more then: who is still there is told goodbye."""
        for (host, _), program in self.supervisor.running.items():
            if program.running():
                program.signal(signal.SIGINT if host in (FIRST, SECOND) else signal.SIGTERM)
                assert program.wait(READY_SECONDS) == 0, program.name
        self.supervisor.close()


class Held(Instrument):
    """Calls that are up."""

    def __init__(self, site: Site, name: str, calls: int) -> None:
        ask = ["--url", site.url, "--key", KEY, "--calls", str(calls), "--from", Testbed.CLIENT, "--codec", "pcmu"]
        super().__init__(name, site._binaries, site.bed.client, site._logs, "hold", *ask)
        site.programs.append(self)
        came = self.wait_for_answer("up", SET_UP_SECONDS)
        assert came["up"] == calls, came
        self.calls = calls

    def _heard(self) -> dict[int, int]:
        return {call["call"]: call["packets"] for call in self.ask("calls")["calls"]}

    def unharmed(self) -> Answer:
        """Each call goes on: none has ended, or was set up anew, and all hear what is said now.

        Returns what they heard since the last mark.
        """
        before = self._heard()
        until(
            f"all of {self.name} hear more",
            lambda: all(count > before[call] + 10 for call, count in self._heard().items()),
            HEAL_SECONDS,
        )
        reading = self.ask("measure")
        assert (reading["up"], reading["cut"], reading["handshakes"]) == (self.calls, 0, 1), reading
        return reading

    def hang_up(self) -> None:
        """Ends them."""
        self.ask("hang-up", SET_UP_SECONDS)
        self.dismiss()
        assert self.wait(READY_SECONDS) == 0


@pytest.fixture
def site(binaries: Path, tmp_path: Path) -> Iterator[Site]:
    """Machines that run, and are looked after as the guide says."""
    with namespaces.testbed() as bed:
        made = Site(bed, binaries, tmp_path)
        try:
            made.start()
            yield made
            made.end()
            assert made.complaints() == []
        finally:
            made.kill_all()


def test_every_block_of_the_guide_that_has_a_name_is_tried() -> None:
    assert set(blocks()) == PROCEDURES


def test_the_guide_names_units_and_files_that_an_installation_makes() -> None:
    installed = REPOSITORY / "scripts" / "systemd"
    text = GUIDE.read_text()
    units = set(re.findall(r"\bfirsthop-(?:relay|transceiver|signaling)\b@?", text))
    assert len(units) == 3, units
    for unit in units:
        assert (installed / f"{unit}.service").is_file(), unit
    assert "60-firsthop.conf" in text
    assert (installed / "60-firsthop.conf").is_file()
    settings = "".join(path.read_text() for path in (installed / "settings").iterdir())
    for name in ("data.toml", "api.toml", "fleet.toml"):
        assert f"/etc/firsthop/{name}" in settings, name


@pytest.mark.parametrize(
    ("pages", "lags"),
    [
        ([(2, 2), (2, 2)], None),
        ([(2, 2), (1, 2)], 1),
        # Signaling has two keyrings, and call ids are made with the other one.
        ([(2, 2), (2, 1)], 1),
        ([(2, 2), None, (2, 2)], 1),
        ([(12, 12)], 0),
    ],
)
def test_a_rotation_names_the_program_that_lags(
    pages: list[tuple[int, int] | None], lags: int | None, tmp_path: Path
) -> None:
    urls = []
    for number, keys in enumerate(pages):
        file = tmp_path / f"{number}.txt"
        urls.append(f"file://{file}")
        if keys is not None:
            file.write_text(PAGE.format(data=keys[0], api=keys[1]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{blocks()['rotate-functions']}\neverywhere keyring_keys 2"],
        env={**os.environ, "METRICS": " ".join(urls), "PATIENCE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if lags is None else 1), done.stderr
    named = [number for number, url in enumerate(urls) if f"{url}: no keyring_keys of 2" in done.stderr]
    assert named == ([] if lags is None else [lags]), done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ["1 active", "2"]),
        # The block was run before.
        ([["add"]], ["1 active", "2"]),
        # An earlier rotation was not finished: the key that it made is in use, and a new one is wanted all the same.
        ([["add"], ["activate", "2"]], ["1", "2 active", "3"]),
    ],
)
def test_a_rotation_adds_a_key_unless_the_newest_waits_for_its_turn(
    before: list[list[str]], after: list[str], binaries: Path, tmp_path: Path
) -> None:
    keys = binaries / "keys"
    for order, *rest in [["init"], *before]:
        subprocess.run([keys, order, "keys", *rest], cwd=tmp_path, check=True, capture_output=True)
    block = f"distribute() {{ :; }}; everywhere() {{ :; }}\n{blocks()['rotate-add']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-len(after) :] == after


def test_a_new_site_gets_on_each_machine_what_runs_there_needs_and_no_more(binaries: Path, tmp_path: Path) -> None:
    hosts = {RELAY: {"data.toml"}, FIRST: {"data.toml", "control-secret"}}
    hosts[SIGNALING] = {"data.toml", "api.toml", "api-keys.toml", "control-secret"}
    for host in hosts:
        (tmp_path / host).mkdir()
    # As ssh gives a command line to a shell on the other machine.
    ssh = """ssh() { local host=$1; shift; sh -c "$(sed "s#/etc/firsthop#$PWD/$host#g" <<< "$*")"; }"""
    block = f"umask 022\n{ssh}\n{blocks()['rotate-functions']}\n{blocks()['first-secrets']}"
    said = {"HOSTS": " ".join(hosts), "TRANSCEIVERS": FIRST, "SIGNALINGS": SIGNALING}

    def follow(key: str) -> int:
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", **said, "API_KEY": key}
        # As in a terminal: a line that fails does not end it.
        done = subprocess.run(["bash", "-c", block], cwd=tmp_path, env=environment, check=False, capture_output=True)
        return done.returncode

    assert follow("") != 0
    assert not (tmp_path / "keys").exists()
    assert follow("a key") == 0
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    # Followed again it takes no key away.
    assert follow("another key") != 0
    for host, files in hosts.items():
        assert {one.name for one in (tmp_path / host).iterdir()} == files
        for name in files:
            path = tmp_path / host / name
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            assert path.read_bytes() == (tmp_path / "keys" / name).read_bytes()
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in (tmp_path / "keys").iterdir())
    (key,) = tomllib.loads((tmp_path / SIGNALING / "api-keys.toml").read_text())["key"]
    assert key["sha256"] == hashlib.sha256(b"a key").hexdigest()
    assert re.fullmatch("[0-9a-f]{48}", (tmp_path / FIRST / "control-secret").read_text())


def test_an_upgrade_a_rotation_and_a_drain_cost_no_call(site: Site) -> None:
    held = site.hold("first calls", CALLS)

    # The relay hands over, and so does the one that took over, by the same commands.
    held.ask("mark")
    for instances in ("ab", "ba"):
        said = site.desk.follow("upgrade-relay")
        assert said.strip() == "1 of 1 cores receive", said
        old, new = (site.supervisor.running[RELAY, f"firsthop-relay@{which}"] for which in instances)
        assert (old.wait(1), new.running()) == (0, True)
        assert '"took over"' in new.text()
    # Nothing was lost at the relay. What a client's own socket has no room for, on a busy machine, is not the relay's.
    held.unharmed()
    page = site.page(RELAY, RELAY_ADMIN)
    assert page.total("firsthop_relay_drops_total") == 0
    assert page.total("firsthop_relay_socket_receive_drops_total") == 0

    # A key is added and activated, and the old one goes when nobody has it any more.
    site.desk.follow("rotate-functions", "rotate-add")
    site.desk.follow("rotate-functions", "rotate-activate")
    held.unharmed()
    later = site.hold("later calls", CALLS)
    held.unharmed()

    # A transceiver drains: its calls go on, new ones go to the other.
    assert min(site.sessions_of(FIRST), site.sessions_of(SECOND)) > 0
    draining = site.desk.start("drain-transceiver")
    until("signaling knows of the drain", lambda: site.standing("draining") == 1, READY_SECONDS)
    watched = site.desk.follow("watch-drain")
    assert "firsthop_transceiver_draining 1" in watched, watched
    assert re.search(r'^firsthop_transceiver_sessions\{.*state="live"\} [1-9]', watched, re.MULTILINE), watched
    before = site.sessions_of(SECOND)
    site.bed.client.call(lambda: [session.create(site.url) for _ in range(3)])
    # A worker says a moment later how many it has.
    until("the other one has them", lambda: site.sessions_of(SECOND) == before + 3, READY_SECONDS)
    held.unharmed()
    later.unharmed()
    assert draining.poll() is None, "it ended before its calls"
    held.hang_up()
    # Those of the later calls that are there go on all the same; then they hang up, and it ends by itself.
    later.unharmed()
    later.hang_up()
    assert site.desk.finish(draining).strip().endswith("ready")
    until("both take calls", lambda: site.standing("ready") == 2, READY_SECONDS)

    last = site.hold("last calls", CALLS)
    site.desk.follow("rotate-functions", "rotate-remove")
    last.unharmed()

    # Another region comes up, of which its machine knows first: the relay there is asked as soon as the file is here.
    site.draft_other_region()
    site.desk.follow("rotate-functions", "new-region")
    mode = (site.desk.etc / OTHER / "data.toml").stat().st_mode
    assert stat.S_IMODE(mode) == 0o640, "a keyring that was not there before is for the services alone"
    site.start_other_region()
    site.desk.follow("rotate-functions", "add-region")
    last.unharmed()
    last.hang_up()


def test_an_upgrade_that_cannot_be_made_says_so_and_costs_no_call(site: Site) -> None:
    held = site.hold("calls", CALLS)
    # What the serving relay has, its successor must have.
    site.relay_settings["flows-per-core"] = "1000"
    status, said = site.desk.end_of(site.desk.start("upgrade-relay"))
    assert status == 1, said
    assert "cores receive" in said
    assert "b has not taken over" in said
    old, new = (site.supervisor.running[RELAY, f"firsthop-relay@{which}"] for which in "ab")
    assert (old.running(), new.wait(READY_SECONDS)) == (True, 2)
    assert "flows-per-core" in new.text()
    held.unharmed()
    held.hang_up()
    # It has been looked at: it is the one that was to fail.
    site.programs.remove(new)
    del site.supervisor.running[RELAY, "firsthop-relay@b"]


def test_calls_leave_no_trace_in_connection_tracking(bed: Testbed, stack: Stack, caller: Callable[..., Any]) -> None:
    """The guide's rules, on a machine whose firewall asks for the state of what comes, as most do."""
    firewall = "table inet states { chain in { type filter hook input priority 10; ct state established accept\n}\n}"
    bed.server.check("nft", "-f", "-", stdin=firewall)
    bed.server.check("bash", "-c", blocks()["conntrack"])
    stack.start()
    call = caller(repeat=True)
    call.call()
    call.speak()
    call.wait_for_heard(1, 15)
    tracked = bed.server.check("cat", "/proc/net/nf_conntrack")
    assert f"dport={HTTP_PORT}" in tracked, tracked
    assert "udp" not in tracked, tracked
