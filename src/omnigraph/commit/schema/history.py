"""Which schema belongs to which state of the graph.

The manifest has a row for each schema from a version on, published together with the tables that
have its shape, so a snapshot is always read under its own schema: an old one after a later apply,
and the newest before the schema files of an apply are promoted, or after the apply died.

Another program changes the schema files without such a row. Every apply of ours also has a row for
the schema that it replaces, so files with a schema without a row are newer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.commit.rows import SchemaRow
from omnigraph.commit.schema.files import STAGED_STATE, Contract, recorded_hash
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import HistoryGone, SchemaDrift, StorageMissing
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.lang.schema.compile import compile_schema

if TYPE_CHECKING:
    from omnigraph.lang.schema.identified import IdentifiedSchema

_KEPT = 16


def contract_at(store: GraphStore, contract: Contract, snapshot: Snapshot) -> Contract:
    """The schema of a snapshot; usually that of the files."""
    row = snapshot.schema
    if row is not None and row.schema_hash == contract.schema_hash:
        return contract
    rows = store.manifest(snapshot.branch).with_state(lambda state, _: dict(state.schemas))
    if row is None:
        if not rows:
            return contract
        # A graph of another program, from before the first schema was applied here.
        row = rows[min(rows)]
    row = _recorded(rows, row, snapshot)
    if row.schema_hash == contract.schema_hash:
        return contract
    if row.manifest_version < max(rows, default=0):
        return _of_row(contract, row)
    return _newest(store, contract, snapshot, row, rows)


def identified_at(store: GraphStore, contract: Contract, snapshot: Snapshot) -> IdentifiedSchema:
    """The schema of a snapshot with the stable ids of its types and properties."""
    return identified(store, snapshot, contract_at(store, contract, snapshot).catalog)


def identified(store: GraphStore, snapshot: Snapshot, catalog: Catalog) -> IdentifiedSchema:
    """The schema of a snapshot, given its catalog, with stable ids.

    If another program changed the schema, the ids are derived from those of the newest row.
    """
    from omnigraph.lang.schema.identified import IdentifiedSchema

    row = snapshot.schema
    if row is None or row.schema_hash != catalog.schema_hash:
        rows = store.manifest(snapshot.branch).with_state(lambda state, _: dict(state.schemas))
        if row is None and not rows:
            return IdentifiedSchema.new(catalog)
        row = _recorded(rows, row or rows[min(rows)], snapshot)
    if row.schema_hash == catalog.schema_hash:
        return IdentifiedSchema.recorded(catalog, row.identity)
    return recorded_schema(row).followed_by(catalog)


def recorded_schema(row: SchemaRow) -> IdentifiedSchema:
    """The schema of a row of the manifest."""
    from omnigraph.lang.schema.identified import IdentifiedSchema

    return IdentifiedSchema.recorded(_compiled(row.source), row.identity)


def recorded_catalogs(store: GraphStore, branch: str | None) -> list[Catalog]:
    """The schemas that states of a branch may have, as far as the manifest has them."""
    rows = store.manifest(branch).with_state(lambda state, _: dict(state.schemas))
    return [_compiled(source) for source in dict.fromkeys(row.source for row in rows.values())]


def first_version_of(store: GraphStore, snapshot: Snapshot, catalog: Catalog) -> int:
    """The first version of main under a schema that another program applied.

    Found by the shape of the tables; a change of rules alone leaves no trace before now.
    """
    row = snapshot.schema
    if row is None:
        return 1
    manifest, before = store.manifest(None), _compiled(row.source)
    versions = [commit.manifest_version for commit in manifest.commits()]
    versions = sorted({version for version in versions if version > row.manifest_version})

    def holds(version: int) -> bool:
        try:
            state = manifest.at_version(version)
            return not _fits(store, state, before, catalog) and _fits(store, state, catalog, before)
        except (HistoryGone, StorageMissing):
            return False

    first = bisect_left(versions, True, key=holds)
    return versions[first] if first < len(versions) else snapshot.manifest_version


def _recorded(rows: Mapping[int, SchemaRow], row: SchemaRow, snapshot: Snapshot) -> SchemaRow:
    """The row for a snapshot; the row of another program's schema may have been added later."""
    later = [
        version for version in rows if row.manifest_version < version <= snapshot.manifest_version
    ]
    return rows[max(later)] if later else row


def _newest(
    store: GraphStore,
    contract: Contract,
    snapshot: Snapshot,
    row: SchemaRow,
    rows: Mapping[int, SchemaRow],
) -> Contract:
    """Under the newest row the files may have another schema for two reasons.

    An apply of ours published and did not promote its files, or another program changed the
    schema.
    """
    files = store.schema_files
    for _ in range(2):
        contract = files.check(contract)
        if contract.schema_hash == row.schema_hash or _is_staged(store, row):
            return _of_row(contract, row)
    in_row = _of_row(contract, row)
    fits_row = _fits(store, snapshot, in_row.catalog, contract.catalog)
    fits_files = _fits(store, snapshot, contract.catalog, in_row.catalog)
    if fits_row != fits_files:
        return in_row if fits_row else contract
    if contract.schema_hash not in {recorded.schema_hash for recorded in rows.values()}:
        return contract
    # The files have a schema that an apply of ours replaced. Either they were left behind, or
    # another program went back to it: then it published since.
    return in_row if snapshot.manifest_version <= row.manifest_version else contract


def _of_row(contract: Contract, row: SchemaRow) -> Contract:
    if row.schema_hash == contract.schema_hash:
        return contract
    return replace(contract, source=row.source, catalog=_compiled(row.source))


def _is_staged(store: GraphStore, row: SchemaRow) -> bool:
    try:
        return recorded_hash(store.objects, STAGED_STATE) == row.schema_hash
    except SchemaDrift:
        return False


def _fits(store: GraphStore, snapshot: Snapshot, catalog: Catalog, other: Catalog) -> bool:
    """Whether the tables of a snapshot have the shape of one schema where the other differs."""
    shapes, others = _shapes(catalog), _shapes(other)
    if set(shapes) != set(snapshot.pins):
        return False
    for key, columns in shapes.items():
        rest = others.get(key, {})
        contested = {n for n in {*columns, *rest} if columns.get(n) != rest.get(n)}
        if not contested:
            continue
        stored = store.table(snapshot.pins[key]).schema
        for name in contested:
            wanted = columns.get(name)
            if (wanted is None) == (name in stored.names):
                return False
            # A Blob has another type in the table than in the declaration.
            if wanted is not None and name in rest and stored.field(name).type != wanted:
                return False
    return True


def _shapes(catalog: Catalog) -> dict[str, dict[str, pa.DataType]]:
    return {
        entity_type.table_key: {field.name: field.type for field in entity_type.arrow_schema()}
        for entity_type in entity_types(catalog)
    }


@lru_cache(maxsize=_KEPT)
def _compiled(source: str) -> Catalog:
    return compile_schema(source)
