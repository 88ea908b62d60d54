"""What must hold after an operation met a fault: one checker for every operation and fault.

It succeeded or raised an error of ours. The graph shows all of it or nothing; an error that
invites to repeat the operation means nothing. Nothing is left in anybody's way, and both the
handle that met the fault and a new one go on writing.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from omnigraph.api.graph import Graph
from omnigraph.errors import (
    CommitNotFound,
    InternalError,
    OmniGraphError,
    OutcomePending,
    StorageCorrupt,
    StorageUnknown,
)
from tests.crash import operations
from tests.crash.survival import State, check_chain, check_heads

NEXT = "next"
RECOVERY_SECONDS = 30.0
"""Far more than it takes until a dead lease has expired."""

# How libraries word their errors; none of it may reach a user.
_FOREIGN = re.compile(
    r"lanceerror|object_store|obstore|generic|https?://|error performing|debug source|\.rs\b"
    r"|os error|traceback|<error>|panick",
    re.I,
)
# Nothing is broken, and nothing is a bug of ours, when a request or a call fails.
_WRONG = (InternalError, StorageCorrupt)
# Errors that say: it may have happened.
_OPEN = (OutcomePending, StorageUnknown)


@dataclass(frozen=True, slots=True)
class Ending:
    """How an operation ended: by an error of ours, or well."""

    error: OmniGraphError | None = None

    @property
    def may_be_applied(self) -> bool:
        return self.error is None or isinstance(self.error, _OPEN)

    def check(self) -> None:
        """The error, if there is one, is typed and speaks our words."""
        if self.error is None:
            return
        assert type(self.error) is not OmniGraphError
        assert not isinstance(self.error, _WRONG), repr(self.error)
        self.check_words()

    def check_words(self) -> None:
        """Nothing that a library said is shown."""
        if self.error is not None:
            shown = f"{self.error.message} {self.error.hint} {self.error.details}"
            assert not _FOREIGN.search(shown), shown


def ending_of(operation: Callable[[], object]) -> Ending:
    """Run an operation. Anything but success or an error of ours goes through."""
    try:
        operation()
    except OmniGraphError as error:
        return Ending(error)
    return Ending()


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The states before and after an operation, and the types that it writes."""

    before: State
    after: State
    touched: tuple[str, ...]
    recovers: bool = False
    """The operation is a recovery: whoever opens the graph finishes it."""
    repeatable: bool = False
    """Done twice it changes nothing more, so any error may come after it was done."""

    def check(self, ending: Ending, graph: Graph, veteran: Graph | None = None) -> State:
        """Look at a graph through a new handle; ``veteran`` is the one that met the fault."""
        ending.check()
        if veteran is not None:
            go_on(veteran, self.touched, f"{NEXT} by a veteran")
        finish_recovery(graph)
        actual = without_next(State.of(graph))
        assert actual in (self.before, self.after), "half of it is there"
        if ending.error is None or self.recovers:
            assert actual == self.after, "it succeeded, but is not there"
        elif not (ending.may_be_applied or self.repeatable):
            assert actual == self.before, f"it is there in spite of {ending.error!r}"
        # A compaction makes no commit that could be looked up.
        if isinstance(ending.error, OutcomePending) and ending.error.details:
            assert resolves(graph, ending.error) == (actual == self.after)
        check_tidy(graph)
        go_on(graph, self.touched, NEXT)
        assert without_next(State.of(graph)) == actual
        use_the_name(graph, self.touched)
        check_tidy(graph)
        return actual


def finish_recovery(graph: Graph) -> None:
    """Wait until every sidecar is dealt with: the leases of a dead writer have to expire."""
    end = time.monotonic() + RECOVERY_SECONDS
    while graph._handle.store.sidecars.list():
        assert time.monotonic() < end, "a sidecar stays"
        graph.refresh()


def resolves(graph: Graph, error: OutcomePending) -> bool:
    """Whether the commit that an error left open can be looked up."""
    try:
        graph.commit(error.details["commit_id"])
    except CommitNotFound:
        return False
    return True


def go_on(graph: Graph, touched: tuple[str, ...], word: str) -> None:
    """Write one row to each type on every branch."""
    for branch in graph.branches.list():
        rows = {}
        for name in touched:
            rows |= operations.rows(name, f"{word} on {branch}")
        graph.append(rows, branch=branch)


def use_the_name(graph: Graph, touched: tuple[str, ...]) -> None:
    """Make the branch of the operations if there is none, and write to it."""
    if operations.BRANCH not in graph.branches.list():
        graph.branches.create(operations.BRANCH)
        go_on(graph, touched, "another")


def without_next(state: State) -> State:
    """A state without the rows that ``go_on`` added."""
    rows = {
        branch: {
            name: [row for row in actual if not any(value.startswith(NEXT) for value in row)]
            for name, actual in tables.items()
        }
        for branch, tables in state.rows.items()
    }
    return replace(state, rows=rows)


def check_tidy(graph: Graph) -> None:
    """No sidecar, nothing audited twice, every head pinned, one chain of commits."""
    assert graph._handle.store.sidecars.list() == []
    audited = Counter(row.operation_id for row in graph._handle.store.audit.rows())
    assert [operation for operation, count in audited.items() if count > 1] == []
    for branch in graph.branches.list():
        check_heads(graph, branch)
        check_chain(graph, branch)
