"""Which rows an actor sees: the row rules of a bundle, bound to an actor and to a schema.

Rules only open: a type that no rule opens for the actor is hidden. A rule whose condition cannot be
decided opens nothing: one that names a property or a type which the schema at hand does not have,
or an attribute that the actor does not have or that does not convert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.errors import ParameterError, QueryError
from omnigraph.identity import AttributeValue, Identity
from omnigraph.lang.query import typed
from omnigraph.lang.query.conditions import (
    ACTOR_GROUPS,
    ACTOR_ID,
    CheckedCondition,
    attribute_parameter,
    check_condition,
)
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.lang.types import PropType
from omnigraph.plan.bind import bind_expr
from omnigraph.plan.rules.simplify import simplify_expr
from omnigraph.plan.view import ALL, HIDDEN, View
from omnigraph.plan.view import RowRule as Visible
from omnigraph.policy.bounded import BoundedCache
from omnigraph.policy.bundle import Bundle, RowRule
from omnigraph.policy.constants import reduce_condition
from omnigraph.records import dataclass

_VIEWS = 1024
_CONDITIONS = 4096


@dataclass(frozen=True, slots=True)
class OpensNothing:
    """Why a row rule opens nothing."""

    reason: str


Opening = Visible | OpensNothing
"""What a row rule opens of a type: all rows, those of a condition, or nothing and why."""


class RowPolicy:
    """The row rules of one bundle. Safe to share between threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._rules = bundle.rows or ()
        self._attributes = bundle.attributes
        self._applying: BoundedCache[str, frozenset[int]] = BoundedCache(_VIEWS)
        self._views: BoundedCache[tuple[str, frozenset[str], frozenset[int], str], View]
        self._views = BoundedCache(_VIEWS)
        self._checked: BoundedCache[tuple[str, str, str], CheckedCondition | OpensNothing]
        self._checked = BoundedCache(_CONDITIONS)

    def view(
        self, identity: Identity, groups: frozenset[str], branch: str, catalog: Catalog
    ) -> View:
        """What an actor of some groups of the bundle sees on a branch, under a schema."""
        applying = self._applying.get(branch)
        if applying is None:
            applying = frozenset(
                number
                for number, rule in enumerate(self._rules)
                if rule.branches is None or rule.branches.contain(branch)
            )
            self._applying.put(branch, applying)
        key = (identity.digest, groups, applying, catalog.schema_hash)
        view = self._views.get(key)
        if view is None:
            view = self._make_view(identity, groups, branch, catalog)
            self._views.put(key, view)
        return view

    def _make_view(
        self, identity: Identity, groups: frozenset[str], branch: str, catalog: Catalog
    ) -> View:
        visible: dict[str, Visible] = {}
        for entity in entity_types(catalog):
            rules = self.explain(identity, groups, branch, catalog, entity.name)
            visible[entity.table_key] = _any_of(opening for _, opening in rules)
        return View.of(catalog, visible)

    def explain(
        self,
        identity: Identity,
        groups: frozenset[str],
        branch: str,
        catalog: Catalog,
        type_name: str,
    ) -> Iterator[tuple[RowRule, Opening]]:
        """Each rule for a type, in the order of the file, with what it opens for an actor."""
        for rule in self._rules:
            if rule.names(type_name):
                yield rule, self._opening(rule, identity, groups, branch, catalog, type_name)

    def _opening(
        self,
        rule: RowRule,
        identity: Identity,
        groups: frozenset[str],
        branch: str,
        catalog: Catalog,
        type_name: str,
    ) -> Opening:
        if rule.group not in groups:
            return OpensNothing(f"the actor is not in group '{rule.group}'")
        if rule.branches is not None and not rule.branches.contain(branch):
            return OpensNothing(f"it is not for branch '{branch}'")
        checked = self.checked(rule, catalog, type_name)
        if checked is None or isinstance(checked, OpensNothing):
            return ALL if checked is None else checked
        values = self.values(identity, groups, checked.attributes)
        if isinstance(values, OpensNothing):
            return values
        reduced = reduce_condition(simplify_expr(bind_expr(checked.expr, values)))
        if isinstance(reduced, typed.Constant):
            return ALL if reduced.value is True else OpensNothing("its condition holds for no row")
        return reduced

    def checked(
        self, rule: RowRule, catalog: Catalog, type_name: str
    ) -> CheckedCondition | OpensNothing | None:
        """The condition of a rule for a type; ``None`` if it has none."""
        if rule.where is None:
            return None
        key = (rule.id, type_name, catalog.schema_hash)
        checked = self._checked.get(key)
        if checked is None:
            try:
                checked = check_condition(catalog, type_name, rule.where)
            except QueryError as error:
                checked = OpensNothing(error.diagnostics[0].message)
            self._checked.put(key, checked)
        return checked

    def values(
        self, identity: Identity, groups: frozenset[str], wanted: Mapping[str, PropType]
    ) -> dict[str, typed.Value] | OpensNothing:
        """The attributes of an actor as parameters; those of the bundle come before the token's."""
        given: dict[str, AttributeValue] = {
            **identity.attributes,
            **self._attributes.get(identity.id, {}),
            ACTOR_ID: identity.id,
            ACTOR_GROUPS: tuple(sorted(groups | identity.groups)),
        }
        values: dict[str, typed.Value] = {}
        for name, type_ in wanted.items():
            if name not in given:
                return OpensNothing(f"the actor has no attribute '{name}'")
            try:
                values |= convert_params({name: type_}, {name: given[name]})
            except ParameterError as error:
                return OpensNothing(f"attribute '{name}' does not fit: {error.message}")
        return {attribute_parameter(name): values[name] for name in wanted}


def _any_of(openings: Iterator[Opening]) -> Visible:
    """The rows that at least one rule opens; alternatives are kept one by one, in their order."""
    alternatives: dict[typed.TypedExpr, None] = {}
    for opening in openings:
        if opening is ALL:
            return ALL
        if isinstance(opening, typed.Or):
            alternatives |= dict.fromkeys(opening.operands)
        elif isinstance(opening, typed.TypedExpr):
            alternatives[opening] = None
    if not alternatives:
        return HIDDEN
    conditions = tuple(alternatives)
    return conditions[0] if len(conditions) == 1 else typed.Or(conditions)
