"""Filters of changes: by kind, by type, and by operation.

A type is selected by its stable id, so that it stays selected when it is renamed. Names are
resolved once, and the ids are stored in the cursor of a feed: a name may belong to another type
later.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from omnigraph.commit.metadata import SchemaEvent
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.records import dataclass
from omnigraph.write.conform import find_type

KINDS = ("node", "edge")


class Operation(StrEnum):
    """An operation on a row, or on the schema."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SCHEMA = "schema"


ROW_OPERATIONS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Selects changes; ``None`` selects everything."""

    kinds: frozenset[str] | None = None
    types: Mapping[str, int] | None = None
    """The stable ids of the types, by the caller's names; 0 until resolved."""
    ops: frozenset[Operation] | None = None

    @staticmethod
    def of(
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> ChangeFilter:
        """A filter from the arguments of a caller."""
        for kind in kinds or ():
            if kind not in KINDS:
                raise InputError(f"invalid kind '{kind}'; expected node or edge")
        for op in ops or ():
            if op not in tuple(Operation):
                allowed = ", ".join(Operation)
                raise InputError(f"invalid operation '{op}'; expected one of {allowed}")
        return ChangeFilter(
            None if kinds is None else frozenset(kinds),
            None if types is None else dict.fromkeys(types, 0),
            None if ops is None else frozenset(map(Operation, ops)),
        )

    def resolve(
        self, schemas: Iterable[IdentifiedSchema], ids_of_cursor: Mapping[str, int] | None = None
    ) -> ChangeFilter:
        """The filter with the ids of its types: known ones or from the first schema with the name.

        Raises the error of the first schema if none has the name. Only as many schemas are read as
        needed.
        """
        if self.types is None:
            return self
        ids = {name: (ids_of_cursor or {}).get(name, 0) for name in self.types}
        errors: dict[str, InputError] = {}
        waiting = iter(schemas)
        while unknown := [name for name, number in ids.items() if not number]:
            schema = next(waiting, None)
            if schema is None:
                raise errors[unknown[0]]
            for name in unknown:
                try:
                    ids[name] = type_id(schema, find_type(schema.catalog, name))
                except InputError as error:
                    errors.setdefault(name, error)
        return replace(self, types=ids)

    def takes(self, kind: str, type_id: int) -> bool:
        """Whether the filter selects changes of a type."""
        if self.kinds is not None and kind not in self.kinds:
            return False
        return self.types is None or type_id in self.types.values()

    def takes_event(self, event: SchemaEvent) -> bool:
        is_wanted = self.ops is None or Operation.SCHEMA in self.ops
        return is_wanted and self.takes(event.type_kind, event.type_id)

    def text(self) -> str:
        """The encoded form in a cursor: empty if everything is selected."""
        parts = {
            "kinds": None if self.kinds is None else sorted(self.kinds),
            "types": None if self.types is None else dict(sorted(self.types.items())),
            "ops": None if self.ops is None else sorted(self.ops),
        }
        content = {name: part for name, part in parts.items() if part is not None}
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False) if content else ""

    def wants_same(self, text: str) -> bool:
        """Whether the filter with this text selects the same changes; type names may differ."""
        return _meaning(self.text()) == _meaning(text)


def type_ids_of(text: str) -> dict[str, int]:
    """The ids of types by name, from the text of a filter."""
    types = _parsed(text).get("types")
    if not isinstance(types, dict):
        return {}
    return {str(name): number for name, number in types.items() if isinstance(number, int)}


def _meaning(text: str) -> object:
    parts = _parsed(text)
    types = sorted(type_ids_of(text).values()) if "types" in parts else None
    return parts.get("kinds"), types, parts.get("ops")


def _parsed(text: str) -> Mapping[str, object]:
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        # Written by an earlier release, which stored names only.
        return {"kinds": text}
    return content if isinstance(content, dict) else {"kinds": text}


def type_id(schema: IdentifiedSchema, entity_type: EntityType) -> int:
    """The stable id of a type that has rows."""
    return schema.identity.types[entity_type.table_key].id
