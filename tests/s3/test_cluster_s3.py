"""The applied state of a cluster whose storage root is a prefix of a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cluster.applied import read_applied
from omnigraph.cluster.location import find_graph
from omnigraph.errors import ServerNotReady
from omnigraph.server.boot import plan_from_cluster, source_signature
from omnigraph.settings import Settings
from omnigraph.storage.objects.store import ObjectStore
from tests.cluster.ledgers import ClusterFiles

QUERY = "query due() { match { $t: Task } return { $t.name } }"


@pytest.fixture
def settings(s3) -> Settings:
    return Settings.from_environ(
        {
            "AWS_ACCESS_KEY_ID": s3.options["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": s3.options["aws_secret_access_key"],
            "AWS_REGION": s3.options["aws_region"],
            "AWS_ENDPOINT_URL_S3": s3.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "yes",
        }
    )


@pytest.fixture
def root(s3_root, tmp_path) -> str:
    """A cluster with one graph, copied to the bucket."""
    files = ClusterFiles(tmp_path / "lab").graph("kb")
    files.query("kb", "due", QUERY)
    files.policy("rules", "version: 1\n", ["graph.kb"])
    copy_to_bucket(s3_root, files.root)
    return str(s3_root("lab").uri)


def copy_to_bucket(s3_root, folder: Path) -> None:
    store = ObjectStore(s3_root("lab"))
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            store.write(str(file.relative_to(folder)), file.read_text())


def test_a_cluster_is_served_from_a_bucket(root, settings, tmp_path):
    plan = plan_from_cluster(root, settings)
    assert [(graph.graph_id, graph.uri) for graph in plan.graphs] == [
        ("kb", f"{root}/graphs/kb.omni")
    ]
    assert [(query.name, query.text) for query in plan.graphs[0].queries] == [("due", QUERY)]
    assert plan.has_policies
    assert find_graph("lab", root, None, settings) == f"{root}/graphs/kb.omni"
    (tmp_path / "cluster.yaml").write_text(f"storage: {root}/\n")
    assert plan_from_cluster(str(tmp_path), settings).digest == plan.digest


def test_a_changed_ledger_and_an_interrupted_operation_are_seen(root, settings, s3_root, tmp_path):
    before = source_signature(root, True, settings)
    assert source_signature(root, True, settings) == before
    files = ClusterFiles(tmp_path / "lab").graph("kb").graph("wiki")
    files.sidecar("kb")
    copy_to_bucket(s3_root, files.root)
    assert source_signature(root, True, settings) != before
    applied = read_applied(root, settings)
    assert [graph.graph_id for graph in applied.graphs] == ["wiki"]
    assert list(applied.quarantined) == ["kb"]


def test_a_missing_blob_and_a_missing_ledger_are_told_apart(root, settings, s3_root):
    store = ObjectStore(s3_root("lab"))
    blob = next(name for name, _ in store.files_below("__cluster/resources/query"))
    store.delete(blob)
    with pytest.raises(ServerNotReady, match=r"\[catalog_payload_missing\] query\.kb\.due"):
        read_applied(root, settings)
    store.delete("__cluster/state.json")
    with pytest.raises(ServerNotReady, match=r"\[cluster_state_missing\]"):
        read_applied(root, settings)


def test_a_bucket_that_refuses_is_not_an_empty_cluster(root, s3):
    wrong = Settings.from_environ(
        {
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "wrong",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": s3.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "yes",
        }
    )
    with pytest.raises(ServerNotReady) as refusal:
        read_applied(root, wrong)
    codes = [line["code"] for line in refusal.value.details["diagnostics"]]
    assert codes == ["recovery_sidecar_read_error", "state_read_error"]
    assert "wrong" not in str(refusal.value)
