"""One table to search, in every state that a table can be in."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation

from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.types import IndexKind, IndexSpec, TableRef

SIZE = 4
SCHEMA = pa.schema(
    [
        pa.field(
            "id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), SIZE)),
        pa.field("year", pa.int32()),
        pa.field("size", pa.uint64()),
    ]
)


class Docs:
    """A table of documents with a text, a vector and two numbers."""

    def __init__(self, path):
        self.root = parse_root(str(path / "g.omni"))
        self.ref = TableRef("nodes/doc")
        self.store = TableStore(Datasets(ObjectStore(self.root, Durability.OS), Durability.OS))
        LanceDataset.commit(
            self.root.path(self.ref.path),
            LanceOperation.Overwrite(SCHEMA, []),
            enable_stable_row_ids=True,
        )
        self.version = 1

    @property
    def table(self):
        return self.store.open(self.ref, self.version)

    def _commit(self, staged):
        self.version = self.store.commit_staged(staged).version
        return self

    def append(self, *rows):
        return self._commit(self.store.stage_append(self.table, docs(*rows)))

    def upsert(self, *rows):
        return self._commit(self.store.stage_upsert(self.table, docs(*rows)))

    def retext(self, **texts):
        """Change texts and nothing else."""
        rows = pa.table({"id": list(texts), "text": pa.array(texts.values(), pa.string())})
        return self._commit(self.store.stage_update(self.table, rows))

    def delete(self, *ids):
        return self._commit(self.store.stage_delete_keys(self.table, pa.array(ids)))

    def index(self, *kinds, metric="cosine"):
        specs = [
            IndexSpec("text" if kind is IndexKind.TEXT else "vector", kind, metric=metric)
            for kind in kinds
        ]
        return self._commit(self.store.stage_indexes(self.table, specs)[0])

    def compact(self):
        dataset = lance.dataset(self.root.path(self.ref.path), version=self.version)
        dataset.optimize.compact_files()
        self.version = dataset.version
        return self

    def branch(self, name):
        """Go on on a branch of the table."""
        path = self.root.path(self.ref.path)
        lance.dataset(path, version=self.version).create_branch(name)
        self.ref = TableRef(self.ref.location, name)
        self.version = int(lance.dataset(self.root.path(self.ref.path)).version)
        return self

    def ids(self, row_ids):
        """The documents that rows stand for, in their order."""
        if not len(row_ids):
            return []
        return self.table.take(np.asarray(row_ids).tolist(), ["id"])["id"].to_pylist()

    def rows(self, *ids):
        """The rows of documents."""
        actual = self.table.read(["id"], row_ids=True)
        existing = dict(zip(actual["id"].to_pylist(), actual["_rowid"].to_pylist(), strict=True))
        return np.array([existing[name] for name in ids], np.uint64)


def docs(*rows):
    """Rows of ``(id, text, vector, year)``; what is left out is null."""
    full = [(*row, *[None] * (4 - len(row))) for row in rows]
    names, texts, vectors, years = zip(*full, strict=True)
    return pa.table(
        {
            "id": names,
            "text": pa.array(texts, pa.string()),
            "vector": pa.array(vectors, pa.list_(pa.float32(), SIZE)),
            "year": pa.array(years, pa.int32()),
            "size": pa.array(years, pa.uint64()),
        },
        schema=SCHEMA,
    )
