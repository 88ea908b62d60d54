"""Stores that refuse, damaged approvals, and what happens to the rest of a run: row by row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cluster import apply as apply_module
from omnigraph.cluster.classify import classify
from omnigraph.cluster.desired import DesiredResource
from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.lock import hold_lock
from omnigraph.cluster.payloads import publish_payload
from omnigraph.cluster.state_commands import force_unlock
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import StorageUnavailable
from omnigraph.settings import Settings
from omnigraph.storage.objects.local import LocalObjects
from tests.cluster.lab import CONFIG, DUE, POLICY, SCHEMA, WIDER, Lab, codes, dispositions
from tests.cluster.ledgers import ULID

OTHERS = "  a: {schema: kb.pg}\n  b: {schema: kb.pg}\n"
NEXT = ULID[:-1] + "1"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab").applied()


@pytest.fixture
def refuse(monkeypatch) -> Callable[[str, str], None]:
    """Let a call of the store fail for paths that contain a word."""

    def install(call: str, word: str) -> None:
        genuine: Any = getattr(LocalObjects, call)

        def refusing(self, path, *arguments, **options):
            paths = [path] if isinstance(path, str) else list(path)
            if any(word in one for one in paths):
                raise StorageUnavailable("the store does not answer")
            return genuine(self, path, *arguments, **options)

        monkeypatch.setattr(LocalObjects, call, refusing)

    return install


def files(lab: Lab) -> dict[str, bytes]:
    """Everything that is stored, but the files of the lock."""
    folder = lab.directory
    stored = (path for name in ("__cluster", "graphs") for path in (folder / name).rglob("*"))
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in stored
        if path.is_file() and "lock" not in path.name
    }


def plant(lab: Lab, kind: str, operation_id: str = ULID, graph: str = "kb", **changes: Any) -> None:
    sidecar = {
        "schema_version": 1,
        "operation_id": operation_id,
        "started_at": "2026-11-18T00:00:00Z",
        "actor": "ana",
        "kind": kind,
        "graph_id": graph,
        "graph_uri": str(lab.root(graph)),
        "observed_manifest_version": None,
        "expected_manifest_version": None,
        "desired_schema_digest": "0" * 64,
        "state_cas_base": None,
        "approval_id": None,
        **changes,
    }
    lab.write(f"__cluster/recoveries/{operation_id}.json", json.dumps(sidecar))


def deleting(lab: Lab) -> None:
    lab.write("cluster.yaml", "version: 1\n")


# -- the lock and the listings --------------------------------------------------------------------


def test_a_lock_that_cannot_be_taken_or_read_changes_nothing(lab, refuse):
    lab.write("kb.pg", WIDER)
    before = files(lab)
    refuse("create", "lock.json")
    for report in (lab.apply(), lab.refresh(), lab.approve("graph.kb")):
        assert codes(report) == ["state_lock_error"]
    refuse("get", "lock.json")
    assert codes(force_unlock(lab.bundle, lab.settings, ULID)) == ["state_lock_read_error"]
    assert codes(lab.status()) == ["state_lock_read_error"]
    assert files(lab) == before


@pytest.mark.parametrize("call", ["names", "get"])
def test_sidecars_that_cannot_be_listed_or_read_change_nothing(lab, refuse, call):
    plant(lab, "schema_apply")
    lab.write("kb.pg", WIDER)
    before = files(lab)
    refuse(call, "recoveries")
    for report in (lab.apply(), lab.refresh()):
        assert "recovery_sidecar_read_error" in codes(report)
        if call == "names":
            assert not report.ok
    if call == "names":
        assert files(lab) == before
    assert len(lab.sidecars) == 1


def test_a_ledger_that_cannot_be_read_changes_nothing(lab, refuse):
    before = files(lab)
    refuse("get", "state.json")
    for report in (lab.apply(), lab.refresh(), lab.plan(), lab.status(), lab.approve("graph.kb")):
        assert "state_read_error" in codes(report, "error"), report
    assert files(lab) == before


def test_an_address_that_is_none_of_a_store_is_named(tmp_path):
    lab = Lab(tmp_path / "lab")
    lab.write("cluster.yaml", f"{CONFIG}storage: s3://lab?x=1\n")
    for report in (lab.import_(), lab.apply(), lab.status(), lab.plan()):
        (finding,) = report.diagnostics
        assert (finding.code, finding.path) == ("storage_root_invalid", "storage")
        assert finding.message.startswith("cluster.yaml:9: ")


# -- approvals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda text: "{", "invalid_approval_artifact"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "unsupported"),
        (lambda text: text.replace("graph.kb", "graph.kb", 1) + " ", None),
        (lambda text: text.replace('"reason"', '"surprise"'), "invalid_approval_artifact"),
        (lambda text: text.replace('"approval_id": "01', '"approval_id": "02'), "invalid_approval"),
    ],
)
def test_a_damaged_approval_approves_nothing(lab, damage, code):
    deleting(lab)
    assert lab.approve("graph.kb").ok
    (path,) = (lab.directory / "__cluster" / "approvals").iterdir()
    path.write_text(damage(path.read_text()))
    report = lab.apply()
    if code is None:
        assert report.is_converged
        return
    assert any(given.startswith(code) for given in codes(report, "warning")), codes(report)
    assert dispositions(report)["graph.kb"] == "blocked approval_required"
    assert "apply_dependency_blocked" in codes(report, "warning")
    assert lab.root().exists()


@pytest.mark.parametrize("call", ["names", "get"])
def test_approvals_that_cannot_be_read_approve_nothing(lab, refuse, call):
    deleting(lab)
    assert lab.approve("graph.kb").ok
    refuse(call, "approvals")
    report = lab.apply()
    assert "approval_read_error" in codes(report, "warning")
    assert dispositions(report)["graph.kb"] == "blocked approval_required"
    assert lab.root().exists()


def test_an_approval_that_cannot_be_written_is_none(lab, refuse):
    deleting(lab)
    refuse("put", "approvals")
    report = lab.approve("graph.kb")
    assert (codes(report), report.approval_id) == (["approval_write_error"], None)
    assert dispositions(lab.apply())["graph.kb"] == "blocked approval_required"


def test_the_approval_that_is_used_is_the_one_that_fits(lab):
    """Two were given; the audit names the one for this configuration."""
    deleting(lab)
    lab.approve("graph.kb", "bo")
    lab.write("cluster.yaml", "version: 1\nmetadata: {name: other}\n")
    second = lab.approve("graph.kb", "ana")
    assert lab.apply().is_converged
    assert list(lab.state["approval_records"]) == [second.approval_id]
    used = {entry["approved_by"]: entry["consumed_at"] is not None for entry in lab.approvals}
    assert used == {"bo": False, "ana": True}


def test_nothing_is_deleted_without_an_approval_whatever_was_decided(lab, monkeypatch):
    deleting(lab)

    def wrong(changes, desired, state, *, pending, approved):
        addresses = [change.resource for change in changes]
        return classify(changes, desired, state, pending=pending, approved=addresses)

    monkeypatch.setattr(apply_module, "classify", wrong)
    before = files(lab)
    assert codes(lab.apply(), "error") == ["apply_approval_invariant_violation"]
    assert files(lab) == before


# -- the rest of a run ----------------------------------------------------------------------------


def test_after_a_failure_nothing_is_migrated_or_deleted(lab):
    lab.edit("cluster.yaml", "policies:", f"{OTHERS}policies:")
    lab.apply()
    lab.edit("cluster.yaml", OTHERS, "  a: {schema: wide.pg}\n  new: {schema: kb.pg}\n")
    lab.write("wide.pg", WIDER)
    assert lab.approve("graph.b").ok
    lab.write("graphs/new.omni/_schema.pg", "somebody else's file")
    report = lab.apply()
    assert codes(report, "error") == ["graph_create_failed"]
    assert {"schema_apply_skipped", "graph_delete_skipped"} <= set(codes(report, "warning"))
    assert dispositions(report)["schema.a"] == "blocked schema_apply_skipped"
    assert dispositions(report)["graph.b"] == "blocked graph_delete_skipped"
    assert lab.root("b").exists()
    with lab.open("a") as graph:
        assert graph.schema.text() == SCHEMA
    shutil.rmtree(lab.root("new"))
    assert lab.apply().is_converged
    assert not lab.root("b").exists()


def test_a_deletion_that_fails_is_proposed_again_under_its_approval(lab, refuse, monkeypatch):
    deleting(lab)
    lab.approve("graph.kb")
    refuse("delete_all", "kb.omni")
    report = lab.apply()
    assert codes(report, "error") == ["graph_delete_failed"]
    assert dispositions(report)["graph.kb"] == "blocked graph_delete_failed"
    assert "graph.kb" in lab.resources
    monkeypatch.undo()
    again = lab.apply()
    assert "graph_delete_incomplete" in codes(again, "warning")
    assert (again.is_converged, lab.sidecars) == (True, [])


def test_a_text_that_cannot_be_stored_stops_before_the_ledger(lab, refuse, monkeypatch):
    lab.write("queries/due.gq", DUE + "\n")
    before = lab.ledger.read_bytes()
    refuse("put", "resources")
    refuse("create", "resources")
    report = lab.apply()
    assert codes(report, "error") == ["resource_payload_write_error"]
    assert lab.ledger.read_bytes() == before
    monkeypatch.undo()
    assert lab.apply().is_converged


def test_a_text_that_is_not_what_was_checked_is_not_stored(lab):
    storage = ClusterStorage(str(lab.directory), Settings())
    changed = DesiredResource("policy.kb-rules", "0" * 64, "kb.policy.yaml", POLICY.encode())
    with hold_lock(storage, "apply") as guard, pytest.raises(ClusterStop) as stop:
        publish_payload(storage, guard, changed)
    assert stop.value.diagnostic.code == "resource_content_changed"
    assert not (lab.directory / f"__cluster/resources/policy/kb-rules/{'0' * 64}.yaml").exists()


def test_a_sidecar_that_cannot_be_removed_is_removed_by_the_next_run(lab, refuse, monkeypatch):
    lab.write("kb.pg", WIDER)
    refuse("delete", "recoveries")
    report = lab.apply()
    assert report.is_converged
    assert "recovery_sidecar_cleanup_failed" in codes(report, "warning")
    assert len(lab.sidecars) == 1
    monkeypatch.undo()
    assert lab.apply().ok
    assert lab.sidecars == []


def test_a_plan_without_its_graph_says_that_the_migration_is_unknown(lab):
    lab.write("kb.pg", WIDER)
    for path in (lab.root() / "__manifest").rglob("*.manifest"):
        path.write_bytes(b"")
    plan = lab.plan()
    assert (plan.ok, "schema_preview_unavailable" in codes(plan, "warning")) == (True, True)


# -- the sweep ------------------------------------------------------------------------------------


def test_a_migration_whose_graph_is_gone_waits(lab):
    lab.write("kb.pg", WIDER)
    plant(lab, "schema_apply")
    shutil.rmtree(lab.root())
    report = lab.apply()
    assert "cluster_recovery_pending" in codes(report, "warning")
    assert dispositions(report)["schema.kb"] == "blocked cluster_recovery_pending"
    assert "apply_unsupported_change" in codes(report, "warning")
    assert len(lab.sidecars) == 1


def test_sidecars_are_settled_in_the_order_of_their_ids(lab):
    """The earlier one is a creation that is recorded, the later a migration that was made."""
    from omnigraph.cluster.resources import content_digest

    with lab.open(mode="rw") as graph:
        graph.schema.apply(WIDER)
    lab.write("kb.pg", WIDER)
    wide = content_digest(WIDER.encode())
    plant(lab, "schema_apply", ULID, desired_schema_digest=wide)
    plant(lab, "schema_apply", NEXT, desired_schema_digest=wide)
    report = lab.apply()
    assert codes(report) == ["cluster_recovery_rolled_forward"]
    assert list(lab.state["recovery_records"]) == [ULID]
    assert lab.sidecars == []


def test_a_settled_sidecar_stays_until_the_ledger_is_written(lab):
    from omnigraph.cluster.resources import content_digest

    with lab.open(mode="rw") as graph:
        graph.schema.apply(WIDER)
    lab.write("kb.pg", WIDER)
    plant(lab, "schema_apply", desired_schema_digest=content_digest(WIDER.encode()))
    other = lab.ledger.read_text().replace('"state_revision": 2', '"state_revision": 7')

    def change(point: Failpoint) -> None:
        if point is Failpoint.CLUSTER_BEFORE_LEDGER:
            lab.ledger.write_text(other)

    with hooked(change):
        assert codes(lab.apply(), "error") == ["state_cas_mismatch"]
    assert len(lab.sidecars) == 1
    assert lab.apply().is_converged
    assert (lab.sidecars, list(lab.state["recovery_records"])) == ([], [ULID])


def test_a_deletion_that_is_recorded_late_leaves_policies_alone(lab):
    lab.edit("cluster.yaml", "policies:", "  wiki: {schema: kb.pg}\npolicies:")
    lab.edit("cluster.yaml", "applies_to: [kb]", "applies_to: [kb, wiki]")
    lab.apply()
    lab.write("cluster.yaml", CONFIG)
    shutil.rmtree(lab.root("wiki"))
    plant(lab, "graph_delete", graph="wiki")
    assert lab.refresh().ok
    assert "graph.wiki" not in lab.resources
    assert lab.state["observations"]["graph.wiki"]["kind"] == "tombstone"
    assert lab.resources["policy.kb-rules"]["applies_to"] == ["graph.kb", "graph.wiki"]


def test_an_import_settles_sidecars_too(lab):
    from omnigraph.cluster.resources import content_digest

    lab.ledger.unlink()
    shutil.rmtree(lab.root())
    Graph.init(lab.root(), SCHEMA).close()
    plant(lab, "graph_create", desired_schema_digest=content_digest(SCHEMA.encode()))
    report = lab.import_()
    assert report.ok
    assert codes(report) == ["cluster_recovery_rolled_forward"]
    assert lab.sidecars == []
    assert lab.resources["schema.kb"]["digest"] == content_digest(SCHEMA.encode())
