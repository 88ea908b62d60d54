"""Checks the row rules of a bundle against a schema, before anybody reads with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from omnigraph.errors import QueryError
from omnigraph.identity import Identity
from omnigraph.lang.closest import suggest
from omnigraph.lang.query.conditions import check_condition
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.policy.bundle import ANY_TYPE, Bundle, RowRule
from omnigraph.policy.rows import OpensNothing, RowPolicy
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """Something in a bundle that does not fit a schema; a warning only closes what it names."""

    severity: Literal["error", "warning"]
    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def check_rows(bundle: Bundle, rows: RowPolicy, catalog: Catalog) -> Iterator[PolicyFinding]:
    """The findings about the row rules of a bundle, in the order of the file."""
    for rule in bundle.rows or ():
        findings = list(_rule_errors(rule, catalog))
        yield from findings
        if not findings:
            yield from _missing_attributes(bundle, rows, rule, catalog)
    for entity in entity_types(catalog):
        if not any(rule.names(entity.name) for rule in bundle.rows or ()):
            line = min((rule.line for rule in bundle.rows or ()), default=1)
            yield PolicyFinding("warning", line, f"no row rule opens type '{entity.name}'")


def _rule_errors(rule: RowRule, catalog: Catalog) -> Iterator[PolicyFinding]:
    names = [entity.name for entity in entity_types(catalog)]
    label = f"row rule '{rule.id}'"
    for type_name in rule.types:
        if type_name not in (ANY_TYPE, *names):
            hint = suggest(type_name, names)
            yield _error(rule, f"{label}: unknown node or edge type `{type_name}`", hint)
        elif type_name != ANY_TYPE and rule.where is not None:
            try:
                check_condition(catalog, type_name, rule.where)
            except QueryError as error:
                for finding in error.diagnostics:
                    yield _error(rule, f"{label}, {type_name}: {finding.message}", finding.hint)
    if ANY_TYPE in rule.types and rule.where is not None and names:
        messages = []
        for type_name in names:
            try:
                check_condition(catalog, type_name, rule.where)
            except QueryError as error:
                messages.append(error.diagnostics[0].message)
        if len(messages) == len(names):
            yield _error(rule, f"{label}: no type fits its condition: {messages[0]}", None)


def _error(rule: RowRule, message: str, hint: str | None) -> PolicyFinding:
    return PolicyFinding("error", rule.line, message if hint is None else f"{message} ({hint})")


def _missing_attributes(
    bundle: Bundle, rows: RowPolicy, rule: RowRule, catalog: Catalog
) -> Iterator[PolicyFinding]:
    """Actors of the bundle for whom a rule opens nothing; those of tokens are not known here."""
    for actor in dict.fromkeys(bundle.groups[rule.group]):
        reasons = []
        for type_name in (entity.name for entity in entity_types(catalog)):
            checked = rows.checked(rule, catalog, type_name) if rule.names(type_name) else None
            if checked is None or isinstance(checked, OpensNothing):
                continue
            values = rows.values(Identity(actor), frozenset(), checked.attributes)
            if isinstance(values, OpensNothing):
                reasons.append(values.reason)
        for reason in dict.fromkeys(reasons):
            message = f"row rule '{rule.id}' opens nothing for actor '{actor}': {reason}"
            yield PolicyFinding("warning", rule.line, message)
