"""Every kind of operation, with the graph on S3 that it starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.api.graph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.store import Timeouts
from omnigraph.errors import OutcomePending
from omnigraph.maintain.small_fragments import TIER, compact_tail
from omnigraph.storage.objects.paths import Root
from tests.crash.operations import BRANCH, PAIR, rows
from tests.crash.survival import State
from tests.faults.aftermath import NEXT, Aftermath, Ending, finish_recovery, go_on
from tests.faults.location import (
    IMPATIENT,
    PATIENT,
    Prefix,
    be_patient,
    new_graph,
    open_graph,
)
from tests.s3.proxy import Request, S3Proxy

Prepare = Callable[[Root, Timeouts], Graph | None]
Run = Callable[[Root, Graph | None, Timeouts], object]
BOTH = ("Person", "Company")


@dataclass(frozen=True, slots=True)
class Scenario:
    """An operation: ``prepare`` opens what it works with, ``run`` is what meets the fault."""

    name: str
    build: Callable[[Root], None]
    run: Run
    prepare: Prepare
    recovers: bool = False
    repeatable: bool = False

    def __str__(self) -> str:
        return self.name

    def start(
        self, root: Root, timeouts: Timeouts = IMPATIENT
    ) -> tuple[Graph | None, Callable[[], object]]:
        """The handle, and the operation to call."""
        graph = self.prepare(root, timeouts)
        return graph, lambda: self.run(root, graph, timeouts)

    def ready(self, root: Root) -> Ready:
        """Build the graph, and see what the operation does to it when nothing fails."""
        location = Prefix(root)
        self.build(root)
        location.remember()
        before = _state(root)
        location.put_back()
        with S3Proxy(_port(root)) as proxy:
            _, run = self.start(location.through(proxy.endpoint), PATIENT)
            proxy.reset()
            run()
            requests = tuple(proxy.log)
        aftermath = Aftermath(before, _state(root), BOTH, self.recovers, self.repeatable)
        return Ready(self, location, aftermath, requests)


@dataclass(frozen=True, slots=True)
class Ready:
    """A scenario that can be run as often as one likes, and the requests that it makes."""

    scenario: Scenario
    location: Prefix
    aftermath: Aftermath
    requests: tuple[Request, ...]

    @property
    def port(self) -> int:
        return _port(self.location.root)

    @contextmanager
    def again(
        self, timeouts: Timeouts = IMPATIENT
    ) -> Iterator[tuple[S3Proxy, Graph | None, Callable[[], object]]]:
        """The graph as it was, a proxy of its own, the handle, and the operation to call."""
        self.location.put_back()
        with S3Proxy(self.port) as proxy:
            graph, run = self.scenario.start(self.location.through(proxy.endpoint), timeouts)
            proxy.reset()
            yield proxy, graph, run

    def check(self, ending: Ending, veteran: Graph | None = None) -> None:
        """Look at what an operation has left; ``veteran`` is the handle that met the fault.

        The commit of which an error says that it is pending is always looked up.
        """
        ending.check()
        if veteran is not None:
            be_patient(veteran)
            go_on(veteran, self.aftermath.touched, f"{NEXT} by a veteran")
        is_pending = isinstance(ending.error, OutcomePending)
        if not is_pending and self.location.is_checked(type(ending.error), veteran is not None):
            return
        with open_graph(self.location.root) as graph:
            self.aftermath.check(ending, graph)


def _port(root: Root) -> int:
    return int(root.options["aws_endpoint"].rpartition(":")[2])


def _state(root: Root) -> State:
    with open_graph(root) as graph:
        finish_recovery(graph)
        return State.of(graph)


# -- graphs to start from -------------------------------------------------------------------------


def plain(root: Root) -> None:
    with new_graph(root) as graph:
        graph.append(rows("Person", "Ada", "Bob") | rows("Company", "Acme"))


def with_a_tail(root: Root) -> None:
    """As many small fragments as are merged."""
    plain(root)
    with open_graph(root) as graph:
        for number in range(TIER):
            graph.append(rows("Person", f"p{number}"))


def connected(root: Root) -> None:
    plain(root)
    with open_graph(root) as graph:
        graph.load(
            [
                {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"id": "k1"}},
                {"edge": "WorksAt", "from": "Bob", "to": "Acme", "data": {"id": "w1"}},
            ]
        )


def branched(root: Root) -> None:
    plain(root)
    with open_graph(root) as graph:
        graph.branches.create(BRANCH)


def forked(root: Root) -> None:
    branched(root)
    with open_graph(root) as graph:
        graph.append(rows("Person", "Carl") | rows("Company", "Bolt"), branch=BRANCH)


class Died(BaseException):
    """Ends a write as the death of its process would, but for the leases: they are free."""


def dead(build: Callable[[Root], None], point: Failpoint, branch: str) -> Callable[[Root], None]:
    """A graph with the sidecar of a write that died at a failpoint."""

    def die(reached: Failpoint) -> None:
        if reached is point:
            raise Died

    def built(root: Root) -> None:
        build(root)
        try:
            with open_graph(root) as graph, hooked(die):
                graph.append(rows("Person", "Grace") | rows("Company", "Core"), branch=branch)
        except Died:
            return
        raise AssertionError(f"{point} was not crossed")

    return built


# -- operations -----------------------------------------------------------------------------------


def opened(root: Root, timeouts: Timeouts) -> Graph:
    return open_graph(root, timeouts)


def nothing(root: Root, timeouts: Timeouts) -> None:
    return None


def on_graph(action: Callable[[Graph], object]) -> Run:
    """An operation on a handle that is open already."""

    def run(root: Root, graph: Graph | None, timeouts: Timeouts) -> object:
        assert graph is not None
        return action(graph)

    return run


def append(graph: Graph, branch: str = "main") -> object:
    return graph.append(rows("Person", "Grace") | rows("Company", "Core"), branch=branch)


def delete(graph: Graph) -> object:
    """A person goes, with edges of two types."""
    return graph.mutate('query leave() { delete Person where name = "Bob" }')


def update(graph: Graph) -> object:
    return graph.mutate('query grow() { update Person set { age: 50 } where name = "Ada" }')


def recover(root: Root, graph: Graph | None, timeouts: Timeouts) -> object:
    return open_graph(root, timeouts)


SCENARIOS = (
    Scenario("append to two tables", plain, on_graph(append), opened),
    Scenario("first write on a branch", branched, on_graph(lambda g: append(g, BRANCH)), opened),
    Scenario("create a branch", plain, on_graph(lambda g: g.branches.create(BRANCH)), opened),
    Scenario("delete a branch", forked, on_graph(lambda g: g.branches.delete(BRANCH)), opened),
    Scenario("create a tag", plain, on_graph(lambda g: g.tags.create("v1")), opened),
    Scenario(
        "compact a tail",
        with_a_tail,
        on_graph(lambda g: compact_tail(g._handle.store, None, "node:Person")),
        opened,
        repeatable=True,
    ),
    Scenario(
        "ensure indexes", plain, on_graph(lambda g: g.indexes.ensure()), opened, repeatable=True
    ),
    Scenario(
        "roll forward",
        dead(plain, Failpoint.WRITE_AFTER_TABLES, "main"),
        recover,
        nothing,
        recovers=True,
    ),
    Scenario(
        "roll back a fork",
        dead(branched, Failpoint.WRITE_BETWEEN_TABLES, BRANCH),
        recover,
        nothing,
        recovers=True,
    ),
    Scenario("apply two steps", plain, on_graph(lambda g: g.schema.apply(PAIR)), opened),
    Scenario("delete and cascade", connected, on_graph(delete), opened),
    Scenario("update", plain, on_graph(update), opened),
)
