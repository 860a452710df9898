"""What Schemathesis has to know beside `/openapi.json`: what SDP looks like, and where the ids of calls come from.

It loads this by the name in `SCHEMATHESIS_HOOKS`.
"""

from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies

_FOLDER = Path(__file__).parents[3] / "transceiver" / "tests" / "offers"

#: Offers that were captured from real clients.
OFFERS = {path.stem: path.read_bytes() for path in sorted(_FOLDER.glob("*.sdp"))}

#: What clients trickle, and what they restart ICE with.
FRAGMENTS = [
    b"a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\n",
    b"a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n"
    b"a=candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host\r\na=end-of-candidates\r\n",
]

#: The last segment of the path of a call, in Schemathesis's own form of OpenAPI's expressions.
CALL_ID = "$response.header.Location#regex:/([^/]+)$"

_offers = strategies.sampled_from(list(OFFERS.values()))
schemathesis.openapi.media_type("application/sdp", _offers)
schemathesis.openapi.media_type("application/trickle-ice-sdpfrag", strategies.sampled_from(FRAGMENTS))
schemathesis.openapi.format("sdp", _offers.map(bytes.decode))


@schemathesis.deserializer("application/sdp", "application/trickle-ice-sdpfrag")
def text(_context: Any, response: Any) -> str:
    """SDP is text."""
    return str(response.content.decode())


@schemathesis.hook
def before_load_schema(_context: Any, schema: dict[str, Any]) -> None:
    """Says which requests are about a call that was made."""
    paths = schema["paths"]
    for create, call in [
        ("/v1/realtime/calls", "/v1/realtime/calls/{call_id}"),
        ("/whip/{app}", "/whip/{app}/{call_id}"),
    ]:
        links = paths[create]["post"]["responses"]["201"].setdefault("links", {})
        for path, methods in paths.items():
            for method, operation in methods.items():
                if path.startswith(call) and method != "parameters":
                    parameters = {"call_id": CALL_ID} | ({"app": "$request.path.app"} if "{app}" in path else {})
                    links[f"{method} {path}"] = {"operationId": operation["operationId"], "parameters": parameters}
