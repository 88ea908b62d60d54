"""Stored queries as the catalogue of a server lists them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from omnigraph.api.stored_queries import CheckedQuery, RegisteredQuery, StoredQueries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import PropType, Scalar
from omnigraph.server.models.responses import (
    ParamDescriptor,
    ParamKind,
    QueriesCatalogOutput,
    QueryCatalogEntry,
    QueryOutput,
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

_MOST_LISTINGS = 100
"""Actors may invoke different queries, and schemas change; so many catalogues are kept."""


def describe_query(checked: CheckedQuery) -> QueryCatalogEntry:
    """A query as the catalogue lists it."""
    stored, query, problem = checked.stored, checked.stored.query, checked.problem
    return QueryCatalogEntry(
        stored.name,
        stored.name,
        stored.is_mutation,
        [describe_param(param.name, param.type) for param in query.params],
        query.description if query.description is not None else UNSET,
        query.instruction if query.instruction is not None else UNSET,
        stored.params_schema,
        checked.result_schema or UNSET,
        query.deprecated if query.deprecated is not None else UNSET,
        UNSET if problem is None else problem.message,
    )


def show_query(checked: CheckedQuery) -> QueryOutput:
    """A query with its own text; other queries of the same file are not shown."""
    entry = msgspec.structs.asdict(describe_query(checked))
    return QueryOutput(**entry, source=checked.stored.own_text)


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
        str(type_),
    )


class ServedQueries(StoredQueries):
    """The stored queries of a served graph, and the bodies of their catalogue."""

    def __init__(self, queries: Iterable[RegisteredQuery] = ()) -> None:
        super().__init__(queries)
        self._listings: dict[tuple[str, tuple[str, ...]], bytes] = {}

    def cached_listing(self, names: tuple[str, ...], schema_hash: str) -> bytes | None:
        """The body of the catalogue of some queries, once somebody has asked for it."""
        return self._listings.get((schema_hash, names))

    def listing(self, names: tuple[str, ...], catalog: Catalog) -> bytes:
        """The catalogue of some queries under a schema, as the body of a response."""
        key = catalog.schema_hash, names
        listing = self._listings.get(key)
        if listing is None:
            checked = self.checked(catalog)
            entries = [describe_query(checked[name]) for name in names]
            listing = msgspec.json.encode(QueriesCatalogOutput(entries))
            if len(self._listings) >= _MOST_LISTINGS:
                self._listings.clear()
            self._listings[key] = listing
        return listing
