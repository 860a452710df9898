"""Waiting for a condition until a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds between two looks at a condition that cannot announce itself.
POLL_SECONDS = 0.02


def until(what: str, look: Callable[[], T | None], timeout: float) -> T:
    """Returns the first truthy result of `look`, or fails with `what` after `timeout` seconds.

    For conditions that cannot wake the waiter (a counter in another process, a line in a file). `look` is asked once
    more after the deadline, so that a slow machine cannot fail a condition that holds.
    """
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= deadline
        found = look()
        if found:
            return found
        if late:
            raise AssertionError(f"after {timeout:g} s still not so: {what}")
        time.sleep(POLL_SECONDS)
