"""A peer to compare with: answers offers over HTTP with aiortc, and sends each call's audio back.

Usage: answerer.py ADDRESS PORT. `POST /v1/realtime/calls` takes an offer as SDP, and answers with SDP. A call ends when its connection does.
"""

import asyncio
import sys

from aiohttp import web
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

calls: set[RTCPeerConnection] = set()


async def offer(request: web.Request) -> web.Response:
    """Answers an offer."""
    # No server is asked for addresses: the caller reaches this one as it is.
    call = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    calls.add(call)

    @call.on("track")
    def echo(track):
        call.addTrack(track)

    @call.on("connectionstatechange")
    async def changed():
        if call.connectionState in ("failed", "closed", "disconnected"):
            calls.discard(call)
            await call.close()

    await call.setRemoteDescription(RTCSessionDescription(sdp=await request.text(), type="offer"))
    await call.setLocalDescription(await call.createAnswer())
    location = {"Location": f"/v1/realtime/calls/{id(call)}"}
    return web.Response(status=201, headers=location, text=call.localDescription.sdp, content_type="application/sdp")


async def main() -> None:
    """Serves until it is ended."""
    app = web.Application()
    app.router.add_post("/v1/realtime/calls", offer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, sys.argv[1], int(sys.argv[2])).start()
    await asyncio.Event().wait()


asyncio.run(main())
