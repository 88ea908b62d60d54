"""Sends the requests of one graph behind a server, and reads the responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from omnigraph.client.server import Connection, ServerRequest
from omnigraph.errors import Closed
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.remote import documents, requests
from omnigraph.remote.documents import decoding
from omnigraph.remote.states import StateRef

T = TypeVar("T")


class RemoteCalls:
    """Sends the requests of one graph, and reads the responses."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_closed = False
        self.actor: str | None = None

    def send(self, request: ServerRequest, read: Callable[[Any], T]) -> T:
        """The response of a request in its type."""
        self.check_open()
        document = self.connection.send(request)
        with decoding(self.connection.base):
            if request.changes and not request.of_server:
                self.actor = document.get("actor_id")
            return read(document)

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this graph is closed", hint="connect again with omnigraph.connect")

    def catalog(self) -> Catalog:
        """The types of the newest schema."""
        from omnigraph.lang.diagnostics import Source
        from omnigraph.lang.schema.compile import compile_schema

        text = self.send(requests.schema_text(), documents.schema_source)
        return compile_schema(Source("<schema>", text))

    def find_commit(self, ref: StateRef) -> str | None:
        """The commit of a state; ``None`` for the newest state of a branch."""
        if ref.needs_tags:
            from omnigraph.remote import history_documents, history_requests

            return ref.by_tags(self.send(history_requests.list_tags(), history_documents.tags))
        if ref.moment is not None:
            return ref.by_time(self.send(requests.commits(ref.branch), documents.commits))
        return ref.commit
