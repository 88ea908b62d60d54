"""The intake of a load: one gatherer for each type, and the sinks of their rows.

Rejects are collected with file and line. Strict loads end with the first reject; others allow a
number of them. An intake needs no graph, only a catalog and sinks, so that a worker can read one
split of a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol

import pyarrow as pa

from omnigraph.commit.receipts import OTHERS
from omnigraph.lang.schema.catalog import Catalog, EntityType
from omnigraph.storage.tables.store import KEY
from omnigraph.write.blobs import LocalFiles
from omnigraph.write.conform import find_type
from omnigraph.write.load import limits
from omnigraph.write.load.decoders import Decoders
from omnigraph.write.load.digest import Digest
from omnigraph.write.load.gather import Gatherer
from omnigraph.write.load.rejects import (
    Reject,
    Rejects,
    source_line,
)

# The limit in bytes of gathered text before it is converted.
_MAX_GATHERED = 24 << 20
_ENDS = frozenset({"src", "dst"})


def count_ignored(ignored: dict[str, int], name: str, count: int) -> None:
    """Count an ignored property; beyond a limit of names the others are counted together."""
    if name not in ignored and len(ignored) >= limits.MOST_IGNORED:
        name = OTHERS
    ignored[name] = ignored.get(name, 0) + count


class Sink(Protocol):
    """Receives the valid rows of one type, such as a spool."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; the columns are those of the type and the source line."""


class Intake:
    """All types of a load."""

    def __init__(
        self,
        catalog: Catalog,
        sinks: Callable[[EntityType], Sink],
        rejects: Rejects,
        *,
        strict_properties: bool = False,
        allow_local_files: bool = False,
    ) -> None:
        self.catalog = catalog
        self.files_named = LocalFiles.READ if allow_local_files else LocalFiles.REFUSED
        """How Blobs that name local files are handled."""
        self.rejects = rejects
        self.strict_properties = strict_properties
        self.files: list[str] = []
        self.ignored: dict[str, int] = {}
        self.records = 0
        self.digest: Digest | None = None
        """Set for a load with an idempotency key."""
        self.progress: Callable[[], None] | None = None
        self.decoders: Decoders | None = Decoders(catalog)
        """Fast path for most JSON; the result does not depend on it."""
        self._sinks = sinks
        self._gatherers: dict[str, Gatherer] = {}
        self._gathered = 0
        self._without_id: dict[str, int] = {}

    def open_file(self, name: str) -> int:
        """Register the next file; returns its number."""
        self.files.append(name)
        return len(self.files) - 1

    def find(self, name: str) -> EntityType:
        return find_type(self.catalog, name)

    def gatherer(self, entity_type: EntityType) -> Gatherer:
        gatherer = self._gatherers.get(entity_type.table_key)
        if gatherer is None:
            gatherer = Gatherer(self, entity_type, self._sinks(entity_type))
            self._gatherers[entity_type.table_key] = gatherer
        return gatherer

    # -- counts and digest ---------------------------------------------------------------

    def count_bytes(self, size: int) -> None:
        """Count gathered text; the gatherers are flushed above a limit."""
        self._gathered += size
        if self._gathered > _MAX_GATHERED:
            self.flush()
        else:
            self.check()

    def check(self) -> None:
        """Flush if too many rejects are deferred. All earlier records have been added."""
        if self.rejects.needs_flush:
            self.flush()

    def flush(self) -> None:
        """Convert and check all gathered records, then handle their rejects in order."""
        self._gathered = 0
        for gatherer in self._gatherers.values():
            gatherer.flush()
        self.rejects.flush()

    def count_records(self, count: int) -> None:
        """Count converted records."""
        self.records += count
        if self.progress is not None:
            self.progress()

    def digest_ids(self, entity_type: EntityType, given: pa.Array) -> None:
        """Add the given ids of records to the digest, null for none."""
        if self.digest is None:
            return
        key = entity_type.table_key
        if given.null_count == len(given) and not self._gatherers[key].has_given_ids:
            self._without_id[key] = self._without_id.get(key, 0) + len(given)
            return
        # The digest must not depend on the batch with the first id.
        before = pa.nulls(self._without_id.pop(key, 0), pa.string())
        for ids in (before, given):
            self.digest.add(f"{key}.{KEY}", ids)

    def digest_rows(self, entity_type: EntityType, batch: pa.RecordBatch) -> None:
        """Add valid rows to the digest."""
        if self.digest is not None:
            for name in entity_type.properties.keys() | _ENDS:
                if name in batch.schema.names:
                    self.digest.add(f"{entity_type.table_key}.{name}", batch[name])

    def ignore(self, entity_type: EntityType, name: str, rows: int) -> None:
        """Count a property that the schema does not have."""
        count_ignored(self.ignored, f"{entity_type.name}.{name}", rows)

    # -- rejects -------------------------------------------------------------------------

    def reject(
        self,
        file: int,
        line: int,
        reason: str,
        *,
        field: str | None = None,
        value: str | None = None,
        counted: tuple[str, int] | None = None,
    ) -> None:
        """Reject a record; all earlier records have been added."""
        reject = Reject(self.files[file], line, reason, field, value, counted)
        self.rejects.defer(source_line(file, line), reject)
        self.check()

    def end(self, file: int, line: int, reason: str, hint: str | None = None) -> NoReturn:
        """End the load: nothing can be read after this line."""
        self.flush()
        self.rejects.end(Reject(self.files[file], line, reason, hint=hint))

    def check_length(self, file: int, line: int, size: int) -> None:
        """End the load if a record is longer than the limit."""
        if size > limits.LONGEST_RECORD:
            hint = (
                f"a record has at most {limits.LONGEST_RECORD} bytes; a quote or bracket that is "
                "not closed also makes one record of all that follows"
            )
            self.end(file, line, "the record is too long", hint)

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record has its own id."""
        return {key for key, gatherer in self._gatherers.items() if gatherer.has_given_ids}
