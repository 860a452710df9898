"""A collector of OpenTelemetry's: takes traces as OTLP over HTTP, and keeps their spans."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from .namespaces import Namespace

PORT = 4318
URL = f"http://127.0.0.1:{PORT}"


@dataclass(frozen=True)
class Span:
    """What a program has told of one span. Times are in nanoseconds since the epoch; no parent is an empty text."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, str | int]
    error: str


class Collector:
    """Listens on loopback inside a namespace until it is closed."""

    def __init__(self, namespace: Namespace) -> None:
        self._news = threading.Condition()
        self._spans: list[Span] = []
        self._server = namespace.call(self._listen)

    def _listen(self) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", PORT), self._handler())
        threading.Thread(target=server.serve_forever, name="collector", daemon=True).start()
        return server

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                good = self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if good else 400)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                if good:
                    take(ExportTraceServiceRequest.FromString(body))

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler

    def _take(self, request: ExportTraceServiceRequest) -> None:
        with self._news:
            for resource in request.resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    attributes = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
                    told = Span(
                        about["service.name"],
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        attributes,
                        span.status.message,
                    )
                    self._spans.append(told)
            self._news.notify_all()

    def spans(self) -> list[Span]:
        """All that have come so far."""
        with self._news:
            return list(self._spans)

    def wait_for(self, what: str, enough: Callable[[list[Span]], bool], timeout: float) -> list[Span]:
        """Returns the spans as soon as they are enough."""
        with self._news:
            if not self._news.wait_for(lambda: enough(self._spans), timeout):
                raise AssertionError(f"after {timeout:g} s still not so: {what}; there are {self._spans}")
            return list(self._spans)

    def close(self) -> None:
        """Listens no longer."""
        self._server.shutdown()
        self._server.server_close()
