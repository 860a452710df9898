"""Traces of calls: one across signaling and the transceiver, and none of them in anybody's way."""

from collections.abc import Callable, Iterator

import pytest

from firsthop import collector, session
from firsthop.audio import Samples
from firsthop.caller import Caller, request
from firsthop.collector import Collector, Span
from firsthop.metrics import Metrics
from firsthop.namespaces import Testbed
from firsthop.stack import Stack
from firsthop.waiting import until
from test_call import alike

SIGNALING, TRANSCEIVER = "firsthop-signaling", "firsthop-transceiver"

#: Each span of a call with audio and a channel to an echo: its program, and the span that it is below.
TREE = {
    "POST /v1/realtime/calls": (SIGNALING, None),
    "placement": (SIGNALING, "POST /v1/realtime/calls"),
    "control create": (SIGNALING, "POST /v1/realtime/calls"),
    "create session": (TRANSCEIVER, "control create"),
    "offer": (TRANSCEIVER, "create session"),
    "set-up": (TRANSCEIVER, "create session"),
    "first STUN": (TRANSCEIVER, "set-up"),
    "ICE": (TRANSCEIVER, "set-up"),
    "DTLS": (TRANSCEIVER, "set-up"),
    "channel": (TRANSCEIVER, "set-up"),
    "first audio in": (TRANSCEIVER, "set-up"),
    "first audio out": (TRANSCEIVER, "set-up"),
}

#: Clocks of two programs on one machine are the same; the moments at which each reads its two clocks are not.
SLACK_NS = 5_000_000

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def traces(bed: Testbed) -> Iterator[Collector]:
    made = Collector(bed.server)
    yield made
    made.close()


def export(stack: Stack, share: str) -> None:
    """Has both programs export, and signaling trace this share of calls."""
    for settings in (stack.signaling_settings, stack.transceiver_settings):
        settings["otlp-endpoint"] = collector.URL
    stack.signaling_settings["trace-sample"] = share


def counted(page: Metrics, program: str, outcome: str) -> int:
    return int(page.total(f"firsthop_{program}_trace_spans_total", outcome=outcome))


def place(stack: Stack, **headers: str) -> None:
    """Makes a session whose client sends these headers."""

    def ask() -> None:
        offer = session.plain_offer("abcd", "p" * 24)
        answer = request(stack.url, "POST", "/v1/realtime/calls", offer, headers=headers)
        assert answer.status == 201, answer.body

    stack.bed.client.call(ask)


def test_a_call_is_one_trace_across_both_programs(
    stack: Stack, traces: Collector, caller: Callable[..., Caller], sentence: Samples
) -> None:
    export(stack, "1")
    stack.start()
    call = caller(samples=sentence, repeat=True)
    call.call()
    call.speak()
    assert alike(call.listen(4, 15), sentence)
    spans = traces.wait_for("all spans are there", lambda spans: len(spans) >= len(TREE), 30)
    assert sorted(span.name for span in spans) == sorted(TREE)
    assert len({span.trace for span in spans}) == 1
    named = {span.name: span for span in spans}
    for name, (service, above) in TREE.items():
        span = named[name]
        assert (span.service, span.error) == (service, ""), name
        assert span.parent == (named[above].id if above else ""), name
        assert span.start <= span.end, name
    # What is asked takes at least as long as what it asks for.
    chain = ["POST /v1/realtime/calls", "control create", "create session", "offer"]
    for above, below in zip(chain, chain[1:], strict=False):
        assert named[above].start - SLACK_NS <= named[below].start, (above, below)
        assert named[below].end <= named[above].end + SLACK_NS, (above, below)
    steps = [named[name] for name in ("first STUN", "ICE", "DTLS", "channel")]
    assert [span.end for span in steps] == sorted(span.end for span in steps)
    # Which session it was, so that logs and /debug/call can be asked about it.
    sessions = {span.attributes["firsthop.session"] for span in spans if "firsthop.session" in span.attributes}
    assert len(sessions) == 1
    assert named["set-up"].attributes["firsthop.backend"] == "echo"
    told = " ".join(str(value) for span in spans for value in span.attributes.values())
    assert Testbed.CLIENT not in told

    for page, program, count in (
        (stack.signaling_metrics, "signaling", 3),
        (stack.transceiver_metrics, "transceiver", len(TREE) - 3),
    ):
        until(f"{program} counts", lambda page=page, of=program, n=count: counted(page(), of, "exported") == n, 10)


def test_a_client_that_asks_has_its_own_trace_continued(stack: Stack, traces: Collector) -> None:
    export(stack, "0.000001")
    stack.start()
    place(stack, traceparent=f"00-{TRACE}-{SPAN}-01")

    def root(spans: list[Span]) -> list[Span]:
        return [span for span in spans if span.name == "POST /v1/realtime/calls"]

    spans = traces.wait_for("the request's span is there", lambda spans: bool(root(spans)), 30)
    assert [(span.trace, span.parent) for span in root(spans)] == [(TRACE, SPAN)]
    # Its client never comes: the set-up is told with what it lacks, when the session has ended.
    spans = traces.wait_for("the set-up is there", lambda spans: any(s.name == "set-up" for s in spans), 60)
    assert [span.error for span in spans if span.name == "set-up"] == ["reaped"]
    assert {span.trace for span in spans} == {TRACE}


def test_nobody_is_traced_where_the_share_is_none(stack: Stack, traces: Collector) -> None:
    export(stack, "0")
    stack.start()
    place(stack, traceparent=f"00-{TRACE}-{SPAN}-01")
    assert stack.sessions() == 1
    stack.stop()
    # Had there been any, the programs would have sent them before their end.
    assert traces.spans() == []


def test_calls_go_on_when_no_collector_takes_traces(
    stack: Stack, caller: Callable[..., Caller], sentence: Samples
) -> None:
    export(stack, "1")
    stack.expected_complaints.append("traces are not taken by the collector")
    stack.start()
    call = caller(samples=sentence, repeat=True)
    call.call()
    call.speak()
    assert alike(call.listen(4, 15), sentence)
    for page, program in ((stack.signaling_metrics, "signaling"), (stack.transceiver_metrics, "transceiver")):
        until(
            f"{program} counts what is dropped",
            lambda page=page, program=program: counted(page(), program, "dropped_collector") > 0,
            30,
        )
        assert counted(page(), program, "exported") == 0
    assert alike(call.listen(4, 15), sentence)
    for program in stack.programs:
        assert program.count("traces are not taken") <= 1, program.name
