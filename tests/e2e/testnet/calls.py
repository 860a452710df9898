"""Calls of the test world: who places them, and what they hear and are heard of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firsthop.instruments import ANSWER_SECONDS, Instrument
from firsthop.launching import KEY
from firsthop.waiting import until

from .topology import HOME, OFFICE
from .world import World, signaling_url

#: Milliseconds of speech in a packet. A pause of that length is none.
FRAME_MS = 20.0

#: A call hears, and is heard, when so many packets more have come: a fifth of a second.
HEARD_PACKETS = 10

SET_UP_SECONDS = 90.0
HANG_UP_SECONDS = 30.0


@dataclass(frozen=True)
class Group:
    """Callers at one address, to one cluster; `share` of all calls are theirs."""

    name: str
    host: str
    address: str
    cluster: int
    share: int


GROUPS = (
    Group("home", "home", HOME, 1, 2),
    Group("office", "office", OFFICE, 1, 1),
    Group("far", "office", OFFICE, 2, 1),
)


@dataclass(frozen=True)
class Heard:
    """One direction since the last mark."""

    #: The worst pause of any call, an open one too, less the time that passes between packets anyhow.
    gap_ms: float = 0.0
    lost: int = 0
    packets: int = 0
    #: Calls of which the listener knows that they have ended.
    gone: int = 0

    @classmethod
    def worst(cls, several: list["Heard"]) -> "Heard":
        """Of several listeners: the worst pause, and the sum of what was lost."""
        return cls(
            max(one.gap_ms for one in several),
            sum(one.lost for one in several),
            sum(one.packets for one in several),
            sum(one.gone for one in several),
        )


@dataclass(frozen=True)
class Reading:
    """What a group's calls, or all calls, went through since the last mark."""

    calls: int
    #: Calls that have audio.
    up: int
    #: Calls that ended, though nobody hung up.
    cut: int
    #: DTLS handshakes since the calls were placed: of the call with the most, and of all.
    handshakes: int
    handshakes_sum: int
    #: What callers heard.
    down: Heard
    #: How late the listener itself was at worst: a pause of that length may be its own.
    stalled_ms: float
    #: Where it was worst, in the words of the listener.
    worst: Any = None


class Calls:
    """Calls that are up, from several places, speaking and listening all the time."""

    def __init__(
        self,
        world: World,
        number: int,
        groups: tuple[Group, ...] = GROUPS,
        reconnect: bool = False,
        url: Callable[[int], str] = signaling_url,
        label: str = "",
    ) -> None:
        """Places the calls, and waits until all hear audio. Each group gets one at least."""
        self.world = world
        self.groups: dict[str, Instrument] = {}
        heard_before = self._heard_now()
        shares = sum(group.share for group in groups)
        more = ["--reconnect"] if reconnect else []
        counts = {group.name: max(1, number * group.share // shares) for group in groups}
        # What division leaves over is the first group's.
        counts[groups[0].name] += max(0, number - sum(counts.values()))
        for group in groups:
            arguments = f"--url {url(group.cluster)} --key {KEY} --calls {counts[group.name]} --from {group.address}"
            name = f"callers {label}{group.name}"
            self.groups[group.name] = world.instrument(
                name, group.host, "hold", *arguments.split(), "--codec", "pcmu", *more
            )
        #: The clients that each model server heard when last marked: others are not of these calls.
        self._known: dict[int, set[tuple[int, int]]] = {}
        self.number = 0
        for one in self.groups.values():
            came = one.wait_for_answer("up", SET_UP_SECONDS)
            assert came["up"] == came["calls"], f"{one.name}: {came}"
            self.number += came["up"]
        until("every call is heard", lambda: self._heard_now() >= heard_before + self.number, SET_UP_SECONDS)

    def _heard_now(self) -> int:
        """How many calls the model servers hear, of whoever places them."""
        return sum(bool(c["connections"]) for one in self.world.models.values() for c in one.ask("calls")["calls"])

    def mark(self) -> None:
        """Begins to measure anew, in both directions."""
        for one in (*self.groups.values(), *self.world.models.values()):
            one.ask("mark")
        self._known = {
            number: {_client(call) for call in one.ask("calls")["calls"]} for number, one in self.world.models.items()
        }
        known = sum(len(clients) for clients in self._known.values())
        assert known == self.number, f"of {self.number} calls {known} are heard"

    def read(self) -> dict[str, Reading]:
        """What each group went through since the mark."""
        return {name: _reading(one.ask("measure")) for name, one in self.groups.items()}

    def read_up(self) -> dict[int, Heard]:
        """What the model server of each cluster heard since the mark."""
        return {
            number: _heard(one.ask("measure")["cadence_ms"], self._heard_by(number))
            for number, one in self.world.models.items()
        }

    def _heard_by(self, number: int) -> list[dict[str, Any]]:
        """What the model server of a cluster says of each of these calls."""
        calls = self.world.models[number].ask("calls")["calls"]
        return [call for call in calls if _client(call) in self._known[number]]

    def all(self) -> tuple[Reading, Heard]:
        """What all calls went through since the mark: theirs, and what the model servers heard of them."""
        every, up = list(self.read().values()), list(self.read_up().values())
        worst = max(every, key=lambda one: one.down.gap_ms)
        together = Reading(
            sum(one.calls for one in every),
            sum(one.up for one in every),
            sum(one.cut for one in every),
            max(one.handshakes for one in every),
            sum(one.handshakes_sum for one in every),
            Heard.worst([one.down for one in every]),
            max(one.stalled_ms for one in every),
            worst.worst,
        )
        return together, Heard.worst(up)

    def each(self) -> list[dict[str, Any]]:
        """What each call heard since the mark, in the words of the listener."""
        return [call for one in self.groups.values() for call in one.ask("calls")["calls"]]

    def wait_until_heard(self, seconds: float) -> None:
        """Waits until every call has heard some packets more, and has been heard with some more."""
        before = self._counts()

        def heard() -> bool:
            now = self._counts()
            return all(now.get(call, 0) >= count + HEARD_PACKETS for call, count in before.items())

        until("all calls hear, and are heard, again", heard, seconds)

    def _counts(self) -> dict[tuple[Any, ...], int]:
        """How many packets each call has heard since the mark, and with how many it has been heard."""
        counts: dict[tuple[Any, ...], int] = {}
        for name, one in self.groups.items():
            counts |= {(name, call["call"]): call["packets"] for call in one.ask("calls")["calls"]}
        for number in self.world.models:
            counts |= {(number, *_client(call)): call["frames"] for call in self._heard_by(number)}
        return counts

    def ask(self, group: str, command: str, timeout: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Tells the callers of a group something."""
        return self.groups[group].ask(command, timeout)

    def hang_up(self) -> None:
        """Ends all calls, and those who placed them."""
        for one in self.groups.values():
            one.ask("hang-up", HANG_UP_SECONDS)
        for one in self.groups.values():
            one.dismiss()
            status = one.wait(HANG_UP_SECONDS)
            assert status == 0, f"{one.name} ended with status {status}"


def _reading(answer: dict[str, Any]) -> Reading:
    down = Heard(_pause(answer["worst_gap_ms"], FRAME_MS), answer["packets_lost"], answer["packets"])
    return Reading(
        answer["calls"],
        answer["up"],
        answer["cut"],
        answer["handshakes"],
        answer["handshakes_sum"],
        down,
        answer["stalled_ms"],
        answer["worst"][:1],
    )


def _client(call: dict[str, Any]) -> tuple[int, int]:
    return call["run"], call["call"]


def _heard(cadence_ms: float, calls: list[dict[str, Any]]) -> Heard:
    # A transceiver hands audio on in steps of its own.
    usual = max(FRAME_MS, cadence_ms)
    worst = max((call["gap_ms"] for call in calls), default=0.0)
    lost, frames = (sum(call[name] for call in calls) for name in ("lost", "frames"))
    return Heard(_pause(worst, usual), lost, frames, sum(not call["connections"] for call in calls))


def _pause(gap_ms: float, usual_ms: float) -> float:
    return round(max(0.0, gap_ms - usual_ms), 1)
