"""`perf calls` finds faults that are put in its way: delay and loss on the line, and a worker that stands still.

What it says is compared with what was injected, and with itself without a fault, with margins that a busy machine
keeps: that a call is never held up here nobody can promise.
"""

import datetime
import ipaddress
import json
import math
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from conftest import REPOSITORY
from firsthop import audio, realtime_server
from firsthop.audio import Samples
from firsthop.instruments import Instrument
from firsthop.launching import KEY, READY_SECONDS, says_ready
from firsthop.namespaces import Namespace, Testbed, give_address, ip, join
from firsthop.processes import Program
from firsthop.stack import Stack, sessions
from firsthop.waiting import until
from test_fleet import second_metrics, start_with_two
from test_realtime import Model

CALLS = 4
#: How long each lasts: some marks come back of each, about 2 s apart.
SECONDS = 14
#: How long those last in which something is done once they are heard, however long a busy machine takes to set them up.
LONG_SECONDS = 45
#: An echo holds what was said before its channel was open, and leaves it out in the first pause.
SETTLE = 5
#: How often what a busy machine has spoilt is measured again.
TRIES = 3
#: For everything that `perf calls` does beyond that, on a machine that is busy.
PATIENCE = 60.0

Report = dict[str, Any]


class Line:
    """A host far away from the server, and the line between them, which is impaired as it is told to be."""

    FAR, NEAR = "10.77.3.2", "10.77.3.1"

    def __init__(self, bed: Testbed, binaries: Path, directory: Path) -> None:
        self.binaries, self.directory = binaries, directory
        self.hosts, self.server = [Namespace("far"), Namespace("middle")], bed.server
        self.far, middle = self.hosts
        join(self.far, "out", middle, "left")
        join(middle, "right", bed.server, "to-far")
        give_address(self.far, "out", f"{self.FAR}/24")
        give_address(bed.server, "to-far", f"{self.NEAR}/24")
        ip("-n", self.far.name, "route", "add", "default", "via", self.NEAR)
        # A router between them that asks who is there would be asked over the line as well.
        self.link = Instrument("line", binaries, middle, directory, "impair", "--between", "left,right")

    def calls(self, url: str, *arguments: str, seconds: int = SECONDS) -> "Load":
        """Begins to place calls from the far host."""
        return Load(self.far, self.binaries, self.directory, url, *arguments, seconds=seconds)

    def close(self) -> None:
        """Takes the line and the host down."""
        self.link.dismiss()
        self.link.wait(PATIENCE)
        # With a namespace its links go a while later, and the next test makes one of this name.
        ip("-n", self.server.name, "link", "delete", "to-far")
        for host in self.hosts:
            host.delete()


class Load:
    """A run of `perf calls`."""

    def __init__(
        self,
        host: Namespace,
        binaries: Path,
        directory: Path,
        url: str,
        *arguments: str,
        seconds: int = SECONDS,
        **environment: str,
    ) -> None:
        self._seconds = seconds
        command = host.command(
            binaries / "perf", "calls", "--url", url, "--key", KEY, "--calls", str(CALLS), "--ramp", "4/s",
            "--duration", str(seconds), *(() if "--settle" in arguments else ("--settle", str(SETTLE))), "--json",
            *arguments,
        )  # fmt: skip
        self._program = Program("perf calls", command, directory / "perf calls.log", environment)

    def kill(self) -> None:
        """Ends it, whatever it does."""
        self._program.kill()

    def end(self) -> tuple[int, Report, str]:
        """Its exit status, what it has measured, and what it printed after that, once it is over."""
        status = self._program.wait(self._seconds + PATIENCE)
        text = self._program.text()
        begin = text.index("{")
        report, length = json.JSONDecoder().raw_decode(text[begin:])
        assert report["connected"] == report["audible"] == CALLS, text
        return status, report, text[begin + length :]


@pytest.fixture
def line(shared_stack: Stack, binaries: Path, tmp_path: Path) -> Iterator[Line]:
    """The line of one test."""
    made = Line(shared_stack.bed, binaries, tmp_path)
    yield made
    made.close()


def mouth_to_ear(report: Report) -> float:
    """Its median, in milliseconds; no number when too few marks came back to tell."""
    return float(report["mouth_to_ear"]["p50"]) if report["marks_heard"] >= CALLS else math.nan


@pytest.mark.timeout(300)
def test_added_delay_is_found_in_the_audio_and_in_the_set_up(shared_stack: Stack, line: Line) -> None:
    each_way = 150
    for tries_left in reversed(range(TRIES)):
        line.link.ask("delay 0ms")
        status, plain, words = line.calls(
            shared_stack.url, "--after-channel", "--fail-if", "lost>50%", "--fail-if", "inaudible>0"
        ).end()
        assert (status, words.strip()) == (0, ""), words
        line.link.ask(f"delay {each_way}ms")
        base = mouth_to_ear(plain)
        limit = each_way + (0 if math.isnan(base) else base)
        status, late, words = line.calls(
            shared_stack.url,
            "--after-channel",
            "--fail-if",
            f"mouth_to_ear_p50>{limit:.1f}ms",
            "--fail-if",
            "inaudible>0",
        ).end()
        added = mouth_to_ear(late) - base
        if 1.5 * each_way < added < 4 * each_way:
            break
        assert tries_left > 0, (plain["mouth_to_ear"], late["mouth_to_ear"])
    # Each phase has a round trip at least.
    for phase in ("answer", "ice", "dtls"):
        assert late["set_up"][phase]["p50"] >= 2 * each_way, late["set_up"]
    assert status == 1
    assert "mouth_to_ear_p50 is" in words, words
    assert words.count("failed:") == 1, words


def test_loss_is_found_as_much_as_there_is(shared_stack: Stack, line: Line, spoken: Samples, tmp_path: Path) -> None:
    said = tmp_path / "said.wav"
    audio.save(said, spoken)
    line.link.ask("loss 0.1")
    status, report, words = line.calls(
        shared_stack.url, "--codec", "pcmu", "--wav", str(said), "--fail-if", "lost>5%", "--fail-if", "lost>20%"
    ).end()
    assert 0.05 < report["lost"] < 0.2, report
    # A mark in the audio survives a lost packet, on the way there and on the way back.
    assert report["marks_heard"] > 0, report
    assert status == 1
    assert words.count("lost is") == 1, words
    assert "> 5.000 %" in words, words


def begin_and_hear(stack: Stack, line: Line, *arguments: str) -> Load:
    """Begins calls, and waits until two seconds of all of them were sent to their clients.

    Everything counts from when all calls were placed, and long enough that what is done next is within that time.
    """
    until("the calls before are forgotten", lambda: stack.sessions() == 0, PATIENCE)
    begun = stack.relay_metrics().total("firsthop_relay_downlink_packets_total")
    load = line.calls(stack.url, "--settle", "0", *arguments, seconds=LONG_SECONDS)

    def have_spoken() -> bool:
        sent = stack.relay_metrics().total("firsthop_relay_downlink_packets_total") - begun
        return stack.sessions() == CALLS and sent > CALLS * 50 * 2

    until("calls are up and heard", have_spoken, LONG_SECONDS / 2)
    return load


@pytest.mark.timeout(300)
def test_a_worker_that_stands_still_is_heard_as_gaps(shared_stack: Stack, line: Line) -> None:
    stall = 1.5
    transceiver = shared_stack.transceiver
    assert transceiver is not None
    load = begin_and_hear(
        shared_stack, line, "--fail-if", "longest_gap_p50>1s", "--fail-if", "calls_with_gaps>0"
    )  # fmt: skip
    try:
        transceiver.signal(signal.SIGSTOP)
        # Not a wait for anything: it is the fault.
        time.sleep(stall)
    finally:
        transceiver.signal(signal.SIGCONT)
    status, report, words = load.end()
    assert report["gaps"] >= CALLS, report
    assert report["calls_with_gaps"] == CALLS, report
    assert stall * 1_000 * 0.8 < report["longest_gap"]["p50"] < stall * 1_000 * 3, report["longest_gap"]
    assert status == 1
    assert "longest_gap_p50 is" in words, words
    assert "calls_with_gaps is" in words, words


@pytest.mark.timeout(300)
def test_a_worker_that_never_goes_on_is_no_good_call(shared_stack: Stack, line: Line) -> None:
    transceiver = shared_stack.transceiver
    assert transceiver is not None
    load = begin_and_hear(shared_stack, line, "--fail-if", "gaps>0", "--fail-if", "longest_gap_p50>2s")
    try:
        transceiver.signal(signal.SIGSTOP)
        status, report, words = load.end()
    finally:
        transceiver.signal(signal.SIGCONT)
    # Nothing came after it that could have told: calls end in silence.
    assert report["calls_with_gaps"] == CALLS, report
    assert report["marks_missed"] > 0, report
    assert status == 1
    assert "gaps is" in words, words
    assert "longest_gap_p50 is" in words, words


def guard() -> list[str]:
    """The limits by which the README guards a deployment, as it has them."""
    readme = (REPOSITORY / "README.md").read_text().replace("\\\n", " ")
    [command] = re.findall(r"^scripts/perf calls .*--fail-if .*$", readme, re.MULTILINE)
    words = shlex.split(command)
    return words[words.index("--fail-if") :]


@pytest.mark.timeout(300)
def test_the_guard_of_the_readme_finds_a_server_that_falls_silent_for_good(shared_stack: Stack, line: Line) -> None:
    relay = shared_stack.relay
    assert relay is not None
    load = begin_and_hear(shared_stack, line, *guard())
    try:
        relay.signal(signal.SIGSTOP)
        status, report, words = load.end()
    finally:
        relay.signal(signal.SIGCONT)
    # No call ended before its time: that nothing was heard is all that tells.
    assert (report["cut"], report["broken"], report["failures"]) == (0, 0, {}), report
    assert report["calls_with_gaps"] == CALLS, report
    assert status == 1
    assert "lost is" in words, words
    assert "longest_gap_max is" in words, words


@pytest.mark.timeout(300)
def test_the_guard_of_the_readme_finds_one_server_of_two_that_dies(
    stack: Stack, binaries: Path, tmp_path: Path
) -> None:
    second = start_with_two(stack)
    load = Load(stack.bed.client, binaries, tmp_path, stack.url, "--settle", "0", *guard(), seconds=LONG_SECONDS)

    def have_spoken() -> bool:
        each = [stack.sessions(), sessions(second_metrics(stack))]
        sent = stack.relay_metrics().total("firsthop_relay_downlink_packets_total")
        return sum(each) == CALLS and min(each) > 0 and sent > CALLS * 50 * 2

    until("calls are up at both, and heard", have_spoken, LONG_SECONDS / 2)
    died = sessions(second_metrics(stack))
    second.kill()
    status, report, words = load.end()
    assert report["calls_with_gaps"] >= died > 0, report
    # At most half of the time was before.
    assert report["lost"] > died / CALLS / 4, report
    assert status == 1
    assert "lost is" in words, words
    assert "longest_gap_max is" in words, words


def test_who_speaks_over_a_model_is_told_how_long_it_speaks_on(
    stack: Stack, binaries: Path, tmp_path: Path, spoken: Samples
) -> None:
    model = Model(stack.bed, tmp_path, spoken)
    stack.transceiver_settings |= model.settings()
    model.start()
    try:
        stack.start()
        load = Load(stack.bed.client, binaries, tmp_path, stack.url, "--no-marks", "--fail-if", "barge_in_p50>1ms")
        status, report, words = load.end()
    finally:
        assert model.program is not None
        model.program.kill()
    assert report["barge_in"] is not None, report
    # The model wants to hear so much of a voice, and a call is cut off by its word.
    voice, event = report["barge_in"], report["barge_in_from_event"]
    assert voice["p50"] >= realtime_server.BEGINS_MS, (voice, event)
    assert event["p50"] < voice["p50"], (voice, event)
    assert report["mouth_to_ear"] is None, report
    assert status == 1
    assert "barge_in_p50 is" in words, words


def certify(directory: Path) -> tuple[Path, Path]:
    """A certificate of the server's address, signed by itself, and its key: as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "perf")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address(Testbed.SERVER))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(made.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def test_calls_are_placed_over_https_at_a_url_with_a_path(stack: Stack, binaries: Path, tmp_path: Path) -> None:
    certificate, key = certify(tmp_path)
    stack.signaling_settings |= {"tls-certificate": str(certificate), "tls-key": str(key)}
    stack.start_transceiver()
    stack.start_relay()
    signaling = stack.launch("signaling", stack.signaling_settings)
    signaling.wait_for_line(says_ready, READY_SECONDS)
    until("signaling knows the transceiver", lambda: signaling.count('"standing":"ready"'), READY_SECONDS)
    url = stack.url.replace("http:", "https:") + "/v1/realtime/calls"
    load = Load(
        stack.bed.client, binaries, tmp_path, url, "--after-channel", "--end", "hang-up",
        "--fail-if", "failed>0", SSL_CERT_FILE=str(certificate),
    )  # fmt: skip
    status, report, words = load.end()
    assert (status, report["unclosed"], report["failures"]) == (0, 0, {}), words
    assert report["mouth_to_ear"] is not None, report
