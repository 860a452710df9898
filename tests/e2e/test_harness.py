"""The harness itself: a test that cannot fail proves nothing."""

import socket

import numpy as np
import pytest

from firsthop import audio, stun
from firsthop.audio import RATE, Samples
from firsthop.capture import Packet, missing
from firsthop.metrics import Metrics
from firsthop.namespaces import Testbed
from firsthop.processes import is_complaint


def rtp(sequence: int) -> Packet:
    payload = bytes([0x80, 111]) + sequence.to_bytes(2, "big") + bytes(8)
    return Packet(0.0, ("10.0.0.1", 1), ("10.0.0.2", 2), payload)


def test_correlation_finds_the_delay_of_a_quiet_noisy_copy(spoken: Samples) -> None:
    said = spoken[: 3 * RATE]
    noise = np.random.default_rng(1).normal(0, 0.01, 5 * RATE).astype(np.float32)
    noise[RATE : 4 * RATE] += said * 0.3
    coefficient, delay = audio.correlation(said, noise)
    assert coefficient > 0.8
    assert delay == pytest.approx(1.0, abs=0.001)


def test_correlation_of_other_speech_is_low(spoken: Samples) -> None:
    coefficient, _ = audio.correlation(spoken[: 3 * RATE], spoken[3 * RATE : 9 * RATE][::-1])
    assert coefficient < 0.4


def test_likeness_sees_the_piece_that_is_missing(spoken: Samples) -> None:
    heard = spoken[: 5 * RATE].copy()
    heard[2 * RATE : 3 * RATE] = 0
    pieces = audio.likeness(spoken[: 5 * RATE], heard)
    assert min(pieces) < 0.5
    assert sorted(pieces)[1] > 0.95


def test_missing_counts_holes_over_the_wrap_and_forgives_order() -> None:
    assert missing([rtp(n % 65536) for n in (65533, 65535, 65534, 65536, 65538)]) == 1
    assert missing([rtp(n) for n in (7, 8, 9)]) == 0
    assert missing([]) == 0


def test_our_stun_request_reads_back() -> None:
    request = stun.binding_request("evtj:h6vY", "VOkJxbRl1RmTxUk/WvJxBt", bytes.fromhex("b7e7a701bc34d686fa87dfae"))
    parsed = stun.parse(request)
    assert parsed.kind == stun.BINDING_REQUEST
    assert parsed.attributes[stun.USERNAME] == b"evtj:h6vY"
    assert len(parsed.attributes[stun.MESSAGE_INTEGRITY]) == 20


def test_mapped_address_reads_the_response_of_rfc_5769() -> None:
    response = bytes.fromhex(
        "0101003c2112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220002000080001a147e112a643"
        "000800142b91f599fd9e90c38c7489f92af9ba53f06be7d780280004c07d4c96"
    )
    assert stun.parse(response).mapped_address() == ("192.0.2.1", 32853)


def test_metrics_sum_over_the_labels_asked_for() -> None:
    text = '# HELP a b\na{core="0",reason="x"} 1\na{core="1",reason="x"} 2\na{core="1",reason="y"} 4\n'
    metrics = Metrics.parse(text)
    assert metrics.total("a", reason="x") == 3
    assert metrics.total("a", core="1") == 6
    with pytest.raises(AssertionError, match="no metric b"):
        metrics.total("b")


@pytest.mark.parametrize(
    ("line", "complains"),
    [
        ('{"timestamp":"t","level":"WARN","fields":{"message":"m"}}', True),
        ('{"timestamp":"t","level":"INFO","fields":{"message":"WARN"}}', False),
        ("2026-01-01T00:00:00Z  WARN relay: m", True),
        ("\x1b[2m2026-01-01T00:00:00Z\x1b[0m \x1b[31mERROR\x1b[0m relay: m", True),
        ("2026-01-01T00:00:00Z  INFO relay: no WARN here", False),
        ("thread 'worker' panicked at src/a.rs:1:2:", True),
    ],
)
def test_complaints_are_recognised_in_both_log_formats(line: str, complains: bool) -> None:
    assert is_complaint(line) is complains


def test_the_client_reaches_only_the_admitted_ports(bed: Testbed) -> None:
    bed.admit_only(3478, 8080)

    def knock() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for port in (3478, 5000, 4000):
                sender.sendto(b"knock", (Testbed.SERVER, port))

    bed.client.call(knock)
    assert bed.refused() == 2
