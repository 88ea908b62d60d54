"""Random rules for rows, as the text of a policy and as plain Python: what remains of a graph.

``Rules.delete_hidden`` knows nothing of the program but the meaning of a row policy: every node and
edge that a rule does not show is deleted, and then every edge that lost an end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from omnigraph import Catalog, Policy
from tests.merge.followers import Copy, Json
from tests.merge.random_histories import EDGE_NAMES, NAMES, TYPE_NAMES

ACTOR = "ana"
NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")


@dataclass(frozen=True)
class Test:
    """A comparison of one property; a rule with a property that does not fit shows nothing."""

    __test__ = False

    prop: str
    op: str
    value: Any = None

    def text(self) -> str:
        shown = "" if self.op.endswith("null") else f" {json.dumps(self.value)}"
        return f"{self.prop} {self.op}{shown}"

    def fits(self, properties: Json) -> bool:
        declared = properties.get(self.prop)
        if declared is None:
            return False
        kind = declared["property_type"]
        if self.op.endswith("null"):
            return bool(kind["scalar"] != "Blob")
        if kind["list"] or kind["enum_values"]:
            return False
        return kind["scalar"] in (("String",) if isinstance(self.value, str) else NUMBERS)

    def holds(self, row: Json) -> bool:
        value = row[self.prop]
        if self.op.endswith("null"):
            return (value is None) == (self.op == "is null")
        if value is None:
            return False
        return value < self.value if self.op == "<" else value >= self.value


@dataclass(frozen=True)
class Rule:
    """Shows the rows of some types for which all tests hold; on some branches or all."""

    types: tuple[str, ...]
    tests: tuple[Test, ...]
    branches: tuple[str, ...] | None = None

    def text(self, number: int) -> str:
        lines = [
            f"  - id: r{number}",
            "    actors: {group: staff}",
            f"    types: {json.dumps(self.types)}",
        ]
        if self.branches is not None:
            lines.append(f"    branches: {json.dumps(self.branches)}")
        if self.tests:
            lines.append("    where: " + json.dumps(" and ".join(t.text() for t in self.tests)))
        return "\n".join(lines)

    def shows(self, name: str, properties: Json, row: Json, branch: str) -> bool:
        if self.branches is not None and branch not in self.branches:
            return False
        if "*" not in self.types and name not in self.types:
            return False
        if not all(test.fits(properties) for test in self.tests):
            return False
        return all(test.holds(row) for test in self.tests)


@dataclass(frozen=True)
class Rules:
    """The rules of one actor."""

    rules: tuple[Rule, ...]

    @staticmethod
    def random(random: Random) -> Rules:
        names = [*TYPE_NAMES, *EDGE_NAMES]
        rules = []
        for _ in range(random.choice((1, 2, 3))):
            some = tuple(sorted(random.sample(names, random.randrange(1, 4))))
            tests = [_random_test(random) for _ in range(random.choice((0, 1, 1, 2)))]
            rules.append(Rule(random.choice((some, ("*",))), tuple(tests)))
        # Most types are seen in part.
        wide = random.choice((("*",), tuple(random.sample(names, 4)), TYPE_NAMES))
        rules.append(Rule(tuple(wide), (_random_test(random),)))
        if random.random() < 0.6:
            rules.append(Rule(EDGE_NAMES, ()))
        return Rules(tuple(rules))

    def policy(self, actions: str = "read, read_history, export") -> Policy:
        head = (
            f"version: 2\ngroups: {{staff: [{ACTOR}]}}\nrules:\n  - id: all\n    allow:\n"
            f"      actors: {{group: staff}}\n      actions: [{actions}]\n"
        )
        rows = "\n".join(rule.text(number) for number, rule in enumerate(self.rules))
        return Policy.parse(f"{head}rows:\n{rows}\n" if rows else f"{head}rows: []\n")

    def delete_hidden(self, whole: Copy, catalog: Catalog, branch: str = "main") -> Copy:
        """What is left of a graph."""
        left = whole.copied()
        for (_, name), kind in left.types.items():
            kind.rows = {
                row_id: row
                for row_id, row in kind.rows.items()
                if any(rule.shows(name, kind.properties, row, branch) for rule in self.rules)
            }
        for edge in catalog.edge_types.values():
            kind = left.types["edge", edge.name]
            ends = [left.types["node", end].rows for end in (edge.from_type, edge.to_type)]
            kind.rows = {
                row_id: row
                for row_id, row in kind.rows.items()
                if row["src"] in ends[0] and row["dst"] in ends[1]
            }
        return left


def _random_test(random: Random) -> Test:
    prop = random.choice((*NAMES[:3], "tag", "k"))
    if prop in ("tag", "k"):
        return Test(prop, random.choice(("<", ">=")), f"r{random.randrange(1, 10)}")
    return random.choice(
        (
            Test(prop, "is not null"),
            Test(prop, "is null"),
            Test(prop, random.choice(("<", ">=")), -random.randrange(10, 50)),
            Test(prop, random.choice(("<", ">=")), random.randrange(1, 20)),
            Test(prop, ">=", "text 3"),
        )
    )
