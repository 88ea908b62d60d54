"""Stored queries: a registry of named queries from ``.gq`` texts, checked against the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import UNSET

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan import plan_query
from omnigraph.records import dataclass
from omnigraph.server.models.responses import (
    ParamDescriptor,
    ParamKind,
    QueryCatalogEntry,
)

_KINDS: dict[Scalar, ParamKind] = {
    Scalar.STRING: ParamKind.STRING,
    Scalar.BOOL: ParamKind.BOOL,
    Scalar.I32: ParamKind.INT,
    Scalar.U32: ParamKind.INT,
    Scalar.I64: ParamKind.BIGINT,
    Scalar.U64: ParamKind.BIGINT,
    Scalar.F32: ParamKind.FLOAT,
    Scalar.F64: ParamKind.FLOAT,
    Scalar.DATE: ParamKind.DATE,
    Scalar.DATETIME: ParamKind.DATETIME,
    Scalar.BLOB: ParamKind.BLOB,
    Scalar.VECTOR: ParamKind.VECTOR,
}


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
    def entry(self) -> QueryCatalogEntry:
        """The query as the catalogue lists it."""
        return QueryCatalogEntry(
            self.name,
            self.name,
            self.is_mutation,
            [describe_param(param.name, param.type) for param in self.query.params],
            self.query.description if self.query.description is not None else UNSET,
            self.query.instruction if self.query.instruction is not None else UNSET,
        )

    @property
    def advice(self) -> Iterator[str]:
        """What an agent that calls the query may stumble over."""
        for param in self.query.params:
            if param.type.is_vector and not param.type.nullable:
                yield f"parameter `${param.name}` is a vector, which an agent cannot supply"


def describe_param(name: str, type_: PropType) -> ParamDescriptor:
    """A parameter as the catalogue lists it.

    >>> describe_param("ids", PropType(Scalar.I64, is_list=True)).item_kind
    <ParamKind.BIGINT: 'bigint'>
    """
    kind = _KINDS[type_.scalar]
    return ParamDescriptor(
        name,
        ParamKind.LIST if type_.is_list else kind,
        type_.nullable,
        kind if type_.is_list else UNSET,
        type_.dimension if type_.dimension is not None else UNSET,
    )


class StoredQueries(Mapping[str, RegisteredQuery]):
    """The stored queries of a graph, by name."""

    def __init__(self, queries: Iterable[RegisteredQuery] = ()) -> None:
        self._queries = {query.name: query for query in sorted(queries, key=lambda q: q.name)}

    @classmethod
    def read(cls, files: Iterable[NamedText]) -> StoredQueries:
        """Read the declared query of each text; a text that cannot be read raises."""
        queries: dict[str, RegisteredQuery] = {}
        for file in files:
            if file.name in queries:
                raise InputError(f"stored query '{file.name}' is declared twice")
            declared = select_query(read_queries(Source(f"{file.name}.gq", file.text)), file.name)
            queries[file.name] = RegisteredQuery(file.name, file.text, declared)
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
