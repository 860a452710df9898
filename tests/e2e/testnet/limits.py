"""What faults of the test world may cost, and how long they last: what the architecture promises.

Limits are for the worst of all calls. Where nothing is promised but that a fault costs nothing, the limit is what a
scheduler may do to a packet on a machine that runs the whole world (`UNNOTICED_MS`).
"""

from .trial import Limits

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
