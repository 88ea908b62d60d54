"""A cluster of many graphs that was applied, without the graphs: nothing may need them."""

from __future__ import annotations

from omnigraph.cluster.bundle import CONFIG, MemoryBundle
from omnigraph.cluster.desired import read_desired
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.draft import APPLIED, LedgerDraft
from omnigraph.cluster.ledger import LedgerResource
from omnigraph.cluster.payloads import PAYLOAD_KINDS, payload_path
from omnigraph.cluster.resources import kind_of
from omnigraph.cluster.state_file import EMPTY, LedgerRead, read_ledger, write_ledger
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.settings import Settings
from tests.cluster.lab import DUE, POLICY, SCHEMA


def many_graphs(count: int, changed: str = DUE) -> MemoryBundle:
    """The configuration of so many graphs with a query and a policy each; one query may differ."""
    lines = ["version: 1", "graphs:"]
    files = {"kb.pg": SCHEMA, "due.gq": DUE, "first.gq": changed, "p.yaml": POLICY}
    for number in range(count):
        query = "first.gq" if number == 0 else "due.gq"
        lines.append(f"  g{number}: {{schema: kb.pg, queries: {query}}}")
    lines.append("policies:")
    lines += [f"  p{number}: {{file: p.yaml, applies_to: [g{number}]}}" for number in range(count)]
    files[CONFIG] = "\n".join(lines)
    return MemoryBundle("many", {name: text.encode() for name, text in files.items()})


def record_as_applied(bundle: MemoryBundle, root: str, settings: Settings) -> None:
    """The ledger and the texts as an apply leaves them."""
    storage = ClusterStorage(root, settings)
    desired = read_desired(bundle, DiagnosticLog())
    assert desired is not None
    draft = LedgerDraft(EMPTY)
    draft.config_digest = desired.config_digest
    for address, resource in desired.resources.items():
        draft.record(resource)
        if kind_of(address) in PAYLOAD_KINDS:
            assert resource.content is not None
            path = payload_path(address, resource.digest)
            storage.objects.write(path, resource.content.decode())
    write_ledger(storage, LedgerRead(), draft.state(1))


def record_many(count: int, root: str, settings: Settings) -> None:
    """The ledger of so many graphs, without reading their configuration; the texts of the first."""
    record_as_applied(many_graphs(1), root, settings)
    storage = ClusterStorage(root, settings)
    first = read_ledger(storage)
    draft = LedgerDraft(first.state)
    draft.config_digest = None
    resources = first.state.resources
    for number in range(1, count):
        copy = f"g{number}"
        draft.resources[f"schema.{copy}"] = resources["schema.g0"]
        draft.resources[f"query.{copy}.due"] = resources["query.g0.due"]
        digest = resources["policy.p0"].digest
        draft.resources[f"policy.p{number}"] = LedgerResource(digest, applies_to=(f"graph.{copy}",))
        draft.resources[f"graph.{copy}"] = LedgerResource("")
        draft.recompute(copy)
        own = (f"schema.{copy}", f"query.{copy}.due", f"policy.p{number}", f"graph.{copy}")
        draft.set_status(own, APPLIED)
    write_ledger(storage, first, draft.state(2))
