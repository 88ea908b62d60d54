"""Verify: is the graph what it says it is, down to its bytes? Nothing is changed.

Each look is one function of its own module; what it finds goes into one report, and a look that
fails is a finding itself.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import normal_branch
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound
from omnigraph.maintain.verify.files import (
    compare_files,
    look_at_names,
    look_at_records,
    look_for_missing,
    split,
    tell_of_files,
)
from omnigraph.maintain.verify.ground import Ground, Tell
from omnigraph.maintain.verify.history import (
    look_at_branches,
    look_at_commits,
    look_at_orphans,
    look_at_schema,
    look_at_tags,
    look_at_writes,
)
from omnigraph.maintain.verify.report import (
    ProblemCode,
    ProblemCollector,
    VerifyProblem,
    VerifyReport,
    Weight,
)
from omnigraph.maintain.verify.tables import table_jobs
from omnigraph.maintain.verify.versions import look_at_versions
from omnigraph.storage.checksums import TABLES, ChecksumRecords
from omnigraph.storage.objects.graph_paths import escaped

__all__ = ["VerifyProblem", "ProblemCode", "VerifyReport", "Weight", "verify"]

MANIFEST_PHASE, FILES_PHASE, TABLES_PHASE = "manifest", "files", "tables"


def verify(
    store: GraphStore,
    branch: str | None = None,
    *,
    checksums: bool = True,
    many: int = 1,
    tell: Tell | None = None,
) -> VerifyReport:
    """Look at everything, or at what one branch shows; ``main`` is spelled out here."""
    fresh = GraphStore(store.root)
    ground = Ground(fresh, ProblemCollector())
    told = tell or _silent
    with ground.guarded("the files of the graph"):
        ground.files = dict(
            item
            for top in TABLES
            for item in fresh.objects.files_below(top, partial(_link, ground))
        )
    look_at_schema(ground)
    records = ChecksumRecords()
    # Bytes first: Lance may end the process when it reads a damaged file.
    if checksums:
        records = look_at_records(ground, store.datasets.checksums.pending())
        manifest = [path for path in ground.files if split(path)[0] == MANIFEST]
        compare_files(ground, records, manifest, many, lambda *at: told(MANIFEST_PHASE, *at))
    names = look_at_branches(ground)
    if branch is not None:
        if branch not in names:
            raise BranchNotFound(f"branch '{branch}' not found", details={"branch": branch})
        names = [branch]
    ground.selected = [normal_branch(name) for name in names]
    locations = _locations(ground, branch)
    if checksums:
        rest = [p for p in ground.files if split(p)[0] in locations and split(p)[0] != MANIFEST]
        compare_files(ground, records, rest, many, lambda *at: told(FILES_PHASE, *at))
    look_at_versions(ground, records)
    look_at_orphans(ground)
    look_at_tags(ground)
    look_at_writes(ground)
    for snapshot in ground.chosen():
        look_at_commits(ground, snapshot)
    unverified: list[str] = []
    if checksums:
        named = look_at_names(ground, locations)
        look_for_missing(ground, named, records)
        unverified = tell_of_files(ground, named, records, locations)
    _run(table_jobs(ground), many, lambda *at: told(TABLES_PHASE, *at))
    return ground.problems.report(names, unverified)


def _link(ground: Ground, path: str) -> None:
    """A link is not followed: what it leads to is not part of the graph."""
    ground.problems.add(
        VerifyProblem(
            ProblemCode.LINK_REFUSED,
            f"{escaped(path)} is a symbolic link or a special file: backup, clone, cleanup and "
            "deleting branches refuse it",
            "replace it with the directory or file it points to, or remove it",
            table=ground.table_at(path),
            file=path,
        )
    )


def _locations(ground: Ground, branch: str | None) -> list[str]:
    """The tables whose files are looked at: all that are there when no branch says which."""
    found = {pin.location for _, pin in ground.pins()} | {MANIFEST}
    if not ground.chosen():
        found |= {split(path)[0] for path in ground.files}
    if branch is None and any(path.startswith(f"{AUDIT_TABLE}/") for path in ground.files):
        found.add(AUDIT_TABLE)
    return sorted(found)


def _run(jobs: list[Callable[[], None]], many: int, told: Callable[[int, int], None]) -> None:
    with ThreadPoolExecutor(many) as pool:
        for done, _ in enumerate(pool.map(lambda job: job(), jobs), start=1):
            told(done, len(jobs))


def _silent(_phase: str, _done: int, _total: int) -> None:
    """Nobody listens."""
