"""A whole project from an empty directory to served queries, and its changes while people read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.server.gardens import APPRENTICES, Gardens, Readers, invoke, ready
from tests.server.processes import until

pytestmark = [pytest.mark.rotates(4), pytest.mark.xdist_group("project journey")]


def begin(gardens: Gardens, storage: str | None = None) -> None:
    """What somebody does on the first day."""
    gardens.works("cluster", "init", str(gardens.directory), "--graph-id", "gardens")
    for name in ("gardens.pg", "queries/notes.gq"):
        (gardens.directory / name).unlink()
    gardens.write_project(storage)
    resources = gardens.cluster("validate").splitlines()[0]
    assert resources.startswith("cluster config valid: 116 resource(s)"), resources
    gardens.cluster("import")
    plan = str(gardens.work / "plan.json")
    assert "  Create graph.gardens" in gardens.cluster("plan", "--out", plan).splitlines()
    applied = gardens.cluster("apply", plan, "--as", "olga")
    assert "  state: revision 2, converged: true, written: true" in applied.splitlines()


def load(gardens: Gardens, graph: str) -> None:
    seed = str(gardens.work / "seed.jsonl")
    gardens.works("load", graph, "--data", seed, "--mode", "overwrite", "--yes", "--as", "olga")


def follow(gardens: Gardens, *servers) -> None:
    """Wait until servers serve what was applied."""
    revision = gardens.revision()
    for server in servers:
        until(lambda server=server: ready(server)["revision"] == revision, "the revision")


def widen(gardens: Gardens) -> None:
    """A further property, and a question that shows it."""
    gardens.edit("gardens.pg", "    area_ha: F64?\n", "    area_ha: F64?\n    motto: String?\n")
    gardens.edit(
        "queries/questions.gq",
        "    return { $g.slug, $g.name }\n    order { $g.name }",
        "    return { $g.slug, $g.name, $g.motto }\n    order { $g.name }",
    )


def test_a_schema_and_a_policy_change_while_fifty_people_read(tmp_path: Path):
    gardens = Gardens(tmp_path / "gardens")
    begin(gardens)
    load(gardens, str(gardens.directory / "graphs" / "gardens.omni"))
    with gardens.served() as server:
        url = f"http://{server.address}"
        processes = server.children()
        assert [row["g.slug"] for row in invoke(server, "vera", "gardens_all").json["rows"]] == [
            "gd-0",
            "gd-1",
            "gd-2",
            "gd-3",
        ]
        # A visitor has three questions, and no other.
        assert invoke(server, "vera", "plants_since", {"date": "2001-01-01"}).status in (403, 404)
        with Readers(server) as readers:
            readers.advance()
            # The schema and a query, by somebody with access to the storage.
            widen(gardens)
            plan = gardens.cluster("plan")
            # Queries of one file have one digest: all of them change together.
            questions = [line for line in plan.splitlines() if line.startswith("  Update query.")]
            assert len(questions) == 41, plan
            gardens.cluster("apply", "--as", "olga")
            follow(gardens, server)
            assert "g.motto" in invoke(server, "vera", "gardens_all").json["rows"][0]
            readers.advance()
            assert readers.failures == []
            assert {status for reader in readers.all for _, _, status in reader.replies} == {200}
            # The policy, through the server.
            gardens.edit("people.policy.yaml", APPRENTICES, "")
            plan = gardens.cluster("plan")
            assert "  policy.people: abel loses read" in plan.splitlines(), plan
            before = time.monotonic()
            sent = gardens.cluster("apply", "--server", url, actor="olga")
            after = time.monotonic()
            assert "  in force on the server, deployment 01" in sent, sent
            readers.advance()
        assert readers.failures == []
        readers.check_right_taken(before, after)
        # Nothing was started again.
        assert server.children() == processes
        assert ready(server)["status"] == "ready"
        listed = gardens.works("cluster", "deployments", "--server", url, actor="olga")
        assert listed.splitlines()[1].endswith("converged, by olga, revision 4, in force")
    assert "cluster drift: 0 finding(s)" in gardens.cluster("drift")


@pytest.mark.slow
def test_the_same_project_in_a_bucket(tmp_path: Path, s3, s3_root):
    """No machine but the store is shared: the operator sends everything to the server."""
    storage = s3_root("gardens").uri
    gardens = Gardens(tmp_path / "gardens", bucket_environ(s3))
    begin(gardens, storage)
    load(gardens, f"{storage}/graphs/gardens.omni")
    with gardens.served() as server, Readers(server) as readers:
        url = f"http://{server.address}"
        readers.advance()
        widen(gardens)
        sent = gardens.cluster("apply", "--server", url, actor="olga")
        assert "  in force on the server, deployment 01" in sent, sent
        assert "g.motto" in invoke(server, "vera", "gardens_all").json["rows"][0]
        readers.advance()
        gardens.edit("people.policy.yaml", APPRENTICES, "")
        before = time.monotonic()
        gardens.cluster("apply", "--server", url, actor="olga")
        after = time.monotonic()
        readers.advance()
        assert readers.failures == []
    readers.check_right_taken(before, after)
    local = gardens.cluster("deployments").splitlines()
    assert local[0] == "cluster deployments: 2"
    assert [line.partition(" converged, ")[2] for line in local[1:]] == [
        "by olga, revision 4, in force",
        "by olga, revision 3, in force",
    ]


@pytest.mark.slow
def test_two_servers_follow_one_project(tmp_path: Path):
    """Half of the people read from each; what one is told, both serve."""
    gardens = Gardens(tmp_path / "gardens")
    begin(gardens)
    load(gardens, str(gardens.directory / "graphs" / "gardens.omni"))
    with (
        gardens.served("first") as first,
        gardens.served("second", 1) as second,
        Readers(first, second) as readers,
    ):
        readers.advance()
        widen(gardens)
        gardens.cluster("apply", "--server", f"http://{first.address}", actor="olga")
        follow(gardens, first, second)
        gardens.edit("people.policy.yaml", APPRENTICES, "")
        before = time.monotonic()
        gardens.cluster("apply", "--server", f"http://{second.address}", actor="olga")
        follow(gardens, first, second)
        after = time.monotonic()
        readers.advance()
        assert readers.failures == []
    readers.check_right_taken(before, after)


@pytest.mark.slow
def test_people_draft_review_and_publish_by_their_roles(tmp_path: Path):
    """Gardeners write on branches of their own, curators publish, others are refused."""
    gardens = Gardens(tmp_path / "gardens")
    begin(gardens)
    load(gardens, str(gardens.directory / "graphs" / "gardens.omni"))
    with gardens.served() as server, Readers(server) as readers:
        to = ("--server", f"http://{server.address}", "--graph", "gardens")
        add = ("add_expedition", "--params")
        trip = {"slug": "ex-9", "name": "To the Alps", "when": "2031-01-01T00:00:00Z"}
        params = json.dumps(trip)
        # Nobody but curators writes to main.
        refused = gardens.run("mutate", *add, params, *to, actor="gus")
        assert refused.returncode == 1
        assert "policy denied action 'change'" in refused.stderr, refused.stderr
        gardens.works("branch", "create", "trips", *to, actor="gus")
        gardens.works("mutate", *add, params, "--branch", "trips", *to, actor="gus")
        counts = ("query", "phase_counts", "--json")
        assert _trips(gardens.works(*counts, *to, actor="gwen")) == 3
        assert _trips(gardens.works(*counts, "--branch", "trips", *to, actor="gwen")) == 4
        merge = ("branch", "merge", "trips", "--into", "main")
        assert gardens.run(*merge, *to, actor="gus").returncode == 1
        gardens.works(*merge, *to, actor="cora")
        assert _trips(gardens.works(*counts, *to, actor="gwen")) == 4
        assert gardens.run(*counts, *to, actor="vera").returncode == 1
        # A wrong value of an enum is an error when the mutation runs.
        wrong = json.dumps(
            {"slug": "a", "from": "x", "to": "y", "date": "2031-01-01", "kind": "no"}
        )
        done = gardens.run("mutate", "add_accession", "--params", wrong, *to, actor="cora")
        assert (done.returncode, "kind" in done.stderr) == (1, True), done.stderr
        readers.advance()
        assert readers.failures == []


def _trips(output: str) -> int:
    return sum(row["expeditions"] for row in json.loads(output)["rows"])


@pytest.mark.slow
def test_a_change_that_does_not_fit_is_refused_and_taken_back(tmp_path: Path):
    """What is wrong is said before anything changes; the former files bring the former state."""
    gardens = Gardens(tmp_path / "gardens")
    begin(gardens)
    load(gardens, str(gardens.directory / "graphs" / "gardens.omni"))
    with gardens.served() as server, Readers(server) as readers:
        to = ("--server", f"http://{server.address}")
        config = ("--config", str(gardens.directory))
        before = gardens.revision()
        text = (gardens.directory / "gardens.pg").read_text("utf-8")
        # A query that does not fit the schema: nothing is sent.
        gardens.edit("queries/questions.gq", "$g.founded", "$g.foundation")
        done = gardens.run("cluster", "apply", *config, *to, actor="olga")
        assert done.returncode == 1
        assert "ERROR query_typecheck_error graphs.gardens.queries: queries/questions.gq:" in (
            done.stdout
        )
        gardens.edit("queries/questions.gq", "$g.foundation", "$g.founded")
        # Rows that do not fit: the graph and its queries stay as they are.
        gardens.edit("gardens.pg", "    founded: Date?\n", "    founded: Date\n")
        planned = gardens.cluster("plan")
        assert "    migration UNSUPPORTED:" in planned.splitlines() or "does not fit" in planned
        done = gardens.run("cluster", "apply", *config, *to, actor="olga")
        assert done.returncode == 1
        assert "ERROR schema_apply_failed schema.gardens: " in done.stdout
        shown = gardens.works("cluster", "deployments", *to, actor="olga").splitlines()[1]
        assert " failed, by olga" in shown
        # A property is added, and taken away again by the files of before.
        gardens.write("gardens.pg", text)
        widen(gardens)
        gardens.cluster("apply", *to, actor="olga")
        readers.advance()
        gardens.write_project()
        gardens.cluster("apply", *to, actor="olga")
        readers.advance()
        assert "g.motto" not in invoke(server, "vera", "gardens_all").json["rows"][0]
        assert gardens.revision() > before
        assert ready(server)["status"] == "ready"
        assert readers.failures == []
    assert "cluster plan: 0 change(s)" in gardens.cluster("plan")


@pytest.mark.slow
def test_a_second_graph_comes_and_goes_while_people_read_the_first(tmp_path: Path):
    gardens = Gardens(tmp_path / "gardens")
    begin(gardens)
    load(gardens, str(gardens.directory / "graphs" / "gardens.omni"))
    with gardens.served() as server, Readers(server) as readers:
        to = ("--server", f"http://{server.address}")
        before = (gardens.directory / "cluster.yaml").read_text("utf-8")
        gardens.write("shop.pg", "node Item {\n  slug: String @key\n}\n")
        gardens.write("shop.gq", "query items() { match { $i: Item } return { $i.slug } }\n")
        gardens.edit(
            "cluster.yaml", "policies:", "  shop: { schema: shop.pg, queries: shop.gq }\npolicies:"
        )
        gardens.edit(
            "cluster.yaml",
            "[gardens] }",
            "[gardens] }\n  shop: { file: shop.yaml, applies_to: [shop] }",
        )
        gardens.write("shop.yaml", PEOPLE_OF_THE_SHOP)
        gardens.cluster("apply", *to, actor="olga")
        items = ("query", "items", "--graph", "shop", *to)
        assert gardens.run(*items, actor="cora").returncode == 0
        assert gardens.run(*items, actor="gus").returncode == 1
        readers.advance()
        gardens.write("cluster.yaml", before)
        waits = gardens.cluster("apply", *to, actor="olga")
        assert "  Delete graph.shop [Blocked: approval_required]" in waits.splitlines()
        assert gardens.run(*items, actor="cora").returncode == 0
        newest = gardens.works("cluster", "deployments", "--limit", "1", *to, actor="olga")
        assert " waiting, by olga" in newest
        gardens.cluster("approve", "graph.shop", "--as", "olga")
        done = gardens.cluster("apply", *to, actor="olga")
        assert "  Delete graph.shop [Applied]" in done.splitlines()
        assert gardens.run(*items, actor="cora").returncode == 1
        readers.advance()
        assert readers.failures == []
    assert not (gardens.directory / "graphs" / "shop.omni").exists()


PEOPLE_OF_THE_SHOP = """\
version: 1
groups: { keepers: [cora] }
rules:
  - { id: keepers, allow: { actors: { group: keepers }, actions: [read, invoke_query] } }
"""


def bucket_environ(s3) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": s3.options["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": s3.options["aws_secret_access_key"],
        "AWS_REGION": s3.options["aws_region"],
        "AWS_ENDPOINT_URL_S3": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_FORCE_PATH_STYLE": "yes",
    }
