"""Merge conflicts and their resolution."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.argument_checks import Location, public
from omnigraph.errors import (
    CardinalityViolation,
    InputError,
    MergeConflicts,
    OmniGraphError,
    OrphanEdge,
    UniqueViolation,
)
from omnigraph.records import dataclass
from omnigraph.write.destinations import replaced_file
from omnigraph.write.validate import Violation


class ConflictKind(StrEnum):
    """The kinds of conflicts."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"


OURS, THEIRS = "ours", "theirs"

Values: TypeAlias = Mapping[str, Any]
Choice: TypeAlias = str | Values
"""A side, or the values of the merged row."""

_OF_RULES: dict[type[OmniGraphError], ConflictKind] = {
    OrphanEdge: ConflictKind.ORPHAN_EDGE,
    UniqueViolation: ConflictKind.UNIQUE_VIOLATION,
    CardinalityViolation: ConflictKind.CARDINALITY_VIOLATION,
    OmniGraphError: ConflictKind.VALUE_CONSTRAINT_VIOLATION,
}
"""The kind of conflict for the error class of a violated rule; the first match counts."""


@dataclass(frozen=True, slots=True)
class RowConflict:
    """One row that cannot be merged: its states in the base, the target and the source."""

    table_key: str
    row_id: str | None
    kind: ConflictKind
    message: str
    properties: tuple[str, ...] = ()
    base: Values | None = None
    ours: Values | None = None
    theirs: Values | None = None

    @property
    def conflict_id(self) -> str:
        """The id that a resolution uses."""
        return f"{self.table_key}/{self.row_id}"

    @property
    def location(self) -> str:
        """The row and the kind of conflict, for messages."""
        row = "" if self.row_id is None else f":{self.row_id}"
        return f"{self.table_key}{row} ({self.kind})"

    @property
    def is_between_rows(self) -> bool:
        """Whether choosing a side resolves it; a violated rule must be fixed on a branch."""
        return self.kind not in _OF_RULES.values()

    def to_json(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in _SCHEMA.names}
        return record | {"kind": self.kind.value, "properties": list(self.properties)}


def of_violation(violation: Violation) -> RowConflict:
    """The conflict of a rule that the merged graph would violate."""
    broken = violation.error_class
    kind = next(kind for error, kind in _OF_RULES.items() if issubclass(broken, error))
    return RowConflict(violation.table_key, violation.row_id, kind, violation.message)


_SCHEMA = pa.schema(
    [
        (name, pa.list_(pa.string()) if name == "properties" else pa.string())
        for name in ("conflict_id", *(field.name for field in fields(RowConflict)))
    ]
)


@dataclass(frozen=True, slots=True)
class Conflicts(Sequence[RowConflict]):
    """Conflicts in a fixed order."""

    items: tuple[RowConflict, ...] = ()

    def __getitem__(self, position: Any) -> Any:
        return self.items[position]

    def __len__(self) -> int:
        return len(self.items)

    def to_arrow(self) -> pa.Table:
        """One row per conflict, with the three states as JSON."""
        rows = []
        for conflict in self.items:
            record = conflict.to_json()
            for side in ("base", "ours", "theirs"):
                record[side] = None if record[side] is None else as_json(record[side])
            rows.append(record)
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    @public
    def write(self, path: Location) -> None:
        """Write JSON lines, each with an empty ``choice``; filled in, they can be ``resolve``."""
        lines = (as_json({**conflict.to_json(), "choice": None}) for conflict in self.items)
        with replaced_file(Path(path), compress=False) as write:
            for line in lines:
                write(f"{line}\n".encode())

    @public
    def error(self, source: str, target: str) -> MergeConflicts:
        """The error of a merge with these conflicts."""
        hint = "choose a side: resolve='ours' or 'theirs', or one for each conflict by its id"
        if not all(conflict.is_between_rows for conflict in self.items):
            hint = "fix the violation on one of the branches, then merge again"
        first = "; ".join(conflict.location for conflict in self.items[:3])
        more = f"; and {len(self) - 3} more" if len(self) > 3 else ""
        return MergeConflicts(
            f"merge conflicts: {first}{more}",
            hint=hint,
            details={
                "source": source,
                "target": target,
                "conflicts": [conflict.to_json() for conflict in self.items],
            },
        )


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class Resolution:
    """How conflicts are resolved: one side for all, or a choice by conflict id."""

    def __init__(self, given: str | Mapping[str, Choice] | PathLike[str] | None) -> None:
        choices = choices_of(given)
        self._all: str | None = choices if isinstance(choices, str) else None
        self._by_id: Mapping[str, Choice] = choices if isinstance(choices, Mapping) else {}
        self.used: dict[str, Choice] = {}

    def choice(self, conflict: RowConflict) -> Choice | None:
        """The choice for a conflict; ``None`` if it is unresolved."""
        choice = self._by_id.get(conflict.conflict_id, self._all)
        if choice is not None:
            self.used[conflict.conflict_id] = choice
        return choice

    def check_used(self) -> None:
        """Refuse choices for conflicts that do not exist."""
        for key in self._by_id:
            if key not in self.used:
                raise InputError(
                    f"there is no conflict '{key}'",
                    hint="preview the merge to see the ids of its conflicts",
                    details={"conflict_id": key},
                )


def choices_of(
    given: str | Mapping[str, Choice] | PathLike[str] | None,
) -> str | Mapping[str, Choice] | None:
    """A side for all conflicts, or a choice for each by its id, also from a file."""
    if isinstance(given, Mapping):
        return {str(key): _checked(str(key), choice) for key, choice in given.items()}
    if given is None or given in (OURS, THEIRS):
        return None if given is None else str(given)
    return _from_file(Path(given))


def _checked(key: str, choice: Any) -> Choice:
    if isinstance(choice, Mapping) or choice in (OURS, THEIRS):
        return choice  # type: ignore[no-any-return]
    raise InputError(
        f"the choice for '{key}' is '{choice}'",
        hint="choose 'ours', 'theirs', or give the values of the merged row",
        details={"conflict_id": key},
    )


def _from_file(path: Path) -> dict[str, Choice]:
    """JSON lines as written by ``Conflicts.write``, or one object of choices by conflict id."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"'{path}' is neither 'ours' nor 'theirs' nor a file that can be read",
            hint="pass a side, a mapping, or the path of a file with choices",
        ) from error
    choices: dict[str, Choice] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            key, choice = record["conflict_id"], record["choice"]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path}:{number}: a line is a JSON object with conflict_id and choice",
                details={"file": str(path), "line": number},
            ) from None
        if choice is not None:
            choices[str(key)] = _checked(str(key), choice)
    return choices
