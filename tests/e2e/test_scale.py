"""Many flows at once: none is lost, and every packet reaches the worker that owns it."""

import concurrent.futures
import resource
import selectors
import socket
import time
from collections import deque

from firsthop import session, stun
from firsthop.namespaces import Testbed
from firsthop.session import RawSession
from firsthop.stack import UDP_PORT, Stack
from firsthop.waiting import until
from test_addresses import open_socket

FLOWS = 1_000
ROUNDS = 3
#: Checks in flight: few enough that no socket buffer between here and the worker can overflow, however slow it is.
WINDOW = 64
SECONDS = 25.0


def test_a_thousand_flows_over_two_cores_and_two_workers_lose_nothing(stack: Stack) -> None:
    stack.relay_settings["cores"] = "2"
    stack.transceiver_settings["workers"] = "2"
    stack.start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))

    def client() -> None:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            sessions = list(pool.map(lambda _: session.create(stack.url), range(FLOWS)))
        exchange(sessions)

    stack.bed.client.call(client, timeout=100)

    # What the cores count they publish ten times a second; and what does not connect is forgotten after 30 s, so that
    # what was made counts, not what is there.
    until("every check is counted", lambda: stack.verified_checks() == FLOWS * ROUNDS, 5)
    claims = "firsthop_relay_claims_bound_total"
    until("every flow is counted", lambda: stack.relay_metrics().total(claims) == FLOWS, 5)
    relay, transceiver = stack.relay_metrics(), stack.transceiver_metrics()
    for core in ("0", "1"):
        assert relay.total("firsthop_relay_requests_verified_total", core=core) > FLOWS * ROUNDS / 4
    assert relay.total("firsthop_relay_drops_total") == 0
    assert relay.total("firsthop_relay_trunk_records_lost_total") == 0
    assert relay.total("firsthop_relay_socket_receive_drops_total") == 0
    for worker in ("0", "1"):
        assert transceiver.total("firsthop_transceiver_sessions_created_total", worker=worker) > FLOWS / 4
    assert stack.misdirected() == 0


def exchange(sessions: list[RawSession]) -> None:
    """Each session checks `ROUNDS` times from a socket of its own; every check must be answered."""
    ingress = (Testbed.SERVER, UDP_PORT)
    sockets = [open_socket() for _ in sessions]
    waiting: dict[bytes, int] = {}
    turns = deque((round_number, index) for round_number in range(ROUNDS) for index in range(len(sessions)))
    deadline = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        for index, sock in enumerate(sockets):
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ, index)
        while turns or waiting:
            while turns and len(waiting) < WINDOW:
                _, index = turns.popleft()
                request = sessions[index].check()
                waiting[request[8:20]] = index
                sockets[index].sendto(request, ingress)
            left = deadline - time.monotonic()
            assert left > 0, f"{len(waiting)} checks unanswered, {len(turns)} not yet sent"
            for key, _ in selector.select(left):
                receive(sockets[key.data], key.data, waiting)
    for sock in sockets:
        sock.close()


def receive(sock: socket.socket, index: int, waiting: dict[bytes, int]) -> None:
    """Takes what has arrived at one socket; the server's own checks are passed over."""
    while True:
        try:
            packet, _ = sock.recvfrom(2048)
        except BlockingIOError:
            return
        message = stun.parse(packet)
        if message.kind == stun.BINDING_SUCCESS:
            assert waiting.pop(message.transaction) == index, "an answer went to another client"
            assert message.mapped_address() == sock.getsockname()
