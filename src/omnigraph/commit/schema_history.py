"""Which schema belongs to which state of the graph.

The manifest has a row for each schema from a version on, published together with the tables that
have its shape, so a snapshot is always read under its own schema: an old one after a later apply,
and the newest while the schema files of an apply still wait to be put in place.
"""

from __future__ import annotations

from functools import lru_cache

from omnigraph.commit.rows import SchemaRow
from omnigraph.commit.schema_files import STAGED_STATE, Contract, recorded_hash
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import SchemaDrift
from omnigraph.lang.schema import Catalog, compile_schema

_KEPT = 16


def schema_at(store: GraphStore, contract: Contract, snapshot: Snapshot) -> Catalog:
    """The schema of a snapshot; mostly the one that the files have."""
    row = snapshot.schema
    if row is not None and row.schema_hash == contract.schema_hash:
        return contract.catalog
    known = store.manifest(snapshot.branch).with_state(lambda state, _: dict(state.schemas))
    if row is None:
        if not known:
            return contract.catalog
        # A graph of another program, from before the first schema was applied here.
        row = known[min(known)]
    if row.schema_hash == contract.schema_hash:
        return contract.catalog
    if row.manifest_version < max(known, default=0):
        return _compiled(row.source)
    return _newest(store, contract, row)


def _newest(store: GraphStore, contract: Contract, row: SchemaRow) -> Catalog:
    """Under the newest row the files may say something else for two reasons.

    An apply of ours published and did not put its files in place yet; or another program changed
    the schema, which writes no such row.
    """
    files = store.schema_files
    for _ in range(2):
        contract = files.check(contract)
        if contract.schema_hash == row.schema_hash or _is_staged(store, row):
            return _compiled(row.source)
    return contract.catalog


def _is_staged(store: GraphStore, row: SchemaRow) -> bool:
    try:
        return recorded_hash(store.objects, STAGED_STATE) == row.schema_hash
    except SchemaDrift:
        return False


@lru_cache(maxsize=_KEPT)
def _compiled(source: str) -> Catalog:
    return compile_schema(source)
