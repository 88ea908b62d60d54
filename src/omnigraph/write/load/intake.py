"""What a load takes in: one gatherer and one spool for each type that appears.

What is wrong with a record is collected with its file and line. Strict loads stop at the first;
others set such records aside, up to a number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.tables import KEY
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.load.digest import Digest
from omnigraph.write.load.gather import Gatherer
from omnigraph.write.load.rejects import Reject, Rejects, blamed, file_and_line, placed
from omnigraph.write.load.spool import Budget, Spool
from omnigraph.write.validate.violations import Violation

# So much text may wait to be converted, whatever number of records that is.
_WAITING = 24 << 20
_ENDS = frozenset({"src", "dst"})


class Intake:
    """All types of a load."""

    def __init__(
        self, catalog: Catalog, folder: Path, rejects: Rejects, *, strict_properties: bool = False
    ) -> None:
        self.catalog = catalog
        self.rejects = rejects
        self.strict_properties = strict_properties
        self.files: list[str] = []
        self.ignored: dict[str, int] = {}
        self.records = 0
        self.digest: Digest | None = None
        """Set where somebody asks what was loaded."""
        self.progress: Callable[[Intake], None] | None = None
        self._folder = folder
        self._budget = Budget()
        self._gatherers: dict[str, Gatherer] = {}
        self._waiting = 0

    def open_file(self, name: str) -> int:
        """Announce the next file; gives its number."""
        self.files.append(name)
        return len(self.files) - 1

    def find(self, name: str) -> Kind:
        return find_type(self.catalog, name)

    def gatherer(self, kind: Kind) -> Gatherer:
        found = self._gatherers.get(kind.table_key)
        if found is None:
            found = Gatherer(self, kind, Spool(kind, self._folder, self._budget))
            self._gatherers[kind.table_key] = found
        return found

    def took(self, size: int) -> None:
        """So many bytes of text went to the gatherers; they are emptied before it is too much."""
        self._waiting += size
        if self._waiting > _WAITING:
            self._waiting = 0
            for gatherer in self._gatherers.values():
                gatherer.flush()

    def took_records(self, count: int) -> None:
        """So many records were converted."""
        self.records += count
        if self.progress is not None:
            self.progress(self)

    def took_ids(self, kind: Kind, given: pa.Array) -> None:
        """Ids that records brought, null where one did not."""
        if self.digest is not None:
            self.digest.add(f"{kind.table_key}.{KEY}", given)

    def took_rows(self, kind: Kind, batch: pa.RecordBatch) -> None:
        """Rows that were found good, each by itself."""
        if self.digest is not None:
            for name in kind.properties.keys() | _ENDS:
                if name in batch.schema.names:
                    self.digest.add(f"{kind.table_key}.{name}", batch[name])

    def ignore(self, kind: Kind, name: str, rows: int) -> None:
        """Count a property that the schema does not have."""
        label = f"{kind.name}.{name}"
        self.ignored[label] = self.ignored.get(label, 0) + rows

    def reject(
        self,
        file: int,
        line: int,
        reason: str,
        *,
        field: str | None = None,
        value: str | None = None,
    ) -> None:
        """A record that cannot be taken."""
        self.rejects.add(Reject(self.files[file], line, reason, field, value))

    def refuse(self, violation: Violation, place: int) -> None:
        """A record that breaks a rule of the schema."""
        file, line = file_and_line(place)
        reject = Reject(self.files[file], line, violation.message, *blamed(violation))
        self.rejects.add(reject, lambda: placed(violation, reject))

    def spools(self) -> dict[str, Spool]:
        """Convert what is left, and give the spools of all types that had a record."""
        found = {}
        for key in sorted(self._gatherers):
            gatherer = self._gatherers[key]
            gatherer.flush()
            gatherer.spool.close()
            found[key] = gatherer.spool
        return found

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record brought its own id."""
        return {key for key, gatherer in self._gatherers.items() if gatherer.has_given_ids}
