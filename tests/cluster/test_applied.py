"""Reading the applied state of a cluster: what is served, what is set aside, what fails."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.cluster.applied import AppliedCluster, read_applied
from omnigraph.cluster.ledger import LedgerProblem, read_cluster_sidecar, read_state
from omnigraph.cluster.location import cluster_root
from omnigraph.errors import InputError, ServerNotReady
from omnigraph.settings import Settings
from tests.cluster.ledgers import ULID, ClusterFiles, digest_of

QUERY = "query due() { match { $t: Task } return { $t.name } }"
POLICY = "version: 1\n"


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles(tmp_path / "lab").graph("kb").graph("wiki")


def read(cluster: ClusterFiles) -> AppliedCluster:
    return read_applied(str(cluster.root), Settings())


def problems(cluster: ClusterFiles) -> list[tuple[str, str]]:
    """The codes and paths of what makes a cluster not ready."""
    with pytest.raises(ServerNotReady) as refusal:
        read(cluster)
    assert "is not ready to serve" in str(refusal.value)
    lines = str(refusal.value).splitlines()[1:]
    diagnostics = refusal.value.details["diagnostics"]
    assert len(lines) == len(diagnostics)
    for line, diagnostic in zip(lines, diagnostics, strict=True):
        assert line.startswith(f"  [{diagnostic['code']}] {diagnostic['path']}: ")
    return [(diagnostic["code"], diagnostic["path"]) for diagnostic in diagnostics]


def test_the_applied_graphs_come_with_what_is_bound_to_them(cluster):
    cluster.query("kb", "due", QUERY)
    cluster.query("kb", "all", QUERY + " ")
    cluster.policy("rules", POLICY, ["graph.kb"])
    cluster.policy("server", POLICY + "# s", ["cluster"])
    cluster.provider("main", kind="openai", model="m", api_key="${LAB_KEY}")
    cluster.graph("kb", "provider.embedding.main")
    applied = read(cluster)
    kb, wiki = applied.graphs
    assert (kb.graph_id, kb.uri) == ("kb", f"{cluster.root}/graphs/kb.omni")
    assert [(query.name, query.text) for query in kb.queries] == [
        ("all", QUERY + " "),
        ("due", QUERY),
    ]
    assert kb.policy is not None
    assert (kb.policy.name, kb.policy.text) == ("rules", POLICY)
    assert kb.embedding is not None
    assert (kb.embedding.kind, kb.embedding.api_key) == ("openai", "${LAB_KEY}")
    assert (wiki.queries, wiki.policy, wiki.embedding) == ((), None, None)
    assert applied.server_policy is not None
    assert applied.server_policy.name == "server"
    assert applied.bound == {"cluster", "graph.kb"}
    assert applied.revision == 3
    assert applied.digest == digest_of(cluster.ledger.read_text())
    assert (applied.quarantined, applied.warnings) == ({}, ())


def test_a_ledger_may_lack_what_it_need_not_have(cluster):
    for name in (
        "state_revision",
        "resource_statuses",
        "approval_records",
        "recovery_records",
        "observations",
    ):
        del cluster.state[name]
    assert read(cluster.save()).revision == 0


def test_a_whole_ledger_is_understood(cluster):
    cluster.state["resource_statuses"] = {
        "graph.kb": {"status": "applied"},
        "graph.wiki": {"status": "error", "conditions": ["c"], "message": "m"},
    }
    cluster.state["approval_records"] = {
        ULID: {"consumed_at": "2026-01-01T00:00:00Z", "consumed_by_operation": "apply"}
    }
    cluster.state["recovery_records"] = {
        ULID: {
            "kind": "graph_create",
            "graph_id": "kb",
            "outcome": "rolled_forward",
            "recovered_at": "2026-01-01T00:00:00Z",
            "actor": None,
        }
    }
    cluster.state["observations"] = {
        "graph.kb": {
            "kind": "graph",
            "address": "graph.kb",
            "graph_uri": "u",
            "observed_at": "2026-01-01T00:00:00Z",
            "exists": True,
            "manifest_version": 3,
            "schema_digest": "d",
            "desired_schema_digest": "d",
            "schema_matches_desired": True,
            "error": None,
        },
        "graph.old": {
            "kind": "tombstone",
            "deleted_at": "2026-01-01T00:00:00Z",
            "approval_id": ULID,
            "actor": "ana",
        },
    }
    assert len(read(cluster.save()).graphs) == 2


def test_no_graph_is_an_empty_list(tmp_path):
    assert read(ClusterFiles(tmp_path).save()).graphs == ()


def test_reading_changes_nothing(cluster, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    read(cluster)
    with pytest.raises(ServerNotReady, match=r"\[cluster_state_missing\]"):
        read_applied(str(tmp_path / "nothing"), Settings())
    assert sorted(tmp_path.rglob("*")) == before


# -- everything that fails the reading ------------------------------------------------------------


def edit(*path: str, value: object) -> Callable[[ClusterFiles], object]:
    """A change of the ledger."""

    def change(cluster: ClusterFiles) -> None:
        inside = cluster.state
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        cluster.save()

    return change


def raw(text: str | bytes) -> Callable[[ClusterFiles], object]:
    return lambda cluster: cluster.file("__cluster/state.json", text)


RESOURCES = ("applied_revision", "resources")
STATE = "__cluster/state.json"
SIDECAR = f"__cluster/recoveries/{ULID}.json"
INVALID = [("invalid_state_json", STATE)]

FAILURES: dict[str, tuple[Callable[[ClusterFiles], object], list[tuple[str, str]]]] = {
    "no ledger": (lambda c: c.ledger.unlink(), [("cluster_state_missing", STATE)]),
    "an empty ledger": (raw(""), INVALID),
    "not JSON": (raw("{"), INVALID),
    "a list": (raw("[]"), INVALID),
    "nested": (raw("[" * 100_000), INVALID),
    "not text": (raw(b"\xff"), [("state_read_error", STATE)]),
    "a repeated key": (raw('{"version": 1, "version": 1}'), INVALID),
    "an unknown field": (edit("x", value=1), INVALID),
    "an unknown field of a resource": (
        edit(*RESOURCES, "graph.kb", value={"digest": "0" * 64, "x": 1}),
        INVALID,
    ),
    "an unknown field of a status": (
        edit("resource_statuses", value={"graph.kb": {"status": "applied", "x": 1}}),
        INVALID,
    ),
    "an unknown field of an observation": (
        edit("observations", value={"g": {"kind": "tombstone", "deleted_at": "x", "y": 1}}),
        INVALID,
    ),
    "an unknown status": (
        edit("resource_statuses", value={"graph.kb": {"status": "fine"}}),
        INVALID,
    ),
    "another version": (edit("version", value=2), [("unsupported_state_version", STATE)]),
    "a version that is no number": (edit("version", value="1"), INVALID),
    "an unknown kind": (edit(*RESOURCES, "table.x", value={"digest": "0" * 64}), INVALID),
    "a graph outside": (edit(*RESOURCES, "graph.../x", value={"digest": "0" * 64}), INVALID),
    "a digest outside": (edit(*RESOURCES, "policy.p", value={"digest": "../x"}), INVALID),
    "a directory in place of the ledger": (
        lambda c: (c.ledger.unlink(), c.ledger.mkdir()),
        [("cluster_state_missing", STATE)],
    ),
    "a sidecar that is not JSON": (
        lambda c: c.file(SIDECAR, "{"),
        [("invalid_recovery_sidecar", SIDECAR)],
    ),
    "a sidecar with an unknown field": (
        lambda c: c.sidecar("kb", x=1),
        [("invalid_recovery_sidecar", SIDECAR)],
    ),
    "a sidecar of another version": (
        lambda c: c.sidecar("kb", schema_version=9),
        [("unsupported_recovery_sidecar_version", SIDECAR)],
    ),
    "a sidecar that cannot be read": (
        lambda c: c.file(SIDECAR, b"\xff"),
        [("recovery_sidecar_read_error", SIDECAR)],
    ),
    "a sidecar without a graph": (
        lambda c: c.sidecar(" "),
        [("cluster_recovery_unattributed", SIDECAR)],
    ),
    "a missing query": (
        lambda c: c.query("kb", "due", QUERY).unlink(),
        [("catalog_payload_missing", "query.kb.due")],
    ),
    "a changed query": (
        lambda c: c.query("kb", "due", QUERY).write_text("other"),
        [("catalog_payload_digest_mismatch", "query.kb.due")],
    ),
    "a missing policy": (
        lambda c: c.policy("p", POLICY, ["graph.kb"]).unlink(),
        [("catalog_payload_missing", "policy.p")],
    ),
    "a changed policy": (
        lambda c: c.policy("p", POLICY, ["cluster"]).write_text("other"),
        [("catalog_payload_digest_mismatch", "policy.p")],
    ),
    "a policy without bindings": (
        lambda c: c.policy("p", POLICY, None),
        [("policy_bindings_missing", "policy.p")],
    ),
    "a policy with no bindings": (
        lambda c: c.policy("p", POLICY, []),
        [("policy_bindings_missing", "policy.p")],
    ),
    "a policy of a graph that is not there": (
        lambda c: c.policy("p", POLICY, ["graph.other"]),
        [("dangling_graph_reference", "policy.p")],
    ),
    "a policy of a query": (
        lambda c: c.policy("p", POLICY, ["query.kb.due"]),
        [("wrong_kind_reference", "policy.p")],
    ),
    "two policies of a graph": (
        lambda c: (c.policy("p", POLICY, ["graph.kb"]), c.policy("q", POLICY, ["kb", "cluster"])),
        [("duplicate_policy_binding", "policy.q")],
    ),
    "two policies of the server": (
        lambda c: (c.policy("p", POLICY, ["cluster"]), c.policy("q", POLICY, ["cluster"])),
        [("duplicate_policy_binding", "policy.q")],
    ),
    "a query of a graph that is not there": (
        lambda c: c.query("other", "due", QUERY),
        [("dangling_graph_reference", "query.other.due")],
    ),
    "a provider without a profile": (
        edit(*RESOURCES, "provider.embedding.m", value={"digest": "0" * 64}),
        [("embedding_provider_profile_missing", "provider.embedding.m")],
    ),
    "a provider with another digest": (
        edit(
            *RESOURCES,
            "provider.embedding.m",
            value={"digest": "0" * 64, "embedding_profile": {"kind": "mock"}},
        ),
        [("embedding_provider_digest_mismatch", "provider.embedding.m")],
    ),
    "a provider with its key": (
        lambda c: c.provider("m", kind="openai", api_key="sk-secret"),
        [("embedding_api_key_inline", "provider.embedding.m")],
    ),
    "a provider that is not there": (
        lambda c: c.graph("kb", "provider.embedding.m"),
        [("embedding_provider_missing", "graph.kb")],
    ),
    "a provider of another kind": (
        lambda c: c.graph("kb", "policy.m"),
        [("wrong_kind_reference", "graph.kb")],
    ),
    "several at once": (
        lambda c: (
            c.query("kb", "due", QUERY).unlink(),
            c.policy("p", POLICY, None),
            c.sidecar(""),
        ),
        [
            ("cluster_recovery_unattributed", SIDECAR),
            ("policy_bindings_missing", "policy.p"),
            ("catalog_payload_missing", "query.kb.due"),
        ],
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_cluster_that_is_not_ready_says_why(case, cluster):
    change, expected = FAILURES[case]
    change(cluster)
    assert problems(cluster) == expected


def test_no_message_has_the_key_of_a_provider(cluster):
    cluster.provider("m", kind="openai", api_key="sk-secret")
    with pytest.raises(ServerNotReady) as refusal:
        read(cluster)
    assert "sk-secret" not in str(refusal.value.to_json())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_blob_that_cannot_be_read_is_reported(cluster):
    cluster.query("kb", "due", QUERY).chmod(0)
    assert problems(cluster) == [("catalog_payload_read_error", "query.kb.due")]


def test_a_blob_that_is_not_text_is_reported(cluster):
    content = b"\xff\xfe"
    digest = hashlib.sha256(content).hexdigest()
    cluster.resources["query.kb.due"] = {"digest": digest}
    cluster.save()
    cluster.file(f"__cluster/resources/query/kb/due/{digest}.gq", content)
    assert problems(cluster) == [("catalog_payload_read_error", "query.kb.due")]


# -- what concerns one graph -----------------------------------------------------------------------


def test_an_interrupted_operation_sets_its_graph_aside(cluster):
    cluster.sidecar("kb", kind="graph_delete")
    cluster.query("kb", "due", QUERY).unlink()
    cluster.policy("rules", POLICY, ["graph.kb"]).unlink()
    applied = read(cluster)
    assert [graph.graph_id for graph in applied.graphs] == ["wiki"]
    assert [(name, why.code) for name, why in applied.quarantined.items()] == [
        ("kb", "cluster_recovery_pending")
    ]
    assert [warning.severity for warning in applied.warnings] == ["warning"]
    assert applied.bound == {"graph.kb"}


def test_a_policy_of_two_graphs_is_read_for_the_one_that_is_served(cluster):
    cluster.sidecar("kb")
    cluster.policy("rules", POLICY, ["graph.kb", "graph.wiki"]).write_text("changed")
    assert problems(cluster) == [("catalog_payload_digest_mismatch", "policy.rules")]


def test_an_interrupted_creation_of_a_graph_that_is_not_applied_is_only_a_warning(cluster):
    cluster.sidecar("new", kind="graph_create")
    applied = read(cluster)
    assert len(applied.graphs) == 2
    assert applied.quarantined == {}
    assert [warning.code for warning in applied.warnings] == ["cluster_recovery_pending"]


def test_what_is_not_a_sidecar_is_ignored(cluster):
    cluster.file("__cluster/recoveries/note.txt", "x")
    cluster.file("__cluster/lock.json", "{")
    assert len(read(cluster).graphs) == 2


# -- where it is -----------------------------------------------------------------------------------


def test_the_storage_of_a_cluster_file_is_relative_to_it(tmp_path):
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "cluster.yaml"
    assert cluster_root(str(tmp_path / "conf")) == str(tmp_path / "conf")
    file.write_text("version: 1\nstorage: ../data/\n")
    assert cluster_root(str(tmp_path / "conf")) == str(tmp_path / "conf/../data")
    file.write_text("storage: s3://bucket/lab/\n")
    assert cluster_root(str(tmp_path / "conf") + "/") == "s3://bucket/lab"
    assert cluster_root("s3://other/root/") == "s3://other/root"


@pytest.mark.parametrize("text", ["storage: [", "storage: [a]", "storage: 1", "- a", "a: 1\na: 2"])
def test_a_cluster_file_that_does_not_parse_is_an_error(tmp_path, text):
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(InputError, match=r"could not read '.*cluster\.yaml': line \d"):
        cluster_root(str(tmp_path))


def test_records_are_read_as_they_are_written(tmp_path):
    files = ClusterFiles(tmp_path).graph("kb")
    assert read_state(json.dumps(files.state), "p").resources["graph.kb"].digest
    sidecar = read_cluster_sidecar(files.sidecar("kb").read_text(), "p")
    assert (sidecar.graph_id, sidecar.kind) == ("kb", "schema_apply")
    with pytest.raises(LedgerProblem):
        read_cluster_sidecar("[]", "p")
