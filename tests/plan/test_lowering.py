"""Lowering, before any rule: the steps of a plan, their order and their filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import PlanError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import CheckedRead, Direction, Pattern
from omnigraph.plan.explain import show
from omnigraph.plan.lower import lower
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    MutationPlan,
    NodeScan,
    PlanStep,
    ReadPlan,
    RowFilter,
)
from omnigraph.plan.rules import optimize
from omnigraph.plan.rules.push_filters import conjuncts
from omnigraph.plan.rules.simplify import simplify_expr
from tests.lang.query.world import check, read

OUT, IN, BOTH = Direction.OUT, Direction.IN, Direction.BOTH


def lowered(match: str, result: str = "$p.name", params: str = "") -> ReadPlan:
    text = read(match, result, params)
    plan = lower(check(text), Source("q.gq", text))
    assert isinstance(plan, ReadPlan)
    return plan


def steps(match: str, result: str = "1", params: str = "") -> list[str]:
    """The pipeline, each step in a few words."""
    return [brief(step) for step in lowered(match, result, params).pipeline]


def brief(step: PlanStep) -> str:
    match step:
        case NodeScan():
            return f"scan {step.variable}:{step.type_name}{_where(step.filters)}"
        case Expand():
            arrow = {OUT: "->", IN: "<-", BOTH: "--"}[step.direction]
            hops = (
                ""
                if (step.min_hops, step.max_hops) == (1, 1)
                else f"{{{step.min_hops},{step.max_hops}}}"
            )
            edge = f"{step.edge_variable}:" if step.edge_variable else ""
            text = f"expand {step.src} {arrow} {step.dst}:{step.dst_type} by {edge}{step.edge_type}"
            return text + hops + _where(step.dst_filters) + _where(step.edge_filters)
        case RowFilter():
            return f"filter {show(step.condition)}"
        case AntiJoin():
            return f"not({','.join(step.outer)})[{'; '.join(map(brief, step.inner))}]"
        case _:
            raise AssertionError(f"{type(step).__name__} before any rule")


def _where(filters: tuple[typed.TypedExpr, ...]) -> str:
    return f" where {', '.join(map(show, filters))}" if filters else ""


# -- one plan each ----------------------------------------------------------------------------

SHAPES: list[tuple[str, str, list[str]]] = [
    (
        "j198_binding_plus_traversal",
        "$p: Person $p knows $f",
        ["scan p:Person", "expand p -> f:Person by Knows"],
    ),
    (
        "j199_negation",
        "$p: Person not { $p knows $_ }",
        ["scan p:Person", "not(p)[expand p -> _~1:Person by Knows]"],
    ),
    (
        "j200_bounded_hops",
        "$p: Person $p knows{2,4} $f",
        ["scan p:Person", "expand p -> f:Person by Knows{2,4}"],
    ),
    (
        "j202_destination_binding",
        '$p: Person $p worksAt $c $c: Company { name: "x" }',
        ["scan p:Person", 'expand p -> c:Company by WorksAt where $c.name = "x"'],
    ),
    (
        "j202_before_the_traversal",
        '$p: Person $c: Company { name: "x" } $p worksAt $c',
        ["scan p:Person", 'expand p -> c:Company by WorksAt where $c.name = "x"'],
    ),
    (
        "j203_chain_defers_later_bindings",
        "$a: Person $b: Person { age: 1 } $c: Person { age: 2 } $a knows $b $b knows $c",
        [
            "scan a:Person",
            "expand a -> b:Person by Knows where $b.age = 1",
            "expand b -> c:Person by Knows where $c.age = 2",
        ],
    ),
    (
        "j204_reverse_expand",
        '$c: Company { name: "x" } $p: Person { age: 1 } $p worksAt $c',
        ['scan c:Company where $c.name = "x"', "expand c <- p:Person by WorksAt where $p.age = 1"],
    ),
    (
        "j205_unconnected_bindings",
        "$a: Person { age: 1 } $c: Company",
        ["scan a:Person where $a.age = 1", "scan c:Company"],
    ),
    (
        "j206_any_order",
        "$c knows $d $b knows $c $a: Person $a knows $b",
        [
            "scan a:Person",
            "expand a -> b:Person by Knows",
            "expand b -> c:Person by Knows",
            "expand c -> d:Person by Knows",
        ],
    ),
    (
        "j207_blank_does_not_connect",
        "$a: Person $b: Person $a knows $_ $b knows $_",
        [
            "scan a:Person",
            "expand a -> _~1:Person by Knows",
            "scan b:Person",
            "expand b -> _~2:Person by Knows",
        ],
    ),
    (
        "j208_fan_out",
        "$a: Person $a knows $b $a worksAt $c",
        ["scan a:Person", "expand a -> b:Person by Knows", "expand a -> c:Company by WorksAt"],
    ),
    (
        "j208_fan_in",
        "$a: Person $a knows $c $b knows $c",
        ["scan a:Person", "expand a -> c:Person by Knows", "expand c <- b:Person by Knows"],
    ),
    (
        "j209_cycle",
        "$a: Person $a knows $b $b knows $a",
        [
            "scan a:Person",
            "expand a -> b:Person by Knows",
            "expand b -> a~1:Person by Knows",
            "filter $a~1.id = $a.id",
        ],
    ),
    (
        "j210_several_matches",
        '$p: Person $p knows $f $f: Person { age: 1, name: $n, tags: "x" }',
        [
            "scan p:Person",
            'expand p -> f:Person by Knows where $f.age = 1, $f.name = $n, "x" in $f.tags',
        ],
    ),
    (
        "j211_binding_inside_a_negation",
        '$p: Person not { $p worksAt $c $c: Company { name: "x" } $c.founded is null }',
        [
            "scan p:Person",
            'not(p)[expand p -> c:Company by WorksAt where $c.name = "x"; '
            "filter $c.founded is null]",
        ],
    ),
    # -- direction, filters and blocks inside a negation --
    (
        "gap_direction_inside_a_negation_from_the_target_side",
        "$p: Person not { $company worksAt $p }",
        ["scan p:Person", "not(p)[expand p -> company:Company by WorksAt]"],
    ),
    (
        "gap_direction_inside_a_negation_from_a_bound_company",
        '$p: Person not { $c: Company { name: "x" } $c worksAt $p }',
        ["scan p:Person", 'not(p)[expand p -> c:Company by WorksAt where $c.name = "x"]'],
    ),
    (
        "gap_direction_inside_a_negation_right_bound",
        "$c: Company not { $p worksAt $c }",
        ["scan c:Company", "not(c)[expand c <- p:Person by WorksAt]"],
    ),
    (
        "gap_two_closing_traversals",
        "$a: Person $a knows $b $b knows $a $a wrote $d $b wrote $d $b knows $a",
        [
            "scan a:Person",
            "expand a -> b:Person by Knows",
            "expand b -> a~1:Person by Knows",
            "filter $a~1.id = $a.id",
            "expand a -> d:Doc by Wrote",
            "expand b -> d~2:Doc by Wrote",
            "filter $d~2.id = $d.id",
            "expand b -> a~3:Person by Knows",
            "filter $a~3.id = $a.id",
        ],
    ),
    (
        "gap_unbound_traversal",
        "$a knows $b",
        ["scan a:Person", "expand a -> b:Person by Knows"],
    ),
    (
        "gap_unbound_component_beside_a_bound_one",
        "$x wrote $d $p: Person $p knows $q",
        [
            "scan p:Person",
            "expand p -> q:Person by Knows",
            "scan x:Person",
            "expand x -> d:Doc by Wrote",
        ],
    ),
    (
        "gap_unbound_traversal_inside_a_negation",
        "$p: Person not { $x wrote $d $x.age = $p.age }",
        [
            "scan p:Person",
            "not(p)[scan x:Person; expand x -> d:Doc by Wrote; filter $x.age = $p.age]",
        ],
    ),
    (
        "blank_source",
        "$_ worksAt $c",
        ["scan c:Company", "expand c <- _~1:Person by WorksAt"],
    ),
    (
        "blank_on_both_sides",
        "$_ worksAt $_",
        ["scan _~1:Person", "expand _~1 -> _~2:Company by WorksAt"],
    ),
    (
        "blank_that_is_bound_is_a_variable",
        "$_: Person { age: 1 } $p: Person $p knows $_ $_ knows $p",
        [
            "scan _:Person where $_.age = 1",
            "expand _ <- p:Person by Knows",
            "expand _ -> p~1:Person by Knows",
            "filter $p~1.id = $p.id",
        ],
    ),
    (
        "edge_from_a_variable_to_itself",
        "$a: Person $a knows $a",
        ["scan a:Person", "expand a -> a~1:Person by Knows", "filter $a~1.id = $a.id"],
    ),
    (
        "two_components_joined_by_a_late_traversal",
        "$a: Person $b: Person $a worksAt $c $b worksAt $d $a knows $b",
        [
            "scan a:Person",
            "expand a -> c:Company by WorksAt",
            "expand a -> b:Person by Knows",
            "expand b -> d:Company by WorksAt",
        ],
    ),
    (
        "undirected",
        "$a: Person $a <knows>{1,2} $b $c <knows> $b",
        [
            "scan a:Person",
            "expand a -- b:Person by Knows{1,2}",
            "expand b -- c:Person by Knows",
        ],
    ),
    (
        "edge_binding",
        "$a $w:knows $b $w.since > 2000",
        ["scan a:Person", "expand a -> b:Person by w:Knows", "filter $w.since > 2000"],
    ),
    (
        "edge_binding_that_closes_a_cycle",
        "$a: Person $a knows $b $b $w:knows $a $w.since = 1",
        [
            "scan a:Person",
            "expand a -> b:Person by Knows",
            "expand b -> a~1:Person by w:Knows",
            "filter $a~1.id = $a.id",
            "filter $w.since = 1",
        ],
    ),
    (
        "reverse_edge_binding",
        '$c: Company $p $w:worksAt $c $w.role = "x"',
        ["scan c:Company", "expand c <- p:Person by w:WorksAt", 'filter $w.role = "x"'],
    ),
    (
        "nested_negation",
        "$p: Person not { $p knows $f not { $f knows $p } }",
        [
            "scan p:Person",
            "not(p)[expand p -> f:Person by Knows; "
            "not(f,p)[expand f -> p~1:Person by Knows; filter $p~1.id = $p.id]]",
        ],
    ),
    (
        "negation_over_two_outer_variables",
        "$a: Person $b: Person not { $a knows $b }",
        [
            "scan a:Person",
            "scan b:Person",
            "not(a,b)[expand a -> b~1:Person by Knows; filter $b~1.id = $b.id]",
        ],
    ),
    (
        "negation_that_only_tests_the_outer_variable",
        "$p: Person not { $p: Person { age: 1 } $p.active }",
        ["scan p:Person", "not(p)[filter $p.age = 1; filter $p.active]"],
    ),
    (
        "negations_stand_after_filters",
        "not { $p knows $_ } $p.age > 1 $p: Person not { $p wrote $_ }",
        [
            "scan p:Person",
            "filter $p.age > 1",
            "not(p)[expand p -> _~1:Person by Knows]",
            "not(p)[expand p -> _~2:Doc by Wrote]",
        ],
    ),
    (
        "a_variable_bound_twice_is_scanned_once",
        "$p: Person { age: 1 } $p: Person { active: true }",
        ["scan p:Person where $p.age = 1, $p.active = true"],
    ),
    (
        "several_text_clauses_on_one_variable",
        '$d: Doc search($d.title, "a") search($d.title, "b") fuzzy($d.body, "c", 1)',
        [
            "scan d:Doc",
            'filter search($d.title, "a")',
            'filter search($d.title, "b")',
            'filter fuzzy($d.body, "c", 1)',
        ],
    ),
]


@pytest.mark.parametrize(
    ("clauses", "expected"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES]
)
def test_shape(clauses: str, expected: list[str]) -> None:
    assert steps(clauses, params="$n: String") == expected


def test_j201_now_becomes_the_reserved_parameter_in_reads_and_mutations() -> None:
    now = typed.Parameter("__nanograph_now", typed.DATETIME)
    plan = lowered("$p: Person { seen: now() } $p.seen < now()", "now()")
    scan, condition = plan.pipeline
    assert isinstance(scan, NodeScan)
    assert isinstance(condition, RowFilter)
    actual = [scan.filters[0], condition.condition]
    assert [e.right for e in actual if isinstance(e, typed.Compare)] == [now, now]
    assert plan.columns[0].expr == now
    text = "query m() { update Person set { seen: now() } where seen < now() }"
    mutation = lower(check(text), Source("q.gq", text))
    assert isinstance(mutation, MutationPlan)
    (statement,) = mutation.statements
    assert statement.assignments == (("seen", now),)
    assert isinstance(statement.where, typed.Compare)
    assert statement.where.right == now


def test_text_sugar_means_equals_true() -> None:
    short = lowered('$d: Doc search($d.title, "a")', "$d.slug")
    long = lowered('$d: Doc search($d.title, "a") = true', "$d.slug")
    assert short != long
    assert optimize(short) == optimize(long)


def test_everything_after_the_pipeline_is_kept() -> None:
    text = (
        "query q($n: I32?) { match { $p: Person } return distinct { $p.name as x $p.age } "
        "order { x desc, $p.age } limit 3 offset 1 }"
    )
    plan = lower(check(text), Source("q.gq", text))
    assert isinstance(plan, ReadPlan)
    assert (plan.name, plan.distinct, plan.limit, plan.offset) == ("q", True, 3, 1)
    assert list(plan.params) == ["n"]
    assert [c.name for c in plan.columns] == ["x", "p.age"]
    assert [(show(k.expr), k.descending) for k in plan.order] == [("x", True), ("p.age", False)]


# -- mutations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "mixed"),
    [
        ('insert Person { name: "a" } update Person set { age: 1 } where name = "a"', False),
        ("delete Person where age = 1 delete Knows where since = 1", False),
        ('insert Person { name: "a" }\ndelete Person where age = 1', True),
        ('delete Person where age = 1\nupdate Person set { age: 1 } where name = "a"', True),
    ],
)
def test_deletes_do_not_mix_with_writes(statements: str, mixed: bool) -> None:
    text = f"query m() {{\n{statements} }}"
    checked = check(text)
    if not mixed:
        plan = lower(checked, Source("q.gq", text))
        assert isinstance(plan, MutationPlan)
        assert plan.destructive == statements.startswith("delete")
        return
    with pytest.raises(PlanError) as caught:
        lower(checked, Source("q.gq", text))
    (problem,) = caught.value.diagnostics
    assert problem.code == "D2"
    assert "mixes inserts/updates and deletes" in problem.message
    assert "split into separate mutations" in problem.message
    line = text.splitlines()[problem.source.position(problem.span.start)[0] - 1]
    assert line.lstrip().startswith("delete")


# -- nothing is lost, nothing is doubled ------------------------------------------------------

_NODES = {"Person": "pqrs", "Company": "cd", "Doc": "xy"}
_EDGES = [("knows", "Person", "Person"), ("worksAt", "Person", "Company"),
          ("wrote", "Person", "Doc"), ("cites", "Doc", "Doc")]  # fmt: skip
_CONDITIONS = {
    "Person": ["${}.age > {}", "${}.age is null or ${}.age = {}", "${}.active and ${}.age < {}",
               'search(${}.name, "{}")', "not (${}.age in [{}])"],
    "Company": ['${}.name = "{}"'],
    "Doc": ['search(${}.title, "{}")', 'match_text(${}.title, "{}")'],
}  # fmt: skip


@dataclass
class Draft:
    """A query under construction; every condition holds a number of its own."""

    draw: st.DrawFn
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    def block(self, outer: dict[str, str], depth: int) -> list[str]:
        names = dict(outer)
        clauses: list[str] = []
        for _ in range(self.draw(st.integers(1, 4))):
            edge, src, dst = self.draw(st.sampled_from(_EDGES))
            a = self.end(src)
            b = self.end(dst)
            if src != dst and (a, b) != ("_", "_") and self.draw(st.booleans()):
                a, b, src, dst = b, a, dst, src
                clauses.append(f"${a}: {src}" if a != "_" else f"${b}: {dst}")
            hops = self.draw(st.sampled_from(["", "", "{1,2}"]))
            clauses.append(f"${a} {edge}{hops} ${b}")
            names.update({name: t for name, t in ((a, src), (b, dst)) if name != "_"})
        if depth == 0 and not names:
            clauses.append("$p: Person")
            names["p"] = "Person"
        for name, type_name in names.items():
            if self.draw(st.booleans()):
                number = next(self.numbers)
                key = {"Person": f"age: {number}", "Company": f'name: "{number}"',
                       "Doc": f'title: "{number}"'}[type_name]  # fmt: skip
                clauses.append(f"${name}: {type_name} {{ {key} }}")
            for text in self.draw(st.lists(st.sampled_from(_CONDITIONS[type_name]), max_size=2)):
                filled = text.replace("${}", f"${name}").replace("{}", str(next(self.numbers)))
                clauses.append(filled)
        people = sorted(name for name, t in names.items() if t == "Person")
        if len(people) > 1 and self.draw(st.booleans()):
            clauses.append(f"${people[0]}.age <= ${people[1]}.age")
        if depth < 2 and self.draw(st.booleans()):
            shared = self.draw(st.sampled_from(sorted(names)))
            inner = self.block(names, depth + 1)
            anchor = f"${shared}: {names[shared]}"
            clauses.append(f"not {{ {anchor} {' '.join(inner)} }}")
        return list(self.draw(st.permutations(clauses)))

    def end(self, type_name: str) -> str:
        name: str = self.draw(st.sampled_from([*_NODES[type_name], "_"]))
        return name


@st.composite
def queries(draw: st.DrawFn) -> str:
    return read(" ".join(Draft(draw).block({}, 0)), "1")


def hops_of(pattern: Pattern) -> Counter[tuple[str, int, int]]:
    actual = Counter((hop.edge_type, hop.min_hops, hop.max_hops) for hop in pattern.hops)
    for absent in pattern.absent:
        actual += hops_of(absent.pattern)
    return actual


def conditions_of(pattern: Pattern) -> Counter[str]:
    parts = [*pattern.conditions, *(f for node in pattern.nodes for f in node.filters)]
    actual = Counter(show(c) for part in parts for c in conjuncts(simplify_expr(part)))
    for absent in pattern.absent:
        actual += conditions_of(absent.pattern)
    return actual


def flat(pipeline: Iterable[PlanStep]) -> Iterator[PlanStep]:
    for step in pipeline:
        yield step
        if isinstance(step, AntiJoin):
            yield from flat(step.inner)


def assert_ordered(pipeline: Iterable[PlanStep], bound: set[str]) -> None:
    """Every step only looks at what was brought in before it, and brings in something new."""
    bound = set(bound)
    for step in pipeline:
        new = set(step.introduced())
        assert not new & bound, f"{new & bound} is brought in twice"
        if isinstance(step, Expand):
            assert step.src in bound
            own = {step.dst, *([step.edge_variable] if step.edge_variable else [])}
            assert all(typed.variables(f) <= own for f in (*step.dst_filters, *step.edge_filters))
        elif isinstance(step, Connect):
            assert {step.src, step.dst} <= bound
        elif isinstance(step, NodeScan):
            assert all(typed.variables(f) == {step.variable} for f in step.filters)
        elif isinstance(step, RowFilter):
            assert typed.variables(step.condition) <= bound
        elif isinstance(step, AntiJoin):
            assert step.outer
            assert set(step.outer) <= bound
            assert_ordered(step.inner, bound)
        bound |= new


@settings(max_examples=80)
@given(queries())
def test_every_traversal_and_condition_appears_exactly_once(text: str) -> None:
    checked = check(text)
    assert isinstance(checked, CheckedRead)
    plan = lower(checked, Source("q.gq", text))
    better = optimize(plan)
    for actual in (plan, better):
        assert isinstance(actual, ReadPlan)
        walked = [s for s in flat(actual.pipeline) if isinstance(s, Expand | Connect)]
        hops = Counter((s.edge_type, s.min_hops, s.max_hops) for s in walked)
        assert hops == hops_of(checked.pattern)
        assert_ordered(actual.pipeline, set())
    assert isinstance(better, ReadPlan)
    placed: Counter[str] = Counter()
    for step in flat(better.pipeline):
        match step:
            case NodeScan(filters=filters):
                placed.update(map(show, filters))
            case Expand(dst_filters=filters, edge_filters=more):
                placed.update(map(show, (*filters, *more)))
            case Connect(edge_filters=filters):
                placed.update(map(show, filters))
            case RowFilter(condition=condition):
                placed[show(condition)] += 1
            case _:
                pass
    assert placed == conditions_of(checked.pattern)


@settings(max_examples=50)
@given(queries())
def test_temporaries_are_never_shared(text: str) -> None:
    plan = lower(check(text), Source("q.gq", text))
    assert isinstance(plan, ReadPlan)
    made = [s.dst for s in flat(plan.pipeline) if isinstance(s, Expand) and "~" in s.dst]
    assert len(made) == len(set(made))
