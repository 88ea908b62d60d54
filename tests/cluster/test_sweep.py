"""Interrupted operations: every row of the table, planted as a dead command leaves them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cluster.resources import content_digest
from omnigraph.commit.failpoints import Failpoint, hooked
from tests.cluster.lab import SCHEMA, WIDER, Lab, codes, dispositions
from tests.cluster.ledgers import ULID

OTHER = SCHEMA.replace("}", "  note: String?\n}")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab").applied()


def digest(text: str) -> str:
    return content_digest(text.encode())


def plant(lab: Lab, kind: str, graph: str = "kb", **changes: object) -> None:
    """A sidecar as a command that died has left it."""
    sidecar = {
        "schema_version": 1,
        "operation_id": ULID,
        "started_at": "2026-11-18T00:00:00Z",
        "actor": "ana",
        "kind": kind,
        "graph_id": graph,
        "graph_uri": str(lab.root(graph)),
        "observed_manifest_version": None,
        "expected_manifest_version": None,
        "desired_schema_digest": digest(WIDER),
        "state_cas_base": None,
        "approval_id": None,
        **changes,
    }
    lab.write(f"__cluster/recoveries/{ULID}.json", json.dumps(sidecar))


def migrate(lab: Lab, text: str, graph: str = "kb") -> None:
    with lab.open(graph, "rw") as opened:
        opened.schema.apply(text)


def forget(lab: Lab, *addresses: str) -> None:
    state = lab.state
    for address in addresses:
        del state["applied_revision"]["resources"][address]
        state["resource_statuses"].pop(address, None)
    lab.write("__cluster/state.json", json.dumps(state))


# -- creating ------------------------------------------------------------------------------------


def add_wiki(lab: Lab) -> None:
    lab.edit("cluster.yaml", "policies:", "  wiki: {schema: wiki.pg}\npolicies:")
    lab.write("wiki.pg", WIDER)


def test_a_creation_that_left_nothing_is_proposed_again(lab):
    add_wiki(lab)
    plant(lab, "graph_create", "wiki")
    report = lab.apply()
    assert (report.ok, report.is_converged, lab.sidecars) == (True, True, [])
    assert dispositions(report)["graph.wiki"] == "applied"
    assert lab.state["recovery_records"] == {}


def test_a_creation_that_died_before_there_was_a_graph_starts_over(lab):
    add_wiki(lab)

    def die(point: Failpoint) -> None:
        if point is Failpoint.INIT_AFTER_TABLES:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hooked(die):
        lab.apply()
    assert lab.root("wiki").exists()
    assert len(lab.sidecars) == 1
    report = lab.apply()
    assert (report.ok, report.is_converged, lab.sidecars) == (True, True, [])
    with lab.open("wiki") as graph:
        assert graph.schema.text() == WIDER


def test_a_creation_that_is_recorded_is_done(lab):
    plant(lab, "graph_create", desired_schema_digest=digest("x"))
    report = lab.refresh()
    assert (report.ok, codes(report), lab.sidecars) == (True, [], [])


def test_a_creation_that_was_done_is_recorded(lab):
    add_wiki(lab)
    Graph.init(lab.root("wiki"), WIDER).close()
    plant(lab, "graph_create", "wiki")
    report = lab.apply()
    assert codes(report) == ["cluster_recovery_rolled_forward"]
    assert report.is_converged
    assert lab.state["recovery_records"][ULID]["outcome"] == "rolled_forward"
    assert lab.state["recovery_records"][ULID]["actor"] == "ana"
    assert lab.sidecars == []


def test_a_creation_with_another_schema_waits(lab):
    add_wiki(lab)
    Graph.init(lab.root("wiki"), OTHER).close()
    plant(lab, "graph_create", "wiki")
    report = lab.apply()
    assert "cluster_recovery_pending" in codes(report, "warning")
    assert dispositions(report)["graph.wiki"] == "blocked cluster_recovery_pending"
    status = lab.state["resource_statuses"]["graph.wiki"]
    assert (status["status"], status["conditions"]) == ("drifted", ["actual_applied_state_pending"])
    assert len(lab.sidecars) == 1


def test_a_creation_that_does_not_open_is_an_error_that_is_kept_and_recorded(lab):
    add_wiki(lab)
    Graph.init(lab.root("wiki"), WIDER).close()
    for path in (lab.root("wiki") / "__manifest").rglob("*.manifest"):
        path.write_bytes(b"")
    plant(lab, "graph_create", "wiki")
    report = lab.apply()
    assert codes(report, "error") == ["graph_create_incomplete"]
    assert dispositions(report)["graph.wiki"] == "blocked cluster_recovery_pending"
    status = lab.state["resource_statuses"]["graph.wiki"]
    assert (status["status"], status["conditions"]) == ("error", ["graph_create_incomplete"])
    assert len(lab.sidecars) == 1
    shutil.rmtree(lab.root("wiki"))
    assert lab.apply().is_converged
    assert lab.sidecars == []


# -- migrating -----------------------------------------------------------------------------------


def test_a_migration_that_changed_nothing_is_proposed_again(lab):
    lab.write("kb.pg", WIDER)
    plant(lab, "schema_apply")
    report = lab.apply()
    assert (report.ok, report.is_converged, lab.sidecars) == (True, True, [])
    assert lab.state["recovery_records"] == {}


def test_a_migration_that_was_done_is_recorded(lab):
    lab.write("kb.pg", WIDER)
    migrate(lab, WIDER)
    plant(lab, "schema_apply")
    report = lab.apply()
    assert codes(report) == ["cluster_recovery_rolled_forward"]
    assert report.is_converged
    assert lab.resources["schema.kb"]["digest"] == digest(WIDER)
    assert lab.sidecars == []


def test_a_migration_to_another_schema_waits_with_its_queries_and_policies(lab):
    lab.write("kb.pg", WIDER)
    lab.edit("queries/due.gq", "\n", "\n\n")
    lab.edit("kb.policy.yaml", "[ana, bo]", "[ana]")
    migrate(lab, OTHER)
    plant(lab, "schema_apply")
    report = lab.apply()
    assert set(dispositions(report).values()) == {
        "blocked cluster_recovery_pending",
        "deferred apply_unsupported_kind",
    }
    status = lab.state["resource_statuses"]["schema.kb"]
    assert (status["status"], status["conditions"]) == ("drifted", ["actual_applied_state_pending"])
    assert len(lab.sidecars) == 1


def test_a_migration_of_a_graph_that_does_not_open_waits(lab):
    lab.write("kb.pg", WIDER)
    for path in (lab.root() / "__manifest").rglob("*.manifest"):
        path.write_bytes(b"")
    plant(lab, "schema_apply")
    report = lab.apply()
    assert "cluster_recovery_pending" in codes(report, "warning")
    assert dispositions(report)["schema.kb"] == "blocked cluster_recovery_pending"
    assert len(lab.sidecars) == 1


# -- deleting ------------------------------------------------------------------------------------


def approved_delete(lab: Lab) -> str:
    lab.write("cluster.yaml", "version: 1\n")
    report = lab.approve("graph.kb")
    assert report.approval_id is not None
    return report.approval_id


def test_a_deletion_that_left_files_is_proposed_again_under_its_approval(lab):
    approval = approved_delete(lab)
    plant(lab, "graph_delete", approval_id=approval)
    report = lab.apply()
    assert "graph_delete_incomplete" in codes(report, "warning")
    assert (report.is_converged, lab.root().exists(), lab.sidecars) == (True, False, [])


def test_a_deletion_that_is_recorded_is_done(lab):
    shutil.rmtree(lab.root())
    forget(lab, "graph.kb", "schema.kb", "query.kb.due")
    plant(lab, "graph_delete", approval_id=None)
    lab.write("cluster.yaml", "version: 1\n")
    report = lab.apply()
    assert (report.is_converged, lab.sidecars, lab.state["recovery_records"]) == (True, [], {})


def test_a_deletion_that_was_done_is_recorded_and_uses_its_approval(lab):
    approval = approved_delete(lab)
    shutil.rmtree(lab.root())
    plant(lab, "graph_delete", approval_id=approval)
    report = lab.apply()
    assert codes(report) == ["cluster_recovery_rolled_forward"]
    assert (report.is_converged, lab.resources, lab.sidecars) == (True, {}, [])
    assert lab.state["approval_records"][approval]["consumed_by_operation"] == ULID
    (artifact,) = lab.approvals
    assert artifact["consumed_by_operation"] == ULID
    assert lab.state["observations"]["graph.kb"]["approval_id"] == approval
    assert lab.state["recovery_records"][ULID]["kind"] == "graph_delete"


# -- damaged sidecars ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "invalid_recovery_sidecar"),
        ('{"schema_version": 2}', "unsupported_recovery_sidecar_version"),
        ("surprise", "invalid_recovery_sidecar"),
    ],
)
def test_a_damaged_sidecar_is_reported_and_stays(lab, text, code):
    path = lab.write(f"__cluster/recoveries/{ULID}.json", text)
    for report in (lab.status(), lab.plan(), lab.refresh(), lab.apply()):
        assert code in codes(report, "warning")
    assert path.read_text() == text


def test_a_sidecar_cannot_name_what_lies_outside_of_the_cluster(lab):
    plant(lab, "graph_create", "../../elsewhere")
    assert "invalid_recovery_sidecar" in codes(lab.apply(), "warning")
    assert len(lab.sidecars) == 1


def test_pending_operations_are_shown_and_not_handled_by_status_and_plan(lab):
    plant(lab, "schema_apply")
    for report in (lab.status(), lab.plan()):
        assert codes(report) == ["cluster_recovery_pending"]
    assert len(lab.sidecars) == 1
