"""Two transceivers, two replicas: one drains under a call, calls are spread evenly, either replica serves a call."""

import concurrent.futures
import signal
from collections.abc import Callable

import numpy as np

from firsthop import metrics, session
from firsthop.audio import Samples
from firsthop.caller import Answer, Caller, request
from firsthop.metrics import Metrics
from firsthop.processes import Program
from firsthop.stack import READY_SECONDS, TRANSCEIVER_CONTROL, Stack, sessions
from firsthop.waiting import until
from test_call import alike
from test_whip import FRAGMENT, credentials

SECOND_CONTROL, SECOND_TRUNK = 5_082, 5_002
SECOND_PORT = 8_081
SECOND_URL = f"http://127.0.0.1:{SECOND_PORT}"
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


def start_second_replica(stack: Stack) -> None:
    """Starts one more signaling, which only the server itself reaches."""
    more = {"listen": f"127.0.0.1:{SECOND_PORT}", "metrics": "127.0.0.1:9104"}
    stack.start_another("signaling", {**stack.signaling_settings, **more})

    def both_are_polled() -> bool:
        page = metrics.scrape(stack.bed.server, 9_104)
        return page.total("firsthop_signaling_transceivers", standing="ready") == 2

    until("the second replica knows both transceivers", both_are_polled, READY_SECONDS)


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


def test_a_call_is_restarted_and_ended_through_the_other_replica_and_goes_on_between(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples
) -> None:
    second = start_with_two(stack)
    start_second_replica(stack)
    call = caller(samples=sentence, repeat=True)
    call.call()
    call.speak()
    assert call.answer is not None
    location = call.answer.headers["location"]

    def ask(method: str, path: str, body: str = "", kind: str | None = None, **headers: str) -> Answer:
        """Asks the replica that did not make the call."""
        return stack.bed.server.call(lambda: request(SECOND_URL, method, path, body, kind, headers=headers))

    def restarts() -> list[int]:
        """How many the owner has carried out, and how many the other transceiver."""
        pages = [stack.transceiver_metrics(), second_metrics(stack)]
        pages.sort(key=sessions, reverse=True)
        assert [sessions(page) for page in pages] == [1, 0]
        return [int(page.total("firsthop_transceiver_ice_restarts_total")) for page in pages]

    assert restarts() == [0, 0]
    tags, ufrags = [call.answer.headers["etag"]], [call.server_credentials()[0]]
    for number in (1, 2):
        answer = call.restart_ice(lambda body: ask("PATCH", location, body, FRAGMENT, **{"If-Match": "*"}))
        tags.append(answer.headers["etag"])
        ufrags.append(credentials(answer.body)[0])
        until("the owner counts it", lambda number=number: restarts() == [number, 0], 10)
        # The call goes on, on the path that was nominated with the new credentials: what is heard now is said now.
        assert alike(call.listen(4, 15), sentence)
    assert len(set(tags)) == len(set(ufrags)) == 3
    assert call.states[-1] == "connected"
    assert ask("PATCH", location, kind=FRAGMENT, **{"If-Match": tags[1]}).status == 412

    assert ask("DELETE", location).status == 200
    until("the owner has ended it", lambda: stack.sessions() + sessions(second_metrics(stack)) == 0, 10)
    assert call.hang_up().status == 404
    assert second.running()


def test_two_replicas_spread_a_thousand_calls_evenly_over_two_transceivers(stack: Stack) -> None:
    start_with_two(stack)
    start_second_replica(stack)

    def clients(url: str) -> None:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: session.create(url), range(CALLS // 2)))

    with concurrent.futures.ThreadPoolExecutor(2) as replicas:
        first = replicas.submit(stack.bed.client.call, lambda: clients(stack.url), 100)
        second = replicas.submit(stack.bed.server.call, lambda: clients(SECOND_URL), 100)
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
