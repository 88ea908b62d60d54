"""The options of ``format("omnigraph")``, and what they plan.

Filters are an option and not taken from Spark, which in 4.3.0 mixes up those of several scans of
one frame.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from omnigraph.commit.history import SnapshotRef
from omnigraph.errors import InputError
from omnigraph.lang.closest import closest
from omnigraph.merge.feed import BEGINNING
from omnigraph.spark.session.opening import opened
from omnigraph.spark.source.feed import FeedPlan
from omnigraph.spark.source.reader import TypeScan, plan_scan
from omnigraph.spark.source.writer import COMMIT_ROWS, TypeWrite, plan_write
from omnigraph.write.load.job import LoadDestination, LoadJob, load_mode

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

READ_OPTIONS = ("type", "branch", "snapshot", "tag", "version", "columns", "filter", "partitions")
FEED_OPTIONS = ("branch", "start", "kinds", "types", "ops", "max_commits")
STREAM_OPTIONS = (
    "type",
    "mode",
    "branch",
    "from_branch",
    "max_rejects",
    "strict_properties",
    "actor",
    "max_rows",
)
WRITE_OPTIONS = (*STREAM_OPTIONS, "rejects", "if_commit", "idempotency_key")


def scan_from_options(
    options: MutableMapping[str, str], storage: Mapping[str, str] | None
) -> tuple[TypeScan, StructType]:
    """The scan of a type, with its columns."""
    _check(options, READ_OPTIONS)
    columns = options.get("columns")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    ref = SnapshotRef(
        options.get("branch", "main"),
        options.get("snapshot"),
        options.get("tag"),
        _number(options, "version"),
    )
    return plan_scan(
        opened(require_option(options, "path"), storage),
        require_option(options, "type"),
        ref,
        names,
        options.get("filter"),
        _number(options, "partitions", least=1),
    )


def feed_from_options(
    options: MutableMapping[str, str], storage: Mapping[str, str] | None
) -> FeedPlan:
    """The change feed of a branch as a stream."""
    if "type" in options:
        raise InputError(
            "a stream of a graph is its change feed, not the rows of a type",
            hint="select with the option types; read a type with spark.read",
        )
    _check(options, FEED_OPTIONS, is_stream=True)

    def several(name: str) -> tuple[str, ...] | None:
        value = options.get(name)
        return None if value is None else tuple(item.strip() for item in value.split(","))

    return FeedPlan(
        require_option(options, "path"),
        options.get("branch", "main"),
        options.get("start", BEGINNING),
        several("kinds"),
        several("types"),
        several("ops"),
        _number(options, "max_commits"),
        storage,
    )


def write_from_options(
    options: MutableMapping[str, str],
    overwrite: bool,
    storage: Mapping[str, str] | None,
    *,
    is_stream: bool = False,
) -> TypeWrite:
    """The load of one type; that of a stream commits each of its batches."""
    _check(options, STREAM_OPTIONS if is_stream else WRITE_OPTIONS, is_stream=is_stream)
    allowed = _number(options, "max_rejects", least=0)
    rejects = options.get("rejects")
    if allowed is None:
        allowed = 0 if rejects is None else 2**63
    uri, type_name = require_option(options, "path"), require_option(options, "type")
    return plan_write(
        uri,
        type_name,
        LoadJob(
            {type_name: None},
            load_mode(options.get("mode", "overwrite" if overwrite else "append")),
            rejects=rejects,
            max_rejects=allowed,
            strict_properties=_switch(options, "strict_properties"),
        ),
        LoadDestination(
            options.get("branch", "main"),
            options.get("from_branch"),
            options.get("actor"),
            options.get("if_commit"),
            options.get("idempotency_key"),
        ),
        max_rows=_number(options, "max_rows", least=0) or COMMIT_ROWS,
        is_marked=not is_stream,
        storage=storage,
    )


def _check(
    options: MutableMapping[str, str], allowed: tuple[str, ...], *, is_stream: bool = False
) -> None:
    """Reject unknown options; a stream also has options of Spark."""
    for name in options:
        if name.lower() in allowed or name.lower() == "path":
            continue
        meant = closest(name.lower(), list(allowed))
        if meant is not None or not is_stream:
            raise InputError(
                f"unknown option '{name}'",
                hint=f"did you mean '{meant}'?"
                if meant
                else f"the options are {', '.join(allowed)}",
            )


def require_option(options: MutableMapping[str, str], name: str) -> str:
    """The value of an option that has no default."""
    value = options.get(name)
    if not value:
        hint = "pass the address of the graph" if name == "path" else f'option("{name}", …)'
        raise InputError(f"the {name} is missing", hint=hint)
    return value


def _number(options: MutableMapping[str, str], name: str, least: int = 1) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < least:
        raise InputError(f"the option {name} is a whole number from {least} on, not '{value}'")
    return int(value)


def _switch(options: MutableMapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise InputError(f"the option {name} is true or false, not '{value}'")
    return value == "true"
