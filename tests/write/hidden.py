"""What a write of an actor with a restricted view should do, on a graph of plain dicts.

A view has a rule for each type: ``"all"``, ``"hidden"``, or conditions of which one must hold.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from itertools import count

from omnigraph.errors import (
    CardinalityViolation,
    KeyConflict,
    LoadError,
    OrphanEdge,
    PolicyDenied,
    UniqueViolation,
    ValueViolation,
)
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.plan import compile_query
from omnigraph.plan.bind import bind
from omnigraph.plan.view import ALL, HIDDEN, View
from tests.write import model
from tests.write.model import COLUMNS, ENDS, MOST, Outcome, selected


class Views:
    """A gate that allows every action, and shows what it is set to show."""

    def __init__(self, view=None):
        self.shown = view
        self.by_branch = {}

    def check(self, actor, action, branch=None, target=None, *, query=None):
        pass

    def view(self, actor, branch, catalog):
        rules = self.by_branch.get(branch, self.shown)
        return View.of(catalog, {key_of(kind): ALL for kind in COLUMNS} if rules is None else rules)


def key_of(kind):
    return f"edge:{kind}" if kind in ENDS else f"node:{kind}"


def typed_rules(catalog, rules):
    """The rules of a model view for a ``View``."""
    matches = {}
    for kind, rule in rules.items():
        if rule == "all":
            matches[key_of(kind)] = ALL
        elif rule == "hidden":
            matches[key_of(kind)] = HIDDEN
        else:
            parts = tuple(condition(catalog, kind, model.spelled(kind, one)) for one in rule)
            matches[key_of(kind)] = parts[0] if len(parts) == 1 else typed.Or(parts)
    return matches


def condition(catalog, kind, text):
    """A condition over the rows of a type, as the plan of a delete has it."""
    plan = compile_query(catalog, Source("<rule>", f"query q() {{ delete {kind} where {text} }}"))
    return bind(plan, {}).statements[0].where


# -- what is visible --------------------------------------------------------------------------


def is_open(rules, kind, row_id, row):
    """Whether the rule of a type shows a row, whatever its ends are."""
    rule = rules[kind]
    return rule == "all" or (rule != "hidden" and any(selected(one, row_id, row) for one in rule))


def visible(state, rules):
    """The rows that remain when everything hidden, and every edge of it, is deleted."""
    shown = {
        kind: {i: row for i, row in rows.items() if is_open(rules, kind, i, row)}
        for kind, rows in state.items()
    }
    for edge, (source, target) in ENDS.items():
        shown[edge] = {
            i: row
            for i, row in shown[edge].items()
            if row["src"] in shown[source] and row["dst"] in shown[target]
        }
    return shown


def hidden_texts(state, rules):
    """Every id and text of the hidden rows."""
    shown, texts = visible(state, rules), set()
    for kind, rows in state.items():
        for row_id, row in rows.items():
            if row_id not in shown[kind]:
                texts |= {row_id, *(v for v in row.values() if isinstance(v, str))}
    for rows in shown.values():
        for row_id, row in rows.items():
            texts -= {row_id, *(v for v in row.values() if isinstance(v, str))}
    return texts


# -- writes -----------------------------------------------------------------------------------


def mutate(state, rules, statements):
    shown = visible(state, rules)
    after, met = deepcopy(state), Counter()
    written = {kind: set() for kind in COLUMNS}
    gone = {kind: set() for kind in COLUMNS}
    new = (f"new {number}" for number in count())
    for word, kind, *rest in statements:
        if word == "insert":
            row_id, row = rest[0] or next(new), rest[1]
            after[kind][row_id] = dict(row)
            written[kind].add(row_id)
            met[kind] += 1
        elif word == "update":
            where, (column, value) = rest
            for row_id, row in after[kind].items():
                is_matchable = row_id in written[kind] or row_id in shown[kind]
                if is_matchable and selected(where, row_id, row):
                    row[column] = value
                    written[kind].add(row_id)
                    met[kind] += 1
        else:
            lost = {
                i
                for i, row in shown[kind].items()
                if i not in gone[kind] and selected(rest[0], i, row)
            }
            _delete(after, kind, lost, met, gone)
    if not sum(met.values()):
        return Outcome(state, commits=False)
    images = [(kind, i, after[kind][i]) for kind, ids in written.items() for i in ids]
    first = _first(state, rules, images, written, gone)
    return refused(state, first) if first else judged(state, rules, after, written, gone, met)


def _delete(after, kind, lost, met, gone):
    gone[kind] |= lost
    met[kind] += len(lost)
    for row_id in lost:
        del after[kind][row_id]
    for edge, ends in ENDS.items():
        cascade = {
            i
            for i, row in after[edge].items()
            if any(ends[n] == kind and row[end] in lost for n, end in enumerate(("src", "dst")))
        }
        if cascade:
            _delete(after, edge, cascade, met, gone)


def load(state, rules, mode, rows, *, reads_records=True):
    if not rows:
        return Outcome(state, commits=False)
    after, errors = deepcopy(state), set()
    new = (f"new {number}" for number in count())
    given = [(kind, row_id) for kind, row_id, _ in rows if row_id is not None]
    repeated = {kind for (kind, _), times in Counter(given).items() if times > 1}
    if repeated - ({"Note", "Knows", "About"} if mode == "merge" else set()):
        errors.add(UniqueViolation)
    if mode == "append" and any(row_id in state[kind] for kind, row_id in given):
        errors.add(KeyConflict)
    written = {kind: set() for kind in COLUMNS}
    gone = {kind: set() for kind in COLUMNS}
    replaced = {kind for kind, _, _ in rows} if mode == "overwrite" else set()
    for kind in replaced:
        gone[kind], after[kind] = set(after[kind]), {}
    images = []
    for kind, row_id, row in rows:
        row_id = row_id or next(new)
        after[kind][row_id] = dict(row)
        written[kind].add(row_id)
        if kind not in repeated or mode != "merge" or kind == "Person":
            # Of other repeated rows, the last one wins before anything is checked.
            images.append((kind, row_id, row))
    images += [(kind, i, after[kind][i]) for kind in repeated for i in written[kind]]
    wrong = any(model._is_wrong(row) for kind, _, row in rows if kind == "Person")
    if wrong and reads_records:
        return refused(state, dict.fromkeys([LoadError, ValueViolation]))
    needs = replaced | {e for e, ends in ENDS.items() if replaced & set(ends)}
    needs |= {end for edge in needs & set(ENDS) for end in ENDS[edge]}
    first = _first(state, rules, images, written, gone, replaced)
    if first:
        return refused(state, first)
    if replaced and any(rules[kind] != "all" for kind in needs):
        return refused(state, {PolicyDenied: "overwrite"})
    return judged(state, rules, after, written, gone, None, errors)


def _first(state, rules, images, written, gone, replaced=frozenset()):
    """What is checked before anything else: the rows by themselves, and the ends of new edges."""
    if not all(is_open(rules, *image) for image in images):
        return {PolicyDenied: "image"}
    shown, broken = visible(state, rules), {}
    for kind, _, row in images:
        if kind == "Person" and model._is_wrong(row):
            broken[ValueViolation] = None
        for end, node in zip(("src", "dst"), ENDS.get(kind, ()), strict=False):
            present = set() if node in replaced else set(shown[node]) - gone[node]
            if row[end] not in present | written[node]:
                broken[OrphanEdge] = None
    return broken


def judged(state, rules, after, written, gone, met, errors=()):
    """The outcome of a write of rows that are valid by themselves, in the order of its rules."""
    shown = visible(state, rules)
    touched = {kind: (written[kind] & set(state[kind])) | gone[kind] for kind in COLUMNS}
    if any(gone[kind] - set(shown[kind]) for kind in COLUMNS):
        return refused(state, {PolicyDenied: "cascade"})
    if any(touched[kind] - set(shown[kind]) for kind in COLUMNS):
        return refused(state, {PolicyDenied: "key"})
    broken = dict.fromkeys(errors)
    if UniqueViolation not in broken:
        broken |= _unique(shown, after, written)
    broken |= _cardinality(state, shown, after, written, gone)
    for edge, (source, target) in ENDS.items():
        rows = after[edge].values()
        if any(r["src"] not in after[source] or r["dst"] not in after[target] for r in rows):
            broken[OrphanEdge] = None
    return refused(state, broken) if broken else Outcome(after, met or ())


def refused(state, errors):
    """A refusal by one of some errors, each with the reason that the actor does not learn."""
    outcome = Outcome(state, errors=errors)
    outcome.reasons = errors
    return outcome


def _unique(shown, after, written):
    mails = {}
    for row_id, row in after["Person"].items():
        if row["mail"] is not None:
            mails.setdefault(row["mail"], set()).add(row_id)
    broken = {}
    for owners in mails.values():
        mine = owners & written["Person"]
        if len(mine) > 1:
            broken[UniqueViolation] = None
        elif mine and len(owners) > 1:
            is_visible = owners - mine <= set(shown["Person"])
            broken |= {UniqueViolation: None} if is_visible else {PolicyDenied: "unique"}
    return broken


def _cardinality(state, shown, after, written, gone):
    broken = {}
    for edge, (source, _) in ENDS.items():
        changed = [after[edge][i] for i in written[edge]]
        changed += [state[edge][i] for i in (written[edge] | gone[edge]) & set(state[edge])]
        for node in {row["src"] for row in changed} & set(after[source]):
            ids = {i for i, row in after[edge].items() if row["src"] == node}
            seen = ids & (set(shown[edge]) | written[edge])
            if len(seen) > MOST[edge] or (edge == "About" and not ids):
                broken[CardinalityViolation] = None
            elif len(ids) > MOST[edge]:
                broken[PolicyDenied] = "cardinality"
    return broken
