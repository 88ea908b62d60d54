"""The policy: when upkeep is worth a commit, and that nobody does any unasked."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph, MaintenancePolicy
from omnigraph.commit.publisher import _MAX_FRAGMENTS
from omnigraph.errors import InputError
from omnigraph.maintain.optimize.plan import plan_table, reasons_for
from omnigraph.storage.tables.segments import Segment
from omnigraph.storage.tables.table import FragmentInfo
from omnigraph.storage.tables.types import IndexKind, IndexSpec

SCHEMA = "node Person { name: String @key  age: I32? }"
EQUALITY, TEXT = IndexSpec("id", IndexKind.EQUALITY), IndexSpec("name", IndexKind.TEXT)
LOOSE = MaintenancePolicy(
    small_fragments=10**6, deleted_fraction=1.0, uncovered_fraction=1.0, versions=10**9
)


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def people(*names):
    return {"Person": pa.table({"name": list(names), "age": pa.array([1] * len(names))})}


def parts(*rows, deleted=()):
    gone = dict(deleted)
    return [FragmentInfo(n, str(n), count, gone.get(n, 0)) for n, count in enumerate(rows)]


def segment(spec, *numbers):
    return Segment(spec.name, f"{spec.name}-{numbers}", frozenset(numbers), 1)


def reasons(files, existing, policy=None, wanted=(EQUALITY,), **options):
    plan = plan_table(files, existing, wanted, lambda numbers: 2, **options)
    return reasons_for(plan, files, existing, policy or MaintenancePolicy())


# -- reasons ----------------------------------------------------------------------------------

FULL = 50_000


@pytest.mark.parametrize(
    ("files", "existing", "said"),
    [
        (parts(*[10] * 8), {EQUALITY.name: [segment(EQUALITY, *range(8))]}, ()),
        (
            parts(*[10] * 12),
            {EQUALITY.name: [segment(EQUALITY, *range(12))]},
            ("12 small fragments > 8",),
        ),
        (
            parts(FULL, deleted={0: FULL}),
            {EQUALITY.name: [segment(EQUALITY, 0)]},
            ("50% of a fragment deleted > 10%",),
        ),
        (
            parts(FULL, deleted={0: FULL // 20}),
            {EQUALITY.name: [segment(EQUALITY, 0)]},
            (),
        ),
        (parts(FULL), {}, ("index id_equality is missing",)),
        (
            parts(FULL, FULL, FULL),
            {EQUALITY.name: [segment(EQUALITY, 0)]},
            ("67% of the rows not in index id_equality > 10%",),
        ),
        (parts(100, 50), {EQUALITY.name: [segment(EQUALITY, 0)]}, ()),
    ],
)
def test_reasons_name_what_there_is_and_what_may_be(files, existing, said):
    assert reasons(files, existing) == said


def test_all_indexes_that_lack_rows_are_one_reason():
    existing = {spec.name: [segment(spec, 0)] for spec in (EQUALITY, TEXT)}
    assert reasons(parts(FULL, FULL), existing, wanted=(EQUALITY, TEXT)) == (
        "50% of the rows not in index id_equality and 1 more > 10%",
    )


def test_an_index_that_does_not_fit_is_a_reason():
    existing = {EQUALITY.name: [segment(EQUALITY, 0)]}
    said = reasons(parts(FULL), existing, rebuilt={EQUALITY.name: "it is another"})
    assert said == ("index id_equality: it is another",)


def test_settings_of_lance_are_a_reason_under_any_policy():
    existing = {EQUALITY.name: [segment(EQUALITY, 0)]}
    said = reasons(parts(FULL), existing, LOOSE, settings=["lance.auto_cleanup.interval"])
    assert said == ("settings that let Lance remove versions on its own",)


@pytest.mark.parametrize(
    ("policy", "is_worth_it"),
    [
        (MaintenancePolicy(), False),
        (MaintenancePolicy(small_fragments=3), True),
        (MaintenancePolicy(small_fragments=4), False),
    ],
)
def test_a_policy_of_ones_own_decides(policy, is_worth_it):
    existing = {EQUALITY.name: [segment(EQUALITY, *range(4))]}
    assert bool(reasons(parts(*[10] * 4), existing, policy)) is is_worth_it


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"deleted_fraction": 1.5}, "from 0 to 1"),
        ({"recall": -0.1}, "from 0 to 1"),
        ({"small_fragments": -1}, "at least 0"),
        ({"versions": "many"}, "at least 0"),
        ({"bytes": True}, "at least 0"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given, hint):
    (name,) = given
    with pytest.raises(InputError, match=name) as caught:
        MaintenancePolicy(**given)
    assert hint in caught.value.hint


def test_a_policy_is_plain_data():
    assert MaintenancePolicy().to_json() == {
        "small_fragments": 8,
        "deleted_fraction": 0.1,
        "uncovered_fraction": 0.1,
        "uncovered_rows": 1000,
        "versions": 1000,
        "bytes": 1 << 30,
        "recall": 0.9,
    }


# -- in use -----------------------------------------------------------------------------------


def test_optimize_says_why_it_worked_on_a_table(graph):
    graph.append(people("a", "b"))
    graph.indexes.ensure()
    for name in "cdefghijk":
        graph.append(people(name))
    quiet = graph.maintenance.optimize(if_needed=True, policy=LOOSE)
    assert (quiet.commit_id, quiet.table("node:Person").reasons) == (None, ())
    report = graph.maintenance.optimize(if_needed=True)
    assert report.table("node:Person").reasons == ("10 small fragments > 8",)
    assert report.to_json()["tables"][0]["reasons"] == ["10 small fragments > 8"]
    assert graph.maintenance.optimize(if_needed=True).commit_id is None


def test_without_if_needed_a_policy_keeps_nothing_from_being_done(graph):
    graph.append(people("a"))
    graph.append(people("b"))
    report = graph.maintenance.optimize(policy=LOOSE)
    assert report.commit_id is not None
    assert report.table("node:Person").fragments_removed == 2


def test_in_embedded_use_nothing_but_the_manifest_is_kept_small(graph):
    """Many writes and reads later no table was compacted, indexed or cleaned; the manifest was."""
    count = 2 * _MAX_FRAGMENTS
    for number in range(count):
        graph.append(people(f"p{number}"))
        graph.query("query q() { match { $p: Person } return { $p.name } }").rows()
    pin = graph._handle.store.manifest(None).current().pins["node:Person"]
    table = graph._handle.store.table(pin)
    assert (len(table.fragments()), table.indexes(), pin.version) == (count, {}, count + 1)
    assert len(graph._handle.store.manifest(None).fragments) <= _MAX_FRAGMENTS
