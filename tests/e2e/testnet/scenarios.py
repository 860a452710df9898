"""What goes wrong in the test world, and what it may cost: the issue's and the architecture's promises, as limits.

Limits are for the worst of all calls. Where nothing is promised but that a fault costs nothing, the limit is what a
scheduler may do to a packet on a machine that runs the whole world (`UNNOTICED_MS`).
"""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from firsthop.launching import READY_SECONDS, says_ready
from firsthop.namespaces import UDP_PORT
from firsthop.waiting import until

from .calls import FRAME_MS, GROUPS, Calls, Group
from .topology import HOME, HOME_NEXT, PUBLIC
from .trial import Limits, Scenario, Trial
from .world import RELAYS, World, fleet, signaling_url

#: What nobody hears: less than a client's jitter buffer spans.
UNNOTICED_MS = 100.0
UNNOTICED = Limits(UNNOTICED_MS, UNNOTICED_MS, 0, 0)

#: From the kill of a relay to audio, and how much of it after the new process listens.
RESTART_MS, LISTENING_MS = 500.0, 100.0
RESTART = Limits(RESTART_MS, RESTART_MS)

#: The clients here (str0m) check their path every three seconds; and how soon after that the check is answered, on the
#: machine that runs the whole world.
CHECK_MS, CHECKED_MS = 3_000.0, 500.0
NEXT_CHECK_MS = CHECK_MS + CHECKED_MS

#: A relay of another cluster that has been silent for so long is down.
FAIL_OVER_MS = 3_200.0

#: How long a line is cut, and how soon after that an owner speaks again: with the client's next check, which comes
#: after 1.5 seconds when the last one was not answered.
CUT_SECONDS, RECHECK_MS = 5.0, 1_500.0
CUT_MS = CUT_SECONDS * 1_000 + RECHECK_MS
STORM_SECONDS, STORM_RATE = 10, 5_000
SPOOF_SECONDS, SPOOF_RATE = 10, 500
LOSS = 0.02

MOVE_SECONDS = 60.0
ENDS_SECONDS = 60.0
RETURN_SECONDS = 30.0


# Restarts of an ingress relay.


def _restart_a(trial: Trial, **settings: str) -> None:
    """Kills relay A, and starts it again."""
    killed = datetime.now(UTC)
    trial.world.relays["A"].kill()
    ready = trial.world.launch_relay("A", **settings).wait_for_line(says_ready, READY_SECONDS)
    # Its own clock: this program may see the line late.
    listening = datetime.fromisoformat(json.loads(ready)["timestamp"])
    trial.note(listening_after_ms=round((listening - killed).total_seconds() * 1_000, 1))


def _restart_with_two_cores(trial: Trial) -> None:
    """Tells the fleet that relay A has another number of cores, and restarts it with that."""
    relays = [trial.world.relays[name] for name in RELAYS]
    before = [relay.count("file reloaded") for relay in relays]
    trial.world.write_fleet(fleet(cores_of_a=2))

    def all_have_read_it() -> bool:
        return all(relay.count("file reloaded") > count for relay, count in zip(relays, before, strict=True))

    until("all relays have read the fleet file again", all_have_read_it, READY_SECONDS)
    _restart_a(trial, cores="2")


def _heals_soon_after_listening(trial: Trial) -> None:
    listening = trial.facts["listening_after_ms"]
    for which, heard in (("towards", trial.down), ("from", trial.up)):
        trial.within(f"blackout {which} callers after the new process listens", heard.gap_ms - listening, LISTENING_MS)
    # The model speaks without pause: the downlink may restore every flow before Redis is asked. Told, not judged.
    page = trial.world.relay_metrics("A")
    for name in ("recalled", "restored"):
        trial.note(**{name: int(page.total(f"firsthop_relay_claims_{name}_total"))})
    if trial.world.with_redis:
        until("relay A has its Redis", lambda: trial.world.has_redis("A"), RETURN_SECONDS)


def _found_in_redis(trial: Trial, relay: str) -> None:
    """The flow cache has led first packets: without it only the downlink and checks would have healed."""
    recalled = int(trial.world.relay_metrics(relay).total("firsthop_relay_claims_recalled_total"))
    trial.note(recalled=recalled)
    # On a busy machine a client's next check, or the downlink, may come before the answer.
    trial.check(f"relay {relay} has found flows in Redis", recalled > 0 or trial.patience > 1)


def _hot_restart(trial: Trial) -> None:
    old = trial.world.relays["A"]
    new = trial.world.launch_relay("A", takeover="true")
    line = new.wait_for_line("took over", READY_SECONDS)
    flows = int(json.loads(line)["fields"]["flows"])
    trial.note(handed_over=flows)
    trial.check(f"every call's flow was handed over ({flows})", flows >= trial.calls.number)
    trial.check("the old process ends with status 0", old.wait(READY_SECONDS) == 0)


# Another relay takes over.


def _stop_gracefully(trial: Trial) -> None:
    """Relay A is told to stop; whoever leads clients to it sees that it is not ready, and leads them to B."""
    trial.world.relays["A"].signal(signal.SIGTERM)
    until("relay A says that it is not ready", lambda: trial.world.relay_ready("A") == 503, READY_SECONDS)
    trial.world.topology.lead_vip("B")


def _ends_by_itself(trial: Trial) -> None:
    """Its last flow is idle after 30 seconds."""
    trial.check("relay A ends by itself, with status 0", trial.world.relays["A"].wait(ENDS_SECONDS) == 0)
    _found_in_redis(trial, "B")


def _take_over(trial: Trial) -> None:
    trial.world.relays["A"].kill()
    trial.world.topology.lead_vip("B")


def _spread_flows(trial: Trial) -> None:
    """Half of the flows move to B; a moment later the other half, too."""
    trial.world.topology.lead_vip("A", "B")
    trial.calls.wait_until_heard(RETURN_SECONDS)
    until("some flows are at B", lambda: _flows(trial, "B") > 0, RETURN_SECONDS)
    trial.note(flows_moved_first=_flows(trial, "B"))
    trial.world.topology.lead_vip("B")


def _flows(trial: Trial, relay: str) -> int:
    return int(trial.world.relay_metrics(relay).total("firsthop_relay_flows"))


def _all_at_b(trial: Trial) -> None:
    """All are there, and what led the first of their packets was the flow cache."""
    flows = _flows(trial, "B")
    _found_in_redis(trial, "B")
    trial.check(f"all {trial.calls.number} calls have a flow at B ({flows})", flows >= trial.calls.number)


# Clients move.


def _rebind(trial: Trial) -> None:
    """The office's NAT forgets its ports, and home's callers get other sockets; neither tells anybody."""
    trial.note(bound_before=_bound(trial))
    trial.world.topology.map_ports(30_000)
    _tell_all(trial, "home", "rebind", "rebound")


def _change_network(trial: Trial) -> None:
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


def _all_are_elsewhere(trial: Trial) -> None:
    _are_elsewhere(trial, trial.calls.number)


def _home_is_elsewhere(trial: Trial) -> None:
    _are_elsewhere(trial, trial.calls.read()["home"].calls)


def _are_elsewhere(trial: Trial, number: int) -> None:
    """Each caller that moved has bound an address that relay A did not know."""
    bound = _bound(trial) - trial.facts["bound_before"]
    trial.check(f"{number} calls came from new addresses ({bound})", bound >= number)


def _offer_both(world: World) -> Callable[[int], str]:
    url = world.start_front_for_own_addresses()
    return lambda cluster: url if cluster == 1 else signaling_url(cluster)


def _move_ingress(trial: Trial) -> None:
    """All begin at A, wherever ICE has led them; then they move to B."""
    for relay in ("A", "B"):
        for group in trial.calls.groups:
            _tell_all(trial, group, f"via {PUBLIC[relay]}:{UDP_PORT}", "chosen")
        until(
            f"every call has a flow at {relay}",
            lambda at=relay: _flows(trial, at) >= trial.calls.number,
            RETURN_SECONDS,
        )
        trial.calls.wait_until_heard(RETURN_SECONDS)
        if relay == "A":
            trial.calls.mark()


def _nothing_at_a(trial: Trial) -> None:
    """Its flows have been idle for 30 seconds."""
    until("relay A has no flow any more", lambda: _flows(trial, "A") == 0, RETURN_SECONDS)


# Transceivers.


def _kill_owner(trial: Trial) -> None:
    trial.note(calls_there=trial.world.sessions("1x"))
    trial.check("the owner has calls", trial.facts["calls_there"] > 0)
    trial.world.transceivers["1x"].kill()


def _only_its_calls_are_anew(trial: Trial) -> None:
    readings = trial.calls.read().values()
    sum_of_handshakes = sum(one.handshakes_sum for one in readings)
    expected = trial.calls.number + trial.facts["calls_there"]
    trial.check(
        f"only calls of the dead one were placed anew ({sum_of_handshakes} handshakes, {expected} expected)",
        sum_of_handshakes == expected,
    )
    spared = [call for call in trial.calls.each() if call["handshakes"] == 1]
    worst = max((call["gap_ms"] - FRAME_MS for call in spared), default=0.0)
    trial.note(others_gap_ms=round(worst, 1))
    trial.within("blackout of other owners' calls", worst, UNNOTICED_MS)


def _drain_owner(trial: Trial) -> None:
    """1x is told to stop. Its calls go on; calls that are placed now go elsewhere."""
    world = trial.world
    draining = world.transceivers["1x"]
    draining.signal(signal.SIGTERM)
    draining.wait_for_line("draining", READY_SECONDS)
    before = {name: world.sessions(name) for name in ("1x", "1y")}
    new = Calls(world, 2, (Group("more", "home", HOME, 1, 1),), label="new ")
    trial.note(calls_there=before["1x"], calls_placed_meanwhile=new.number)
    trial.check("the owner has calls", before["1x"] > 0)
    trial.check("no call was placed at the one that drains", world.sessions("1x") == before["1x"])
    trial.check("new calls are at the other", world.sessions("1y") == before["1y"] + new.number)
    new.hang_up()


def _drained_ends(trial: Trial) -> None:
    trial.check("the one that drains has its calls still", trial.world.sessions("1x") == trial.facts["calls_there"])
    trial.calls.hang_up()
    trial.calls.groups.clear()
    status = trial.world.transceivers["1x"].wait(ENDS_SECONDS)
    trial.check("it ends after its last call, with status 0", status == 0)


# Redis.


def _kill_redis(trial: Trial) -> None:
    assert trial.world.redis is not None
    trial.world.redis.kill()
    until("relays notice", lambda: not trial.world.has_redis("A"), RETURN_SECONDS)


def _redis_is_back(trial: Trial) -> None:
    trial.world.start_redis()
    until("relay A has its Redis again", lambda: trial.world.has_redis("A"), RETURN_SECONDS)


def _flush_redis(trial: Trial) -> None:
    trial.note(entries_before=trial.world.flows_in_redis())
    trial.check("Redis takes the order", trial.world.ask_redis("FLUSHALL") == "+OK")


def _redis_is_full_again(trial: Trial) -> None:
    entries = trial.world.flows_in_redis()
    trial.note(entries_after=entries)
    trial.check(f"each call has its entry again ({entries})", entries >= trial.calls.number)


def _pause_redis(trial: Trial) -> None:
    assert trial.world.redis is not None
    trial.world.redis.signal(signal.SIGSTOP)


def _resume_redis(trial: Trial) -> None:
    assert trial.world.redis is not None
    trial.check("relay A says that Redis does not answer", not trial.world.has_redis("A"))
    trial.world.redis.signal(signal.SIGCONT)
    until("relay A has its Redis again", lambda: trial.world.has_redis("A"), RETURN_SECONDS)


# Between regions.


def _kill_cluster_relay(trial: Trial) -> None:
    trial.check("the relay that is killed leads", trial.world.leads("A", "1a"))
    trial.world.relays["1a"].kill()


def _preferred_relay_returns(trial: Trial) -> None:
    """Nobody else's calls have noticed; the preferred relay leads again when it is back, and nobody notices that."""
    far = trial.calls.read()["far"]
    trial.within("blackout of the other cluster's calls", far.down.gap_ms, UNNOTICED_MS)
    trial.calls.mark()
    trial.world.start_relay("1a")
    until("the preferred relay leads again", lambda: trial.world.leads("A", "1a"), RETURN_SECONDS)
    trial.calls.wait_until_heard(RETURN_SECONDS)
    reading, up = trial.calls.all()
    trial.note(return_down_ms=reading.down.gap_ms, return_up_ms=up.gap_ms)
    trial.within("blackout towards callers when it returns", reading.down.gap_ms, UNNOTICED_MS)
    trial.within("blackout from callers when it returns", up.gap_ms, UNNOTICED_MS)


def _cut_line(trial: Trial) -> None:
    line = trial.world.lines[1]
    line.ask("cut")
    # The length of the cut is the fault itself.
    time.sleep(CUT_SECONDS)
    line.ask("heal")


def _others_did_not_notice(trial: Trial) -> None:
    readings = trial.calls.read()
    far, least = readings["far"], CUT_SECONDS * 1_000 - 500
    for group in ("home", "office"):
        trial.check(f"the line was cut for {group}", readings[group].down.gap_ms >= least)
    trial.within("blackout of the other cluster's calls", far.down.gap_ms, UNNOTICED_MS)
    trial.check("no packet of the other cluster's calls was lost", far.down.lost == 0)


def _lossy_lines(trial: Trial) -> None:
    for line in trial.world.lines.values():
        line.ask("delay 40ms")
        line.ask(f"loss {LOSS}")


def _lost_as_the_lines_did(trial: Trial) -> None:
    """A packet passes one line: what is lost is what that loses, and no more."""
    for which, heard in (("towards", trial.down), ("from", trial.up)):
        share = heard.lost / max(1, heard.packets + heard.lost)
        trial.note(**{f"lost_share_{which}": round(share, 4)})
        as_told = LOSS / 2 < share < LOSS * 2
        trial.check(f"packets {which} callers were lost as the lines lose them ({share:.4f})", as_told)


# Attacks.


def _storm(trial: Trial) -> None:
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


def _spoof(trial: Trial) -> None:
    """Requests are replayed and forged from another address of home's, where nobody has a call."""
    before = _refused(trial)
    order = f"spoof {SPOOF_SECONDS} {SPOOF_RATE} {HOME_NEXT}"
    spoofed = trial.calls.ask("home", order, SPOOF_SECONDS + MOVE_SECONDS)["spoofed"]
    until("relay A counts what was forged", lambda: _refused(trial) >= before + spoofed["forged"], RETURN_SECONDS)
    trial.note(**spoofed)
    trial.check("requests were replayed and forged", min(spoofed["replayed"], spoofed["forged"]) > 0)
    trial.check("no media went to where they came from", spoofed["media_back"] == 0)


_RESTARTED = Scenario(
    "relay-restart-redis",
    "ingress relay killed and started again, with Redis",
    f"{RESTART_MS:.0f} ms, {LISTENING_MS:.0f} of them after it listens",
    RESTART,
    _restart_a,
    _heals_soon_after_listening,
)

ALL: tuple[Scenario, ...] = (
    _RESTARTED,
    replace(
        _RESTARTED,
        name="relay-restart-no-redis",
        what="the same without Redis",
        target=f"{RESTART_MS:.0f} ms, {LISTENING_MS:.0f} of them after it listens: healed by the downlink",
        with_redis=False,
    ),
    replace(
        _RESTARTED,
        name="relay-restart-other-cores",
        what="the same with Redis, and two cores where there was one",
        strike=_restart_with_two_cores,
        complaints=("the fleet lists this relay with another",),
    ),
    Scenario(
        "hot-restart",
        "ingress relay hands over to a successor",
        "nothing lost",
        UNNOTICED,
        _hot_restart,
        # A cache could stand in for what was not handed over.
        with_redis=False,
    ),
    Scenario(
        "graceful-stop",
        "ingress relay stops, another takes the address when it is not ready",
        f"{UNNOTICED_MS:.0f} ms, nothing lost",
        UNNOTICED,
        _stop_gracefully,
        _ends_by_itself,
        settings={"A": {"drain": "600"}},
    ),
    Scenario(
        "take-over",
        "ingress relay killed, another takes the address, with Redis",
        "100 ms",
        Limits(100.0, 100.0),
        _take_over,
        _all_at_b,
    ),
    Scenario(
        "ecmp",
        "half of the flows move to another relay, then the rest",
        "100 ms",
        Limits(100.0, 100.0),
        _spread_flows,
        _all_at_b,
    ),
    Scenario(
        "nat-rebinding",
        "clients' ports change in mid-call",
        f"the client's next check: {CHECK_MS / 1_000:g} s, and {CHECKED_MS:.0f} ms to answer it",
        Limits(NEXT_CHECK_MS, NEXT_CHECK_MS),
        _rebind,
        _all_are_elsewhere,
    ),
    Scenario(
        "network-change",
        "clients' addresses change, ICE restart",
        "2 s",
        Limits(2_000.0, 2_000.0),
        _change_network,
        _home_is_elsewhere,
    ),
    Scenario(
        "ingress-move",
        "clients move to another ingress relay's own address",
        "1 s",
        Limits(1_000.0, 1_000.0),
        _move_ingress,
        _nothing_at_a,
        arrange=_offer_both,
        groups=GROUPS[:2],
    ),
    Scenario(
        "transceiver-killed",
        "an owner dies; its clients place new calls",
        "10 s, others nothing",
        Limits(10_000.0, 10_000.0, handshakes=2),
        _kill_owner,
        _only_its_calls_are_anew,
        reconnect=True,
    ),
    Scenario(
        "transceiver-drained",
        "an owner drains: its calls go on, new ones go elsewhere",
        "nothing",
        UNNOTICED,
        _drain_owner,
        _drained_ends,
        settings={"1x": {"drain": "600"}},
    ),
    Scenario(
        "redis-killed",
        "Redis dies",
        "nothing",
        UNNOTICED,
        _kill_redis,
        _redis_is_back,
        complaints=("flow cache",),
    ),
    Scenario("redis-flushed", "Redis is emptied", "nothing", UNNOTICED, _flush_redis, _redis_is_full_again),
    Scenario(
        "redis-paused",
        "Redis hangs",
        "nothing",
        UNNOTICED,
        _pause_redis,
        _resume_redis,
        complaints=("flow cache",),
    ),
    Scenario(
        "cluster-relay-killed",
        "a cluster's relay dies, its next one takes over",
        f"{FAIL_OVER_MS / 1_000:g} s, other cluster nothing",
        Limits(FAIL_OVER_MS, FAIL_OVER_MS),
        _kill_cluster_relay,
        _preferred_relay_returns,
    ),
    Scenario(
        "region-cut",
        f"the line to a region is cut for {CUT_SECONDS:g} s",
        f"{CUT_MS / 1_000:g} s, other region nothing",
        Limits(CUT_MS, CUT_MS),
        _cut_line,
        _others_did_not_notice,
    ),
    Scenario(
        "lossy-link",
        f"lines between regions lose {LOSS:.0%} and take 40 ms",
        "300 ms",
        Limits(300.0, 300.0),
        _lossy_lines,
        _lost_as_the_lines_did,
    ),
    Scenario(
        "storm",
        f"a client sends {STORM_RATE} packets a second",
        "nothing",
        UNNOTICED,
        _storm,
    ),
    Scenario(
        "spoofed",
        "live calls' requests replayed and forged",
        "nothing",
        UNNOTICED,
        _spoof,
    ),
)

BY_NAME = {scenario.name: scenario for scenario in ALL}
