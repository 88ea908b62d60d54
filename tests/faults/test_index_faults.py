"""A fault while indexes are built: all of them are published or none, and never as unfit values."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.errors import StorageUnavailable
from omnigraph.storage.objects.paths import Root
from tests.faults.aftermath import Ending, ending_of
from tests.faults.location import IMPATIENT, Prefix, open_graph
from tests.faults.test_s3_faults import FAULTS, within_limit
from tests.rotation import sample
from tests.s3.proxy import Action, Fault, Kind, Request, S3Proxy

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node D { k: String @key  t: String? @index  n: I32? @index  v: Vector(4)? @index }"
INDEXES = {"id", "k", "t", "n", "v"}
ENDLESS = float("inf")


def build(root: Root) -> None:
    with Graph.init(root.uri, SCHEMA, storage_options=dict(root.options)) as graph:
        data = (
            {"k": str(n), "t": f"word{n % 7}", "n": n, "v": [n + 1, 1, 2, 3]} for n in range(64)
        )
        graph.load([{"type": "D", "data": item} for item in data])


def check(root: Root, ending: Ending) -> None:
    """All indexes are there or none; the next build has all of them and says nothing of values."""
    ending.check()
    with open_graph(root) as graph:
        states = graph.indexes.status().indexes
        built = {state.column for state in states if not state.is_pending}
        assert built in (set(), INDEXES), ending
        if ending.error is None:
            assert built == INDEXES
        elif not ending.may_be_applied:
            assert not built, ending
        assert graph.indexes.ensure().pending == ()


# -- on S3 ----------------------------------------------------------------------------------------


class OnS3:
    """A graph without indexes, and the requests of a build."""

    def __init__(self, root: Root) -> None:
        build(root)
        self._location = Prefix(root)
        self._location.remember()
        self._port = int(root.options["aws_endpoint"].rpartition(":")[2])
        self.requests = self._log()

    def _log(self) -> tuple[Request, ...]:
        with (
            S3Proxy(self._port) as proxy,
            open_graph(self._location.through(proxy.endpoint)) as graph,
        ):
            proxy.reset()
            assert graph.indexes.ensure().pending == ()
            return tuple(proxy.log)

    def meets(self, fault: Fault) -> Ending:
        self._location.put_back()
        with S3Proxy(self._port) as proxy:
            graph = open_graph(self._location.through(proxy.endpoint), IMPATIENT)
            proxy.reset()
            proxy.plan(fault)
            ending = within_limit(lambda: ending_of(graph.indexes.ensure))
            proxy.reset()
        try:
            if not self._location.is_checked(type(ending.error)):
                check(self._location.root, ending)
        except BaseException as error:
            error.add_note(f"after {fault}: {ending}")
            raise
        return ending


@pytest.fixture(scope="module")
def on_s3(new_root):
    return OnS3(new_root())


@pytest.mark.parametrize("file", ["part_0_tokens", "page_data", "auxiliary"])
def test_a_request_of_a_build_that_is_refused_fails_the_build(on_s3, file):
    """A store that answers 412 is not a column that cannot be indexed."""
    ending = on_s3.meets(Fault(Action.PRECONDITION, kind=Kind.PUT, path=file))
    assert isinstance(ending.error, StorageUnavailable)


def test_a_failed_request_publishes_no_part_of_the_indexes(on_s3):
    for fault in sample(single(on_s3.requests), 6, "index faults"):
        on_s3.meets(fault)


@pytest.mark.slow
def test_no_failed_request_publishes_a_part_of_the_indexes(on_s3):
    for fault in single(on_s3.requests):
        on_s3.meets(fault)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.PUT, Kind.GET, Kind.HEAD])
def test_no_storm_publishes_a_part_of_the_indexes(on_s3, kind):
    paths = ("_indices/", "/data/", "page_data", "part_0_", "invert", "auxiliary")
    for action in FAULTS[kind]:
        for path in paths:
            on_s3.meets(Fault(action, kind=kind, path=path, times=ENDLESS))


def single(requests: tuple[Request, ...]) -> list[Fault]:
    """Everything that can happen to each request once."""
    return [
        Fault(action, at=number)
        for number, request in enumerate(requests, start=1)
        for action in FAULTS[request.kind]
    ]
