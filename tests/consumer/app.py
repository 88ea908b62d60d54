"""A small program as users write it, with every annotation that ``mypy --strict`` asks for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from omnigraph import (
    Baseline,
    Batching,
    Blame,
    BlobInfo,
    Cancel,
    ChangePage,
    CleanupReport,
    Commit,
    Diff,
    EmbeddingReport,
    Explanation,
    Graph,
    GraphBranches,
    GraphLike,
    GraphSnapshot,
    IndexReport,
    InputError,
    LoadMode,
    LoadReceipt,
    MergeReport,
    NotFound,
    Progress,
    RateLimit,
    Receipt,
    RemoteGraph,
    RepairReport,
    Result,
    SchemaApplied,
    Tag,
    VerifyReport,
    clone,
    connect,
    connect_async,
    restore,
    verify_graph,
)

SCHEMA = "node Person { name: String @key  age: I32? }"
PEOPLE = "query people($least: I32) { match { $p: Person  $p.age >= $least } return { $p.name } }"


def open_or_create(path: Path) -> Graph:
    try:
        return Graph.open(path, "rw", actor="ana")
    except NotFound:
        return Graph.init(path, SCHEMA, actor="ana", durability="os")


def show(progress: Progress) -> None:
    split = progress.done / progress.total if progress.total else 0.0
    print(f"{progress.phase}: {split:.0%} of {progress.unit}")


def write(graph: Graph, file: Path) -> list[str | None]:
    loaded: LoadReceipt = graph.load(file, LoadMode.MERGE, on_progress=show, max_rejects=10)
    again: LoadReceipt = graph.load([file, str(file)], "append", dry_run=True)
    added: Receipt = graph.append({"Person": pa.table({"name": ["Ada"]})}, actor="ben")
    changed: Receipt = graph.mutate(
        'query q() { insert Person { name: "Bo" } }', if_commit=added.commit_id
    )
    return [loaded.commit_id, again.commit_id, added.commit_id, changed.commit_id]


def read(graph: Graph) -> list[str]:
    cancel = Cancel()
    result: Result = graph.query(PEOPLE, params={"least": 18}, timeout=5.0, cancel=cancel)
    with result:
        names = [str(row["p.name"]) for row in result]
    columns: list[str] = result.columns
    earlier = graph.query(PEOPLE, None, {"least": 18}, at="v1").rows()
    then: GraphSnapshot = graph.snapshot("main", at=datetime(2026, 1, 1, tzinfo=UTC))
    plan: Explanation = then.explain(PEOPLE)
    lines: Iterator[str] = then.export()
    written: int = then.export("people", "parquet", types=["Person"])
    blob: BlobInfo | None = then.blob_info("Person", "Ada", "photo")
    size: int = 0 if blob is None else blob.size
    entity: dict[str, object] | None = then.entity("Person", "Ada")
    return [*names, *columns, str(plan), *lines, f"{written} {size} {len(earlier)} {entity}"]


def branch(graph: Graph) -> MergeReport:
    branches: GraphBranches = graph.branches
    branches.create("review")
    preview: MergeReport = graph.merge("review", dry_run=True)
    choices = {conflict.conflict_id: "theirs" for conflict in preview.conflicts}
    report = graph.merge("review", "main", resolve="ours" if choices else None)
    commits: list[Commit] = graph.commits()
    tag: Tag = graph.tags.create("v1", commits[0].commit_id)
    undone: MergeReport = graph.revert(tag.commit_id)
    return undone if undone.commit_id else report


def follow(graph: Graph, cursor: str | None) -> str:
    before: GraphSnapshot = graph.snapshot(tag="v1")
    diff: Diff = before.diff(graph.snapshot(), types=["Person"], summary=True)
    baseline: Baseline = graph.changes.baseline()
    page: ChangePage = graph.changes.poll(cursor=cursor or baseline.cursor, limit=100)
    blame: Blame = graph.changes.blame("Person", "Ada")
    return page.cursor if not diff.is_empty else str(blame)


def keep(graph: Graph, backup: Path) -> bool:
    applied: SchemaApplied = graph.schema.apply(SCHEMA, dry_run=True)
    indexes: IndexReport = graph.indexes.ensure()
    cleaned: CleanupReport = graph.maintenance.cleanup(keep_versions=3, on_progress=show)
    repaired: RepairReport = graph.maintenance.repair()
    vectors: EmbeddingReport = graph.embeddings.fill(
        rate=RateLimit(requests_per_minute=60), batching=Batching(texts=50)
    )
    graph.maintenance.backup(backup, on_progress=show)
    restore(backup, backup.with_name("copy.omni"))
    clone(graph.uri, backup.with_name("clone.omni"))
    sound: VerifyReport = verify_graph(graph.uri)
    print(applied.supported, indexes, cleaned, repaired, vectors)
    return bool(sound.is_sound)


def enrich(graph: GraphLike, file: Path) -> list[str]:
    """Works with a graph of this process and with one behind a server."""
    with graph:
        loaded: LoadReceipt = graph.load(file, on_progress=show, dry_run=True)
        changed: Receipt = graph.mutate("query q() { delete Person }", if_commit=loaded.commit_id)
        graph.branches.create("review")
        merged: MergeReport = graph.merge("review", delete_branch=True)
        head = graph.snapshot()
        rows: Result = head.query(PEOPLE, params={"least": 18}, timeout=1.5)
        commits: list[Commit] = graph.commits()
        names = [*graph.branches.list(), graph.schema.text(), *head.export(), graph.uri]
        tag: Tag = graph.tags.create("v1", changed.commit_id)
        page: ChangePage = graph.changes.poll(start="now", wait=1.5, types=["Person"])
        blamed: Blame = graph.changes.blame("Person", "Ada")
        names += [tag.commit_id, page.cursor, blamed.commit.commit_id]
        names += [change.id for change in graph.changes.of_commit(tag.commit_id).changes]
        names += [block.cursor for block in graph.changes.follow(cursor=page.cursor)]
        print(changed, merged, rows.columns, commits, graph.catalog.node_types)
        return names


async def remote(url: str, token: str, file: Path) -> None:
    served: RemoteGraph = connect(url, graph="kb", token=token)
    print(enrich(served, file), enrich(Graph.open("team.omni"), file))
    async with await connect_async(url, graph="kb", token=token) as graph:
        result: Result = await graph.query(PEOPLE, params={"least": 18})
        receipt: LoadReceipt = await graph.load(file)
        print(len(result), receipt.commit_id, await graph.branches.list())


def main() -> int:
    with open_or_create(Path("team.omni")) as graph:
        try:
            print(write(graph, Path("people.ndjson")), read(graph), branch(graph))
        except InputError as error:
            print(error.code, error.message, error.hint, error.retryable)
            return 1
        print(follow(graph, None), keep(graph, Path("backup")))
    return 0
