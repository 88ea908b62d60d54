"""From a configuration to an applied cluster: plan, apply, approve, refresh, status, drift."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cluster.applied import read_applied
from omnigraph.cluster.plan import plan_cluster
from omnigraph.cluster.plan_file import plan_text, read_plan
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import InputError, ServerNotReady, StorageUnavailable
from omnigraph.settings import Settings
from omnigraph.storage.objects.local import LocalObjects
from tests.cluster.lab import (
    CONFIG,
    DUE,
    DUE_DATES,
    POLICY,
    SCHEMA,
    WIDER,
    Lab,
    codes,
    dispositions,
)

PROVIDERS = "providers: {embedding: {main: {kind: mock}}}\n"
EMBEDDING = CONFIG.replace("queries/", "queries/\n    embedding_provider: main")
WIKI = "  wiki: {schema: kb.pg}\n"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@contextmanager
def at(point: Failpoint, act: Callable[[], object]):
    """Do something once when a boundary is passed."""
    waiting = [point]

    def hook(passed: Failpoint) -> None:
        if waiting == [passed]:
            waiting.clear()
            act()

    with hooked(hook):
        yield
    assert not waiting, f"{point} was not passed"


def interrupt() -> None:
    raise KeyboardInterrupt


def add_wiki(lab: Lab) -> None:
    lab.edit("cluster.yaml", "policies:", f"{WIKI}policies:")


# -- import and apply ----------------------------------------------------------------------------


def test_an_import_and_an_apply_converge_and_a_second_apply_writes_nothing(lab):
    imported = lab.import_()
    assert (imported.ok, lab.state["state_revision"], lab.resources) == (True, 1, {})
    assert lab.state["resource_statuses"]["graph.kb"]["conditions"] == ["graph_missing"]
    report = lab.apply()
    assert dispositions(report) == {
        "graph.kb": "applied",
        "policy.kb-rules": "applied",
        "query.kb.due": "applied",
        "schema.kb": "applied",
    }
    assert (report.ok, report.is_converged, report.is_written) == (True, True, True)
    assert lab.state["state_revision"] == 2
    assert lab.resources["policy.kb-rules"]["applies_to"] == ["graph.kb"]
    assert {status["status"] for status in lab.state["resource_statuses"].values()} == {"applied"}
    before = lab.ledger.read_bytes()
    again = lab.apply()
    assert (again.ok, again.is_converged, again.is_written) == (True, True, False)
    assert (again.changes, lab.ledger.read_bytes()) == ((), before)
    assert not lab.sidecars
    assert not lab.lock.exists()


def test_what_was_applied_is_what_servers_read(lab):
    lab.applied()
    applied = read_applied(str(lab.directory), Settings())
    (graph,) = applied.graphs
    assert [(query.name, query.text) for query in graph.queries] == [("due", DUE)]
    assert graph.policy is not None
    assert graph.policy.text == POLICY
    with Graph.open(graph.uri, "r") as opened:
        assert opened.schema.text() == SCHEMA


def test_nothing_is_applied_before_an_import(lab):
    report = lab.apply()
    assert codes(report) == ["state_missing"]
    assert "omnigraph cluster import" in report.diagnostics[0].message
    assert codes(lab.refresh()) == ["state_missing"]
    assert codes(lab.approve("graph.kb")) == ["state_missing"]
    status = lab.status()
    assert (status.ok, codes(status)) == (True, ["state_missing"])
    assert lab.plan().ok
    assert lab.import_().ok
    assert codes(lab.import_()) == ["state_already_exists"]


def test_a_lost_ledger_is_rebuilt_from_the_graphs_and_the_stored_texts(lab):
    lab.applied()
    lab.ledger.unlink()
    assert lab.import_().ok
    assert sorted(lab.resources) == ["graph.kb", "schema.kb"]
    report = lab.apply()
    assert report.is_converged
    assert dispositions(report)["query.kb.due"] == "applied"
    assert dispositions(report)["graph.kb"] == "derived"


def test_an_invalid_configuration_changes_nothing(lab):
    lab.write("kb.pg", "node {")
    for report in (lab.import_(), lab.plan(), lab.apply(), lab.approve("graph.kb")):
        assert "schema_parse_error" in codes(report, "error")
    assert not (lab.directory / "__cluster").exists()


# -- updates -------------------------------------------------------------------------------------


def test_a_new_schema_and_a_query_that_needs_it_converge_in_one_run(lab):
    lab.applied()
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    report = lab.apply()
    assert dispositions(report) == {
        "graph.kb": "derived",
        "query.kb.due": "applied",
        "schema.kb": "applied",
    }
    assert report.is_converged
    with lab.open() as graph:
        assert graph.schema.text() == WIDER
        assert graph.commits()[0].actor == "ana"


def test_a_schema_that_differs_in_comments_only_converges_and_is_not_drift(lab):
    lab.applied()
    lab.write("kb.pg", f"// tasks\n{SCHEMA}")
    assert lab.apply().is_converged
    assert lab.refresh().ok
    assert lab.plan().changes == ()


def test_a_change_of_bindings_alone_is_an_update(lab):
    add_wiki(lab)
    lab.applied()
    lab.edit("cluster.yaml", "applies_to: [kb]", "applies_to: [kb, wiki]")
    (change,) = lab.plan().changes
    assert change.before == change.after
    assert change.to_json()["binding_change"] is True
    assert change.to_json()["metadata_change"] == "policy_bindings"
    assert lab.apply().is_converged
    assert lab.resources["policy.kb-rules"]["applies_to"] == ["graph.kb", "graph.wiki"]


def test_the_profile_of_a_provider_is_recorded_where_it_is_missing(lab):
    lab.write(
        "cluster.yaml",
        PROVIDERS + EMBEDDING,
    )
    lab.applied()
    assert lab.resources["graph.kb"]["embedding_provider"] == "provider.embedding.main"
    state = lab.state
    del state["applied_revision"]["resources"]["provider.embedding.main"]["embedding_profile"]
    lab.write("__cluster/state.json", json.dumps(state))
    (change,) = lab.plan().changes
    assert change.metadata == "embedding_profile"
    assert lab.apply().is_converged
    profile = lab.resources["provider.embedding.main"]["embedding_profile"]
    assert profile == {"kind": "mock"}


def test_a_provider_changes_the_graphs_that_use_it(lab):
    lab.write(
        "cluster.yaml",
        PROVIDERS + EMBEDDING,
    )
    lab.applied()
    lab.edit("cluster.yaml", "kind: mock", 'kind: openai, api_key: "${LAB_KEY}"')
    report = lab.apply()
    assert dispositions(report) == {"graph.kb": "derived", "provider.embedding.main": "applied"}
    assert report.is_converged


def test_a_provider_stays_as_long_as_a_graph_that_uses_it_cannot_change(lab):
    lab.write("cluster.yaml", PROVIDERS + EMBEDDING)
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    lab.write("cluster.yaml", CONFIG)
    lab.write("kb.pg", SCHEMA.replace("}", "  due: Date\n}"))
    report = lab.apply()
    assert dispositions(report)["provider.embedding.main"] == "blocked dependency_not_applied"
    assert read_applied(str(lab.directory), Settings()).graphs
    lab.write("kb.pg", WIDER)
    assert lab.apply().is_converged
    assert "provider.embedding.main" not in lab.resources


def test_a_failing_schema_blocks_its_queries_and_nothing_of_other_graphs(lab):
    lab.write("other.pg", SCHEMA)
    lab.write("other/all.gq", DUE.replace("due", "all"))
    lab.edit("cluster.yaml", "policies:", "  other: {schema: other.pg, queries: other/}\npolicies:")
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    # A required property without a value for existing rows.
    lab.write("kb.pg", SCHEMA.replace("}", "  due: Date\n}"))
    lab.write("queries/due.gq", DUE_DATES)
    lab.write("other/all.gq", DUE.replace("due", "all") + "\n")
    report = lab.apply()
    assert not report.ok
    assert "schema_apply_failed" in codes(report, "error")
    assert dispositions(report) == {
        "graph.kb": "blocked dependency_not_applied",
        "graph.other": "derived",
        "query.kb.due": "blocked dependency_not_applied",
        "query.other.all": "applied",
        "schema.kb": "blocked schema_apply_failed",
    }
    status = lab.state["resource_statuses"]["query.kb.due"]
    assert status["conditions"] == ["dependency_not_applied"]
    assert status["message"] == "waiting on an unapplied or missing dependency"
    assert not lab.sidecars
    lab.write("kb.pg", WIDER)
    assert lab.apply().is_converged


def test_after_a_failure_no_further_graph_is_moved(lab):
    lab.applied()
    add_wiki(lab)
    lab.edit("cluster.yaml", "policies:", "  zoo: {schema: kb.pg}\npolicies:")
    lab.write("graphs/wiki.omni/_schema.pg", "somebody else's file")
    report = lab.apply()
    assert codes(report, "error") == ["graph_create_failed"]
    assert "graph_create_skipped" in codes(report, "warning")
    assert dispositions(report)["graph.zoo"] == "blocked graph_create_skipped"
    assert dispositions(report)["schema.wiki"] == "blocked dependency_not_applied"
    shutil.rmtree(lab.root("wiki"))
    assert lab.apply().is_converged


def test_an_existing_graph_is_adopted_and_never_overwritten(lab):
    lab.applied()
    add_wiki(lab)
    with Graph.init(lab.root("wiki"), SCHEMA) as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    report = lab.apply()
    assert codes(report, "error") == ["graph_create_failed"]
    assert "cluster refresh" in report.diagnostics[0].message
    assert not lab.sidecars
    assert lab.refresh().ok
    assert lab.apply().is_converged
    with lab.open("wiki") as graph:
        assert graph.snapshot().count("Task") == 1


# -- deleting and approving ----------------------------------------------------------------------


def delete_wiki(lab: Lab) -> None:
    lab.edit("cluster.yaml", WIKI, "")


def test_a_graph_is_deleted_only_with_an_approval(lab):
    add_wiki(lab)
    lab.applied()
    delete_wiki(lab)
    plan = lab.plan()
    assert [gate.to_json()["satisfied"] for gate in plan.gates] == [False]
    blocked = lab.apply()
    assert (blocked.ok, blocked.is_converged) == (True, False)
    assert dispositions(blocked) == {
        "graph.wiki": "blocked approval_required",
        "schema.wiki": "blocked approval_required",
    }
    approval = lab.approve("graph.wiki", "ana")
    assert (approval.ok, approval.operation, approval.approved_by) == (True, "delete", "ana")
    assert lab.plan().gates[0].is_satisfied
    done = lab.apply(actor="bo")
    assert (done.is_converged, lab.root("wiki").exists()) == (True, False)
    record = lab.state["approval_records"][approval.approval_id]
    (artifact,) = lab.approvals
    assert artifact["consumed_by_operation"] == record["consumed_by_operation"]
    assert artifact["consumed_at"] is not None
    tombstone = lab.state["observations"]["graph.wiki"]
    assert (tombstone["kind"], tombstone["approval_id"]) == ("tombstone", approval.approval_id)
    assert tombstone["actor"] == "bo"


def test_an_approval_is_bound_to_the_configuration_and_used_once(lab):
    add_wiki(lab)
    lab.applied()
    delete_wiki(lab)
    first = lab.approve("graph.wiki")
    lab.write("queries/due.gq", DUE + "\n")
    stale = lab.apply()
    assert "approval_stale" in codes(stale, "warning")
    assert dispositions(stale)["graph.wiki"] == "blocked approval_required"
    second = lab.approve("graph.wiki")
    assert lab.apply().is_converged
    assert list(lab.state["approval_records"]) == [second.approval_id]
    assert [entry["consumed_at"] is None for entry in lab.approvals] == [True, False]
    # The graph comes back and goes again: no approval is left for that.
    add_wiki(lab)
    assert lab.apply().is_converged
    delete_wiki(lab)
    assert dispositions(lab.apply())["graph.wiki"] == "blocked approval_required"
    assert first.approval_id not in lab.state["approval_records"]


def test_an_approval_for_another_state_of_the_graph_is_refused(lab):
    add_wiki(lab)
    lab.applied()
    delete_wiki(lab)
    lab.approve("graph.wiki")
    (path,) = (lab.directory / "__cluster" / "approvals").iterdir()
    artifact = json.loads(path.read_text())
    path.write_text(json.dumps(artifact | {"bound_before_digest": "0" * 64}))
    report = lab.apply()
    assert "approval_stale" in codes(report, "warning")
    assert lab.root("wiki").exists()


@pytest.mark.parametrize(
    ("created", "holds"),
    [
        (timedelta(days=6, hours=23), True),
        (timedelta(days=7, minutes=1), False),
        (timedelta(days=-1), True),
        ("some day", False),
    ],
)
def test_an_approval_expires_after_seven_days(lab, created, holds):
    add_wiki(lab)
    lab.applied()
    delete_wiki(lab)
    lab.approve("graph.wiki")
    (path,) = (lab.directory / "__cluster" / "approvals").iterdir()
    if isinstance(created, timedelta):
        created = (datetime.now(UTC) - created).isoformat().replace("+00:00", "Z")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"created_at": created}))
    assert [gate.is_satisfied for gate in lab.plan().gates] == [holds]
    report = lab.apply()
    assert ("approval_expired" not in codes(report, "warning")) == holds
    assert lab.root("wiki").exists() != holds


def test_only_gated_changes_can_be_approved(lab):
    lab.applied()
    assert codes(lab.approve("graph.kb")) == ["approval_not_required"]
    assert lab.approvals == []


def test_a_graph_and_its_policy_are_deleted_in_one_edit(lab):
    lab.applied()
    lab.write("cluster.yaml", "version: 1\n")
    # A graph that is still there is not without its policy.
    assert set(dispositions(lab.apply()).values()) == {
        "blocked approval_required",
        "blocked dependency_not_applied",
    }
    assert "policy.kb-rules" in lab.resources
    assert lab.approve("graph.kb").ok
    report = lab.apply()
    assert report.is_converged
    assert lab.resources == {}


# -- payloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["query", "policy"])
@pytest.mark.parametrize("damage", ["missing", "mismatch"])
def test_a_damaged_text_is_noticed_dropped_and_published_again(lab, kind, damage):
    lab.applied()
    blob = lab.blob(kind)
    intact = blob.read_bytes()
    if damage == "missing":
        blob.unlink()
    else:
        blob.write_bytes(b"tampered")
    status = lab.status()
    assert (status.ok, codes(status)) == (True, [f"catalog_payload_{damage}"])
    with pytest.raises(ServerNotReady):
        read_applied(str(lab.directory), Settings())
    assert [finding.condition for finding in lab.drift().findings] == [f"payload_{damage}"]
    assert lab.refresh().ok
    address = {"query": "query.kb.due", "policy": "policy.kb-rules"}[kind]
    assert address not in lab.resources
    assert lab.state["resource_statuses"][address]["conditions"] == [f"payload_{damage}"]
    assert dispositions(lab.apply())[address] == "applied"
    assert blob.read_bytes() == intact
    assert read_applied(str(lab.directory), Settings()).graphs
    assert lab.plan().changes == ()


# -- what happens outside ------------------------------------------------------------------------


def test_a_lost_graph_is_created_again_empty_and_the_plan_says_so(lab):
    lab.applied()
    shutil.rmtree(lab.root())
    assert [finding.condition for finding in lab.drift().findings] == ["graph_missing"]
    refreshed = lab.refresh()
    assert refreshed.ok
    observation = lab.state["observations"]["graph.kb"]
    assert (observation["exists"], observation["schema_matches_desired"]) == (False, False)
    assert [change.operation for change in lab.plan().changes] == ["create", "create"]
    assert lab.apply().is_converged


def test_a_schema_changed_by_another_program_is_drift_and_is_changed_back(lab):
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.schema.apply(WIDER)
    (finding,) = lab.drift().findings
    assert (finding.resource, finding.condition) == ("schema.kb", "schema_mismatch")
    assert lab.refresh().ok
    assert lab.state["resource_statuses"]["schema.kb"]["status"] == "drifted"
    (_, change) = lab.plan().changes
    assert [step["kind"] for step in change.migration["steps"]] == ["drop_property"]
    assert lab.apply().is_converged
    with lab.open() as graph:
        assert graph.schema.text() == SCHEMA


def test_a_graph_that_does_not_open_is_an_error_and_its_digests_stay(lab):
    lab.applied()
    before = lab.resources
    (lab.root() / "_schema.pg").write_text("node {")
    (lab.root() / "_schema.ir.json").write_text("{")
    for path in (lab.root() / "__manifest").rglob("*.manifest"):
        path.write_bytes(b"")
    report = lab.refresh()
    assert not report.ok
    assert [(finding.code, finding.path) for finding in report.diagnostics] == [
        ("graph_observation_error", "graphs")
    ]
    assert lab.resources == before
    assert lab.state["resource_statuses"]["graph.kb"]["status"] == "error"
    lab.ledger.unlink()
    assert not lab.import_().ok
    assert not lab.ledger.exists()


def test_a_store_that_cannot_be_listed_changes_nothing(lab, monkeypatch):
    add_wiki(lab)
    lab.applied()
    delete_wiki(lab)
    lab.approve("graph.wiki")
    with pytest.raises(KeyboardInterrupt), at(Failpoint.CLUSTER_AFTER_DELETE, interrupt):
        lab.apply()
    before = lab.ledger.read_bytes()
    genuine = LocalObjects.walk

    def refuse(self, path):
        if "graphs/" in path:
            raise StorageUnavailable("the store does not answer")
        return genuine(self, path)

    monkeypatch.setattr(LocalObjects, "walk", refuse)
    for report in (lab.refresh(), lab.apply()):
        assert codes(report, "error") == ["graph_probe_error"]
    assert lab.ledger.read_bytes() == before
    assert lab.sidecars
    monkeypatch.undo()
    assert lab.apply().is_converged


# -- compare-and-set -----------------------------------------------------------------------------


def test_a_ledger_that_changes_during_an_apply_is_not_overwritten(lab):
    lab.import_()
    changed = lab.ledger.read_text().replace('"state_revision": 1', '"state_revision": 7')
    with at(Failpoint.CLUSTER_BEFORE_LEDGER, lambda: lab.ledger.write_text(changed)):
        report = lab.apply()
    assert codes(report, "error") == ["state_cas_mismatch"]
    assert (report.is_written, lab.ledger.read_text()) == (False, changed)
    assert lab.sidecars
    assert lab.apply().is_converged
    assert not lab.sidecars
    assert "01" in next(iter(lab.state["recovery_records"]))


def test_of_two_applies_at_once_one_goes_on_and_the_other_names_the_holder(lab):
    lab.import_()
    reports = []
    with at(Failpoint.CLUSTER_AFTER_PAYLOADS, lambda: reports.append(lab.apply())):
        first = lab.apply()
    assert (first.ok, first.is_converged) == (True, True)
    (second,) = reports
    assert codes(second) == ["state_lock_held"]
    assert "omnigraph cluster force-unlock 01" in second.diagnostics[0].message
    assert not lab.lock.exists()


def test_many_applies_at_once_converge(lab):
    lab.import_()
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(lab.apply())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.is_written for report in reports) == 1
    assert {code for report in reports for code in codes(report)} <= {"state_lock_held"}
    assert lab.state["state_revision"] == 2


def test_the_revision_does_not_run_over(lab):
    lab.import_()
    lab.write(
        "__cluster/state.json",
        lab.ledger.read_text().replace('"state_revision": 1', f'"state_revision": {2**63 - 1}'),
    )
    assert codes(lab.refresh(), "error") == ["state_write_error"]


# -- plans ---------------------------------------------------------------------------------------


def reviewed(lab: Lab):
    report, storage = plan_cluster(lab.bundle, lab.settings)
    return read_plan(plan_text(report, storage), "plan.json")


def test_a_plan_writes_nothing_and_needs_no_lock(lab):
    lab.applied()
    lab.write("kb.pg", WIDER)
    lab.write("__cluster/lock.json", json.dumps(LOCK))
    before = {path: path.stat().st_mtime_ns for path in lab.directory.rglob("*")}
    report = lab.plan()
    assert {path: path.stat().st_mtime_ns for path in lab.directory.rglob("*")} == before
    assert report.ok
    document = report.to_json()
    assert document["authority"] == "observed"
    assert document["state_observations"]["locked"] is True
    assert [change["resource"] for change in document["changes"]] == ["graph.kb", "schema.kb"]


LOCK = {
    "version": 1,
    "lock_id": "01JABCDEFGHJKMNPQRSTVWXYZ0",
    "operation": "apply",
    "created_at": "2026-11-18T00:00:00Z",
    "pid": 1,
}


def test_a_reviewed_plan_is_applied_as_it_was_shown(lab):
    lab.import_()
    plan = reviewed(lab)
    report = lab.apply(reviewed=plan)
    assert (report.ok, report.is_converged) == (True, True)
    again = lab.apply(reviewed=plan)
    assert codes(again) == ["plan_stale"]


@pytest.mark.parametrize("change", ["file", "ledger", "approval"])
def test_a_reviewed_plan_is_refused_when_anything_changed(lab, change):
    add_wiki(lab)
    lab.applied()
    delete_wiki(lab)
    plan = reviewed(lab)
    if change == "file":
        lab.write("queries/due.gq", DUE + "\n")
    elif change == "ledger":
        lab.refresh()
    else:
        lab.approve("graph.wiki")
    before = lab.ledger.read_bytes()
    assert codes(lab.apply(reviewed=plan), "error") == ["plan_stale"]
    assert lab.ledger.read_bytes() == before
    assert lab.root("wiki").exists()


def test_a_file_that_is_no_plan_is_refused():
    for text in ("", "{}", "[1]", '{"kind": "x"}'):
        with pytest.raises(InputError):
            read_plan(text, "plan.json")


def test_a_plan_shows_rows_that_do_not_fit_and_queries_that_break(lab):
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.load(
            [{"type": "Task", "data": {"name": "a"}}, {"type": "Task", "data": {"name": "b"}}]
        )
    lab.write("kb.pg", 'node Task {\n  slug: String @key @rename_from("name")\n}\n')
    lab.write("queries/due.gq", DUE.replace("name", "slug"))
    plan = lab.plan()
    (change,) = [change for change in plan.changes if change.resource == "schema.kb"]
    assert change.migration["rows"] == {"node:Task": 2}
    (broken,) = plan.broken_queries
    assert (broken["query"], broken["replaced"]) == ("query.kb.due", True)


def test_secrets_are_in_no_file_of_a_cluster_and_in_no_report(lab, monkeypatch):
    monkeypatch.setenv("LAB_KEY", "sk-very-secret")
    provider = 'providers: {embedding: {main: {kind: openai, api_key: "${LAB_KEY}"}}}\n'
    lab.write(
        "cluster.yaml",
        provider + EMBEDDING,
    )
    lab.import_()
    report, storage = plan_cluster(lab.bundle, Settings.from_environ())
    texts = [plan_text(report, storage), str(report.to_json()), str(lab.apply().to_json())]
    texts += [
        path.read_text() for path in (lab.directory / "__cluster").rglob("*.*") if path.is_file()
    ]
    assert not [text for text in texts if "sk-very-secret" in text]
    assert "${LAB_KEY}" in lab.ledger.read_text()
