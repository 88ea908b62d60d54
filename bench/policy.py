"""What a policy costs: decisions, views, and queries of a restricted actor.

Run it with ``make bench`` or ``python bench/policy.py [part ...]``. Every part is a function of
``PARTS`` that prints its rows and returns the goals that it missed; the program fails if there are
any. Times of decisions are processor time, so that other programs do not count.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from omnigraph import Identity, Policy
from omnigraph.lang.schema.compile import compile_schema

CACHED_DECISION = 10.0
"""The goal for a decision from the cache, in microseconds."""
RULES = 40
GROUPS = 20
SCHEMA = "\n".join(
    f"node T{number} {{ name: String @key  tenant: String  level: I32 }}" for number in range(20)
)


def bundle() -> str:
    """A large bundle: 20 groups, 40 rules for actions, 20 for rows."""
    groups = [f"  g{n}: [{', '.join(f'actor{n}-{m}' for m in range(50))}]" for n in range(GROUPS)]
    rules = [
        f"  - {{id: r{n}, allow: {{actors: {{group: g{n % GROUPS}}}, actions: [read, change], "
        f"branch_scope: {'unprotected' if n % 2 else 'any'}}}}}"
        for n in range(RULES)
    ]
    rows = [
        f"  - {{id: row{n}, actors: {{group: g{n}}}, types: ['*'], "
        "where: tenant in $actor.tenants and level <= $actor.level}"
        for n in range(GROUPS)
    ]
    head = ["version: 2", "protected_branches: [main, release/**]", "groups:"]
    return "\n".join([*head, *groups, "rules:", *rules, "rows:", *rows])


def microseconds(call: Callable[[int], object], times: int, rounds: int = 5) -> float:
    """The processor time of one call, the median of some rounds."""
    measured = []
    for _ in range(rounds):
        start = time.process_time()
        for number in range(times):
            call(number)
        measured.append((time.process_time() - start) / times * 1e6)
    return statistics.median(measured)


def row(name: str, value: float, unit: str = "µs", limit: float | None = None) -> list[str]:
    """Print one measurement; returns its name if it misses its goal."""
    aim = "" if limit is None else f"   goal ≤ {limit:g} {unit}"
    print(f"{name:<52}{value:>10.2f} {unit}{aim}")
    return [] if limit is None or value <= limit else [name]


def decisions() -> list[str]:
    """Decisions: from the cache, by Cedar, and the load of a bundle."""
    text = bundle()
    policy = Policy.parse(text)
    ana = Identity("actor3-7", frozenset({"g4", "other"}), {"tenants": ("t1",), "level": 3})
    missed = row(
        "decision from the cache, by name",
        microseconds(lambda _: policy.decide("actor3-7", "change", "draft"), 20_000),
        limit=CACHED_DECISION,
    )
    missed += row(
        "decision from the cache, with groups of a token",
        microseconds(lambda _: policy.decide(ana, "change", "draft"), 20_000),
        limit=CACHED_DECISION,
    )
    row(
        "a branch that was not seen before, same class",
        microseconds(lambda number: policy.decide(ana, "change", f"draft/{number}"), 2_000),
    )

    def by_cedar(number: int) -> None:
        groups = frozenset({f"g{number % GROUPS}", f"g{number // GROUPS}"})
        fresh.decide(Identity("ana", groups), "change", "draft")

    measured = []
    for _ in range(3):
        fresh = Policy.parse(text)
        measured.append(microseconds(by_cedar, GROUPS * GROUPS, rounds=1))
    row("decision by Cedar, 40 rules, not in the cache", statistics.median(measured))
    row("load of the bundle", microseconds(lambda _: Policy.parse(text), 3) / 1000, "ms")
    return missed


def views() -> list[str]:
    """Views: what a handle asks before each read."""
    policy = Policy.parse(bundle())
    catalog = compile_schema(SCHEMA)
    ana = Identity("actor3-7", frozenset(), {"tenants": ("t1",), "level": 3})
    missed = row(
        "view from the cache",
        microseconds(lambda _: policy.view(ana, "main", catalog), 20_000),
        limit=CACHED_DECISION,
    )
    row(
        "view of a new actor, 20 types",
        microseconds(
            lambda number: policy.view(
                Identity(f"a{number}", frozenset({"g3"}), {"tenants": ("t1",), "level": number}),
                "main",
                catalog,
            ),
            200,
            rounds=1,
        ),
    )
    return missed


def queries() -> list[str]:
    """Queries of a restricted actor, beside those of one who sees everything."""
    from masked_queries import masked_queries

    return masked_queries(row)


PARTS: dict[str, Callable[[], list[str]]] = {
    "decisions": decisions,
    "views": views,
    "queries": queries,
}


def main(names: list[str]) -> int:
    missed = []
    for name in names or PARTS:
        print(f"-- {name}")
        missed += PARTS[name]()
    for name in missed:
        print(f"missed: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
