"""A real server on a loopback port, inside the test process, and a small client for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop

from omnigraph import Graph
from omnigraph.identity import Identity
from omnigraph.plan.view import WHOLE, View
from omnigraph.policy.decision import Decision
from omnigraph.server.admission import Admission, ReadAdmission, WaitAdmission, WriteCaps
from omnigraph.server.app import create_app
from omnigraph.server.authentication import Authentication
from omnigraph.server.bodies import BodyTimes
from omnigraph.server.boot import Quarantine
from omnigraph.server.config import LogOptions, ServerConfig, ServerSource
from omnigraph.server.lanes import Lanes
from omnigraph.server.listener import Listener
from omnigraph.server.metrics import Metrics
from omnigraph.server.request_log import RequestLog
from omnigraph.server.state import ServedGraph, ServerProcess, ServerState
from omnigraph.server.stored_queries import ServedQueries

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    big: I64?
    born: Date?
    seen: DateTime?
    score: F64?
    tags: [String]?
}
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""

ROWS = [
    {"type": "Person", "data": {"name": "Ada", "age": 36, "big": 9007199254740993}},
    {"type": "Person", "data": {"name": "Grace", "age": 37, "tags": ["navy", "cobol"]}},
    {"type": "City", "data": {"name": "London"}},
    {"edge": "Knows", "from": "Ada", "to": "Grace", "data": {"since": "1950-01-02"}},
]

QUERIES = {
    "adults": """
query adults($age: I32)
    @description("People of at least an age")
    @instruction("Pass the age in years")
{ match { $p: Person  $p.age >= $age } return { $p.name, $p.age } order { $p.name } }
""",
    "add_person": "query add_person($name: String) { insert Person { name: $name } }",
}

PEOPLE = "query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"


def ndjson(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


@dataclass(frozen=True)
class NamedQuery:
    name: str
    text: str


class FewTokens:
    """Tokens of a test: a mapping from token to actor."""

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        self._tokens = dict(tokens or {})

    @property
    def is_empty(self) -> bool:
        return not self._tokens

    async def identify(self, token: str) -> Identity | None:
        actor = self._tokens.get(token)
        return None if actor is None else Identity(actor)


@dataclass
class ListedAccess:
    """Allows everything but what a test lists as denied: actions, or (actor, action) pairs."""

    denied: set[Any] = field(default_factory=set)
    hidden: set[tuple[str, str | None]] = field(default_factory=set)
    questions: list[tuple[Any, ...]] = field(default_factory=list)
    hidden_branches: set[str] = field(default_factory=set)

    def decide(
        self,
        graph_id: str | None,
        actor: Identity | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> Decision:
        name = None if actor is None else actor.id
        self.questions.append((graph_id, name, action, branch, target))
        keys = {action, (name, action), (action, branch), (action, branch, target)}
        keys |= {(action, "query", query)}
        is_denied = bool(self.denied & keys)
        message = f"policy denied action '{action}'" if is_denied else "allowed"
        return Decision(not is_denied, None if is_denied else "test", message)

    def view(self, graph_id: str, actor: Identity | None, branch: str, catalog: Any) -> View:
        return WHOLE

    def policy_of(self, graph_id: str) -> None:
        return None

    def hides_graph(self, graph_id: str, actor: Identity | None) -> bool:
        return (graph_id, None if actor is None else actor.id) in self.hidden

    def hides_branch(self, graph_id: str, actor: Identity | None, branch: str) -> bool:
        return branch in self.hidden_branches


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def ok(self) -> Any:
        assert self.status == 200, (self.status, self.body)
        return self.json

    def fails(self, status: int, text: str = "", *, code: str | None = None) -> Any:
        """The body of an error of a status, whose text contains something."""
        assert self.status == status, (self.status, self.body)
        body = self.json
        assert text in body["error"], body
        assert code in (None, body["code"]), body
        return body


class Client:
    """One keep-alive connection per thread to one server, optionally to one graph of it."""

    def __init__(self, server: Server, token: str | None = None, prefix: str = "") -> None:
        self._server = server
        self._token = token
        self._prefix = prefix
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Response:
        sent = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            raw = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        for attempt in (1, 2):
            connection = self._connection()
            try:
                connection.request(method, self._prefix + path, raw, sent)
                answer = connection.getresponse()
                content = answer.read()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server may close an idle connection at any time.
                connection.close()
                self._local.connection = None
                if attempt == 2:
                    raise
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, fields, content)

    def _connection(self) -> http.client.HTTPConnection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=60)
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def get(self, path: str, **options: Any) -> Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Response:
        return self.request("POST", path, body, **options)

    def delete(self, path: str, **options: Any) -> Response:
        return self.request("DELETE", path, **options)


class Server:
    """A server that runs in a thread of the test process."""

    def __init__(self, state: ServerState, times: BodyTimes, caps: WriteCaps) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._log_out, log_in = os.pipe()
        os.set_blocking(log_in, False)
        self._log_in = log_in
        self.access: Any = state.access
        self.process: ServerProcess = None  # type: ignore[assignment]
        self._parts = (state, times, caps)
        self._ready = threading.Event()
        self._clients: list[Client] = []
        self.reloads = 0
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="test-server")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(self._serve())

    async def _serve(self) -> None:
        state, times, caps = self._parts
        metrics = Metrics()
        self.process = ServerProcess(
            state,
            lanes=Lanes(observer=metrics),
            admission=Admission(caps),
            reads=ReadAdmission(state.config.read_caps),
            waits=WaitAdmission(state.config.wait_caps),
            metrics=metrics,
            log=RequestLog(LogOptions(level="debug", descriptor=self._log_in)),
            times=times,
            reload=self._reload,
        )
        listener = Listener(create_app(self.process), [self._socket])
        listener.start()
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._ready.set()
        await self._end.wait()
        self.process.begin_drain()
        await listener.drain()
        await self.process.lanes.drain()
        self.process.lanes.close()

    async def _reload(self) -> None:
        self.reloads += 1

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        os.close(self._log_in)
        os.close(self._log_out)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str | None = None, graph: str | None = None) -> Client:
        """A client; with a graph, paths are relative to it."""
        client = Client(self, token, "" if graph is None else f"/graphs/{graph}")
        self._clients.append(client)
        return client

    def raw(self, data: bytes, *, timeout: float = 30.0) -> bytes:
        """Send bytes on a connection of its own, and read until the server closes it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.sendall(data)
            pieces = []
            try:
                while piece := connection.recv(1 << 16):
                    pieces.append(piece)
            except ConnectionResetError:
                pass
            return b"".join(pieces)

    def dribble(self, head: bytes, piece: bytes, *, pause: float) -> bytes:
        """Send a body piece by piece until the server answers, and return the answer."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            connection.sendall(head)
            connection.settimeout(pause)
            for _ in range(10_000):
                connection.sendall(piece)
                try:
                    return connection.recv(1 << 16)
                except TimeoutError:
                    continue
        raise AssertionError("the server reads for ever")

    def log_lines(self) -> list[dict[str, Any]]:
        """What was logged so far."""
        os.set_blocking(self._log_out, False)
        pieces = []
        try:
            while piece := os.read(self._log_out, 1 << 16):
                pieces.append(piece)
        except BlockingIOError:
            pass
        return [json.loads(line) for line in b"".join(pieces).splitlines()]

    def swap(self, **changes: Any) -> None:
        """Put another generation in force."""
        names = ServerState.__dataclass_fields__  # type: ignore[attr-defined]
        old = {name: getattr(self.process.state, name) for name in names}
        self.process.swap(ServerState(**(old | changes)))


@contextmanager
def serving(
    graphs: Mapping[str, Graph],
    *,
    queries: Mapping[str, str] | None = None,
    tokens: Mapping[str, str] | None = None,
    authentication: Authentication | None = None,
    access: Any = None,
    is_cluster: bool = False,
    unserved: tuple[Quarantine, ...] = (),
    times: BodyTimes | None = None,
    caps: WriteCaps | None = None,
    **config: Any,
) -> Iterator[Server]:
    """A server of open graphs; every graph has the same stored queries."""
    stored = ServedQueries.read(NamedQuery(*item) for item in (queries or {}).items())
    options = ServerConfig(ServerSource("store", "test"))
    if config:
        options = msgspec.structs.replace(options, **config)
    state = ServerState(
        options,
        authentication or FewTokens(tokens),
        access or ListedAccess(),
        "policy" if tokens or authentication else "open",
        {graph_id: ServedGraph(graph_id, graph, stored) for graph_id, graph in graphs.items()},
        {graph.graph_id: graph for graph in unserved},
        is_cluster=is_cluster,
        digest="test",
    )
    server = Server(state, times or BodyTimes(), caps or WriteCaps())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def open_served(path: Any, rows: list[dict[str, Any]] | None = None) -> Graph:
    """A graph with a few rows, open as a server opens it."""
    with Graph.init(path, SCHEMA) as graph:
        graph.load(ROWS if rows is None else rows)
    return Graph.open(path, local_files=False, auto_compact=True)
