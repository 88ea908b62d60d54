"""Random work with maintenance in between: queries say the same before, during and after it."""

from __future__ import annotations

import random
import threading
from contextlib import nullcontext, suppress
from unittest.mock import patch

import pyarrow as pa
import pytest

from omnigraph import Graph, restore
from omnigraph.errors import BranchInUse, HistoryGone, InputError, MergeConflicts
from omnigraph.maintain.optimize import plan as optimize_plan
from omnigraph.storage.tables import compaction
from tests.rotation import rotation
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Doc { slug: String @key  title: String? @index  year: I32? @index  vec: Vector(2)? @index }
node Place { name: String @key }
edge Cites: Doc -> Doc
edge About: Doc -> Place
"""
QUERIES = """
query all() { match { $d: Doc } return { $d.slug, $d.title, $d.year } order { $d.slug } }
query one($s: String) { match { $d: Doc { slug: $s } } return { $d.slug, $d.year } }
query year($y: I32) { match { $d: Doc { year: $y } } return { $d.slug } order { $d.slug } }
query since($y: I32) {
  match { $d: Doc  $d.year >= $y } return { $d.slug } order { $d.year desc, $d.slug } limit 4
}
query word($w: String) {
  match { $d: Doc  search($d.title, $w) } return { $d.slug } order { $d.slug }
}
query near($v: Vector(2)) {
  match { $d: Doc } return { $d.slug } order { nearest($d.vec, $v), $d.slug } limit 3
}
query reach() {
  match { $a: Doc  $a cites{1,2} $b  $b about $p }
  return { $a.slug, $b.slug, $p.name } order { $a.slug, $b.slug, $p.name }
}
query lonely() {
  match { $d: Doc  not { $d cites $_ } } return { $d.slug } order { $d.slug }
}
query years() {
  match { $d: Doc } return { $d.year, count($d) as n, max($d.slug) as last } order { $d.year }
}
"""
REQUESTED = (
    ("all", {}),
    ("one", {"s": "d3"}),
    ("year", {"y": 1}),
    ("since", {"y": 2}),
    ("word", {"w": "green"}),
    ("near", {"v": [4.0, 2.0]}),
    ("reach", {}),
    ("lonely", {}),
    ("years", {}),
)
DOCS = 12
WORDS = ("red stone", "green stone", "blue green")


def responses(graph, snapshot=None, **where):
    snapshot = snapshot or graph.snapshot(**where)
    return {name: snapshot.query(QUERIES, name, params).rows() for name, params in REQUESTED}


def scanned(snapshot):
    """What some of the queries must say, from the rows themselves."""
    docs = sorted(snapshot.read("Doc", ["slug", "title", "year"]).to_pylist(), key=str)
    docs.sort(key=lambda doc: doc["slug"])
    late = sorted((d for d in docs if d["year"] >= 2), key=lambda d: (-d["year"], d["slug"]))
    citing = set(snapshot.read("Cites", ["src"])["src"].to_pylist())
    actual = {
        "year": [doc for doc in docs if doc["year"] == 1],
        "since": late[:4],
        "word": [doc for doc in docs if "green" in doc["title"].split()],
        "lonely": [doc for doc in docs if doc["slug"] not in citing],
    }
    return {name: [{"d.slug": doc["slug"]} for doc in rows] for name, rows in actual.items()}


class Case:
    """One graph with its history, and a chance that decides what happens to it."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.chance = random.Random(seed)
        self.graph = Graph.init(folder / "g.omni", SCHEMA, durability="os")
        self.kept = []
        self.commits = {}
        self.copies = 0

    # -- work ------------------------------------------------------------------------------

    def slug(self):
        return f"d{self.chance.randrange(DOCS)}"

    def branch(self):
        return self.chance.choice(self.graph.branches.list())

    def load(self):
        numbers = self.chance.sample(range(DOCS), self.chance.randint(1, 6))
        years = [self.chance.randrange(4) for _ in numbers]
        docs = {
            "slug": [f"d{n}" for n in numbers],
            "title": [self.chance.choice(WORDS) for _ in numbers],
            "year": pa.array(years, pa.int32()),
            "vec": pa.array([[n + 1.0, y + 1.0] for n, y in zip(numbers, years, strict=True)]),
        }
        locations = {"name": [f"p{self.chance.randrange(3)}"]}
        self.graph.load({"Doc": pa.table(docs), "Place": pa.table(locations)}, branch=self.branch())

    def insert(self):
        year = self.chance.randrange(4)
        query = f"""query q($v: Vector(2)) {{
          insert Doc {{ slug: "{self.slug()}", title: "red green", year: {year}, vec: $v }}
        }}"""
        self.graph.mutate(query, params={"v": [year + 1.0, 3.0]}, branch=self.branch())

    def update(self):
        query = f'query q() {{ update Doc set {{ title: "green" }} where slug = "{self.slug()}" }}'
        self.graph.mutate(query, branch=self.branch())

    def delete(self):
        query = f'query q() {{ delete Doc where slug = "{self.slug()}" }}'
        self.graph.mutate(query, branch=self.branch())

    def connect(self):
        branch = self.branch()
        snapshot = self.graph.snapshot(branch)
        docs = sorted(snapshot.read("Doc", ["slug"])["slug"].to_pylist())
        locations = sorted(snapshot.read("Place", ["name"])["name"].to_pylist())
        if docs:
            ends = {"src": self.chance.choices(docs, k=3), "dst": self.chance.choices(docs, k=3)}
            about = {
                "src": self.chance.choices(docs, k=1),
                "dst": self.chance.choices(locations, k=1),
            }
            rows = {"Cites": pa.table(ends), "About": pa.table(about)}
            self.graph.append(rows, branch=branch)

    def fork(self):
        if len(self.graph.branches.list()) < 3:
            self.graph.branches.create(f"b{self.chance.randrange(10**6)}", self.branch())

    def merge(self):
        source, target = self.branch(), self.branch()
        # An edge that lost an end on the other side is refused, whoever is right.
        if source != target:
            with suppress(MergeConflicts):
                self.graph.merge(source, target, resolve="theirs")

    def unfork(self):
        leaves = self.graph.branches.list()[1:]
        if leaves:
            branch = leaves[-1]
            self.kept = [item for item in self.kept if item.branch != branch]
            self.commits.clear()
            with suppress(BranchInUse):
                self.graph.branches.delete(branch)

    def tag(self):
        self.graph.tags.create("t", branch=self.branch(), move=True)

    WORK = (load, load, load, insert, update, update, delete, connect, connect, fork, merge, tag)

    def work(self):
        self.chance.choice(self.WORK)(self)

    # -- maintenance -----------------------------------------------------------------------

    def optimize(self):
        branch = self.branch()
        # Segments are kept beside each other, or not.
        with patch.object(optimize_plan, "LARGE_SEGMENT", self.chance.choice([4, 10**6])):
            self.graph.maintenance.optimize(branch, if_needed=self.chance.random() < 0.3)

    def ensure(self):
        self.graph.indexes.ensure(self.branch())

    def rebuild(self):
        column, branch = self.chance.choice([None, "title", "year", "vec"]), self.branch()
        is_of_main = branch != "main" and self.pin(branch).branch is None
        # An index of main is rebuilt on main.
        with pytest.raises(InputError) if is_of_main else nullcontext():
            self.graph.indexes.rebuild("Doc", column, branch=branch)

    def pin(self, branch):
        store = self.graph._handle.store
        return store.manifest(None if branch == "main" else branch).current().pins["node:Doc"]

    def clean(self):
        keep, older = self.chance.choice([(1, None), (2, None), (2, 0), (None, 0)])
        report = self.graph.maintenance.cleanup(keep, older, min_age=0)
        assert {table.error for table in report.tables} == {None}

    def repair(self):
        self.graph.maintenance.repair(self.branch(), confirm=self.chance.random() < 0.5)

    def verify(self):
        report = self.graph.maintenance.verify()
        assert report.problems == (), report.to_json()
        self.graph.maintenance.doctor()

    def copy(self):
        """To another place and back to life there: the copy answers as the graph does."""
        self.copies += 1
        location = self.folder / f"copy{self.copies}.omni"
        self.graph.maintenance.backup(self.folder / "backup")
        restore(self.folder / "backup", location, durability="os")
        with Graph.open(location, durability="os") as copy:
            for branch in self.graph.branches.list():
                assert responses(copy, branch=branch) == responses(self.graph, branch=branch)
            for commit, expected in self.commits.items():
                assert responses(copy, commit=commit) == expected

    CARE = (optimize, optimize, ensure, rebuild, clean, clean, repair, verify, copy)

    def maintain(self, care=None):
        care = care or self.chance.choice(self.CARE)
        graph = self.graph
        self.hold()
        heads = {branch: responses(graph, branch=branch) for branch in graph.branches.list()}
        for branch, reported in heads.items():
            expected = scanned(graph.snapshot(branch))
            assert {name: reported[name] for name in expected} == expected, branch
        tags = {tag.name: responses(graph, tag=tag.name) for tag in graph.tags.list()}
        kept = [(item, responses(graph, snapshot=item)) for item in self.kept]
        branch = self.chance.choice(sorted(heads))
        with Asking(graph, branch, heads[branch], self.chance.choice(kept)):
            care(self)
        what = care.__name__
        for branch, expected in heads.items():
            assert responses(graph, branch=branch) == expected, (what, branch)
        for tag, expected in tags.items():
            assert responses(graph, tag=tag) == expected, (what, tag)
        for snapshot, expected in kept:
            assert responses(graph, snapshot=snapshot) == expected, (what, snapshot)
        self.look_back(what)

    def hold(self):
        """Keep a snapshot open, and remember a commit without one."""
        snapshot = self.graph.snapshot(self.branch())
        self.kept = [*self.kept[-1:], snapshot]
        commit = self.graph.snapshot(self.branch()).commit_id
        self.commits[commit] = responses(self.graph, commit=commit)

    def look_back(self, what):
        for commit, expected in list(self.commits.items()):
            try:
                assert responses(self.graph, commit=commit) == expected, (what, commit)
            except HistoryGone:
                assert what == "clean", (what, commit)
                del self.commits[commit]


class Asking:
    """A thread that queries while something else happens, and has to get the same rows."""

    def __init__(self, graph, branch, expected, kept):
        self.graph = graph
        self.branch = branch
        self.expected = expected
        self.kept = kept
        self.begun = threading.Event()
        self.over = threading.Event()
        self.wrong = []
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.over.is_set():
                snapshot, expected = self.kept
                assert responses(self.graph, branch=self.branch) == self.expected
                self.begun.set()
                assert responses(self.graph, snapshot=snapshot) == expected
        except BaseException as error:
            self.wrong.append(error)
        finally:
            self.begun.set()

    def __enter__(self):
        self.thread.start()
        self.begun.wait()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.wrong:
            raise self.wrong[0]


def run(folder, seed, steps):
    case = Case(folder, seed)
    with (
        case.graph,
        # Parts so small that some are full.
        patch.object(optimize_plan, "ROWS_PER_FRAGMENT", 5),
        patch.object(compaction, "ROWS_PER_FRAGMENT", 5),
    ):
        for step in range(steps):
            case.load()
            for _ in range(case.chance.randint(2, 5)):
                case.work()
            # Each kind has its turn, whatever the chance decides about the rest.
            case.maintain(None if step else Case.CARE[seed % len(Case.CARE)])
            if case.chance.random() < 0.2:
                case.unfork()
        case.verify()


@pytest.mark.parametrize("care", range(len(Case.CARE)))
@pytest.mark.parametrize("batch", rotating(range(3), 1, "interleavings"))
def test_maintenance_changes_no_answer(batch, care, tmp_path):
    run(tmp_path, batch * len(Case.CARE) + care, 2)


SEEDS = 20
FIRST = 1000 + rotation() % 30 * SEEDS  # others each day


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_more_of_the_same(seed, tmp_path):
    run(tmp_path, seed, 10)
