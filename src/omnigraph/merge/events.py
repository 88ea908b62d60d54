"""What became of types and properties: by a commit, or between two states."""

from __future__ import annotations

from omnigraph.commit.metadata import CommitMetadata, SchemaEvent
from omnigraph.commit.rows import CommitRow
from omnigraph.lang.schema.identified import (
    IdentifiedSchema,
    IdentifiedStep,
    phase,
    schema_difference,
)
from omnigraph.lang.schema.steps import AddType


def recorded_events(row: CommitRow) -> tuple[SchemaEvent, ...]:
    """What a commit says about itself; nothing, unless an apply of ours made it."""
    events = CommitMetadata.of(row).schema_events
    return tuple(sorted(events, key=lambda event: phase(event.kind)))


def events_between(
    before: IdentifiedSchema | None, after: IdentifiedSchema
) -> tuple[SchemaEvent, ...]:
    """The net difference of two schemas; before none there were no types."""
    return tuple(_event(after, found) for found in schema_difference(before, after))


def _event(after: IdentifiedSchema, found: IdentifiedStep) -> SchemaEvent:
    step = found.step.to_json()
    # How something was dropped is known of the commit that did it, not of two states.
    step.pop("mode", None)
    if isinstance(found.step, AddType):
        step |= after.types[found.type_id].shape_json()
    return SchemaEvent(step, found.type_id, found.property_id)
