"""The client against a real server: the same answers as the graph itself gives."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import (
    AlreadyExists,
    BranchNotFound,
    CommitNotFound,
    HistoryGone,
    IntegrityError,
    LimitExceeded,
    LoadError,
    MergeConflicts,
    NotFound,
    ParameterError,
    PolicyDenied,
    PreconditionFailed,
    QueryError,
    RowLimitExceeded,
    SchemaError,
    ServerUnavailable,
    Unauthorized,
)
from omnigraph.server.admission import WriteCaps
from tests.server.serving import (
    ADD,
    PEOPLE,
    QUERIES,
    ROWS,
    ListedAccess,
    Server,
    open_served,
    serving,
)

pytestmark = pytest.mark.rotates(2)

KB = "kb"


@pytest.fixture
def local(tmp_path):
    with open_served(tmp_path / "g.omni") as graph:
        yield graph


@pytest.fixture
def server(local):
    with serving({KB: local}, queries=QUERIES, tokens={"secret": "ana"}) as server:
        yield server


@pytest.fixture
def graph(server):
    with connected(server) as graph:
        yield graph


@pytest.fixture(scope="module")
def kept_local(tmp_path_factory):
    """A graph that tests only read."""
    with open_served(tmp_path_factory.mktemp("kept") / "g.omni") as graph:
        yield graph


@pytest.fixture(scope="module")
def kept_server(kept_local):
    with serving({KB: kept_local}, queries=QUERIES, tokens={"secret": "ana"}) as server:
        yield server


@pytest.fixture(scope="module")
def kept(kept_server):
    with connected(kept_server) as graph:
        yield graph


def connected(server: Server, token: str = "secret", graph: str = KB) -> omnigraph.RemoteGraph:
    return omnigraph.connect(f"http://127.0.0.1:{server.port}", graph=graph, token=token)


# -- reading --------------------------------------------------------------------------------------

READS = [
    PEOPLE,
    "query q() { match { $p: Person } return { $p } }",
    "query q() { match { $a: Person $a knows $b } return { $a, $b, $a.big, $b.tags } }",
    "query q() { match { $p: Person } return { count($p) as n, max($p.age) as oldest } }",
    'query q() { match { $p: Person { name: "No" } } return { $p.name, $p.seen } }',
]


@pytest.mark.parametrize("text", READS)
def test_rows_are_those_of_the_graph(kept, kept_local, text):
    ours, theirs = kept.query(text), kept_local.query(text)
    assert ours.to_arrow().equals(theirs.to_arrow())
    assert ours.envelope() == theirs.envelope()
    assert ours.schema.equals(theirs.schema)


def test_a_snapshot_does_not_move(graph, local):
    before = graph.snapshot()
    assert before.commit_id == local.snapshot().commit_id
    assert before.tables == local.snapshot().tables
    graph.mutate(ADD, params={"name": "Alan"})
    assert len(before.query(PEOPLE)) == 2
    assert len(graph.query(PEOPLE, snapshot=before)) == 2
    assert len(graph.query(PEOPLE, at=before.commit_id)) == 2
    assert len(graph.query(PEOPLE)) == 3
    assert before.query(PEOPLE).target == {"branch": "main"}
    assert before.count("Person") == 2
    assert list(before.export()) == list(local.snapshot(commit=before.commit_id).export())
    assert len(list(graph.snapshot().export(types=["Person"]))) == 3


def test_an_export_is_the_same(kept, kept_local, tmp_path):
    assert list(kept.snapshot().export()) == list(kept_local.snapshot().export())
    with Graph.open(kept_local.uri, "r") as reader:
        expected = reader.snapshot().export(tmp_path / "theirs.jsonl")
    assert kept.snapshot().export(tmp_path / "ours.jsonl") == expected
    assert (tmp_path / "ours.jsonl").read_bytes() == (tmp_path / "theirs.jsonl").read_bytes()


def test_history_schema_and_branches_are_the_same(kept, kept_local):
    assert kept.commits() == kept_local.commits()
    assert kept.commit(kept_local.commits()[0].commit_id) == kept_local.commits()[0]
    assert kept.schema.text() == kept_local.schema.text()
    assert kept.catalog.schema_hash == kept_local.catalog.schema_hash
    assert kept.branches.list() == list(kept_local.branches.list())


def test_stored_queries_are_run_by_name(graph):
    assert [query.name for query in graph.queries] == ["add_person", "adults"]
    assert graph.queries.invoke("adults", {"age": 37}).rows() == [{"p.name": "Grace", "p.age": 37}]
    assert graph.queries.invoke_mutation("add_person", {"name": "Alan"}).affected_nodes == 1
    with pytest.raises(omnigraph.InputError, match="is a mutation"):
        graph.queries.invoke("add_person", {"name": "x"})
    with pytest.raises(NotFound):
        graph.queries.invoke("nothing")


def test_many_rows_arrive_batch_by_batch(tmp_path):
    rows = [{"type": "City", "data": {"name": f"c{n:06}"}} for n in range(50_000)]
    text = "query q() { match { $c: City } return { $c.name } }"
    with (
        open_served(tmp_path / "big.omni", rows) as local,
        serving({KB: local}) as server,
        connected(server, "") as graph,
    ):
        with graph.query(text) as result:
            assert next(iter(result.batches())).num_rows < 50_000
        assert graph.query(text).to_arrow().num_rows == 50_000
        with pytest.raises(RowLimitExceeded):
            graph.query(text, max_rows=10).rows()


# -- writing --------------------------------------------------------------------------------------


def test_a_mutation_gives_the_receipt_of_the_graph(graph, local):
    receipt = graph.mutate(ADD, params={"name": "Alan", "age": 41}, idempotency_key="k")
    assert receipt.actor == graph.actor == "ana"
    assert receipt.tables == {"node:Person": omnigraph.TableCounts(inserted=1)}
    assert graph.commit(receipt.commit_id).actor == "ana"
    assert graph.mutate(ADD, params={"name": "Alan", "age": 41}, idempotency_key="k") == receipt
    assert len(graph.query(PEOPLE)) == 3


def test_a_load_gives_the_receipt_of_the_graph(graph, tmp_path):
    receipt = graph.load(
        [*ROWS, {"type": "City", "data": {"name": "Paris", "mayor": "x"}}],
        branch="side",
        from_branch="main",
    )
    assert (receipt.branch, receipt.branch_created, receipt.base_branch) == ("side", True, "main")
    assert receipt.ignored == {"City.mayor": 1}
    assert receipt.records == 5
    assert receipt.tables["node:City"].inserted == 1
    checked = graph.load([{"type": "City", "data": {"name": "Rome"}}], dry_run=True)
    assert (checked.dry_run, checked.commit_id) == (True, None)
    assert len(graph.query("query q() { match { $c: City } return { $c.name } }")) == 1
    some = [{"type": "City", "data": {}}, {"type": "City", "data": {"name": "Oslo"}}]
    assert graph.load(some, max_rejects=1).rejected == 1
    with pytest.raises(LoadError, match="mayor"):
        graph.load(
            [{"type": "City", "data": {"name": "Bern", "mayor": "x"}}], strict_properties=True
        )


def test_typed_rows_are_appended(graph, local):
    people = pa.table({"name": ["Alan", "Edsger"], "big": [2**60, None]})
    receipt = graph.append({"Person": people, "Knows": pa.table({"src": ["Alan"], "dst": ["Ada"]})})
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 1)
    with Graph.open(local.uri, "r") as reader:
        assert reader.snapshot().entity("Person", "Alan")["big"] == 2**60
    with pytest.raises(AlreadyExists):
        graph.append({"Person": people})


def test_branches_and_merges(graph, local):
    graph.branches.create("review/a")
    graph.mutate(ADD, params={"name": "Alan"}, branch="review/a")
    report = graph.merge("review/a", delete_branch=True)
    assert report.outcome.value == "fast_forward"
    assert (report.branch_deleted, report.source, report.target) == (True, "review/a", "main")
    assert report.tables["node:Person"].inserted == 1
    assert report.commit_id == graph.commits()[0].commit_id
    assert graph.branches.list() == ["main"]


def test_a_schema_is_applied(graph, local):
    text = graph.schema.text().replace("age: I32?", "age: I32?  city: String?")
    applied = graph.schema.apply(text)
    assert (applied.supported, applied.applied) == (True, True)
    assert [step.describe() for step in applied.steps] == [
        "add property 'Person.city' (String?) on node 'Person'"
    ]
    assert "city" in graph.catalog.node_types["Person"].properties
    assert not graph.schema.apply(text).applied


def test_a_client_reads_its_own_writes(graph, server):
    receipt = graph.mutate(ADD, params={"name": "Alan"})
    assert graph.calls.connection.last_commit == receipt.commit_id


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda g: g.query("query q() { match { $p: No } return { $p } }"), QueryError),
        (lambda g: g.query("query q(\n"), QueryError),
        (lambda g: g.query(PEOPLE, branch="no"), BranchNotFound),
        (lambda g: g.snapshot(commit="01NO"), CommitNotFound),
        (lambda g: g.query(QUERIES["adults"], params={"age": "x"}), ParameterError),
        (lambda g: g.query(QUERIES["adults"]), ParameterError),
        (lambda g: g.mutate(ADD, params={"name": "x"}, branch="no"), BranchNotFound),
        (lambda g: g.mutate(ADD, params={"name": "x"}, if_commit="01NO"), PreconditionFailed),
        (lambda g: g.load([{"type": "No", "data": {}}]), LoadError),
        (lambda g: g.load([{"edge": "Knows", "from": "x", "to": "y"}]), IntegrityError),
        (lambda g: g.branches.create("main"), omnigraph.InputError),
        (lambda g: g.branches.create("a..b"), omnigraph.InputError),
        (lambda g: g.branches.delete("main"), omnigraph.InputError),
        (lambda g: g.branches.delete("no"), BranchNotFound),
        (lambda g: g.merge("no"), BranchNotFound),
        (lambda g: g.merge("main"), omnigraph.InputError),
        (lambda g: g.commit("01NO"), CommitNotFound),
        (lambda g: g.schema.apply("node {"), SchemaError),
        (lambda g: g.snapshot("no"), BranchNotFound),
    ],
)
def test_an_error_is_that_of_the_graph(kept, kept_local, call, kind):
    """The same class, message and code, remote and embedded; diagnostics with their carets."""
    errors = []
    for either in (kept, kept_local):
        with pytest.raises(kind) as caught:
            call(either)
        errors.append(caught.value)
    ours, theirs = errors
    assert type(ours) is type(theirs)
    assert (ours.code, ours.retryable) == (theirs.code, theirs.retryable)
    assert ours.message == theirs.message
    if isinstance(theirs, omnigraph.LanguageError):
        assert ours.render() == theirs.render()


def test_an_error_in_a_file_names_the_file_of_the_client(kept, tmp_path):
    (tmp_path / "d.jsonl").write_text('{"type": "City", "data": {}}\n', "utf-8")
    with pytest.raises(LoadError) as caught:
        kept.load(tmp_path / "d.jsonl")
    assert caught.value.message.startswith(f"{tmp_path}/d.jsonl:1: ")
    assert str(caught.value) == caught.value.message
    assert caught.value.details["file"] == f"{tmp_path}/d.jsonl"


def test_an_unknown_type_is_not_exported(kept):
    with pytest.raises(omnigraph.InputError, match="unknown export type 'No'"):
        kept.snapshot().export(types=["No"])


def test_every_finding_of_a_text_has_its_caret(kept, kept_local):
    text = "query q() { match { $p: No  $q: Nope } return { $p, $q } }"
    with pytest.raises(QueryError) as ours:
        kept.query(text)
    with pytest.raises(QueryError) as theirs:
        kept_local.query(text)
    assert len(theirs.value.diagnostics) > 1
    assert ours.value.render() == theirs.value.render()


def test_conflicts_of_a_merge_are_listed(graph):
    graph.branches.create("side")
    change = 'query c($n: I32) { update Person set { age: $n } where name = "Ada" }'
    graph.mutate(change, params={"n": 1}, branch="side")
    graph.mutate(change, params={"n": 2})
    with pytest.raises(MergeConflicts) as caught:
        graph.merge("side")
    (conflict,) = caught.value.details["conflicts"]
    assert (conflict["table_key"], conflict["row_id"]) == ("node:Person", "Ada")
    assert not caught.value.retryable


def test_a_token_is_required(kept_server):
    for token in ("", "wrong"):
        with connected(kept_server, token) as graph, pytest.raises(Unauthorized):
            graph.branches.list()


def test_a_graph_that_is_not_there(kept_server):
    with connected(kept_server, graph="nothing") as graph, pytest.raises(NotFound):
        graph.branches.list()


def test_what_a_policy_denies(local):
    access = ListedAccess(denied={"change"})
    served = serving({KB: local}, tokens={"secret": "ana"}, access=access)
    with served as server, connected(server) as graph:
        with pytest.raises(PolicyDenied):
            graph.mutate(ADD, params={"name": "x"})
        assert len(graph.query(PEOPLE)) == 2


def test_a_body_that_is_too_large_is_refused(kept):
    with pytest.raises(LimitExceeded, match="larger than"):
        kept.load({"type": "City", "data": {"name": "x" * 1000 + str(n)}} for n in range(40_000))
    assert kept.branches.list() == ["main"]


def test_a_busy_server_asks_for_a_pause(local):
    with (
        serving({KB: local}, caps=WriteCaps(0)) as server,
        connected(server, "") as graph,
        pytest.raises(ServerUnavailable) as caught,
    ):
        graph.mutate(ADD, params={"name": "x"})
    assert caught.value.details["status"] == 429
    assert caught.value.retry_after == 60.0


def test_a_state_that_cleanup_removed(graph, local):
    first = graph.snapshot()
    for n in range(3):
        graph.mutate(ADD, params={"name": f"p{n}"})
    with Graph.open(local.uri) as owner:
        owner.maintenance.cleanup(keep_versions=1, min_age=0)
    with pytest.raises(HistoryGone):
        first.query(PEOPLE).rows()


# -- threads and tasks ----------------------------------------------------------------------------


def test_threads_share_a_graph(graph):
    seen: list[int] = []

    def work(n: int) -> None:
        graph.mutate(ADD, params={"name": f"t{n}"})
        seen.append(len(graph.query(PEOPLE)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seen) == 6
    assert len(graph.query(PEOPLE)) == 6


def test_the_async_client_does_the_same(server, local, tmp_path):
    url = f"http://127.0.0.1:{server.port}"

    async def run() -> None:
        async with await omnigraph.connect_async(url, graph=KB, token="secret") as graph:
            assert (await graph.query(PEOPLE)).rows() == local.query(PEOPLE).rows()
            assert (await graph.catalog()).schema_hash == local.catalog.schema_hash
            receipts = await asyncio.gather(
                *(graph.mutate(ADD, params={"name": f"a{n}"}) for n in range(3))
            )
            assert len({receipt.commit_id for receipt in receipts}) == 3
            (tmp_path / "d.jsonl").write_text('{"type":"City","data":{"name":"Rome"}}\n', "utf-8")
            assert (await graph.load(tmp_path / "d.jsonl")).affected_nodes == 1
            appended = await graph.append({"City": pa.table({"name": ["Oslo"]})})
            assert appended.affected_nodes == 1
            await graph.branches.create("side")
            assert await graph.branches.list() == ["main", "side"]
            assert (await graph.merge("side")).outcome.value == "already_up_to_date"
            await graph.branches.delete("side")
            snapshot = await graph.snapshot()
            assert snapshot.tables == local.snapshot().tables
            assert len(await snapshot.query(PEOPLE)) == 5
            lines = [line async for line in await snapshot.export()]
            assert lines == list(local.snapshot().export())
            commits = await graph.commits()
            assert commits == local.commits()
            assert await graph.commit(commits[0].commit_id) == commits[0]
            assert (await graph.queries.invoke("adults", {"age": 37})).row_count == 1
            assert [query.name for query in await graph.queries.list()] == ["add_person", "adults"]
            added = await graph.queries.invoke_mutation("add_person", {"name": "z"})
            assert added.affected_nodes == 1
            assert not (await graph.schema.apply(await graph.schema.text())).applied
            with pytest.raises(QueryError):
                await graph.query("query q(\n")
            with pytest.raises(RowLimitExceeded):
                await graph.query(PEOPLE, max_rows=1)
            with pytest.raises(LimitExceeded):
                await graph.load(
                    {"type": "City", "data": {"name": "x" * 1000 + str(n)}} for n in range(40_000)
                )
        with pytest.raises(omnigraph.errors.Closed):
            await graph.commits()
        async with await omnigraph.connect_async(url, graph=KB, token="no") as other:
            with pytest.raises(Unauthorized):
                await other.commits()
        async with await omnigraph.connect_async("http://127.0.0.1:1", graph=KB) as nobody:
            with pytest.raises(ServerUnavailable, match="cannot be reached"):
                await nobody.commits()

    asyncio.run(run())
