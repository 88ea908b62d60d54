"""What one actor may see of a graph: for each table all rows, none, or those of a condition.

An edge is visible if its own rule says so and both of its ends are visible. So an actor sees
exactly the graph that remains when every node and edge that it may not see, and every edge with an
end that it may not see, is deleted. A view is immutable, and made for the catalog of one snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import VIEW_VARIABLE as VIEW_VARIABLE
from omnigraph.lang.schema.catalog import Catalog


class RowAccess(StrEnum):
    """A rule without a condition."""

    ALL = "all"
    HIDDEN = "hidden"


ALL, HIDDEN = RowAccess.ALL, RowAccess.HIDDEN
RowRule = RowAccess | typed.TypedExpr
"""Which rows of a table are visible; a condition is over ``VIEW_VARIABLE``, without parameters."""
_NEVER = typed.Constant(False, typed.BOOL)


class View:
    """The visible rows of each table, by table key (``node:Person``, ``edge:Knows``).

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node A { x: I64 } node B { } edge Of: A -> B")
    >>> positive = typed.Compare(
    ...     typed.Relation.GT, typed.Column(VIEW_VARIABLE, "x", typed.INT),
    ...     typed.Constant(0, typed.INT))
    >>> view = View.of(catalog, {"node:A": positive, "node:B": ALL, "edge:Of": ALL})
    >>> view.is_whole, view.sees_all("node:B"), view.sees_all("edge:Of"), view.hides("edge:Of")
    (False, True, False, False)
    """

    __slots__ = ("_digests", "_ends", "_rules", "digest", "is_whole", "restricted")

    def __init__(self, rules: Mapping[str, RowRule], ends: Mapping[str, tuple[str, str]]) -> None:
        """``ends`` are the keys of both node tables of each edge table. Use ``View.of``."""
        self._rules = rules
        self._ends = ends
        self._digests: dict[str, str] = {}
        self.is_whole = False
        """Whether everything is visible."""
        self.digest = _digest(*(f"{key} {self.key_of(key)}" for key in sorted(rules)))
        """A digest of what is visible; equal for views that show the same."""
        self.restricted = frozenset(key for key in rules if not self.sees_all(key))
        """The tables of which not every row is visible: all that a plan depends on."""

    @classmethod
    def of(cls, catalog: Catalog, rules: Mapping[str, RowRule]) -> View:
        """The view of a catalog; a table without a rule is hidden."""
        ends = {
            edge.table_key: (
                catalog.node_types[edge.from_type].table_key,
                catalog.node_types[edge.to_type].table_key,
            )
            for edge in catalog.edge_types.values()
        }
        nodes = (node.table_key for node in catalog.node_types.values())
        every = {key: rules.get(key, HIDDEN) for key in (*nodes, *ends)}
        if all(rule is ALL for rule in every.values()):
            return WHOLE
        return cls(every, ends)

    def __repr__(self) -> str:
        return "<View whole>" if self.is_whole else f"<View {self.digest[:12]}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    # -- one table -----------------------------------------------------------------------

    def rule(self, key: str) -> RowRule:
        """The rule of a table itself; for edges, whatever the ends are."""
        return ALL if self.is_whole else self._rules.get(key, HIDDEN)

    def ends(self, key: str) -> tuple[str, ...]:
        """The keys of the node tables at the ends of an edge table; none for a node table."""
        return self._ends.get(key, ())

    def sees_all(self, key: str) -> bool:
        """Whether every row of a table is visible; for edges, with all of their ends."""
        return self.is_whole or (
            self.rule(key) is ALL and all(self.rule(end) is ALL for end in self.ends(key))
        )

    def hides(self, key: str) -> bool:
        """Whether no row of a table is visible; for edges, also if no row of an end is."""
        return self.rule(key) is HIDDEN or any(self.rule(end) is HIDDEN for end in self.ends(key))

    def condition(self, key: str) -> typed.TypedExpr | None:
        """The condition of a table's own rows; ``None`` if it has none, false if it is hidden.

        The ends of an edge are not part of it: see ``ends``.
        """
        rule = self.rule(key)
        if isinstance(rule, RowAccess):
            return None if rule is ALL else _NEVER
        return rule

    def key_of(self, key: str) -> str:
        """A digest of what decides about the rows of a table, for caches."""
        digest = self._digests.get(key)
        if digest is None:
            rules = [self.rule(key), *(self.rule(end) for end in self.ends(key))]
            digest = self._digests[key] = _digest(*map(_text, rules))
        return digest

    # -- several tables ------------------------------------------------------------------

    def whole_for(self, keys: Iterable[str]) -> bool:
        """Whether every row of some tables is visible."""
        return self.is_whole or all(map(self.sees_all, keys))

    def is_no_wider_than(self, other: View) -> bool:
        """Whether another view is known to show at least all that this one shows."""
        if other.is_whole:
            return True
        if self.is_whole:
            return False
        return all(_is_no_wider(rule, other.rule(key)) for key, rule in self._rules.items())


def _is_no_wider(rule: RowRule, other: RowRule) -> bool:
    if rule is HIDDEN or other is ALL:
        return True
    if isinstance(rule, RowAccess) or isinstance(other, RowAccess):
        return False
    return set(_alternatives(rule)) <= set(_alternatives(other))


def _alternatives(rule: typed.TypedExpr) -> tuple[typed.TypedExpr, ...]:
    return rule.operands if isinstance(rule, typed.Or) else (rule,)


def _text(rule: RowRule) -> str:
    return str(rule) if isinstance(rule, RowAccess) else repr(rule)


def _digest(*texts: str) -> str:
    joined = "\n".join(texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()


def _whole() -> View:
    view = View({}, {})
    view.is_whole = True
    view.digest = "whole"
    view.restricted = frozenset()
    return view


WHOLE = _whole()
"""Everything is visible: there is no policy, or one without rules for rows."""
