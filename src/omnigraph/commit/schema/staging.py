"""The staged files of the next schema: written, promoted, or discarded.

A schema apply stages three files before its manifest commit and renames them over the live ones
after it. What a crash leaves must show how far the apply came, so the order of every step is part
of the protocol, and ``_schema.pg.staging`` is first or last in each:

* ``stage`` writes it first, so the others are never alone before the commit;
* ``promote`` renames it first, so the others without it mean an interrupted promotion;
* ``discard`` deletes it last, so that a discard does not look like a promotion.

Callers hold the schema lease; otherwise the files of a running apply could be promoted or discarded
under it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.schema.files import (
    FILES,
    IR,
    SOURCE,
    STAGED,
    STAGED_SOURCE,
    STATE,
    contract_text,
    read_source,
    recorded_hash,
)
from omnigraph.errors import RecoveryRequired, SchemaDrift
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.storage.objects.store import ObjectStore

_BY_HAND = (
    "compare '_schema.pg.staging' with '_schema.pg'; to keep the schema the graph has, delete the "
    "staging files; to take the new one, move each of them over the file it is named after"
)


class Reconciled(StrEnum):
    """The outcome for the staging files."""

    NOTHING = "nothing"
    DELETED = "deleted"
    PROMOTED = "promoted"


class SchemaStaging:
    """The three staging files of one graph."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def present(self) -> list[str]:
        """Which files are staged, by the names of the files they will become."""
        seen = self._objects.signatures(tuple(STAGED[name] for name in FILES))
        return [name for name, signature in zip(FILES, seen, strict=True) if signature is not None]

    def stage(self, catalog: Catalog, source: str) -> None:
        """Discard what is staged and write the three files for a schema."""
        self.discard()
        self._objects.write(STAGED_SOURCE, source)
        self.write_derived(catalog, (IR, STATE))

    def write_derived(self, catalog: Catalog, names: Sequence[str]) -> None:
        """Write staged files that follow from the source."""
        for name in names:
            self._objects.write(STAGED[name], contract_text(name, catalog))

    def promote(self) -> None:
        """Rename the staged files over the live ones; repeatable after an interruption."""
        present = self.present()
        for name in FILES:
            if name in present:
                self._objects.rename(STAGED[name], name)
                reached(Failpoint.STAGING_BETWEEN_RENAMES)

    def discard(self) -> None:
        """Delete the staged files; repeatable after an interruption."""
        present = self.present()
        for name in reversed(FILES):
            if name in present:
                self._objects.delete(STAGED[name])


def reconcile_staging(
    objects: ObjectStore, *, apply_pending: bool, live_tables: Collection[str]
) -> Reconciled:
    """Promote or discard the staging files of a dead schema apply.

    ``apply_pending`` means that the apply left its sidecar; ``live_tables`` are the table keys of
    the manifest. Raises ``RecoveryRequired`` when the files are ambiguous, and ``SchemaDrift`` when
    the live source is damaged; nothing is changed then.
    """
    staging = SchemaStaging(objects)
    present = staging.present()
    if not present:
        return Reconciled.NOTHING
    if SOURCE not in present:
        # Without its source a staged file must belong to the schema that is live already.
        live = read_source(objects, SOURCE)[1]
        _check_staged(objects, present, live.schema_hash, SOURCE)
        staging.promote()
        return Reconciled.PROMOTED
    with _reading_staged():
        staged = read_source(objects, STAGED_SOURCE)[1]
    is_complete = len(present) == len(FILES)
    # An apply completes its staging before it commits: one that did not is rolled back, whatever
    # its sidecar says.
    if (apply_pending and is_complete) or _is_committed(
        objects, staged, set(live_tables), is_complete
    ):
        derived = [name for name in (IR, STATE) if name in present]
        _check_staged(objects, derived, staged.schema_hash, STAGED_SOURCE)
        staging.write_derived(staged, [name for name in (IR, STATE) if name not in present])
        staging.promote()
        return Reconciled.PROMOTED
    staging.discard()
    return Reconciled.DELETED


def _is_committed(
    objects: ObjectStore, staged: Catalog, tables: set[str], is_complete: bool
) -> bool:
    """Whether the live files or the manifest already follow the staged schema."""
    live = read_source(objects, SOURCE)[1]
    if staged.schema_hash == live.schema_hash:
        # Where a rename is a copy and a delete, a promotion may have stopped between the two:
        # the source is live already, and its staged copy still there.
        return any(_live_hash(objects, name) != live.schema_hash for name in (IR, STATE))
    ours, theirs = _tables(live), _tables(staged)
    if tables not in (ours, theirs):
        raise RecoveryRequired(
            "a schema apply did not finish, and the tables of the graph fit neither the schema "
            "it had nor the one it was to get",
            hint=_BY_HAND,
            details={"tables": sorted(tables), "live": sorted(ours), "staged": sorted(theirs)},
        )
    if ours == theirs and is_complete:
        raise RecoveryRequired(
            "a schema apply that changes only properties did not finish, and it is unknown "
            "whether it was committed",
            hint=_BY_HAND,
            details={"live": live.schema_hash, "staged": staged.schema_hash},
        )
    return ours != theirs and tables == theirs


def _live_hash(objects: ObjectStore, name: str) -> str | None:
    """The hash of a live file; also ``None`` if it is damaged, since a staged one replaces it."""
    try:
        return recorded_hash(objects, name)
    except SchemaDrift:
        return None


@contextmanager
def _reading_staged() -> Iterator[None]:
    try:
        yield
    except SchemaDrift as error:
        message = f"a schema apply did not finish: {error.message}"
        raise RecoveryRequired(message, hint=_BY_HAND, details=error.details) from error


def _check_staged(
    objects: ObjectStore, names: Iterable[str], schema_hash: str, source: str
) -> None:
    """Check that staged files belong to the schema of a source."""
    for name in names:
        with _reading_staged():
            staged = recorded_hash(objects, STAGED[name])
        if staged != schema_hash:
            raise RecoveryRequired(
                f"a schema apply did not finish: '{STAGED[name]}' does not match '{source}'",
                hint=_BY_HAND,
                details={"files": [STAGED[name], source]},
            )


def _tables(catalog: Catalog) -> set[str]:
    return {entity_type.table_key for entity_type in entity_types(catalog)}
