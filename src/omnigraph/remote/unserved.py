"""The parts of ``Graph`` that a server does not offer, in one table.

Everything else that a graph has, a remote graph has too; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.errors import InputError, NotServed

GRAPH: Mapping[str, str] = {
    "init": "creating a graph",
    "open": "opening a graph by its address; use omnigraph.connect",
    "for_actor": "acting for another actor; the token determines it",
    "refresh": "dropping the caches of the server",
    "recovered": "the recoveries of the server",
    "storage_options": "the storage of the server",
    "prepare": "prepared queries; use stored queries",
    "prepare_mutation": "prepared mutations; use stored queries",
}
"""The members of a graph, and what they would do."""

SNAPSHOT: Mapping[str, str] = {
    "read": "the rows of a type as Arrow; use a query",
    "scan": "the rows of a type as Arrow; use a query",
    "dataset": "the Lance dataset of a type",
    "snapshot_id": "the id of a state in the storage",
}
"""The members of a snapshot."""

_HINT = "open the graph's storage with Graph.open for this"


def not_served(name: str, what: str) -> NotServed:
    """The error of a part of the interface that a server does not offer."""
    return NotServed(
        f"{name} is not available through a server: {what}", hint=_HINT, details={"name": name}
    )


def refuse_arguments(method: str, **given: object) -> None:
    """Refuse arguments that a server does not take; ``None`` and ``False`` mean not given."""
    for name, value in given.items():
        if value is None or value is False:
            continue
        if name == "actor":
            raise InputError(
                "actor cannot be chosen: the token determines it", hint="leave actor out"
            )
        if name == "allow_local_files":
            raise InputError(
                "allow_local_files is not available: no server reads local files",
                hint="pass the content as text that starts with 'base64:'",
            )
        raise NotServed(
            f"the argument {name} of {method} is not available through a server",
            hint=_HINT,
            details={"name": f"{method}({name}=)"},
        )


def refuse_engine(method: str, engine: str, spark: object) -> None:
    """Refuse to run a read on Spark: a server runs only jobs there."""
    refuse_arguments(method, spark=spark, engine=engine if engine == "spark" else None)
