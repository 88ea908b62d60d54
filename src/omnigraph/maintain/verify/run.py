"""The order of the checks: bytes before what Lance reads, the manifest before tables."""

from __future__ import annotations

from functools import partial

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import missing_branch, normal_branch
from omnigraph.commit.store import GraphStore
from omnigraph.maintain.verify.context import VerifyContext
from omnigraph.maintain.verify.files import (
    check_missing,
    check_records,
    compare_files,
    referenced_paths,
    report_files,
    split,
)
from omnigraph.maintain.verify.history import (
    check_branches,
    check_commits,
    check_orphans,
    check_schema,
    check_tags,
    check_writes,
)
from omnigraph.maintain.verify.report import ProblemCode, ProblemCollector, VerifyReport
from omnigraph.maintain.verify.tables import table_jobs
from omnigraph.maintain.verify.versions import check_versions
from omnigraph.storage.checksums import TABLES, ChecksumRecords
from omnigraph.storage.executor import TaskProgress, ThreadExecutor
from omnigraph.storage.objects.paths import escaped

MANIFEST_PHASE, FILES_PHASE, TABLES_PHASE = "manifest", "files", "tables"


def verify(
    store: GraphStore,
    branch: str | None = None,
    *,
    checksums: bool = True,
    concurrency: int = 1,
    on_progress: TaskProgress | None = None,
) -> VerifyReport:
    """Verify everything, or one branch; ``main`` is spelled out here."""
    fresh = GraphStore(store.root)
    context = VerifyContext(fresh, ProblemCollector())
    report = on_progress or (lambda phase, done, total: None)
    with context.guarded("the files of the graph"):
        context.files = dict(
            item
            for top in TABLES
            for item in fresh.objects.files_below(top, partial(_link, context))
        )
    check_schema(context)
    records = ChecksumRecords()
    # Bytes first: reading a damaged file with Lance may crash the process.
    if checksums:
        records = check_records(context, store.datasets.checksums.pending())
        manifest = [path for path in context.files if split(path)[0] == MANIFEST]
        compare_files(
            context, records, manifest, concurrency, lambda *at: report(MANIFEST_PHASE, *at)
        )
    names = check_branches(context)
    if branch is not None:
        if branch not in names:
            raise missing_branch(branch)
        names = [branch]
    context.selected = [normal_branch(name) for name in names]
    locations = _locations(context, branch)
    if checksums:
        rest = [p for p in context.files if split(p)[0] in locations and split(p)[0] != MANIFEST]
        compare_files(context, records, rest, concurrency, lambda *at: report(FILES_PHASE, *at))
    check_versions(context, records)
    check_orphans(context)
    check_tags(context)
    check_writes(context)
    for snapshot in context.selected_snapshots():
        check_commits(context, snapshot)
    unverified: list[str] = []
    if checksums:
        referenced = referenced_paths(context, locations)
        check_missing(context, referenced, records)
        unverified = report_files(context, referenced, records, locations)
    executor = ThreadExecutor(concurrency, report)
    executor.run(lambda job: job(), table_jobs(context), TABLES_PHASE)
    return context.problems.report(names, unverified)


def _link(context: VerifyContext, path: str) -> None:
    """A link is not followed: its target is not part of the graph."""
    context.add(
        ProblemCode.LINK_REFUSED,
        f"{escaped(path)} is a symbolic link or a special file: backup, clone, cleanup and "
        "deleting branches refuse it",
        "replace it with the directory or file it points to, or remove it",
        table=context.table_at(path),
        file=path,
    )


def _locations(context: VerifyContext, branch: str | None) -> list[str]:
    """The tables whose files are checked: all existing ones if no branch can be read."""
    locations = {pin.location for _, pin in context.pins()} | {MANIFEST}
    if not context.selected_snapshots():
        locations |= {split(path)[0] for path in context.files}
    if branch is None and any(path.startswith(f"{AUDIT_TABLE}/") for path in context.files):
        locations.add(AUDIT_TABLE)
    return sorted(locations)
