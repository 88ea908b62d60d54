"""What the versions of a table did, by their transactions."""

from __future__ import annotations

from lance import LanceOperation

from omnigraph.errors import OmniGraphError
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import TableRef

RESERVED = "ReserveFragments"
"""An operation without a Python class: a version with the same fragments and columns as before."""
_UNNAMED = "BaseOperation"


def operations_between(
    datasets: Datasets, ref: TableRef, after: int, until: int
) -> tuple[str, ...]:
    """The operations that made the versions behind one up to another, in order.

    One that cannot be read is an empty text.
    """
    return tuple(_operation(datasets, ref, version) for version in range(after + 1, until + 1))


def restored_version(datasets: Datasets, ref: TableRef, version: int) -> int | None:
    """The version that another one restored; none when it did something else, or cannot be read."""
    try:
        with lance_call("read the transactions of", ref.path):
            transaction = datasets.open(ref, version).read_transaction(version)
    except OmniGraphError:
        return None
    operation = None if transaction is None else transaction.operation
    return int(operation.version) if isinstance(operation, LanceOperation.Restore) else None


def _operation(datasets: Datasets, ref: TableRef, version: int) -> str:
    try:
        with lance_call("read the transactions of", ref.path):
            transaction = datasets.open(ref, version).read_transaction(version)
    except OmniGraphError:
        return ""
    if transaction is None:
        return ""
    name = type(transaction.operation).__name__
    if name != _UNNAMED:
        return name
    return RESERVED if _is_untouched(datasets, ref, version) else ""


def _is_untouched(datasets: Datasets, ref: TableRef, version: int) -> bool:
    """Whether a version holds exactly what the one before it does."""
    try:
        before = Table(ref, datasets.open(ref, version - 1), datasets)
        after = Table(ref, datasets.open(ref, version), datasets)
        return before.fragments() == after.fragments() and before.schema == after.schema
    except OmniGraphError:
        return False
