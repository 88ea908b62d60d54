"""Between a schema change and the switch: which state a stored query is run on.

An apply changes the schema of a graph first and records it in the ledger afterwards. For a while
the server still has the queries and the policy of before. A query that they do not allow on the
new schema reads the state before the change, as long as nothing but the schema has changed since:
its rows are the same. Otherwise, and if the query writes, the request waits for the next generation
and is answered by that one as a whole, authorisation included.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.api.paging import branch_state
from omnigraph.commit.history import SnapshotRef, states_before_schema_changes
from omnigraph.errors import CommitNotFound, HistoryGone

if TYPE_CHECKING:
    from omnigraph.api.handle import SnapshotContext
    from omnigraph.api.stored_queries import StoredQueries
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.policy.policy import Policy
    from omnigraph.server.calls import Call

SWITCH_SECONDS = 30.0
"""How long after a schema change requests wait for the generation that fits it."""
COMMIT = "omnigraph-commit"
_MOST_SCHEMAS = 16


class GenerationBehind(Exception):
    """The queries or the policy of a request do not fit the schema yet. Never leaves the server."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        """How long the next generation may be waited for."""


class SchemaFit:
    """Which schemas the queries and the policies of a served graph fit."""

    def __init__(self, queries: StoredQueries) -> None:
        self._queries = queries
        self._policies: Mapping[tuple[str, str], bool] = {}
        self._ends: Mapping[str, float] = {}

    def covers(self, query: str, catalog: Catalog, policy: Policy | None) -> bool:
        """Whether a stored query can be run under a schema, and the policy decides about it."""
        if self._queries.checked(catalog)[query].problem is not None:
            return False
        return policy is None or self._fits(policy, catalog)

    def _fits(self, policy: Policy, catalog: Catalog) -> bool:
        """A row rule that does not fit opens nothing, so results would lack rows."""
        if not policy.restricts_rows:
            return True
        key = policy.digest, catalog.schema_hash
        fits = self._policies.get(key)
        if fits is None:
            fits = all(finding.severity != "error" for finding in policy.check_schema(catalog))
            kept = dict(list(self._policies.items())[1 - _MOST_SCHEMAS :])
            self._policies = {**kept, key: fits}
        return fits

    def seconds_left(self, schema_hash: str) -> float:
        """How long a schema that does not fit may still be waited out; none for ever."""
        now = time.monotonic()
        end = self._ends.get(schema_hash)
        if end is None:
            end = now + SWITCH_SECONDS
            kept = dict(list(self._ends.items())[1 - _MOST_SCHEMAS :])
            self._ends = {**kept, schema_hash: end}
        return max(end - now, 0.0)


def readable_state(call: Call, query: str, branch: str) -> SnapshotContext:
    """The state of a branch that a stored query reads; raises ``GenerationBehind``.

    It is the newest one if that can be read. The query is refused on it if there is no hope.
    """
    handle = call.graph._handle
    newest = handle.read(SnapshotRef(branch))
    if not call.state.is_cluster or _is_covered(call, query, newest.catalog):
        return newest
    seen = call.headers.one(COMMIT)
    for change, commit in states_before_schema_changes(handle.store, newest.snapshot):
        if change == seen:
            # The client has seen the new schema: it does not go back.
            break
        try:
            earlier = branch_state(handle, branch)(commit)
        except (CommitNotFound, HistoryGone):
            break
        # What the actor sees was decided by the policy of this generation, if it still is in force.
        if _is_covered(call, query, earlier.catalog) and call.process.state is call.state:
            return earlier
    _await_switch(call, newest.catalog)
    return newest


def check_generation(call: Call, query: str, *, only_policy: bool = False) -> None:
    """Raise ``GenerationBehind`` unless a stored query can be run on the newest state.

    ``only_policy`` leaves the query to whoever runs it.
    """
    if not call.state.is_cluster:
        return
    policy = call.state.access.policy_of(call.graph_id)
    if only_policy and (policy is None or not policy.restricts_rows):
        return
    catalog = call.graph.catalog
    if not _is_covered(call, query, catalog):
        _await_switch(call, catalog)


def _is_covered(call: Call, query: str, catalog: Catalog) -> bool:
    policy = call.state.access.policy_of(call.graph_id)
    return call.serving.fit.covers(query, catalog, policy)


def _await_switch(call: Call, catalog: Catalog) -> None:
    if call.process.state is not call.state:
        raise GenerationBehind(0.0)
    seconds = call.serving.fit.seconds_left(catalog.schema_hash)
    if seconds > 0:
        raise GenerationBehind(seconds)
