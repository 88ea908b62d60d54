"""Metadata of the columns of a result."""

from __future__ import annotations

from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class EntityRef:
    """The node or edge type whose ids a column has."""

    kind: EntityKind
    type_name: str
    variable: str


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column; ``entity`` is set if it is a variable and not a property of one."""

    name: str
    type: PropType
    entity: EntityRef | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """Two columns of nodes joined by an edge of the pattern, from its source to its target.

    All fields but the type are positions of columns; ``edge`` is the column of the edge itself,
    if it was bound and returned.
    """

    src: int
    dst: int
    edge_type: str
    edge: int | None = None
