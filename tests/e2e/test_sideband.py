"""An app's server watches and controls a call by the sideband, through a replica that did not create it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from firsthop import metrics
from firsthop.caller import Caller, request
from firsthop.stack import KEY, READY_SECONDS, Stack
from firsthop.waiting import until

SECOND_PORT = 8_081
SECOND = f"127.0.0.1:{SECOND_PORT}"
SECONDS = 10.0
APP, CLIENT = 601, 602


def start_with_two_replicas(stack: Stack) -> None:
    stack.start()
    more = {"listen": SECOND, "metrics": "127.0.0.1:9104"}
    stack.start_another("signaling", {**stack.signaling_settings, **more})
    until(
        "the second replica is ready to place calls",
        lambda: metrics.get(stack.bed.server, SECOND_PORT, "/readyz")[0] == 200,
        READY_SECONDS,
    )


def join(stack: Stack, call_id: str) -> ClientConnection:
    """Joins a call through the second replica, as an app's server does."""
    url = f"ws://{SECOND}/v1/realtime?call_id={call_id}"
    headers = {"Authorization": f"Bearer {KEY}"}
    return stack.bed.server.call(lambda: connect(url, additional_headers=headers))


def wait_for(sideband: ClientConnection, kind: str) -> dict[str, Any]:
    while True:
        event = dict(json.loads(sideband.recv(SECONDS)))
        if event["type"] == kind:
            return event


def update(silence: int) -> dict[str, Any]:
    """An update by which one can tell who made it."""
    detection = {"type": "server_vad", "silence_duration_ms": silence}
    session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
    return {"type": "session.update", "session": session}


def silence(event: dict[str, Any]) -> int:
    """Whose update a session is after."""
    return int(event["session"]["audio"]["input"]["turn_detection"]["silence_duration_ms"])


def test_events_go_both_ways_through_another_replica_until_the_call_ends(
    stack: Stack, caller: Callable[..., Caller]
) -> None:
    start_with_two_replicas(stack)
    call = caller()
    call.call()
    assert call.answer is not None
    location = call.answer.headers["location"]
    call_id = location.rsplit("/", 1)[-1]
    assert call_id.startswith("rtc_")

    sideband = join(stack, call_id)
    assert json.loads(sideband.recv(SECONDS))["type"] == "session.created"
    sideband.send(json.dumps(update(APP)))
    assert silence(wait_for(sideband, "session.updated")) == APP
    assert silence(call.wait_for_event("session.updated", SECONDS)) == APP
    call.send(update(CLIENT))
    assert silence(wait_for(sideband, "session.updated")) == CLIENT
    call.wait_for_event("session.updated", SECONDS, nth=2)

    def hang_up() -> int:
        return request(f"http://{SECOND}", "POST", f"{location}/hangup", content_type=None).status

    assert stack.bed.server.call(hang_up) == 200
    list(sideband)
    assert (sideband.close_code, sideband.close_reason) == (1000, "hung_up")

    # Ended or never there: the same 404, and no upgrade.
    for dead in (call_id, "rtc_" + "A" * (len(call_id) - 4)):
        with pytest.raises(InvalidStatus) as refused:
            join(stack, dead)
        assert refused.value.response.status_code == 404
