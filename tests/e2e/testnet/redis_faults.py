"""What befalls Redis, which relays keep their flows in, and what must hold then."""

import signal

from firsthop.waiting import until

from .limits import RETURN_SECONDS
from .trial import Trial


def kill_redis(trial: Trial) -> None:
    """Redis dies."""
    assert trial.world.redis is not None
    trial.world.redis.kill()
    until("relays notice", lambda: not trial.world.has_redis("A"), RETURN_SECONDS)


def redis_is_back(trial: Trial) -> None:
    """Redis starts again, and relay A finds it."""
    trial.world.start_redis()
    until("relay A has its Redis again", lambda: trial.world.has_redis("A"), RETURN_SECONDS)


def flush_redis(trial: Trial) -> None:
    """Redis forgets everything."""
    trial.note(entries_before=trial.world.flows_in_redis())
    trial.check("Redis takes the order", trial.world.ask_redis("FLUSHALL") == "+OK")


def redis_is_full_again(trial: Trial) -> None:
    """The relays have written their flows anew."""
    entries = trial.world.flows_in_redis()
    trial.note(entries_after=entries)
    trial.check(f"each call has its entry again ({entries})", entries >= trial.calls.number)


def pause_redis(trial: Trial) -> None:
    """Redis hangs."""
    assert trial.world.redis is not None
    trial.world.redis.signal(signal.SIGSTOP)


def resume_redis(trial: Trial) -> None:
    """Relay A noticed, and has its Redis again when that goes on."""
    assert trial.world.redis is not None
    trial.check("relay A says that Redis does not answer", not trial.world.has_redis("A"))
    trial.world.redis.signal(signal.SIGCONT)
    until("relay A has its Redis again", lambda: trial.world.has_redis("A"), RETURN_SECONDS)
