"""Runs a scenario: calls are placed, something goes wrong, and whether that cost what it may."""

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .calls import GROUPS, Calls, Group, Heard, Reading
from .world import World, signaling_url

#: How long calls are watched after the fault: longer than a path that only looks healed would last, since consent
#: expires after 30 seconds (RFC 7675), and flows that nobody refreshes after 30 as well.
WATCH_SECONDS = 42.0

#: How long calls are listened to before the fault, to say what they are like when nothing is wrong.
CALM_SECONDS = 3.0

#: How long calls may take to hear again, whatever the fault: whether that was soon enough, the limits say.
HEAL_SECONDS = 40.0


@dataclass(frozen=True)
class Limits:
    """What a fault may cost, worst of all calls. A blackout is a pause less the 20 ms that every packet takes."""

    #: Milliseconds without audio, towards callers and from them.
    down_ms: float
    up_ms: float
    #: Packets lost, of all calls together. Without a number they are only told: a blackout loses what was sent in it.
    lost_down: int | None = None
    lost_up: int | None = None
    #: DTLS handshakes of any one call.
    handshakes: int = 1


class Trial:
    """A scenario that runs: what it works on, and what it has found out."""

    def __init__(self, world: World, calls: Calls, patience: float = 1.0) -> None:
        """`patience` is what limits of time are multiplied by, where the machine is not to be measured.

        With any, lost packets are not judged: who gets no time gives up what came late.
        """
        self.world = world
        self.calls = calls
        self.patience = patience
        self.facts: dict[str, Any] = {}
        self.faults: list[str] = []
        #: What the fault has cost, from when it has been measured.
        self.down = self.up = Heard()

    def note(self, **facts: Any) -> None:
        """Adds to what the results say of the scenario."""
        self.facts.update(facts)

    def check(self, what: str, good: bool) -> None:
        """Fails the scenario when something is not so."""
        if not good:
            self.faults.append(f"not so: {what}")

    def within(self, what: str, took_ms: float, limit_ms: float) -> None:
        """Fails the scenario when something took longer than it may."""
        limit_ms *= self.patience
        if took_ms > limit_ms:
            self.faults.append(f"{what}: {took_ms:.0f} ms, at most {limit_ms:.0f} ms")

    def judge(self, limits: Limits, reading: Reading, up: Heard) -> None:
        """Compares what all calls went through with what they may."""
        self.within("blackout towards callers", reading.down.gap_ms, limits.down_ms)
        self.within("blackout from callers", up.gap_ms, limits.up_ms)
        for which, lost, most in (
            ("towards callers", reading.down.lost, limits.lost_down),
            ("from callers", up.lost, limits.lost_up),
        ):
            if most is not None and lost > most and self.patience == 1:
                self.faults.append(f"{lost} packets {which} were lost, at most {most} may be")
        if reading.handshakes > limits.handshakes:
            self.faults.append(f"a call has seen {reading.handshakes} handshakes, at most {limits.handshakes} may be")
        if up.gone:
            self.faults.append(f"{up.gone} calls have no model server any more")
        if reading.up != reading.calls or (reading.cut and limits.handshakes == 1):
            self.faults.append(f"of {reading.calls} calls {reading.up} are up, {reading.cut} were cut")


@dataclass(frozen=True)
class Scenario:
    """Something that goes wrong."""

    name: str
    #: In a few words.
    what: str
    #: What it may cost, for people.
    target: str
    limits: Limits
    #: Does the harm. Calls are up, and have just been marked.
    strike: Callable[[Trial], None]
    #: What else must be so after the watch, and puts right again what was broken.
    mend: Callable[[Trial], None] | None = None
    #: Changes the world, which runs, before calls are placed; returns the URLs to place them at, by cluster.
    arrange: Callable[[World], Callable[[int], str]] | None = None
    #: Settings of programs beside the world's own, by host.
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    groups: tuple[Group, ...] = GROUPS
    with_redis: bool = True
    #: Whether clients that hear nothing for three seconds place a new call.
    reconnect: bool = False
    #: Regular expressions for the warnings that it causes.
    complaints: tuple[str, ...] = ()


@dataclass
class Row:
    """The result of a scenario."""

    scenario: Scenario
    calls: int = 0
    down: Heard | None = None
    up: Heard | None = None
    #: The worst pauses just before the fault.
    calm_down_ms: float = 0.0
    calm_up_ms: float = 0.0
    handshakes: int = 0
    worst: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether everything was as it should."""
        return not self.faults


def run(scenario: Scenario, binaries: Path, directory: Path, number: int, watch: float = WATCH_SECONDS) -> Row:
    """Runs a scenario in a world of its own; what goes wrong on the way is in the row, too."""
    row = Row(scenario)
    world = None
    try:
        world = World(binaries, directory, scenario.with_redis, scenario.settings)
        world.expected_complaints += scenario.complaints
        world.start()
        _run(scenario, world, row, number, watch)
        row.faults += world.stop()
        row.faults += world.complaints()
    except Exception as error:  # Whatever it is, the other scenarios run.
        row.faults.append(f"{type(error).__name__}: {error}")
        (directory / "failure.txt").write_text(traceback.format_exc())
    finally:
        if world is not None:
            world.close()
    return row


def _run(scenario: Scenario, world: World, row: Row, number: int, watch: float) -> None:
    url = scenario.arrange(world) if scenario.arrange else signaling_url
    trial = Trial(world, Calls(world, number, scenario.groups, scenario.reconnect, url))
    row.facts, row.faults = trial.facts, trial.faults
    calm(trial, row)
    suffer(scenario, trial, row, watch)
    if trial.calls.groups:
        trial.calls.hang_up()


def suffer(scenario: Scenario, trial: Trial, row: Row, watch: float) -> None:
    """Has it happen to calls that are up, waits until they hear again, watches on, and judges."""
    row.calls = trial.calls.number
    trial.calls.mark()
    scenario.strike(trial)
    struck = time.monotonic()
    trial.calls.wait_until_heard(HEAL_SECONDS)
    # Nothing is waited for here: that nothing happens in this time is what is to be seen.
    time.sleep(max(0.0, struck + watch - time.monotonic()))
    measure(scenario, trial, row)
    if scenario.mend:
        scenario.mend(trial)


def calm(trial: Trial, row: Row) -> None:
    """Listens for a while when nothing is wrong."""
    trial.calls.mark()
    time.sleep(CALM_SECONDS)
    reading, up = trial.calls.all()
    row.calm_down_ms, row.calm_up_ms = reading.down.gap_ms, up.gap_ms


def measure(scenario: Scenario, trial: Trial, row: Row) -> None:
    """Reads what the fault has cost, and judges."""
    reading, row.up = trial.calls.all()
    row.down, row.handshakes, row.worst = reading.down, reading.handshakes, reading.worst
    trial.judge(scenario.limits, reading, row.up)
    trial.down, trial.up = reading.down, row.up
    trial.note(stalled_ms=reading.stalled_ms)
