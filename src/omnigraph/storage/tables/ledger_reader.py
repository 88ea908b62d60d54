"""Reads the graph's manifest: a keyed table of which a handle follows the newest version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.table import ROW_ADDRESS, fragments_of
from omnigraph.storage.tables.types import TableRef


def has_text(column: str, text: str) -> pc.Expression:
    """A condition on a text; its type is given, since pyarrow loads pandas to infer one."""
    return pc.field(column) == pa.scalar(text, pa.string())


class RowAddress(NamedTuple):
    """Where a row is stored: its fragment, and its offset in the file of that fragment."""

    fragment: int
    offset: int

    @classmethod
    def of(cls, address: int) -> RowAddress:
        """From the number that Lance gives."""
        return cls(address >> 32, address & 0xFFFFFFFF)


class LedgerReader:
    """A handle that reads the table; it moves from version to version, so it is never shared."""

    def __init__(self, datasets: Datasets, ref: TableRef, dataset: LanceDataset) -> None:
        self.ref = ref
        self._datasets = datasets
        self._facts = dataset
        """The current version; for its facts only where a writer built it locally."""
        self._opened = dataset
        """The version that was last opened for reading."""
        self._e_tag: str | None = None
        """The tag of the current version file, if this handle created it on S3."""

    @property
    def _dataset(self) -> LanceDataset:
        """The current version, opened."""
        if self._opened is not self._facts and int(self._opened.version) != self.version:
            self._dataset = self._datasets.open(self.ref, self.version)
        return self._opened

    @_dataset.setter
    def _dataset(self, dataset: LanceDataset) -> None:
        self._opened = self._facts = dataset
        self._e_tag = None

    @classmethod
    def open(cls, datasets: Datasets, ref: TableRef, version: int | None = None) -> Self:
        return cls(datasets, ref, datasets.open(ref, version))

    def check_rows(self) -> None:
        """Check the deletion files; ``StorageCorrupt`` when one is damaged."""
        self._datasets.first_reads.guard(self.ref, self._dataset).check_rows(self._dataset)

    @property
    def version(self) -> int:
        return int(self._facts.version)

    @property
    def stamp(self) -> dict[str, str]:
        metadata = self._facts.schema.metadata or {}
        return {key.decode(): value.decode() for key, value in metadata.items()}

    @property
    def fragments(self) -> frozenset[int]:
        """The fragment ids of the table; a change adds new ones."""
        return frozenset(fragment.fragment_id for fragment in self._facts.get_fragments())

    def advance(self, version: int) -> None:
        if not self._datasets.names_this_root(self.ref, self.version):
            self._dataset = self._datasets.open(self.ref, version)
            return
        path = self.ref.version_path(version)
        self._datasets.first_reads.check_version_form(path)
        with lance_call("open", self.ref.path):
            self._dataset = self._dataset.checkout_version(version)

    def read(
        self,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
        fragments: Iterable[int] | None = None,
        *,
        addresses: bool = False,
    ) -> pa.Table:
        """Rows at this version; with ``fragments`` only those in some of its fragments.

        ``addresses`` adds the column ``_rowaddr``.
        """
        with lance_call("read", self.ref.path):
            selected = None if fragments is None else fragments_of(self._dataset, fragments)
            if selected == []:
                return self._dataset.schema.empty_table()
            return self._dataset.scanner(
                columns=None if columns is None else list(columns),
                filter=condition,
                fragments=selected,
                with_row_address=addresses,
            ).to_table()

    def find_row(self, key: str, value: str) -> RowAddress | None:
        """The address of the row with a key; the newest fragments are searched first."""
        with lance_call("read", self.ref.path):
            for fragment in reversed(self._dataset.get_fragments()):
                rows = self._dataset.scanner(
                    columns=[],
                    filter=has_text(key, value),
                    fragments=[fragment],
                    with_row_address=True,
                ).to_table()
                if rows.num_rows:
                    return RowAddress.of(rows[ROW_ADDRESS][0].as_py())
        return None
