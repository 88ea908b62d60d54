"""What is known of the columns of a result beside their names and values."""

from __future__ import annotations

from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class EntityRef:
    """That a column holds the ids of nodes or edges, and of which."""

    kind: EntityKind
    type_name: str
    variable: str


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column. ``entity`` is there when it is a variable itself and not a property of one."""

    name: str
    type: PropType
    entity: EntityRef | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """Two columns of nodes that an edge of the pattern joins, from its source to its target.

    All but the type are positions of columns; ``edge`` is the column of the edge itself, where
    it was bound and returned.
    """

    src: int
    dst: int
    edge_type: str
    edge: int | None = None
