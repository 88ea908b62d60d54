"""Reports: frozen dataclasses that become plain data by one mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar

from omnigraph.errors import InputError


class Report:
    """Base of the reports. ``to_json`` lists the fields in order, or the names in ``json_keys``."""

    __slots__ = ()
    json_keys: ClassVar[tuple[str, ...]] = ()
    """Fields and properties in the order of the JSON form, where it is not that of the fields."""

    def to_json(self) -> dict[str, Any]:
        """The report as plain data; the order of the keys is stable."""
        return {name: plain(getattr(self, name)) for name in self.json_keys or _names(self)}


class _OfTable(Protocol):
    @property
    def table_key(self) -> str: ...


T = TypeVar("T", bound=_OfTable)


def find_table(tables: Iterable[T], table_key: str) -> T:
    """The entry of a table; ``InputError`` if the report has none."""
    by_key = {table.table_key: table for table in tables}
    if not isinstance(table_key, str) or table_key not in by_key:
        raise InputError(
            f"the report has no table {table_key!r}", hint=f"tables: {', '.join(by_key) or 'none'}"
        )
    return by_key[table_key]


def _names(value: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(value))


def plain(value: Any) -> Any:
    """A value of a report as plain data.

    >>> plain((1, {"a": None}))
    [1, {'a': None}]
    """
    if isinstance(value, Report):
        return value.to_json()
    if is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in _names(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value
