"""Writes of an actor that may not see all rows.

Statements match visible rows only. A new row must be visible to its writer, and a write that
depends on a hidden row is refused as a whole, with one error whatever the reason: the id exists, a
unique value or a cardinality is taken up, or a deletion would remove hidden edges. A hidden node is
a missing one for a new edge. All of it is decided on the snapshot that the write is staged on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import PolicyDenied
from omnigraph.lang.query import typed
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.arrow import filter_expression
from omnigraph.plan.view import View
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import NO_IDS, Deltas, Effect, TableDelta

_ENDS = ("src", "dst")

Fetch: TypeAlias = Callable[[str, pa.Array, Sequence[str]], pa.Table | None]
"""Some columns of the committed rows of a table that have one of the ids, if it has rows."""


@dataclass(frozen=True, slots=True)
class RowSecurity:
    """A view that hides something from the actor of a write, and what the actor asked for."""

    view: View
    actor: str | None
    action: str
    branch: str | None = None
    target: str | None = None

    def denied(self) -> PolicyDenied:
        """The one error of a write that needs hidden rows."""
        return PolicyDenied.beyond_view(self.actor, self.action, self.branch, self.target)

    def columns(self, key: str) -> list[str]:
        """The columns that decide whether a row of a table is visible."""
        ends = _ENDS if self.view.ends(key) else ()
        return list(dict.fromkeys((KEY, *ends, *condition_columns(self.view.condition(key)))))

    def require_whole(self, keys: Iterable[str]) -> None:
        """Refuse a write that needs all rows of some tables, unless all are visible."""
        if not self.view.whole_for(keys):
            raise self.denied()

    def own_fingerprint(self, fingerprint: str | None) -> str | None:
        """The fingerprint of a write that no other actor can repeat: its receipt has counts."""
        if fingerprint is None:
            return None
        own = hashlib.sha256((self.actor or "").encode("utf-8", "surrogatepass")).hexdigest()
        return f"{fingerprint}:{own[:16]}"


class RowVisibility:
    """The committed rows of one snapshot that a view shows."""

    def __init__(self, security: RowSecurity, fetch: Fetch) -> None:
        self._view = security.view
        self._columns = security.columns
        self._fetch = fetch

    def keep(self, key: str, rows: pa.Table) -> pa.Table:
        """The visible ones of some rows, which have the columns that decide."""
        if self._view.hides(key):
            return rows.slice(0, 0)
        condition = self._view.condition(key)
        if condition is not None:
            rows = rows.filter(filter_expression(condition))
        for end, node_key in zip(_ENDS, self._view.ends(key), strict=False):
            if rows.num_rows and not self._view.sees_all(node_key):
                nodes = self.visible(node_key, pc.unique(rows[end]))
                rows = rows.filter(pc.is_in(rows[end], value_set=nodes))
        return rows

    def visible(self, key: str, ids: pa.Array) -> pa.Array:
        """Those of the ids that have a visible row."""
        rows = self._rows(key, ids)
        return NO_IDS if rows is None else _ids(self.keep(key, rows))

    def hidden(self, key: str, ids: pa.Array) -> pa.Array:
        """Those of the ids that have a hidden row."""
        if self._view.sees_all(key):
            return NO_IDS
        rows = self._rows(key, ids)
        if rows is None:
            return NO_IDS
        every, visible = _ids(rows), _ids(self.keep(key, rows))
        return every.filter(pc.invert(pc.is_in(every, value_set=visible)))

    def _rows(self, key: str, ids: pa.Array) -> pa.Table | None:
        rows = self._fetch(key, ids, self._columns(key)) if len(ids) else None
        return rows if rows is not None and rows.num_rows else None


def condition_columns(condition: typed.TypedExpr | None) -> Iterator[str]:
    """The columns that a condition reads."""
    for part in () if condition is None else typed.walk(condition):
        if isinstance(part, typed.Column):
            yield part.name
        elif isinstance(part, typed.Entity):
            yield typed.ID_COLUMN


def refuse_hidden_images(security: RowSecurity, deltas: Deltas) -> None:
    """Refuse rows that would be hidden by their own values; the ends of edges are a rule."""
    for key, delta in deltas.items():
        condition = security.view.condition(key)
        if condition is not None and delta.num_rows and not _all_satisfy(delta, condition):
            raise security.denied()


def _all_satisfy(delta: TableDelta, condition: typed.TypedExpr) -> bool:
    assert delta.rows is not None
    columns = list(dict.fromkeys((KEY, *condition_columns(condition))))
    if not set(columns) <= set(delta.rows.names):
        # An update that leaves a Blob as it is does not read it.
        return False
    rows = delta.rows.select(columns)
    return bool(rows.filter(filter_expression(condition)).num_rows == rows.num_rows)


def refuse_hidden_rows(
    security: RowSecurity, catalog: Catalog, deltas: Deltas, visible: RowVisibility
) -> None:
    """Refuse to replace, change or delete hidden rows; an overwrite needs to see all of them."""
    for key, delta in deltas.items():
        if delta.replaces:
            security.require_whole(with_incident_edges(catalog, [key]))
            continue
        touched = delta.deleted
        if delta.rows is not None and delta.effect is not Effect.DELETE and not delta.new_ids:
            touched = pa.concat_arrays([delta.column(KEY).combine_chunks(), touched])
        if len(visible.hidden(key, touched)):
            raise security.denied()


def with_incident_edges(catalog: Catalog, keys: Iterable[str]) -> list[str]:
    """Some tables, and those of all edges at nodes of them: a removed node may leave an edge."""
    every = dict.fromkeys(keys)
    nodes = {node.name for node in catalog.node_types.values() if node.table_key in every}
    for edge in catalog.edge_types.values():
        if nodes & {edge.from_type, edge.to_type}:
            every[edge.table_key] = None
    return list(every)


def _ids(rows: pa.Table) -> pa.Array:
    return rows[KEY].combine_chunks()
