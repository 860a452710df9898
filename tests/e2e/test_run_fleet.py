"""`scripts/run --fleet`: two of each program and a Redis, and what can be done without one of them."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import REPOSITORY
from firsthop import metrics, session
from firsthop.audio import Samples
from firsthop.caller import Caller, request
from firsthop.namespaces import Testbed
from firsthop.processes import Program, is_complaint
from firsthop.script import READY_SECONDS, programs_in
from firsthop.stack import HTTP_PORT, UDP_PORT
from firsthop.waiting import until
from test_call import alike

CONTROL_PORTS = (5080, 5081)
URLS = tuple(f"http://{Testbed.SERVER}:{port}" for port in (HTTP_PORT, HTTP_PORT + 1))
EVERY = {"relay", "transceiver", "signaling", "redis-server"}


@pytest.fixture
def fleet(bed: Testbed, launch: Callable[..., Program], binaries: Path, tmp_path: Path) -> Callable[..., Program]:
    """Starts the script, with these options more, and does not wait for it."""

    def start(*options: str) -> Program:
        every = ["--fleet", "--programs", str(binaries.resolve()), "--state", str(tmp_path / "state")]
        every += ["--public", Testbed.SERVER, "--http", f"{Testbed.SERVER}:{HTTP_PORT}", *options]
        command = bed.server.command(REPOSITORY / "scripts/run", *every)
        return launch("scripts/run", command, tmp_path / "run.log", {}, REPOSITORY)

    return start


@pytest.fixture
def calls(bed: Testbed, sentence: Samples) -> Iterator[Callable[[str], Caller]]:
    made: list[Caller] = []

    def make(url: str) -> Caller:
        made.append(Caller(bed.client, url, sentence, repeat=True))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ready(script: Program) -> Program:
    script.wait_for_line("Ctrl-C stops everything.", 2 * READY_SECONDS)
    return script


def suggested(script: Program, name: str) -> tuple[int, signal.Signals]:
    """The process id of one, and the signal that the script suggests to send it."""
    match = re.search(rf"^  kill -(\w+) (\d+) +(?:kills|drains) {name}\.", script.text(), re.MULTILINE)
    assert match, script.text()
    return int(match[2]), signal.Signals[f"SIG{match[1]}"]


def made(bed: Testbed) -> list[int]:
    """How many sessions each transceiver has made."""
    name = "firsthop_transceiver_sessions_created_total"
    return [int(metrics.scrape(bed.server, port).total(name)) for port in CONTROL_PORTS]


def advertised(bed: Testbed, url: str) -> set[int]:
    """The UDP ports that a client of this signaling is told."""
    offer = session.plain_offer("abcd", "p" * 24)
    answer = bed.client.call(lambda: request(url, "POST", "/v1/realtime/calls", offer))
    assert answer.status == 201, answer.body
    ports = re.findall(r"^a=candidate:\S+ 1 udp \d+ \S+ (\d+) ", answer.body, re.MULTILINE | re.IGNORECASE)
    return {int(port) for port in ports}


def test_each_replica_takes_calls_each_transceiver_gets_some_and_ctrl_c_ends_all(
    bed: Testbed, fleet: Callable[..., Program], calls: Callable[[str], Caller], sentence: Samples, tmp_path: Path
) -> None:
    script = ready(fleet())
    for number, url in enumerate(URLS):
        assert f"{url}/v1/realtime/calls" in script.text()
        call = calls(url)
        call.call()
        # Both relays are advertised, that of the replica's own number first.
        ports = [port for _, port in call.candidates()]
        assert ports == [UDP_PORT + number, UDP_PORT + 1 - number]
        call.speak()
        assert alike(call.listen(4, 15), sentence)
    for _ in range(10):
        for url in URLS:
            bed.client.call(lambda url=url: session.create(url))
    assert sum(made(bed)) == 22
    assert min(made(bed)) > 0, made(bed)
    for port in (9101, 9102):
        assert metrics.scrape(bed.server, port).total("firsthop_relay_redis_up") == 1
    assert set(programs_in(bed)) >= EVERY

    script.signal(signal.SIGINT)
    # Calls that live do not hold it up, though a transceiver may drain for minutes.
    assert script.wait(30) == 0
    assert "Stopped." in script.text()
    assert programs_in(bed) == {}
    logs = sorted((tmp_path / "state/logs").iterdir())
    kinds = ("relay", "signaling", "transceiver")
    assert [log.name for log in logs] == ["redis.log", *(f"{kind}-{number}.log" for kind in kinds for number in (1, 2))]
    assert [line for log in logs[1:] for line in log.read_text().splitlines() if is_complaint(line)] == []


def test_what_is_killed_or_drained_is_named_and_the_others_go_on(
    bed: Testbed, fleet: Callable[..., Program], calls: Callable[[str], Caller], sentence: Samples
) -> None:
    script = ready(fleet())
    call = calls(URLS[0])
    call.call()
    call.speak()
    assert call.answer is not None
    location = call.answer.headers["location"]

    os.kill(*suggested(script, "signaling-1"))
    script.wait_for_line("signaling-1 ended with status 137", 10)
    assert alike(call.listen(4, 15), sentence)

    os.kill(*suggested(script, "redis"))
    script.wait_for_line("redis ended with status 137", 10)
    assert alike(call.listen(4, 15), sentence)

    # One of the two owns the call; the other has nothing to wait for.
    os.kill(*suggested(script, "transceiver-1"))
    bed.client.call(lambda: request(URLS[1], "POST", f"{location}/hangup", content_type=None))
    script.wait_for_line("transceiver-1 has ended in good order.", 15)

    os.kill(*suggested(script, "relay-1"))
    script.wait_for_line("relay-1 ended with status 137", 10)
    until("clients are told of relay-2 alone", lambda: advertised(bed, URLS[1]) == {UDP_PORT + 1}, 30)
    another = calls(URLS[1])
    another.call()
    another.speak()
    assert alike(another.listen(4, 15), sentence)

    script.signal(signal.SIGINT)
    assert script.wait(30) == 0
    assert programs_in(bed) == {}


def test_without_any_of_a_kind_everything_stops(bed: Testbed, fleet: Callable[..., Program]) -> None:
    script = ready(fleet())
    os.kill(*suggested(script, "relay-1"))
    script.wait_for_line("relay-1 ended with status 137", 10)
    # Of the two there is one left in the list.
    os.kill(programs_in(bed)["relay"], signal.SIGKILL)
    assert script.wait(30) == 1
    assert "relay-2 ended with status 137" in script.text()
    assert programs_in(bed) == {}


def test_the_demo_calls_through_each_replica(bed: Testbed, fleet: Callable[..., Program]) -> None:
    script = fleet("--demo")
    assert script.wait(120) == 0
    assert script.text().count("The voice came back.") == 2
    for url in URLS:
        assert f"A call to {url}:" in script.text()
    assert programs_in(bed) == {}


@pytest.mark.parametrize(
    ("protocol", "port", "option"),
    [
        (socket.SOCK_DGRAM, UDP_PORT + 1, "--udp-port"),
        (socket.SOCK_DGRAM, 4001, "--internal-port"),
        (socket.SOCK_DGRAM, 5001, "--trunk-port"),
        (socket.SOCK_STREAM, 5081, "--control-port"),
        (socket.SOCK_STREAM, HTTP_PORT + 1, "--http"),
        (socket.SOCK_STREAM, 9102, "--admin-port"),
        (socket.SOCK_STREAM, 9104, "--metrics-port"),
        (socket.SOCK_STREAM, 6380, "--redis-port"),
    ],
)
def test_a_taken_port_of_the_second_of_each_is_named_before_anything_starts(
    bed: Testbed, fleet: Callable[..., Program], protocol: socket.SocketKind, port: int, option: str
) -> None:
    def take() -> socket.socket:
        taken = socket.socket(socket.AF_INET, protocol)
        taken.bind(("0.0.0.0", port))
        if protocol == socket.SOCK_STREAM:
            taken.listen()
        return taken

    with bed.server.call(take):
        script = fleet()
        assert script.wait(20) == 2
        assert f"port {port} " in script.text()
        assert option in script.text()
        assert programs_in(bed) == {}
