"""Sends the requests of one graph behind a server, and reads the responses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from omnigraph.client.server import Connection, ServerRequest
from omnigraph.errors import Closed, InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.remote import documents, requests
from omnigraph.remote.documents import decoding
from omnigraph.remote.unserved import refuse_arguments

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
            if request.changes:
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


def chosen_commit(
    branch: str,
    commit: str | None,
    tag: str | None,
    version: int | None,
    at: datetime | str | None,
) -> str | None:
    """The commit that a caller names; ``None`` for the newest state of a branch."""
    refuse_arguments("snapshot", tag=tag, version=version)
    if isinstance(at, datetime):
        refuse_arguments("snapshot", at=at)
    if commit is not None and at is not None:
        raise InputError("pass only one of commit, tag, version and at")
    named = commit if commit is not None else at
    if named is not None and branch != "main":
        raise InputError(
            "branch cannot be combined with a commit or tag",
            hint="a commit or tag identifies its state; leave out the branch",
        )
    return named if isinstance(named, str) else None
