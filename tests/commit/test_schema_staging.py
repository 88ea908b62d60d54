"""The next schema on its way: whatever is left of an apply, the graph ends with one schema."""

from __future__ import annotations

import pytest

from omnigraph.commit.schema.files import (
    FILES,
    IR,
    SOURCE,
    STAGED,
    STAGED_IR,
    STAGED_SOURCE,
    STAGED_STATE,
    STATE,
    SchemaFiles,
    SchemaState,
)
from omnigraph.commit.schema.staging import Reconciled, SchemaStaging, reconcile_staging
from omnigraph.errors import FormatRefused, RecoveryRequired, SchemaDrift
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore

OLD = "node Person { name: String @key }\n"
ADDED = OLD + "node Company { name: String @key }\nedge WorksAt: Person -> Company\n"
REMOVED = "node Robot { name: String @key }\n"
PROPERTY = "node Person { name: String @key  age: I32? }\n"
COMMENT = "// the same\n" + OLD

OLD_TABLES = {"node:Person"}
ADDED_TABLES = {"node:Person", "node:Company", "edge:WorksAt"}


class Crash(BaseException):
    """The process is gone."""


class Mortal(ObjectStore):
    """A store whose process dies after a number of steps that change something.

    With ``copies`` a rename is what it is on S3: a copy, then a delete, each a step.
    """

    def __init__(self, root, steps=1000, *, copies=False):
        super().__init__(root, Durability.OS)
        self.steps = steps
        self._copies = copies

    def _step(self):
        if self.steps == 0:
            raise Crash
        self.steps -= 1

    def write(self, path, text):
        self._step()
        super().write(path, text)

    def delete(self, path):
        self._step()
        super().delete(path)

    def rename(self, source, target):
        if self._copies:
            self.write(target, self.read(source))
            self.delete(source)
        else:
            self._step()
            super().rename(source, target)


@pytest.fixture
def root(tmp_path):
    return parse_root(str(tmp_path / "g.omni"))


@pytest.fixture
def store(root):
    store = ObjectStore(root, Durability.OS)
    files = SchemaFiles(store)
    assert files.claim(OLD)
    files.write_contract(compile_schema(OLD))
    return store


@pytest.fixture
def staging(store):
    return SchemaStaging(store)


def stage(staging, source):
    staging.stage(compile_schema(source), source)


def dying(root, steps, act, *, copies=False):
    """Do something in a process that dies on the way; false when it got through."""
    mortal = Mortal(root, steps, copies=copies)
    try:
        act(SchemaStaging(mortal))
    except Crash:
        return True
    return False


def live_source(store):
    """The source of a graph whose files agree."""
    return SchemaFiles(store).load().source


def everything(store):
    return {name: store.read(name) for name in (*FILES, *STAGED.values()) if store.exists(name)}


# -- staging, promoting, discarding -----------------------------------------------------------


def test_staged_files_are_those_that_will_be_live(store, staging):
    stage(staging, ADDED)
    assert staging.present() == list(FILES)
    staged = {name: store.read(STAGED[name]) for name in FILES}
    assert live_source(store) == OLD
    staging.promote()
    assert staging.present() == []
    assert {name: store.read(name) for name in FILES} == staged
    assert live_source(store) == ADDED
    catalog = compile_schema(ADDED)
    assert staged == {
        SOURCE: ADDED,
        IR: catalog.ir.pretty(),
        STATE: SchemaState(catalog.schema_hash).text(),
    }


def test_discarding_leaves_the_live_files_alone(store, staging):
    before = everything(store)
    stage(staging, ADDED)
    staging.discard()
    assert everything(store) == before
    staging.discard()
    staging.promote()
    assert everything(store) == before


def test_staging_does_not_mix_with_what_an_earlier_apply_left(root, store, staging):
    stage(staging, ADDED)
    for steps in range(6):
        assert dying(root, steps, lambda s: stage(s, PROPERTY))
        assert staging.present() in ([SOURCE, IR], [SOURCE], [], list(FILES))
        sources = {store.read(STAGED_SOURCE)} if SOURCE in staging.present() else set()
        if IR in staging.present():
            staged = compile_schema(sources.pop())
            assert store.read(STAGED_IR) == staged.ir.pretty()
        stage(staging, ADDED)
    assert not dying(root, 6, lambda s: stage(s, PROPERTY))


# -- the rules --------------------------------------------------------------------------------


def test_without_staging_files_nothing_happens(store):
    before = everything(store)
    for pending in (True, False):
        actual = reconcile_staging(store, apply_pending=pending, live_tables={"node:Other"})
        assert actual is Reconciled.NOTHING
    assert everything(store) == before


@pytest.mark.parametrize("source", [ADDED, REMOVED, PROPERTY, COMMENT])
@pytest.mark.parametrize("tables", [OLD_TABLES, ADDED_TABLES, set()])
def test_a_sidecar_promotes_whatever_the_tables_are(store, staging, source, tables):
    stage(staging, source)
    actual = reconcile_staging(store, apply_pending=True, live_tables=tables)
    assert actual is Reconciled.PROMOTED
    assert staging.present() == []
    assert live_source(store) == source


@pytest.mark.parametrize(
    ("source", "tables", "result", "ends_with"),
    [
        (ADDED, OLD_TABLES, Reconciled.DELETED, OLD),
        (ADDED, ADDED_TABLES, Reconciled.PROMOTED, ADDED),
        (REMOVED, OLD_TABLES, Reconciled.DELETED, OLD),
        (REMOVED, {"node:Robot"}, Reconciled.PROMOTED, REMOVED),
        (OLD, OLD_TABLES, Reconciled.DELETED, OLD),
        (COMMENT, OLD_TABLES, Reconciled.DELETED, OLD),
        (COMMENT, {"node:Other"}, Reconciled.DELETED, OLD),
    ],
)
def test_without_a_sidecar_the_tables_decide(store, staging, source, tables, result, ends_with):
    stage(staging, source)
    assert reconcile_staging(store, apply_pending=False, live_tables=tables) is result
    assert staging.present() == []
    assert live_source(store) == ends_with


def test_a_change_of_properties_alone_needs_a_person(store, staging):
    stage(staging, PROPERTY)
    before = everything(store)
    with pytest.raises(RecoveryRequired, match="only properties") as caught:
        reconcile_staging(store, apply_pending=False, live_tables=OLD_TABLES)
    assert "_schema.pg.staging" in (caught.value.hint or "")
    assert everything(store) == before


@pytest.mark.parametrize("source", [ADDED, PROPERTY])
def test_tables_that_fit_neither_schema_need_a_person(store, staging, source):
    stage(staging, source)
    before = everything(store)
    with pytest.raises(RecoveryRequired, match="fit neither") as caught:
        reconcile_staging(store, apply_pending=False, live_tables=["node:X", "node:Person"])
    assert caught.value.details["tables"] == ["node:Person", "node:X"]
    assert caught.value.details["live"] == ["node:Person"]
    assert everything(store) == before


@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.parametrize("left", [[IR, STATE], [STATE], [IR]])
def test_the_rest_of_another_schema_needs_a_person(store, staging, pending, left):
    stage(staging, ADDED)
    for name in set(FILES) - set(left):
        store.delete(STAGED[name])
    before = everything(store)
    with pytest.raises(RecoveryRequired, match=r"does not match '_schema\.pg'"):
        reconcile_staging(store, apply_pending=pending, live_tables=OLD_TABLES)
    assert everything(store) == before


@pytest.mark.parametrize("left", [[IR, STATE], [STATE], [IR]])
def test_the_rest_of_the_live_schema_is_promoted(store, staging, left):
    stage(staging, OLD)
    for name in set(FILES) - set(left):
        store.delete(STAGED[name])
    for name in left:
        store.write(name, "damaged")
    actual = reconcile_staging(store, apply_pending=False, live_tables=set())
    assert actual is Reconciled.PROMOTED
    assert staging.present() == []
    assert live_source(store) == OLD


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (STAGED_SOURCE, "node {"),
        (STAGED_IR, "{"),
        (STAGED_STATE, "{}"),
        (STAGED_IR, compile_schema(PROPERTY).ir.pretty()),
        (STAGED_STATE, SchemaState("sha256:00").text()),
    ],
)
@pytest.mark.parametrize("pending", [True, False])
def test_staged_files_that_disagree_are_never_promoted(store, staging, name, text, pending):
    stage(staging, ADDED)
    store.write(name, text)
    before = everything(store)
    with pytest.raises(RecoveryRequired, match=name):
        reconcile_staging(store, apply_pending=pending, live_tables=ADDED_TABLES)
    assert everything(store) == before


def test_staged_files_of_a_newer_program_are_refused(store, staging):
    stage(staging, ADDED)
    store.write(STAGED_STATE, '{"format_version": 2}')
    with pytest.raises(FormatRefused, match=STAGED_STATE):
        reconcile_staging(store, apply_pending=True, live_tables=ADDED_TABLES)


def test_a_broken_live_source_is_drift(store, staging):
    stage(staging, ADDED)
    store.write(SOURCE, "node {")
    before = everything(store)
    with pytest.raises(SchemaDrift, match=r"'_schema\.pg' is not a valid schema"):
        reconcile_staging(store, apply_pending=False, live_tables=OLD_TABLES)
    assert everything(store) == before


def test_tables_of_the_new_schema_prove_a_commit_even_when_a_staged_file_is_lost(store, staging):
    stage(staging, ADDED)
    store.delete(STAGED_STATE)
    actual = reconcile_staging(store, apply_pending=False, live_tables=ADDED_TABLES)
    assert actual is Reconciled.PROMOTED
    assert live_source(store) == ADDED


# -- crashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.parametrize("source", [ADDED, PROPERTY, REMOVED])
@pytest.mark.parametrize("steps", range(3))
def test_an_apply_that_died_while_staging_never_was(root, store, staging, steps, source, pending):
    before = everything(store)
    assert dying(root, steps, lambda s: stage(s, source))
    assert live_source(store) == OLD
    actual = reconcile_staging(store, apply_pending=pending, live_tables=OLD_TABLES)
    assert actual is (Reconciled.DELETED if steps else Reconciled.NOTHING)
    assert everything(store) == before


@pytest.mark.parametrize("source", [ADDED, PROPERTY, COMMENT])
@pytest.mark.parametrize("steps", range(1, 3))
def test_a_discard_that_died_is_finished(root, store, staging, steps, source):
    before = everything(store)
    stage(staging, source)
    assert dying(root, steps, lambda s: s.discard())
    actual = reconcile_staging(store, apply_pending=False, live_tables=OLD_TABLES)
    assert actual is Reconciled.DELETED
    assert everything(store) == before


@pytest.mark.parametrize("copies", [False, True], ids=["rename", "copy and delete"])
@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.parametrize("source", [ADDED, PROPERTY])
def test_a_promotion_that_died_anywhere_is_finished(root, source, pending, copies, store, staging):
    tables = ADDED_TABLES if source == ADDED else OLD_TABLES
    steps = 1
    while True:
        stage(staging, source)
        died = dying(root, steps, lambda s: s.promote(), copies=copies)
        assert live_source(store) == source, "the first step makes the new schema the live one"
        actual = reconcile_staging(store, apply_pending=pending, live_tables=tables)
        assert actual is (Reconciled.PROMOTED if died else Reconciled.NOTHING)
        assert staging.present() == []
        assert live_source(store) == source
        if not died:
            break
        steps += 1
        stage(staging, OLD)
        staging.promote()
    assert steps == (6 if copies else 3)


def test_before_its_first_step_a_promotion_has_changed_nothing(root, store, staging):
    stage(staging, ADDED)
    assert dying(root, 0, lambda s: s.promote())
    assert live_source(store) == OLD


@pytest.mark.parametrize("copies", [False, True], ids=["rename", "copy and delete"])
@pytest.mark.parametrize("pending", [True, False])
def test_a_reconciliation_that_died_is_finished_by_the_next(root, store, staging, pending, copies):
    """Every pair of crash points: one in the promotion, one in the pass that finishes it."""
    pairs = 0
    for first in range(7):
        for second in range(7):
            stage(staging, ADDED)
            dying(root, first, lambda s: s.promote(), copies=copies)
            mortal = Mortal(root, second, copies=copies)
            try:
                reconcile_staging(mortal, apply_pending=pending, live_tables=ADDED_TABLES)
            except Crash:
                pairs += 1
            reconcile_staging(store, apply_pending=pending, live_tables=ADDED_TABLES)
            assert staging.present() == []
            assert live_source(store) == ADDED
            stage(staging, OLD)
            staging.promote()
    assert pairs == (24 if copies else 6)


@pytest.mark.parametrize("steps", range(3))
def test_a_deletion_that_died_in_a_reconciliation_is_finished(root, store, staging, steps):
    before = everything(store)
    stage(staging, ADDED)
    with pytest.raises(Crash):
        reconcile_staging(Mortal(root, steps), apply_pending=False, live_tables=OLD_TABLES)
    assert live_source(store) == OLD
    actual = reconcile_staging(store, apply_pending=False, live_tables=OLD_TABLES)
    assert actual is Reconciled.DELETED
    assert everything(store) == before


# -- readers in between -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "steps"), [(False, 1), (False, 2), (True, 1), (True, 2), (True, 3), (True, 5)]
)
def test_a_handle_follows_an_apply_that_is_in_the_middle_of_its_promotion(
    root, store, staging, copies, steps
):
    files = SchemaFiles(store)
    before = files.load()
    stage(staging, ADDED)
    assert files.check(before) is before
    assert dying(root, steps, lambda s: s.promote(), copies=copies)
    during = files.check(before)
    assert (during.source, during.catalog) == (ADDED, compile_schema(ADDED))
    assert during.schema_hash != before.schema_hash
    assert files.check(during) is during
    staging.promote()
    after = files.check(during)
    assert (after.source, after.catalog) == (ADDED, during.catalog)


def test_staged_files_do_not_excuse_drift(store, staging):
    stage(staging, ADDED)
    store.write(SOURCE, PROPERTY)
    with pytest.raises(SchemaDrift, match=r"^'_schema\.pg' does not match"):
        SchemaFiles(store).load()
