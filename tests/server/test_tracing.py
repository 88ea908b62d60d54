"""Storage operations of one request in a header, and spans for a collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.server.processes import ServerUnderTest, until
from tests.server.test_serve import ADD, PEOPLE, TOKENS, make_graph, serve, token, write_tokens

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("served graph")]

DEBUG = {"Omnigraph-Debug": "storage"}


class Collector:
    """An OpenTelemetry collector on loopback."""

    def __init__(self) -> None:
        spans = self.spans = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        for span in scope.spans:
                            spans.setdefault(span.name, []).append(span)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    created = Collector()
    yield created
    created.close()


def add(server: ServerUnderTest, name: str, headers: dict[str, str]) -> dict[str, str]:
    body = {"query": ADD, "params": {"name": name}}
    answer = server.ask("POST", "/graphs/g/mutate", body, headers)
    assert answer.status == 200, answer.body
    return answer.headers


def test_spans_follow_a_request_and_a_header_has_its_storage_operations(
    tmp_path: Path, collector: Collector
) -> None:
    root = make_graph(tmp_path)
    environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.address}
    options = ("--workers", "2", "--unauthenticated")
    with serve(root, tmp_path / "log", *options, **environ) as server:
        server.await_listening()
        parent = f"00-{'a' * 32}-{'b' * 16}-01"
        written = add(server, "traced secret", {"traceparent": parent, **DEBUG})
        read = server.ask("POST", "/graphs/g/query", {"query": PEOPLE}, DEBUG)
        counts = dict(
            pair.split("=") for pair in read.headers["omnigraph-storage-operations"].split(", ")
        )
        assert int(counts["reads"]) > 0
        assert counts["writes"] == "0"
        assert "writes=0" not in written["omnigraph-storage-operations"]
        quiet = server.ask("POST", "/graphs/g/query", {"query": PEOPLE})
        assert "omnigraph-storage-operations" not in quiet.headers
        assert server.stop() == 0
    mutate = until(lambda: collector.spans.get("POST /graphs/{graph_id}/mutate"))
    # One span in the reader, one in the writer, both in the trace of the client.
    assert [span.trace_id.hex() for span in mutate] == ["a" * 32] * 2
    assert "write" in collector.spans
    ids = {
        attribute.value.string_value
        for span in mutate
        for attribute in span.attributes
        if attribute.key == "omnigraph.request_id"
    }
    assert ids == {written["omnigraph-request-id"]}
    assert "traced secret" not in str(collector.spans)


def test_only_an_administrator_sees_storage_operations(tmp_path: Path) -> None:
    root, tokens = make_graph(tmp_path), tmp_path / "tokens.json"
    write_tokens(tokens, TOKENS)
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens)}
    with serve(root, tmp_path / "log", "--workers", "1", **environ) as server:
        server.await_listening()
        headers = {**DEBUG, **token("ana")}
        answer = server.ask("POST", "/graphs/g/query", {"query": PEOPLE}, headers)
        assert answer.status == 200
        assert "omnigraph-storage-operations" not in answer.headers
        assert server.events(
            "default-deny: there are tokens but no policy, so only reads are allowed"
        )
        assert "default-deny" in server.ask("GET", "/readyz").json["warnings"][0]
