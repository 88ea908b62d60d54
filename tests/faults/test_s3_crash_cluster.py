"""A command on a cluster in a bucket dies at a request: the next one completes its work."""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Iterator

import pytest

from omnigraph import Graph
from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import CONFIG, MemoryBundle
from omnigraph.cluster.plan import approve_change
from omnigraph.cluster.state_commands import import_cluster
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import Root, parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.cluster.lab import CONFIG as DECLARED
from tests.cluster.lab import DUE, DUE_DATES, POLICY, SCHEMA, WIDER
from tests.faults.children import Children
from tests.faults.location import Prefix
from tests.s3.fixtures import S3
from tests.s3.proxy import Action, Fault, S3Proxy
from tests.sampling import rotating

HOURS = 7200.0
KINDS = ("create", "migrate", "delete")
ROWS = [{"type": "Task", "data": {"name": name}} for name in ("a", "b")]


def configuration(kind: str) -> MemoryBundle:
    """What is declared when the command runs."""
    files = {CONFIG: DECLARED, "kb.pg": SCHEMA, "queries/due.gq": DUE, "kb.policy.yaml": POLICY}
    if kind == "migrate":
        files |= {"kb.pg": WIDER, "queries/due.gq": DUE_DATES}
    elif kind == "delete":
        files[CONFIG] = "version: 1\n"
    return MemoryBundle("lab", {name: text.encode() for name, text in files.items()})


def settings_of(root: Root) -> Settings:
    options = root.options
    return Settings.from_environ(
        {
            "AWS_ACCESS_KEY_ID": options["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["aws_secret_access_key"],
            "AWS_REGION": options["aws_region"],
            "AWS_ENDPOINT_URL_S3": options["aws_endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "yes",
            "OMNIGRAPH_CLUSTER_LOCK_SECONDS": "600",
        }
    )


def child(kind: str, root: Root) -> Iterator[None]:
    """An apply in a process of its own."""
    bundle, settings = configuration(kind), settings_of(root)
    yield
    report = apply_cluster(bundle, settings, root=root.uri, actor="ana")
    assert report.ok, report.diagnostics
    print()


class Bucket:
    """A cluster before the command, to be put back before each death."""

    child = staticmethod(child)

    def __init__(self, kind: str, s3: S3) -> None:
        self.kind = kind
        self.port = int(s3.endpoint.rpartition(":")[2])
        root = parse_root(f"s3://{s3.bucket}/{uuid.uuid4().hex}/lab", s3.options)
        self.location = Prefix(root)
        self.settings = settings_of(root)
        self.objects = ObjectStore(root)
        self._prepare(root.uri)
        self.location.remember()

    def _prepare(self, uri: str) -> None:
        first = configuration("create")
        assert import_cluster(first, self.settings, uri).ok
        if self.kind == "create":
            return
        assert apply_cluster(first, self.settings, root=uri).is_converged
        with self.open() as graph:
            graph.load(ROWS)
        if self.kind == "delete":
            bundle = configuration(self.kind)
            assert approve_change(bundle, self.settings, "graph.kb", "ana", uri).ok

    @property
    def uri(self) -> str:
        return self.location.root.uri

    def open(self) -> Graph:
        options = self.settings.storage_options()
        return Graph.open(f"{self.uri}/graphs/kb.omni", storage_options=options)

    def die_at(self, family: Children, at: int) -> bool:
        """Kill the command before a request arrives; returns whether it came so far."""
        self.location.put_back()
        fault = Fault(Action.DELAY, at=at, seconds=HOURS)
        with S3Proxy(self.port) as proxy:
            root = self.location.through(proxy.endpoint)
            pid = family.at_gate(functools.partial(self.child, self.kind), root)
            proxy.reset()
            proxy.plan(fault)
            is_killed = family.kill_or_end(pid, fault)
            proxy._server.close_connections()
        return is_killed

    def expire_leases(self) -> None:
        """Time passes: nobody renews the leases of the dead."""
        for name, _ in list(self.objects.files_below("graphs")):
            if name.endswith(".lease"):
                self.objects.delete(name)

    def check(self) -> None:
        """The next apply completes the work, without anybody's help."""
        self.expire_leases()
        bundle = configuration(self.kind)
        report = apply_cluster(bundle, self.settings, root=self.uri, actor="bo")
        assert (report.ok, report.is_converged) == (True, True), report.diagnostics
        again = apply_cluster(bundle, self.settings, root=self.uri)
        assert (again.ok, again.is_written) == (True, False)
        left = [name for name, _ in self.objects.files_below("__cluster")]
        assert not [name for name in left if "/recoveries/" in name or name.endswith("lock.json")]
        if self.kind == "delete":
            assert list(self.objects.files_below("graphs")) == []
            return
        with self.open() as graph:
            assert graph.schema.text() == (WIDER if self.kind == "migrate" else SCHEMA)
            assert graph.snapshot().count("Task") == (0 if self.kind == "create" else len(ROWS))


@pytest.fixture(autouse=True)
def later(monkeypatch):
    """The clock of the store is far ahead of what the dead have written."""
    monkeypatch.setattr("omnigraph.cluster.lock.store_time", lambda *_: math.inf)


@pytest.mark.parametrize("kind", rotating(KINDS, 1, "cluster deaths at requests"))
def test_an_apply_that_dies_at_a_request_is_completed(s3, family, kind):
    bucket = Bucket(kind, s3)
    for at in (4, 9):
        assert bucket.die_at(family, at)
        bucket.check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_apply_may_die_at_any_request(s3, family, kind):
    bucket = Bucket(kind, s3)
    at = 1
    while bucket.die_at(family, at):
        bucket.check()
        at += 1
    bucket.check()
    print(f"{kind}: {at - 1} requests")
    assert at > 12
