"""What clients do, and what must hold then: they move, and some attack."""

from collections.abc import Callable

from firsthop.namespaces import UDP_PORT
from firsthop.waiting import until

from .calls import FRAME_MS
from .limits import MOVE_SECONDS, RETURN_SECONDS, SPOOF_RATE, SPOOF_SECONDS, STORM_RATE, STORM_SECONDS
from .topology import HOME_NEXT, PUBLIC
from .trial import Trial
from .world import World, signaling_url


def rebind(trial: Trial) -> None:
    """The office's NAT forgets its ports, and home's callers get other sockets; neither tells anybody."""
    trial.note(bound_before=_bound(trial))
    trial.world.topology.map_ports(30_000)
    _tell_all(trial, "home", "rebind", "rebound")


def change_network(trial: Trial) -> None:
    """Home's callers get another address, and restart ICE."""
    trial.note(bound_before=_bound(trial))
    _tell_all(trial, "home", f"move {HOME_NEXT}", "moved")


def _tell_all(trial: Trial, group: str, order: str, done: str) -> None:
    """Has all callers of a group do something, which each of them must."""
    answer = trial.calls.ask(group, order, MOVE_SECONDS)
    number = trial.calls.read()[group].calls
    trial.check(f"{order}: all {number} did ({answer})", answer[done] == number and not answer["failed"])


def _bound(trial: Trial) -> int:
    """How often requests have bound an address at relay A."""
    return int(trial.world.relay_metrics("A").total("firsthop_relay_claims_bound_total"))


def all_are_elsewhere(trial: Trial) -> None:
    """Every call has another address than before."""
    _are_elsewhere(trial, trial.calls.number)


def home_is_elsewhere(trial: Trial) -> None:
    """Home's calls have another address than before."""
    _are_elsewhere(trial, trial.calls.read()["home"].calls)


def _are_elsewhere(trial: Trial, number: int) -> None:
    """Each caller that moved has bound an address that relay A did not know."""
    bound = _bound(trial) - trial.facts["bound_before"]
    trial.check(f"{number} calls came from new addresses ({bound})", bound >= number)


def offer_both(world: World) -> Callable[[int], str]:
    """Has signaling offer relay A by its own address, so that calls can move to B's."""
    url = world.start_front_for_own_addresses()
    return lambda cluster: url if cluster == 1 else signaling_url(cluster)


def move_ingress(trial: Trial) -> None:
    """All begin at A, wherever ICE has led them; then they move to B."""
    for relay in ("A", "B"):
        for group in trial.calls.groups:
            _tell_all(trial, group, f"via {PUBLIC[relay]}:{UDP_PORT}", "chosen")
        until(
            f"every call has a flow at {relay}",
            lambda at=relay: trial.world.flows(at) >= trial.calls.number,
            RETURN_SECONDS,
        )
        trial.calls.wait_until_heard(RETURN_SECONDS)
        if relay == "A":
            trial.calls.mark()


def nothing_at_a(trial: Trial) -> None:
    """Its flows have been idle for 30 seconds."""
    until("relay A has no flow any more", lambda: trial.world.flows("A") == 0, RETURN_SECONDS)


def storm(trial: Trial) -> None:
    """One client sends far more than anybody speaks."""
    before = _came(trial)
    storm = trial.calls.ask("home", f"storm {STORM_SECONDS} {STORM_RATE}", STORM_SECONDS + MOVE_SECONDS)["storm"]
    sent = storm["sent"]
    # Those that come of calls as usual are not the storm's.
    least = 0.9 * (sent + trial.calls.number * STORM_SECONDS * 1_000 / FRAME_MS)
    until("relay A has the storm's packets", lambda: _came(trial) - before >= least, RETURN_SECONDS)
    trial.note(storm_packets=sent)
    trial.check(f"there was a storm ({sent} packets)", sent >= 0.9 * STORM_SECONDS * STORM_RATE)


def _came(trial: Trial) -> int:
    """Packets of clients that relay A has passed on or dropped."""
    page = trial.world.relay_metrics("A")
    names = ("firsthop_relay_beyond_records_total", "firsthop_relay_drops_total")
    return int(sum(page.total(name) for name in names))


_CHECKSUMS = ("fingerprint", "integrity")


def _refused(trial: Trial) -> int:
    """Requests whose fingerprint or integrity was wrong."""
    page = trial.world.relay_metrics("A")
    return int(sum(page.total("firsthop_relay_drops_total", reason=f"stun_{which}") for which in _CHECKSUMS))


def spoof(trial: Trial) -> None:
    """Requests are replayed and forged from another address of home's, where nobody has a call."""
    before = _refused(trial)
    order = f"spoof {SPOOF_SECONDS} {SPOOF_RATE} {HOME_NEXT}"
    spoofed = trial.calls.ask("home", order, SPOOF_SECONDS + MOVE_SECONDS)["spoofed"]
    until("relay A counts what was forged", lambda: _refused(trial) >= before + spoofed["forged"], RETURN_SECONDS)
    trial.note(**spoofed)
    trial.check("requests were replayed and forged", min(spoofed["replayed"], spoofed["forged"]) > 0)
    trial.check("no media went to where they came from", spoofed["media_back"] == 0)
