"""Stored queries: a registry of named queries from ``.gq`` texts, checked against the schema."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol, Self

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan import plan_query
from omnigraph.records import dataclass

_INVOKED: ContextVar[str | None] = ContextVar("omnigraph_invoked_query", default=None)


@contextmanager
def invoking(query: str) -> Iterator[None]:
    """Name the stored query whose work follows on this thread, for the gate of the engine."""
    token = _INVOKED.set(query)
    try:
        yield
    finally:
        _INVOKED.reset(token)


def invoked_query() -> str | None:
    """The stored query that runs on this thread."""
    return _INVOKED.get()


class NamedText(Protocol):
    """The name of a query, and the text that declares it."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """One stored query. ``text`` may declare others too."""

    name: str
    text: str
    query: ast.Query

    @property
    def is_mutation(self) -> bool:
        return self.query.is_mutation

    @property
    def advice(self) -> Iterator[str]:
        """What an agent that calls the query may stumble over."""
        for param in self.query.params:
            if param.type.is_vector and not param.type.nullable:
                yield f"parameter `${param.name}` is a vector, which an agent cannot supply"


class StoredQueries(Mapping[str, RegisteredQuery]):
    """The stored queries of a graph, by name."""

    def __init__(self, queries: Iterable[RegisteredQuery] = ()) -> None:
        self._queries = {query.name: query for query in sorted(queries, key=lambda q: q.name)}

    @classmethod
    def read(cls, files: Iterable[NamedText]) -> Self:
        """Read the declared query of each text; a text that cannot be read raises."""
        queries: dict[str, RegisteredQuery] = {}
        for file in files:
            declared = select_query(read_queries(Source(f"{file.name}.gq", file.text)), file.name)
            _add(queries, RegisteredQuery(file.name, file.text, declared))
        return cls(queries.values())

    @classmethod
    def from_directory(cls, directory: str | os.PathLike[str]) -> Self:
        """Read every query that the ``.gq`` files of a directory declare.

        Raises:
            InputError: the directory or a file cannot be read, or two queries have one name.
            LanguageError: a text is wrong.
        """
        queries: dict[str, RegisteredQuery] = {}
        for path in _query_files(Path(directory)):
            text = _text_of(path)
            for query in read_queries(Source(str(path), text)).queries:
                _add(queries, RegisteredQuery(query.name, text, query))
        return cls(queries.values())

    def breakages(self, catalog: Catalog) -> dict[str, str]:
        """Why a query does not fit a schema, by its name."""
        broken = {}
        for stored in self._queries.values():
            try:
                plan_query(catalog, Source(f"{stored.name}.gq", stored.text), stored.query)
            except OmniGraphError as error:
                broken[stored.name] = error.message
        return broken

    def __getitem__(self, name: str) -> RegisteredQuery:
        return self._queries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


def _add(queries: dict[str, RegisteredQuery], query: RegisteredQuery) -> None:
    if query.name in queries:
        raise InputError(f"stored query '{query.name}' is declared twice")
    queries[query.name] = query


def _query_files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.name.endswith(".gq"))
    except OSError as error:
        raise _unreadable(directory, error) from None


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:
        raise InputError(f"'{path}' is not UTF-8 text") from None


def _unreadable(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or "it cannot be read").lower()
    return InputError(f"cannot read '{path}': {reason}")
