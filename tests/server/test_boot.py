"""The plan of a server: from a store, from a cluster, and what is left after opening."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from omnigraph.cluster.graph_ids import is_graph_id
from omnigraph.cluster.ledger import EmbeddingProfile
from omnigraph.errors import EmbeddingError, FormatRefused, GraphNotFound, ServerNotReady
from omnigraph.server.boot import (
    BootPlan,
    GraphSpec,
    Quarantine,
    QueryPayload,
    check_served,
    embedding_config,
    plan_from_cluster,
    plan_from_store,
    quarantine_of,
    source_signature,
)
from omnigraph.settings import Settings
from tests.cluster.ledgers import ClusterFiles, digest_of

QUERY = "query due() { match { $t: Task } return { $t.name } }"
OTHERS = QUERY.replace("due", "all") + QUERY.replace("due", "none")
POLICY = "{version: 1, groups: {g: [ana]}, rules: []}"


# -- a store -------------------------------------------------------------------------------------


def test_a_store_is_one_graph_named_after_its_directory(tmp_path):
    plan = plan_from_store(f"{tmp_path}/My Graph.omni/")
    assert [(graph.graph_id, graph.uri) for graph in plan.graphs] == [
        ("My-Graph", f"{tmp_path}/My Graph.omni/")
    ]
    assert (plan.is_cluster, plan.revision, plan.has_policies) == (False, None, False)
    assert is_graph_id(plan.graphs[0].graph_id)


def test_a_store_has_the_policy_and_the_queries_that_were_given(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "q" / "deep").mkdir(parents=True)
    (tmp_path / "q" / "b.gq").write_text(QUERY)
    (tmp_path / "q" / "a.gq").write_text(OTHERS)
    (tmp_path / "q" / "deep" / "c.gq").write_text(QUERY)
    (tmp_path / "q" / "note.txt").write_text("x")
    plan = plan_from_store("s3://b/kb.omni", str(tmp_path / "p.yaml"), str(tmp_path / "q"))
    graph = plan.graphs[0]
    assert graph.queries == (
        QueryPayload("all", OTHERS),
        QueryPayload("due", QUERY),
        QueryPayload("none", OTHERS),
    )
    assert graph.policy_text == POLICY
    assert plan.has_policies
    (tmp_path / "p.yaml").write_text(POLICY + "\n")
    changed = plan_from_store("s3://b/kb.omni", str(tmp_path / "p.yaml"), str(tmp_path / "q"))
    assert changed.digest != plan.digest


@pytest.mark.parametrize(
    ("policy", "queries", "code"),
    [
        ("none.yaml", None, "policy_file_missing"),
        ("bad.yaml", None, "policy_invalid"),
        ("latin.yaml", None, "policy_file_missing"),
        (None, "none", "query_dir_unreadable"),
        (None, "bad.yaml", "query_dir_unreadable"),
        (None, "broken", "query_parse_error"),
        (None, "twice", "duplicate_query_name"),
    ],
)
def test_what_a_store_was_given_must_be_usable(tmp_path, policy, queries, code):
    (tmp_path / "bad.yaml").write_text("version: 1\nx: 1\n")
    (tmp_path / "latin.yaml").write_bytes(b"\xe9")
    for name, texts in {"broken": ["query {"], "twice": [QUERY, QUERY]}.items():
        (tmp_path / name).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / name / f"{number}.gq").write_text(text)
    given = [name and str(tmp_path / name) for name in (policy, queries)]
    with pytest.raises(ServerNotReady, match="is not ready to serve") as refusal:
        plan_from_store("kb.omni", *given)
    assert f"[{code}] " in str(refusal.value)


# -- a cluster -----------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles(tmp_path / "lab").graph("kb").graph("wiki")


def plan(cluster: ClusterFiles) -> BootPlan:
    return plan_from_cluster(str(cluster.root), Settings())


def test_the_graphs_of_a_cluster_come_from_its_ledger(cluster):
    cluster.query("kb", "due", QUERY)
    cluster.policy("rules", POLICY, ["kb"])
    cluster.policy("srv", POLICY, ["cluster"])
    cluster.provider("main", kind="mock")
    cluster.graph("wiki", "provider.embedding.main")
    made = plan(cluster)
    assert made.graphs == (
        GraphSpec(
            "kb",
            f"{cluster.root}/graphs/kb.omni",
            (QueryPayload("due", QUERY),),
            "rules",
            POLICY,
        ),
        GraphSpec("wiki", f"{cluster.root}/graphs/wiki.omni", embedding=EmbeddingProfile("mock")),
    )
    assert (made.server_policy_name, made.server_policy_text) == ("srv", POLICY)
    assert (made.is_cluster, made.revision, made.has_policies) == (True, 3, True)
    assert made.digest == digest_of(cluster.ledger.read_text())
    assert msgspec.json.decode(msgspec.json.encode(made), type=BootPlan) == made


def test_a_cluster_file_leads_to_the_storage(cluster, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "cluster.yaml").write_text("storage: ../lab\n")
    made = plan_from_cluster(str(tmp_path / "conf"), Settings())
    assert [graph.uri for graph in made.graphs] == [
        f"{tmp_path}/lab/graphs/kb.omni",
        f"{tmp_path}/lab/graphs/wiki.omni",
    ]


def test_a_cluster_file_that_does_not_parse_fails_the_boot(cluster):
    """Although there is a ledger in the same directory."""
    cluster.file("cluster.yaml", "storage: [")
    with pytest.raises(ServerNotReady, match=r"\[invalid_cluster_yaml\] cluster\.yaml: "):
        plan(cluster)


def test_an_empty_cluster_serves_an_empty_list(tmp_path):
    made = plan(ClusterFiles(tmp_path).save())
    assert (made.graphs, made.quarantined) == ((), ())
    check_served(made, (), require_all_graphs=True)


def test_a_missing_ledger_fails_the_boot(tmp_path):
    with pytest.raises(ServerNotReady, match=r"\[cluster_state_missing\]"):
        plan_from_cluster(str(tmp_path), Settings())


def test_a_server_policy_that_does_not_compile_fails_the_boot(cluster):
    graph_rule = (
        "{version: 1, groups: {g: [ana]}, rules: "
        "[{id: r, allow: {actors: {group: g}, actions: [read]}}]}"
    )
    for text, fragment in (("version: 3", "version must be 1"), (graph_rule, "per-graph action")):
        cluster.policy("srv", text, ["cluster"])
        with pytest.raises(ServerNotReady, match=rf"\[policy_invalid\] policy.srv: .*{fragment}"):
            plan(cluster)


def quarantined(made: BootPlan) -> dict[str, str]:
    return {graph.graph_id: graph.code for graph in made.quarantined}


def test_a_graph_is_set_aside_for_what_concerns_it_alone(cluster, monkeypatch):
    monkeypatch.delenv("LAB_KEY", raising=False)
    cluster.provider("main", kind="openai", api_key="${LAB_KEY}")
    cluster.provider("odd", kind="odd", api_key="${LAB_KEY}")
    cluster.provider("bare", kind="openai")
    cluster.graph("keyless", "provider.embedding.main")
    cluster.graph("bare", "provider.embedding.bare")
    cluster.graph("my_kb").graph("graphs").graph("x" * 65).graph("kb2").graph("late")
    cluster.policy("bad", "version: 3", ["graph.kb2"])
    cluster.sidecar("late")
    made = plan(cluster)
    assert [graph.graph_id for graph in made.graphs] == ["kb", "wiki"]
    assert quarantined(made) == {
        "keyless": "embedding_provider_unusable",
        "bare": "embedding_provider_unusable",
        "my_kb": "invalid_graph_id",
        "graphs": "invalid_graph_id",
        "x" * 65: "invalid_graph_id",
        "kb2": "policy_invalid",
        "late": "cluster_recovery_pending",
    }
    assert made.has_policies
    check_served(made, made.quarantined, require_all_graphs=False)
    with pytest.raises(ServerNotReady, match="is not ready to serve") as refusal:
        check_served(made, made.quarantined, require_all_graphs=True)
    assert len(refusal.value.details["diagnostics"]) == 7


def test_the_key_of_a_provider_is_read_when_it_is_used(cluster, monkeypatch):
    monkeypatch.setenv("LAB_KEY", "sk-1")
    cluster.provider("main", kind="openai", model="m", api_key="${LAB_KEY}")
    cluster.graph("kb", "provider.embedding.main")
    made = plan(cluster)
    profile = made.graphs[0].embedding
    assert profile is not None
    assert "sk-1" not in repr(made)
    assert embedding_config(profile, Settings()).api_key == "sk-1"
    monkeypatch.setenv("LAB_KEY", "sk-2")
    assert embedding_config(profile, Settings()).api_key == "sk-2"
    monkeypatch.delenv("LAB_KEY")
    with pytest.raises(EmbeddingError, match="LAB_KEY"):
        embedding_config(profile, Settings())
    monkeypatch.setenv("LAB_KEY_FILE", str(cluster.file("key.txt", "sk-3\n")))
    assert embedding_config(profile, Settings()).api_key == "sk-3"
    monkeypatch.setenv("LAB_KEY_FILE", "no-such-file")
    with pytest.raises(EmbeddingError, match="LAB_KEY_FILE"):
        embedding_config(profile, Settings())


# -- after opening -------------------------------------------------------------------------------

TWO = BootPlan("lab", True, (GraphSpec("a", "u"), GraphSpec("b", "v")), "d")


def test_a_server_needs_one_graph_that_opens():
    lost = [Quarantine(name, "graph_not_found", "gone") for name in "ab"]
    check_served(TWO, lost[:1], require_all_graphs=False)
    with pytest.raises(ServerNotReady) as refusal:
        check_served(TWO, lost, require_all_graphs=False)
    codes = [line["code"] for line in refusal.value.details["diagnostics"]]
    assert codes == ["cluster_no_healthy_graphs", "graph_not_found", "graph_not_found"]
    with pytest.raises(ServerNotReady):
        check_served(TWO, lost[:1], require_all_graphs=True)


def test_a_cluster_with_only_quarantined_graphs_is_not_ready():
    lost = (Quarantine("a", "cluster_recovery_pending", "m"),)
    made = BootPlan("lab", True, (), "d", quarantined=lost)
    with pytest.raises(ServerNotReady, match="cluster_no_healthy_graphs"):
        check_served(made, lost, require_all_graphs=False)


def test_a_graph_of_another_format_says_how_to_move_it():
    old = FormatRefused(
        "this graph has format 3, which is older than 4",
        hint="run `omnigraph export` with the release that wrote it, then init and load here",
    )
    reason = quarantine_of("kb", old)
    assert reason.code == "format_refused"
    assert "omnigraph export" in reason.message
    assert "init and load" in reason.message
    assert quarantine_of("kb", GraphNotFound("no graph")).code == "graph_not_found"


# -- watching ------------------------------------------------------------------------------------


def test_the_signature_of_a_cluster_changes_with_its_ledger(cluster):
    def signature() -> str:
        return source_signature(str(cluster.root), True, Settings())

    first = signature()
    assert signature() == first
    cluster.graph("new")
    second = signature()
    assert second != first
    cluster.file("cluster.yaml", "version: 1")
    assert signature() != second
    cluster.file("cluster.yaml", "storage: [")
    assert signature()


def test_the_signature_of_a_store_changes_with_its_files(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "q").mkdir()

    def signature() -> str:
        files = (str(tmp_path / "p.yaml"), None, str(tmp_path / "s.yaml"))
        return source_signature("kb.omni", False, Settings(), files, str(tmp_path / "q"))

    seen = [signature()]
    assert signature() == seen[0]
    (tmp_path / "p.yaml").write_text(POLICY + " ")
    seen.append(signature())
    (tmp_path / "q" / "a.gq").write_text(QUERY)
    seen.append(signature())
    os.replace(tmp_path / "q" / "a.gq", tmp_path / "q" / "b.gq")
    seen.append(signature())
    (tmp_path / "p.yaml").unlink()
    seen.append(signature())
    (tmp_path / "q" / "b.gq").unlink()
    (tmp_path / "q").rmdir()
    seen.append(signature())
    assert len(set(seen)) == len(seen)
