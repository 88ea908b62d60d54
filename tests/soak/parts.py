"""The parts that are played on the soak graph: writer, reader, keeper, brancher."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import Conflict, HistoryGone, MergeConflicts, NotFound, StorageMissing
from tests.soak.acting import Act, Over, TooBusy
from tests.soak.model import (
    BRANCHER,
    KEEP,
    KEYS,
    QUERIES,
    SPACES,
    Pairs,
    Seen,
    ask,
    compare,
    digest,
    judge,
    look,
    text_of,
)

HOLD = 0.4
"""For this share of what cleanup leaves them readers use a snapshot."""
MERGES = 8
"""So often a merge is tried before the branch is given up."""


# -- writer ----------------------------------------------------------------------------------------


class Writer:
    """Adds, changes, drops and loads pairs of its own, and counts with the others."""

    def __init__(self, act: Act, branch: str = "main", number: int = 0) -> None:
        self.act = act
        self.branch = branch
        self.number = number
        self.pairs: Pairs = {}

    def play(self) -> None:
        act = self.act
        act.needs_commit = True
        try:
            while not act.is_over:
                act.chance.choices([self.pair, self.load, self.drop, self.count], [5, 3, 2, 2])[0]()
                act.pause(act.chance.random() * 0.2)
        except Over:
            pass
        act.log(refused=act.reported())

    def mutate(self, name: str, **params: Any) -> tuple[str | None, Any]:
        graph, actor = self.act.graph, self.act.name
        return self.act.acknowledged(
            lambda: graph.mutate(QUERIES, name, params, self.branch, actor=actor)
        )

    def done(self, commit: str | None, **facts: Any) -> None:
        assert commit is not None, "a write that changed rows made no commit"
        self.act.log(commits=[commit], refused=self.act.reported(), **facts)

    def key(self) -> str:
        return f"{self.act.name}-{self.act.chance.randrange(KEYS)}"

    def pair(self) -> None:
        key, value = self.key(), self.number + 1
        name = "change" if key in self.pairs else "add"
        commit, _ = self.mutate(
            name, writer=self.act.name, key=key, value=value, text=text_of(value)
        )
        self.put({key: value}, commit)

    def put(self, pairs: Pairs, commit: str | None) -> None:
        self.number += 1
        self.pairs |= pairs
        self.done(commit, number=self.number, put=pairs)

    def load(self) -> None:
        value, writer = self.number + 1, self.act.name
        keys = sorted({self.key() for _ in range(4)})
        records: list[dict[str, Any]] = [
            {"type": "Progress", "data": {"writer": writer, "number": value}}
        ]
        for key in keys:
            row = {"key": key, "value": value}
            texts = {"writer": writer, "text": text_of(value)}
            records += [
                {"type": "Left", "data": row | texts},
                {"type": "Right", "data": row},
            ]
            if key not in self.pairs:
                records.append({"edge": "Pairs", "from": key, "to": key})
        graph = self.act.graph
        commit, _ = self.act.acknowledged(
            lambda: graph.load(records, branch=self.branch, actor=writer)
        )
        self.put(dict.fromkeys(keys, value), commit)

    def drop(self) -> None:
        if self.pairs:
            key = self.act.chance.choice(sorted(self.pairs))
            commit, _ = self.mutate("drop", key=key)
            del self.pairs[key]
            self.done(commit, drop=[key])

    def count(self) -> None:
        """Add one to what everybody counts; who has read too early changes nothing."""
        while not self.act.is_over:
            rows = self.act.graph.snapshot().read("Counter", ["value"])
            old = rows["value"][0].as_py()
            commit, _ = self.mutate("count", old=old, new=old + 1)
            if commit is not None:
                self.done(commit, counted=1)
                return
            self.act.refused["counted_meanwhile"] += 1


# -- reader ----------------------------------------------------------------------------------------


class Reader:
    """Judges every state that it gets to see, and looks at some of them again later."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.kept: list[tuple[float, GraphSnapshot, Seen]] = []
        self.last: Seen | None = None
        self.logged: set[tuple[str, int, str]] = set()
        self.times = 0

    def play(self) -> None:
        act = self.act
        while not act.is_over:
            self.read_main()
            self.read_again()
            if act.chance.random() < 0.3:
                self.read_branch()
            self.times += 1
            act.pause(0.05)
        act.log(times=self.times, refused=act.reported())

    def read_main(self) -> None:
        taken = time.monotonic()
        snapshot = self.act.graph.snapshot()
        seen = look(snapshot)
        judge(seen, on_main=True)
        if self.last is not None:
            compare(self.last, seen, on_main=True)
        self.last = seen
        self.kept.append((taken, snapshot, seen))
        ask(self.act.graph, snapshot, seen, self.act.chance.randrange(60))
        for writer in SPACES:
            state = (writer, seen.progress[writer], digest(seen.of(writer)))
            if state not in self.logged:
                self.logged.add(state)
                self.act.log(state=state)

    def read_again(self) -> None:
        now = time.monotonic()
        self.kept = [item for item in self.kept if now - item[0] < HOLD * self.act.min_age]
        if not self.kept:
            return
        taken, snapshot, seen = self.act.chance.choice(self.kept)
        try:
            assert look(snapshot) == seen, "a snapshot has changed"
            again = self.act.graph.snapshot(commit=snapshot.commit_id)
            assert look(again) == seen, "a commit is not what it was"
            ask(self.act.graph, again, seen, self.act.chance.randrange(60))
        except (HistoryGone, StorageMissing):
            if time.monotonic() - taken < self.act.min_age:
                raise
            self.act.refused["too_late"] += 1

    def read_branch(self) -> None:
        graph = self.act.graph
        names = [name for name in graph.branches.list() if name != "main"]
        if not names:
            return
        name = self.act.chance.choice(names)
        try:
            snapshot = graph.snapshot(name)
            seen = look(snapshot)
            judge(seen, on_main=False)
            ask(graph, snapshot, seen, self.act.chance.randrange(60))
            assert look(snapshot) == seen, "a snapshot of a branch has changed"
            compare(seen, look(graph.snapshot(name)), on_main=False)
        except (NotFound, HistoryGone):
            # Names are not used twice.
            assert name not in graph.branches.list(), f"{name} is there and cannot be read"


# -- keeper ----------------------------------------------------------------------------------------


class Keeper:
    """All that maintenance does, by turns."""

    def __init__(self, act: Act) -> None:
        self.act = act

    def play(self) -> None:
        act, turn = self.act, 0
        # Everything has its turn, however little time there was.
        while not act.over.is_set() and (turn < len(ROUNDS) or not act.is_over):
            work = ROUNDS[turn % len(ROUNDS)]
            turn += 1
            try:
                act.log(done=work.__name__, result=work(self))
            except Conflict as error:
                if not error.retryable:
                    raise
                act.log(refused={f"{work.__name__}: {error.code}": 1})
            act.pause(1.0)

    def optimize_if_needed(self) -> str | None:
        return self.act.graph.maintenance.optimize(if_needed=True, actor="keeper").commit_id

    def optimize(self) -> str | None:
        return self.act.graph.maintenance.optimize(actor="keeper").commit_id

    def ensure(self) -> None:
        self.act.graph.indexes.ensure(actor="keeper")

    def clean(self) -> int:
        report = self.act.graph.maintenance.cleanup(KEEP, min_age=self.act.min_age)
        wrong = [table for table in report.tables if table.error]
        for table in wrong:
            self.act.log(unclean=table.to_json())
        return sum(table.old_versions_removed for table in report.tables)

    def preview_repair(self) -> None:
        """What is being written is no drift."""
        tables = self.act.graph.maintenance.repair().tables
        assert {table.classification.value for table in tables} == {"no_drift"}, tables

    def examine(self) -> None:
        str(self.act.graph.maintenance.doctor())


ROUNDS: tuple[Callable[[Keeper], Any], ...] = (
    Keeper.optimize_if_needed,
    Keeper.clean,
    Keeper.ensure,
    Keeper.clean,
    Keeper.optimize,
    Keeper.clean,
    Keeper.preview_repair,
    Keeper.clean,
    Keeper.examine,
)


# -- brancher --------------------------------------------------------------------------------------


class Brancher:
    """Makes branches, writes on them, and merges them back: with conflicts, without, not at all."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.number = 0
        self.pairs: Pairs = {}
        self.note = 0
        self.batches = 0

    def play(self) -> None:
        self.act.needs_commit = True
        try:
            while not self.act.is_over:
                self.round()
        except Over:
            pass
        self.act.log(refused=self.act.reported())

    def round(self) -> None:
        act, graph = self.act, self.act.graph
        self.batches += 1
        branch = f"work/{self.batches}"
        self.recovered(lambda: graph.branches.create(branch))
        try:
            drafts = self.write_drafts(branch)
            # Where everybody writes, somebody is mostly faster than a merge.
            changes = self.write_pairs(branch) if self.batches % 3 == 0 else {}
            kinds = ["clean", "clean", "ours", "theirs", "left"]
            kind = act.chance.choice(kinds) if self.batches > 1 else "clean"
            if kind in ("ours", "theirs"):
                changes["note"] = self.write_notes(branch, kind)
            if kind != "left":
                self.merge(branch, None if kind == "clean" else kind, drafts, changes)
                if act.chance.random() < 0.3:
                    self.recovered(lambda: graph.tags.create("last", move=True))
        except TooBusy:
            act.refused["given_up"] += 1
        finally:
            self.recovered(lambda: graph.branches.delete(branch))

    def recovered(self, work: Callable[[], Any]) -> None:
        """Work that names nothing by a commit: again while somebody else is faster."""
        while True:
            try:
                work()
                return
            except Conflict as error:
                if not error.retryable:
                    raise
                self.act.refused[error.code] += 1

    def write_drafts(self, branch: str) -> list[tuple[str, str, int]]:
        size = self.act.chance.randint(1, 4)
        slugs = [f"{branch}/{number}" for number in range(size)]
        for slug in [*slugs, f"{branch}/wrong"]:
            self.mutate(branch, "draft", slug=slug, batch=branch, size=size)
        self.mutate(branch, "undraft", slug=f"{branch}/wrong")
        return [(slug, branch, size) for slug in slugs]

    def mutate(self, branch: str, name: str, **params: Any) -> str:
        graph = self.act.graph
        commit, _ = self.act.acknowledged(
            lambda: graph.mutate(QUERIES, name, params, branch, actor=BRANCHER)
        )
        assert commit is not None
        return commit

    def write_pairs(self, branch: str) -> dict[str, Any]:
        """Pairs as a writer writes them; they come to main together."""
        quiet = _Quiet(self.act, branch, self.number, self.pairs)
        for _ in range(self.act.chance.randint(1, 3)):
            self.act.chance.choice([quiet.pair, quiet.load, quiet.drop])()
        return {
            "number": quiet.number,
            "put": {k: v for k, v in quiet.pairs.items() if self.pairs.get(k) != v},
            "drop": sorted(self.pairs.keys() - quiet.pairs.keys()),
        }

    def write_notes(self, branch: str, kind: str) -> int:
        """The same row on both sides, which is a conflict; what it will be after the merge."""
        here, there = self.note + 1, self.note + 2
        self.mutate(branch, "note", value=there)
        commit = self.mutate("main", "note", value=here)
        self.note = here
        self.act.log(commits=[commit], note=here)
        try:
            self.act.acknowledged(lambda: self.act.graph.merge(branch, actor=BRANCHER))
        except MergeConflicts:
            return here if kind == "ours" else there
        raise AssertionError("a conflict was merged without a decision")

    def merge(
        self, branch: str, resolve: str | None, drafts: list[Any], changes: dict[str, Any]
    ) -> None:
        graph = self.act.graph
        commit, _ = self.act.acknowledged(
            lambda: graph.merge(branch, resolve=resolve, actor=BRANCHER), most=MERGES
        )
        assert commit is not None, "a merge of changes made no commit"
        self.number = changes.get("number", self.number)
        self.note = changes.get("note", self.note)
        self.pairs |= changes.get("put", {})
        for key in changes.get("drop", ()):
            del self.pairs[key]
        self.act.log(commits=[commit], drafts=drafts, refused=self.act.reported(), **changes)


class _Quiet(Writer):
    """A writer on a branch: main learns of it by the merge, and so does the log."""

    def __init__(self, act: Act, branch: str, number: int, pairs: Pairs) -> None:
        super().__init__(act, branch, number)
        self.pairs = dict(pairs)

    def done(self, commit: str | None, **facts: Any) -> None:
        assert commit is not None


PARTS: dict[str, Callable[[Act], Any]] = {
    "writer": Writer,
    "reader": Reader,
    "keeper": Keeper,
    "brancher": Brancher,
}
