"""What a load takes in: one gatherer for each type that appears, and where its rows go.

What is wrong with a record is collected with its file and line. Strict loads end with the first
such record; others set them aside, up to a number. Nothing here knows a graph: a catalog and a
place for the rows are enough, also in a process that reads one part of a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol

import pyarrow as pa

from omnigraph.commit.receipts import OTHERS
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.tables.store import KEY
from omnigraph.write.blobs import LocalFiles
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.load import limits
from omnigraph.write.load.decoders import Decoders
from omnigraph.write.load.digest import Digest
from omnigraph.write.load.gather import Gatherer
from omnigraph.write.load.rejects import Reject, Rejects, broken, file_and_line, place
from omnigraph.write.validate.violations import Violation

# So much text may wait to be converted, whatever number of records that is.
_WAITING = 24 << 20
_ENDS = frozenset({"src", "dst"})


def count_ignored(ignored: dict[str, int], name: str, count: int) -> None:
    """Count what was ignored under a name; beyond some names, all others under one."""
    if name not in ignored and len(ignored) >= limits.MOST_IGNORED:
        name = OTHERS
    ignored[name] = ignored.get(name, 0) + count


class Sink(Protocol):
    """Where the good rows of one type go, such as a spool."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; the columns are those of the type, and the last says file and line."""


class Intake:
    """All types of a load."""

    def __init__(
        self,
        catalog: Catalog,
        sinks: Callable[[Kind], Sink],
        rejects: Rejects,
        *,
        strict_properties: bool = False,
        allow_local_files: bool = False,
    ) -> None:
        self.catalog = catalog
        self.files_named = LocalFiles.by_flag(allow_local_files)
        """What becomes of Blobs that name local files."""
        self.rejects = rejects
        self.strict_properties = strict_properties
        self.files: list[str] = []
        self.ignored: dict[str, int] = {}
        self.records = 0
        self.digest: Digest | None = None
        """Set for a load with an idempotency key."""
        self.progress: Callable[[], None] | None = None
        self.decoders: Decoders | None = Decoders(catalog)
        """They read most JSON; without them the result is the same."""
        self._sinks = sinks
        self._gatherers: dict[str, Gatherer] = {}
        self._waiting = 0
        self._without_id: dict[str, int] = {}

    def open_file(self, name: str) -> int:
        """Announce the next file; gives its number."""
        self.files.append(name)
        return len(self.files) - 1

    def find(self, name: str) -> Kind:
        return find_type(self.catalog, name)

    def gatherer(self, kind: Kind) -> Gatherer:
        found = self._gatherers.get(kind.table_key)
        if found is None:
            found = Gatherer(self, kind, self._sinks(kind))
            self._gatherers[kind.table_key] = found
        return found

    # -- what was read -------------------------------------------------------------------

    def took(self, size: int) -> None:
        """So many bytes of text went to the gatherers; they are emptied before it is too much."""
        self._waiting += size
        if self._waiting > _WAITING:
            self.settle()
        else:
            self.check()

    def check(self) -> None:
        """Say what is wrong if it is too much. Every record before this moment was taken in."""
        if self.rejects.needs_flush:
            self.settle()

    def settle(self) -> None:
        """Judge all that was taken in, so that what is wrong with it can be put in order."""
        self._waiting = 0
        for gatherer in self._gatherers.values():
            gatherer.flush()
        self.rejects.settle()

    def count_records(self, count: int) -> None:
        """So many records were converted."""
        self.records += count
        if self.progress is not None:
            self.progress()

    def digest_ids(self, kind: Kind, given: pa.Array) -> None:
        """Ids that records brought, null where one did not."""
        if self.digest is None:
            return
        key = kind.table_key
        if given.null_count == len(given) and not self._gatherers[key].has_given_ids:
            self._without_id[key] = self._without_id.get(key, 0) + len(given)
            return
        # Where the first id comes must not depend on how many records are looked at together.
        before = pa.nulls(self._without_id.pop(key, 0), pa.string())
        for ids in (before, given):
            self.digest.add(f"{key}.{KEY}", ids)

    def digest_rows(self, kind: Kind, batch: pa.RecordBatch) -> None:
        """Rows that were found good, each by itself."""
        if self.digest is not None:
            for name in kind.properties.keys() | _ENDS:
                if name in batch.schema.names:
                    self.digest.add(f"{kind.table_key}.{name}", batch[name])

    def ignore(self, kind: Kind, name: str, rows: int) -> None:
        """Count a property that the schema does not have."""
        count_ignored(self.ignored, f"{kind.name}.{name}", rows)

    # -- what cannot be taken ------------------------------------------------------------

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
        """A record that cannot be taken; every one before it was."""
        reject = Reject(self.files[file], line, reason, field, value, counted)
        self.rejects.wait(place(file, line), reject)
        self.check()

    def end(self, file: int, line: int, reason: str, hint: str | None = None) -> NoReturn:
        """Something after which nothing can be read."""
        self.settle()
        self.rejects.end(Reject(self.files[file], line, reason, hint=hint))

    def check_length(self, file: int, line: int, size: int) -> None:
        """End the load when a record that begins on a line is longer than one may be."""
        if size > limits.LONGEST_RECORD:
            hint = (
                f"a record has at most {limits.LONGEST_RECORD} bytes; a quote or bracket that is "
                "not closed also makes one record of all that follows"
            )
            self.end(file, line, "the record is too long", hint)

    def refuse(self, violation: Violation, where: int) -> None:
        """A record that was good by itself, and breaks a rule among the others."""
        file, line = file_and_line(where)
        self.rejects.add(broken(self.files[file], line, violation))

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record brought its own id."""
        return {key for key, gatherer in self._gatherers.items() if gatherer.has_given_ids}
