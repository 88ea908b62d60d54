"""The pending rows of a mutation, and the rows that its conditions match."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import typed
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.write.row_security import Fetch, RowSecurity, RowVisibility


class PendingTable:
    """The pending rows of one table: whole rows, the last one wins by id.

    Single inserts become Arrow when the rows are read, so many inserts do not copy them repeatedly.
    """

    def __init__(self, entity_type: EntityType, columns: tuple[str, ...] | None = None) -> None:
        self.entity_type = entity_type
        schema = entity_type.arrow_schema()
        names = schema.names if columns is None else [n for n in schema.names if n in columns]
        self.schema = pa.schema([schema.field(name) for name in names])
        self._image = self.schema.empty_table()
        self._new: dict[str, dict[str, pa.Array]] = {}

    def insert(self, row_id: str, values: dict[str, pa.Array]) -> None:
        """Add one whole row, each value an array of one; missing values are null."""
        self._new.pop(row_id, None)
        self._new[row_id] = {KEY: pa.array([row_id], pa.string()), **values}

    def put(self, rows: pa.Table) -> None:
        """Add whole rows, replacing those with the same ids."""
        rows = rows.select(self.schema.names).cast(self.schema)
        image = self.image()
        if image.num_rows:
            ids = rows[KEY].combine_chunks()
            kept = image.filter(pc.invert(pc.is_in(image[KEY], value_set=ids)))
            rows = pa.concat_tables([kept, rows])
        self._image = rows

    def image(self) -> pa.Table:
        """All pending rows, each id once."""
        if self._new:
            rows, self._new = list(self._new.values()), {}
            missing = {field.name: pa.nulls(1, field.type) for field in self.schema}
            columns = [
                pa.concat_arrays([row.get(name, null) for row in rows])
                for name, null in missing.items()
            ]
            self.put(pa.Table.from_arrays(columns, schema=self.schema))
        return self._image

    def ids(self) -> pa.Array:
        """The ids that the pending rows shadow."""
        return self.image()[KEY].combine_chunks()


def scan_matching(table: Table, names: list[str], condition: typed.TypedExpr | None) -> pa.Table:
    """Rows of a table that match a condition; what storage cannot evaluate is filtered here."""
    if condition is None:
        return table.read(names)
    if pushable(condition):
        return table.read(names, filter_expression(condition))
    extra = [c.name for c in typed.walk(condition) if isinstance(c, typed.Column)]
    rows = table.read(list(dict.fromkeys((*names, *extra))))
    return filtered(rows, condition).select(names)


def filtered(rows: pa.Table, condition: typed.TypedExpr | None) -> pa.Table:
    return rows if condition is None else rows.filter(filter_expression(condition))


def scan_visible(
    table: Table,
    key: str,
    names: list[str],
    condition: typed.TypedExpr | None,
    security: RowSecurity | None,
    fetch: Fetch,
) -> pa.Table:
    """Rows of a table that match a condition and that the actor of a write sees.

    ``fetch`` reads the nodes at the ends of edges.
    """
    if security is None or security.view.sees_all(key):
        return scan_matching(table, names, condition)
    parts = tuple(part for part in (condition, security.view.condition(key)) if part is not None)
    both = typed.And(parts) if len(parts) > 1 else next(iter(parts), None)
    wanted = list(dict.fromkeys((*names, *security.columns(key))))
    rows = scan_matching(table, wanted, both)
    return RowVisibility(security, fetch).keep(key, rows).select(names)
