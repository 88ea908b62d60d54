"""Types with vectors that another program declared, and that are too wide to be written here."""

from __future__ import annotations

from omnigraph.errors import LimitExceeded
from omnigraph.lang.types import MOST_DIMENSIONS
from omnigraph.write.delta import Kind


def refuse_wide(kind: Kind) -> None:
    """Refuse to make rows of a type: even a null in such a column takes the memory of a value."""
    for prop in kind.properties.values():
        if prop.type.is_vector and (prop.type.dimension or 0) > MOST_DIMENSIONS:
            raise LimitExceeded(
                f"{kind.name}.{prop.name} is {prop.type}, and rows with more than "
                f"{MOST_DIMENSIONS} dimensions cannot be written",
                hint="drop the property, or write with the program that declared it",
                details={"property": prop.name, "dimension": prop.type.dimension},
            )
