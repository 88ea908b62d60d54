"""Compaction: rewrites small or sparse fragments into few, in any process, uncommitted.

Lance does the rewriting; row ids, created-at and updated-at versions, and blobs are preserved.
Which fragments are merged is decided elsewhere: Lance's planner stops at the boundary of index
coverage, so that a second run would find work again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata
from lance.optimize import CompactionTask

from omnigraph.records import dataclass
from omnigraph.storage.checksums import FileSum
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.read_back import checked_sums
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.fragments import StagedFragment, TableLocator, discard_fragments
from omnigraph.storage.tables.segments import BuiltIndex, Segment
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.table import Table, fragments_of
from omnigraph.storage.tables.types import (
    AUTO_CLEANUP,
    StagedTable,
    TableChange,
    TableRef,
    new_files,
    staged_table,
)
from omnigraph.storage.tables.wide_columns import batch_rows


@dataclass(frozen=True, slots=True)
class CompactionSplit:
    """Fragments of one version to be merged into one, or into a few if they have many rows."""

    locator: TableLocator
    file_version: str
    fragments: tuple[str, ...]
    """Their metadata from Lance, as JSON."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """New fragments that no version references yet, and the fragments they replace."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    """The metadata of both from Lance, as JSON."""
    sums: tuple[tuple[str, FileSum], ...] = field(default=(), repr=False, compare=False)
    """The checksums of the new files, if they are on local disk."""


def compaction_split(
    table: Table, locator: TableLocator, numbers: Sequence[int]
) -> CompactionSplit:
    with lance_call("read", table.ref.path):
        dataset = table.dataset
        form = str(dataset.data_storage_version)
        fragments = {f.fragment_id: f.metadata for f in fragments_of(dataset, numbers)}
        texts = tuple(json.dumps(fragments[number].to_json()) for number in numbers)
    return CompactionSplit(locator, form, texts)


def compact(split: CompactionSplit) -> CompactionResult:
    """Rewrite the rows of some fragments; for any process."""
    locator = split.locator
    task: dict[str, Any] = {
        "task": {"fragments": [json.loads(fragment) for fragment in split.fragments]},
        "read_version": locator.version,
        "options": _options(split.file_version),
    }
    with lance_call("compact", locator.path):
        dataset = locator.open()
        rows = batch_rows(dataset.schema)
        if rows is not None:
            task["options"] |= {"batch_size": rows}
        made: CompactionTask = CompactionTask.from_json(json.dumps(task))  # type: ignore[attr-defined]
        done: Any = made.execute(dataset)
        new = tuple(json.dumps(fragment.to_json()) for fragment in done.new_fragments)
    if not parse_root(locator.uri, locator.options).is_local:
        return CompactionResult(split.fragments, new)
    files = new_files(LanceOperation.Append(_read(new)))
    return CompactionResult(split.fragments, new, tuple(checked_sums(locator.uri, files).items()))


def _options(file_version: str) -> dict[str, object]:
    """The options of a Lance compaction task, set here because its planner is not used."""
    return {
        "target_rows_per_fragment": ROWS_PER_FRAGMENT,
        "max_rows_per_group": 1024,
        "materialize_deletions": True,
        "materialize_deletions_threshold": 0.1,
        "defer_index_remap": False,
        "enable_binary_copy": False,
        "enable_binary_copy_force": False,
        "data_storage_version": file_version,
    }


def discard_compaction(datasets: Datasets, ref: TableRef, done: CompactionResult) -> None:
    discard_fragments(datasets, ref.path, (StagedFragment(0, text) for text in done.new))


# -- staging --------------------------------------------------------------------------------------


def stored_cleanup(table: Table) -> tuple[str, ...]:
    """The settings of a table that make Lance remove versions on its own."""
    with lance_call("read", table.ref.path):
        return tuple(sorted(k for k in table.dataset.config() if k.startswith(AUTO_CLEANUP)))


def stage_before_indexes(
    table: Table,
    settings: Sequence[str],
    dropped: Sequence[Segment],
    compacted: Sequence[CompactionResult],
) -> tuple[StagedTable, ...]:
    """The steps after which indexes can be built: each becomes one version, in this order.

    A segment that covers a rewritten fragment is dropped first: Lance refuses to rewrite partially
    covered fragments, and leaves some kinds of index pointing to moved rows.
    """
    steps: list[tuple[TableChange, Any]] = []
    if settings:
        gone = LanceOperation.UpdateMap(dict.fromkeys(settings))
        steps.append((TableChange.SETTINGS, LanceOperation.UpdateConfig(config_updates=gone)))
    if compacted and dropped:
        steps.append(
            (TableChange.INDEX, LanceOperation.CreateIndex([], [s.index for s in dropped]))
        )
    if compacted:
        groups = [LanceOperation.RewriteGroup(_read(c.old), _read(c.new)) for c in compacted]
        steps.append((TableChange.COMPACT, LanceOperation.Rewrite(groups, [])))
    sums = {name: file_sum for done in compacted for name, file_sum in done.sums}
    return tuple(
        replace(_staged(table, change, operation, number), sums=sums)
        for number, (change, operation) in enumerate(steps)
    )


def stage_segments(
    table: Table, after: int, built: Sequence[BuiltIndex], dropped: Sequence[Segment]
) -> StagedTable:
    """Stage indexes that were built on the result of the steps ``after``, as the next step."""
    new = [index.at(table.version + after) for index in built]
    operation = LanceOperation.CreateIndex(new, [segment.index for segment in dropped])
    return _staged(table, TableChange.INDEX, operation, after)


def _staged(table: Table, change: TableChange, operation: Any, number: int) -> StagedTable:
    base = table.version + number
    return staged_table(table, change, Transaction(base, operation), base=base)


def _read(texts: Sequence[str]) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_json(text) for text in texts]
