"""The receipts of writes: what a commit changed, for the caller. Only plain data.

A client of a server builds them without the libraries that a write needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any

from omnigraph.argument_checks import reads_json
from omnigraph.records import dataclass

OTHERS = "other properties"
"""The entry of ``ignored`` for properties beyond the limit of names."""
BESIDE_DATA = " beside data"
"""The suffix in ``ignored`` of a key beside ``data``, which is not a property."""


@dataclass(frozen=True, slots=True)
class TableCounts:
    """How many rows of one table a write changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def affected(self) -> int:
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True, slots=True)
class Receipt:
    """The commit that a write made. ``version`` is the version of the graph on its branch.

    A write that changed nothing made no commit: its ``commit_id`` is ``None``.
    ``met`` counts the rows that the statements of a mutation matched, each once per statement;
    the counts of ``tables`` are those of the commit.
    """

    commit_id: str | None
    version: int
    branch: str
    tables: Mapping[str, TableCounts]
    actor: str | None = None
    met: Mapping[str, int] | None = None

    @property
    def affected_nodes(self) -> int:
        return self._affected("node:")

    @property
    def affected_edges(self) -> int:
        return self._affected("edge:")

    def _affected(self, prefix: str) -> int:
        counts = self.met
        if counts is None:
            counts = {key: table.affected for key, table in self.tables.items()}
        return sum(count for key, count in counts.items() if key.startswith(prefix))

    @staticmethod
    @reads_json("receipt")
    def from_json(value: Mapping[str, Any]) -> Receipt:
        """The inverse of ``to_json``."""
        met = value["met"]
        return Receipt(
            as_text_or_none(value["commit_id"]),
            as_whole(value["version"]),
            as_text(value["branch"]),
            {as_text(key): TableCounts(**counts) for key, counts in value["tables"].items()},
            as_text_or_none(value["actor"]),
            None if met is None else {as_text(key): as_whole(count) for key, count in met.items()},
        )

    def remembered(self) -> dict[str, Any]:
        """The part of the receipt that is stored in the commit's metadata."""
        content = self.to_json()
        return {key: content[key] for key in ("branch", "actor", "tables", "met")}

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "commit_id": self.commit_id,
            "version": self.version,
            "branch": self.branch,
            "actor": self.actor,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "tables": {key: asdict(counts) for key, counts in sorted(self.tables.items())},
            "met": None if self.met is None else dict(sorted(self.met.items())),
        }


@dataclass(frozen=True, slots=True)
class LoadReceipt(Receipt):
    """The receipt of a load.

    ``ignored`` counts the properties that the schema does not have; ``rejected`` the records that
    were set aside; ``base_branch`` is what the caller named as the source of a new branch.
    """

    base_branch: str | None = None
    branch_created: bool = False
    records: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    dry_run: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about a load that succeeded."""
        return tuple(_ignored(name, count) for name, count in sorted(self.ignored.items()))

    def plain(self) -> Receipt:
        """The part that every write has."""
        return Receipt(**{field.name: getattr(self, field.name) for field in fields(Receipt)})

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        # ``super()`` without arguments fails in a class that slots have recreated.
        return {
            **Receipt.to_json(self),
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "records": self.records,
            "rejected": self.rejected,
            "ignored": dict(sorted(self.ignored.items())),
            "warnings": list(self.warnings),
            "dry_run": self.dry_run,
        }

    @staticmethod
    @reads_json("receipt of a load")
    def from_json(value: Mapping[str, Any]) -> LoadReceipt:
        """The inverse of ``to_json``."""
        names = ("base_branch", "branch_created", "records", "ignored", "rejected", "dry_run")
        commit = Receipt.from_json(value)
        inherited = {field.name: getattr(commit, field.name) for field in fields(Receipt)}
        return LoadReceipt(**inherited, **{name: value[name] for name in names})


def _ignored(name: str, count: int) -> str:
    records = f"{count} record{'s' if count > 1 else ''}"
    if name == OTHERS:
        return f"{name} are not in the schema: ignored in {records}"
    if name.endswith(BESIDE_DATA):
        return f"{name.removesuffix(BESIDE_DATA)} is not inside data: ignored in {records}"
    return f"{name} is not in the schema: ignored in {records}"


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def as_text_or_none(value: Any) -> str | None:
    return None if value is None else as_text(value)


def as_whole(value: Any) -> int:
    # True and False are integers to Python, not to JSON.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a whole number")
    return value
