"""``/readyz``: what a server serves, without a name of a graph, a branch or an actor."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

from omnigraph.server.control import ReloadFailure
from omnigraph.server.models.responses import (
    KeptOutput,
    ReadinessOutput,
    ReloadFailureOutput,
    UnservedOutput,
)
from omnigraph.server.state import ServerState

FORMAT = "format_refused"
_ADVICE = {
    FORMAT: "written by another format version: export the graph with the release that wrote it, "
    "and load the export into a new graph",
    "stored_query_invalid": "the text of a stored query is invalid",
    "policy_invalid": "the policy is invalid",
    "graph_not_found": "there is no graph at the address",
}
_OTHER = "the graph cannot be opened and is tried again; the log of the server says why"
FAILED_RELOAD = (
    "the last reload failed and the state before it stays in force; the log of the server says why"
)
KEPT = (
    "the applied state cannot be served, and the one before it stays in force; the log of the "
    "server says why"
)
DEFAULT_DENY = (
    "default-deny: there are tokens but no policy, so only reads are allowed; "
    "bind a policy to allow more"
)


def readiness(
    state: ServerState, *, is_draining: bool = False, failure: ReloadFailure | None = None
) -> ReadinessOutput:
    """What is served, the reasons why graphs are not, and what an operator should know."""
    counts: dict[str, int] = defaultdict(int)
    for quarantine in state.unserved.values():
        counts[quarantine.code] += 1
    reasons = [
        UnservedOutput(code, count, _ADVICE.get(code, _OTHER))
        for code, count in sorted(counts.items())
    ]
    notes = [DEFAULT_DENY] if state.run_state == "default_deny" else []
    if failure is not None:
        notes.append(FAILED_RELOAD)
    kept: dict[str, int] = defaultdict(int)
    for graph in state.kept.values():
        kept[graph.code] += 1
    is_degraded = bool(reasons) or failure is not None or bool(kept)
    return ReadinessOutput(
        "draining" if is_draining else "degraded" if is_degraded else "ready",
        state.run_state,
        state.digest,
        state.revision,
        len(state.graphs),
        len(state.unserved),
        reasons,
        notes,
        len(state.kept),
        [KeptOutput(code, count, KEPT) for code, count in sorted(kept.items())],
        None
        if failure is None
        else ReloadFailureOutput(list(failure.codes), timestamp_of(failure.since)),
    )


def timestamp_of(seconds: float) -> str:
    """A time for people and programs.

    >>> timestamp_of(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
