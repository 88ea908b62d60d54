"""The Arrow schemas of node and edge tables.

Import this module only where Arrow is needed: it loads pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.lang.values.arrow import arrow_field

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Property


def node_schema(properties: Iterable[Property]) -> pa.Schema:
    """The table of a node type: ``id``, then the properties in alphabetical order."""
    return _schema(("id",), properties)


def edge_schema(properties: Iterable[Property]) -> pa.Schema:
    """The table of an edge type: ``id``, ``src``, ``dst``, then the properties."""
    return _schema(("id", "src", "dst"), properties)


def _schema(hidden: tuple[str, ...], properties: Iterable[Property]) -> pa.Schema:
    fields = [pa.field(name, pa.utf8(), nullable=False) for name in hidden]
    ordered = sorted(properties, key=lambda p: p.name)
    return pa.schema([*fields, *(arrow_field(p.name, p.type) for p in ordered)])
