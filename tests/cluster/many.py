"""A cluster of many graphs that was applied, without the graphs: nothing may need them."""

from __future__ import annotations

from omnigraph.cluster.bundle import CONFIG, MemoryBundle
from omnigraph.cluster.desired import read_desired
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.draft import LedgerDraft
from omnigraph.cluster.payloads import PAYLOAD_KINDS, payload_path
from omnigraph.cluster.resources import kind_of
from omnigraph.cluster.state_file import EMPTY, LedgerRead, write_ledger
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


def record_as_applied(
    bundle: MemoryBundle, root: str, settings: Settings, *, is_sparse: bool = False
) -> None:
    """The ledger and the texts as an apply leaves them; if it is sparse, each text only once."""
    storage = ClusterStorage(root, settings)
    desired = read_desired(bundle, DiagnosticLog())
    assert desired is not None
    draft = LedgerDraft(EMPTY)
    draft.config_digest = desired.config_digest
    written: set[str] = set()
    for address, resource in desired.resources.items():
        draft.record(resource)
        if kind_of(address) in PAYLOAD_KINDS and not (is_sparse and resource.digest in written):
            written.add(resource.digest)
            assert resource.content is not None
            path = payload_path(address, resource.digest)
            storage.objects.write(path, resource.content.decode())
    write_ledger(storage, LedgerRead(), draft.state(1))
