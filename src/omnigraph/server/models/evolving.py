"""Requests and responses about schema changes that are only planned."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.server.models.responses import Count, Json


class SchemaPlanRequest(msgspec.Struct, frozen=True):
    """A desired schema."""

    schema_source: str
    allow_data_loss: bool | None = None
    values: dict[str, Any] | None = None
    """The values of newly required properties for existing rows, by ``Type.property``."""


class SchemaPlanOutput(msgspec.Struct, frozen=True):
    """The steps of a schema change."""

    uri: str
    supported: bool
    step_count: Count
    steps: list[Json]
