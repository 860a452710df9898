"""Two transceivers: one drains under a call, and calls are spread evenly over both."""

import concurrent.futures
import signal
from collections.abc import Callable

import numpy as np

from firsthop import metrics, session
from firsthop.audio import Samples
from firsthop.caller import Caller
from firsthop.metrics import Metrics
from firsthop.processes import Program
from firsthop.stack import READY_SECONDS, TRANSCEIVER_CONTROL, Stack, sessions
from firsthop.waiting import until
from test_call import alike

SECOND_CONTROL, SECOND_TRUNK = 5_082, 5_002
CALLS = 1_000


def second_metrics(stack: Stack) -> Metrics:
    return metrics.scrape(stack.bed.server, SECOND_CONTROL)


def start_with_two(stack: Stack) -> Program:
    """Starts the programs with one transceiver more, which is returned."""
    stack.signaling_settings["transceivers"] = [
        f"http://127.0.0.1:{port}" for port in (TRANSCEIVER_CONTROL, SECOND_CONTROL)
    ]
    trunk, control = (f"127.0.0.1:{port}" for port in (SECOND_TRUNK, SECOND_CONTROL))
    more = {"trunk": trunk, "owner": trunk, "control": control}
    second = stack.start_another("transceiver", {**stack.transceiver_settings, **more})
    stack.start()

    def both_are_polled() -> bool:
        return stack.signaling_metrics().total("firsthop_signaling_transceivers", standing="ready") == 2

    until("signaling knows both transceivers", both_are_polled, READY_SECONDS)
    return second


def test_a_drained_transceiver_keeps_its_call_and_ends_after_it(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples
) -> None:
    stack.transceiver_settings["drain"] = "600"
    second = start_with_two(stack)
    call = caller(samples=sentence, repeat=True)
    call.call()
    call.speak()
    drained = stack.transceiver if stack.sessions() else second
    assert drained is not None
    drained.signal(signal.SIGTERM)
    drained.wait_for_line(lambda line: "draining" in line, 5)

    # New calls go to the other, and none is refused while signaling has not heard of the drain yet.
    stack.bed.client.call(lambda: [session.create(stack.url) for _ in range(20)])
    other = second_metrics if drained is stack.transceiver else Stack.transceiver_metrics
    until("the other has all of them", lambda: sessions(other(stack)) == 20, 5)

    # The call goes on: what is heard now is said now, with the seam between two rounds somewhere in it.
    assert alike(call.listen(4, 15), np.concatenate([sentence, sentence]))
    assert drained.running()
    assert call.hang_up().status == 200
    until("the drained transceiver has ended by itself", lambda: not drained.running(), 10)
    assert any('"hung_up"' in line for _, line in drained.lines)
    assert stack.bed.client.call(lambda: session.create(stack.url)).location
    # Its sessions would keep the other for as long as it may drain; SIGINT stops it at once.
    rest = second if drained is stack.transceiver else stack.transceiver
    assert rest is not None
    rest.signal(signal.SIGINT)
    assert rest.wait(10) == 0


def test_two_replicas_spread_a_thousand_calls_evenly_over_two_transceivers(stack: Stack) -> None:
    second_url = "http://127.0.0.1:8081"
    start_with_two(stack)
    more = {"listen": "127.0.0.1:8081", "metrics": "127.0.0.1:9104"}
    stack.start_another("signaling", {**stack.signaling_settings, **more})
    until(
        "the second replica is ready to place calls",
        lambda: metrics.get(stack.bed.server, 8_081, "/readyz")[0] == 200,
        READY_SECONDS,
    )

    def clients(url: str) -> None:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: session.create(url), range(CALLS // 2)))

    with concurrent.futures.ThreadPoolExecutor(2) as replicas:
        first = replicas.submit(stack.bed.client.call, lambda: clients(stack.url), 100)
        second = replicas.submit(stack.bed.server.call, lambda: clients(second_url), 100)
        first.result()
        second.result()

    # Made, not living: calls that never connect are reaped after 30 s.
    made = "firsthop_transceiver_sessions_created_total"

    def made_by_each() -> list[int]:
        return [int(page.total(made)) for page in (stack.transceiver_metrics(), second_metrics(stack))]

    until("every call is counted", lambda: sum(made_by_each()) >= CALLS, 5)
    counts = made_by_each()
    # A busy transceiver's late answer is not waited for: then the call is made once more, elsewhere.
    assert sum(counts) <= CALLS * 1.01, counts
    assert all(abs(count - CALLS / 2) <= CALLS / 20 for count in counts), counts
