"""Which changes are wanted: by the kind and the identity of their types, and by what happened.

A type is wanted by its stable id, so that it stays wanted when it gets another name. Names are
looked up once and then travel with the cursor of a feed: a name may belong to another type later.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph.commit.metadata import SchemaEvent
from omnigraph.errors import InputError
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind

KINDS = ("node", "edge")


class Operation(StrEnum):
    """What happened: to a row, or to the schema."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SCHEMA = "schema"


ROW_OPERATIONS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are wanted; nothing said is everything."""

    kinds: frozenset[str] | None = None
    types: Mapping[str, int] | None = None
    """The stable ids of the types, by the names that the caller used; 0 until it is known."""
    ops: frozenset[Operation] | None = None

    @staticmethod
    def of(
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> ChangeFilter:
        """From what a caller says."""
        for kind in kinds or ():
            if kind not in KINDS:
                raise InputError(f"'{kind}' is no kind of change", hint="use node or edge")
        for op in ops or ():
            if op not in tuple(Operation):
                known = ", ".join(Operation)
                raise InputError(f"'{op}' is no operation", hint=f"use one of {known}")
        return ChangeFilter(
            None if kinds is None else frozenset(kinds),
            None if types is None else dict.fromkeys(types, 0),
            None if ops is None else frozenset(map(Operation, ops)),
        )

    def resolve(
        self, schemas: Iterable[IdentifiedSchema], known: Mapping[str, int] | None = None
    ) -> ChangeFilter:
        """With the ids of the types: those that are known, else by the first schema with the name.

        A name that none of them has is refused in the words of the first.
        """
        if self.types is None:
            return self
        lookup = _Lookup(schemas)
        found = {name: (known or {}).get(name) or lookup.type_id(name) for name in self.types}
        return replace(self, types=found)

    def takes(self, kind: str, type_id: int) -> bool:
        """Whether changes of a type are wanted."""
        if self.kinds is not None and kind not in self.kinds:
            return False
        return self.types is None or type_id in self.types.values()

    def takes_event(self, event: SchemaEvent) -> bool:
        is_wanted = self.ops is None or Operation.SCHEMA in self.ops
        return is_wanted and self.takes(event.type_kind, event.type_id)

    def text(self) -> str:
        """What a cursor keeps of it: nothing where everything is wanted."""
        parts = {
            "kinds": None if self.kinds is None else sorted(self.kinds),
            "types": None if self.types is None else dict(sorted(self.types.items())),
            "ops": None if self.ops is None else sorted(self.ops),
        }
        told = {name: part for name, part in parts.items() if part is not None}
        return json.dumps(told, separators=(",", ":"), ensure_ascii=False) if told else ""

    def wants_same(self, text: str) -> bool:
        """Whether another filter, of which this is the text, wants the same; names may differ."""
        return _meaning(self.text()) == _meaning(text)


def known_types(text: str) -> dict[str, int]:
    """The ids of types by their names, as the text of a filter has them."""
    types = _parsed(text).get("types")
    if not isinstance(types, dict):
        return {}
    return {str(name): number for name, number in types.items() if isinstance(number, int)}


def _meaning(text: str) -> object:
    parts = _parsed(text)
    types = sorted(known_types(text).values()) if "types" in parts else None
    return parts.get("kinds"), types, parts.get("ops")


def _parsed(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        # Of an earlier release, which kept names only.
        return {"kinds": text}
    return found if isinstance(found, dict) else {"kinds": text}


class _Lookup:
    """Schemas in the order in which they are asked; no more of them are read than are needed."""

    def __init__(self, schemas: Iterable[IdentifiedSchema]) -> None:
        self._more = iter(schemas)
        self._read: list[IdentifiedSchema] = []

    def type_id(self, name: str) -> int:
        for schema in self._every():
            with suppress(InputError):
                return type_id(schema, find_type(schema.catalog, name))
        first = self._read[0]
        return type_id(first, find_type(first.catalog, name))

    def _every(self) -> Iterator[IdentifiedSchema]:
        yield from self._read
        for schema in self._more:
            self._read.append(schema)
            yield schema


def type_id(schema: IdentifiedSchema, kind: Kind) -> int:
    """The stable id of a type that has rows."""
    return schema.identity.types[kind.table_key].id
