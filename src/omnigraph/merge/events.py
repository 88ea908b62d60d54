"""Schema events: of a commit, or between two states."""

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
    """The events recorded in a commit; none, unless it is a schema apply of this program."""
    events = CommitMetadata.of(row).schema_events
    return tuple(sorted(events, key=lambda event: phase(event.kind)))


def events_between(
    before: IdentifiedSchema | None, after: IdentifiedSchema
) -> tuple[SchemaEvent, ...]:
    """The net difference of two schemas; before none there were no types."""
    return tuple(_event(after, step) for step in schema_difference(before, after))


def _event(after: IdentifiedSchema, identified: IdentifiedStep) -> SchemaEvent:
    step = identified.step.to_json()
    # The mode of a drop is only known from its commit.
    step.pop("mode", None)
    if isinstance(identified.step, AddType):
        step |= after.types[identified.type_id].shape_json()
    return SchemaEvent(step, identified.type_id, identified.property_id)
