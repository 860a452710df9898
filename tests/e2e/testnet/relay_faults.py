"""What befalls an ingress relay, and what must hold then: restarts, and another relay that takes over."""

import json
import signal
from datetime import UTC, datetime

from firsthop.launching import READY_SECONDS, says_ready
from firsthop.waiting import until

from .limits import ENDS_SECONDS, LISTENING_MS, RETURN_SECONDS
from .trial import Trial
from .world import RELAYS, fleet


def restart_a(trial: Trial, **settings: str) -> None:
    """Kills relay A, and starts it again."""
    killed = datetime.now(UTC)
    trial.world.relays["A"].kill()
    ready = trial.world.launch_relay("A", **settings).wait_for_line(says_ready, READY_SECONDS)
    # Its own clock: this program may see the line late.
    listening = datetime.fromisoformat(json.loads(ready)["timestamp"])
    trial.note(listening_after_ms=round((listening - killed).total_seconds() * 1_000, 1))


def restart_with_two_cores(trial: Trial) -> None:
    """Tells the fleet that relay A has another number of cores, and restarts it with that."""
    relays = [trial.world.relays[name] for name in RELAYS]
    before = [relay.count("file reloaded") for relay in relays]
    trial.world.write_fleet(fleet(cores_of_a=2))

    def all_have_read_it() -> bool:
        return all(relay.count("file reloaded") > count for relay, count in zip(relays, before, strict=True))

    until("all relays have read the fleet file again", all_have_read_it, READY_SECONDS)
    restart_a(trial, cores="2")


def heals_soon_after_listening(trial: Trial) -> None:
    """Media is back soon after the new process listens."""
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


def hot_restart(trial: Trial) -> None:
    """Relay A hands over to a successor of its own."""
    old = trial.world.relays["A"]
    new = trial.world.launch_relay("A", takeover="true")
    line = new.wait_for_line("took over", READY_SECONDS)
    flows = int(json.loads(line)["fields"]["flows"])
    trial.note(handed_over=flows)
    trial.check(f"every call's flow was handed over ({flows})", flows >= trial.calls.number)
    trial.check("the old process ends with status 0", old.wait(READY_SECONDS) == 0)


def stop_gracefully(trial: Trial) -> None:
    """Relay A is told to stop; whoever leads clients to it sees that it is not ready, and leads them to B."""
    trial.world.relays["A"].signal(signal.SIGTERM)
    until("relay A says that it is not ready", lambda: trial.world.relay_ready("A") == 503, READY_SECONDS)
    trial.world.topology.lead_vip("B")


def ends_by_itself(trial: Trial) -> None:
    """Its last flow is idle after 30 seconds."""
    trial.check("relay A ends by itself, with status 0", trial.world.relays["A"].wait(ENDS_SECONDS) == 0)
    _found_in_redis(trial, "B")


def take_over(trial: Trial) -> None:
    """Relay A dies, and B leads its address."""
    trial.world.relays["A"].kill()
    trial.world.topology.lead_vip("B")


def spread_flows(trial: Trial) -> None:
    """Half of the flows move to B; a moment later the other half, too."""
    trial.world.topology.lead_vip("A", "B")
    trial.calls.wait_until_heard(RETURN_SECONDS)
    until("some flows are at B", lambda: trial.world.flows("B") > 0, RETURN_SECONDS)
    trial.note(flows_moved_first=trial.world.flows("B"))
    trial.world.topology.lead_vip("B")


def all_at_b(trial: Trial) -> None:
    """All are there, and what led the first of their packets was the flow cache."""
    flows = trial.world.flows("B")
    _found_in_redis(trial, "B")
    trial.check(f"all {trial.calls.number} calls have a flow at B ({flows})", flows >= trial.calls.number)
