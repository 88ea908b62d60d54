"""Reads bundle files of versions 1 and 2 and validates them.

The order of the checks and the marked parts of their texts are part of the contract with users of
earlier servers. A key that means nothing here is refused: a mistyped ``branch_scpoe`` would
otherwise widen access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.errors import PolicyInvalid, QueryError
from omnigraph.escaping import escape
from omnigraph.identity import AttributeValue
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.conditions import BUILT_IN_ATTRIBUTES, parse_condition
from omnigraph.policy.actions import (
    ACTIONS,
    GRAPH_ACTIONS,
    IN_QUERIES,
    ON_BRANCH,
    ON_TARGET,
    SERVER_ACTIONS,
    BundleScope,
)
from omnigraph.policy.bundle import Bundle, PolicyRule, RowRule
from omnigraph.policy.patterns import BranchNames
from omnigraph.records import dataclass
from omnigraph.yaml_tree import YamlProblem, YamlValue, parse_yaml

_TOP = {
    1: ("version", "kind", "groups", "protected_branches", "rules"),
    2: ("version", "kind", "groups", "protected_branches", "rules", "actors", "rows"),
}
_SCOPE_KEYS = {
    1: {"branch_scope": ON_BRANCH, "target_branch_scope": ON_TARGET},
    2: {
        "branch_scope": ON_BRANCH,
        "target_branch_scope": ON_TARGET,
        "branches": ON_BRANCH,
        "target_branches": ON_TARGET,
        "queries": IN_QUERIES,
    },
}
"""The keys that restrict a rule, and the actions that they may restrict."""
_SCOPES = ("any", "protected", "unprotected")


def read_bundle(text: str, name: str, scope: BundleScope) -> Bundle:
    """Parse and validate a bundle for a graph or for the server; raises ``PolicyInvalid``."""
    try:
        reader = _BundleReader(parse_yaml(text), name)
        reader.check(scope)
    except YamlProblem as problem:
        raise invalid_bundle(name, problem.message, problem.line) from None
    return reader.bundle


def written_scope(text: str) -> BundleScope:
    """What a bundle says that it is for; for a graph if it does not say it.

    >>> written_scope("{version: 1, kind: server}"), written_scope("{version: 1}")
    ('server', 'graph')
    """
    try:
        kind = parse_yaml(text).mapping().get("kind")
        return "server" if kind is not None and kind.text() == "server" else "graph"
    except YamlProblem:
        return "graph"  # reading the bundle reports it


def invalid_bundle(name: str, message: str, line: int) -> PolicyInvalid:
    """The error about one line of a bundle."""
    return PolicyInvalid(
        f"policy '{escape(name)}', line {line}: {escape(message)}",
        hint="docs/policy.md lists the keys and rules of a bundle",
        details={"policy": name, "line": line},
    )


@dataclass(frozen=True, slots=True)
class _WrittenRule:
    """A rule as it is written, with the lines of its parts."""

    rule: PolicyRule
    line: int
    actions: tuple[YamlValue, ...]
    restrictions: tuple[str, ...]


class _BundleReader:
    """Reads the whole tree first, so that types are checked before rules, as the order says."""

    def __init__(self, top: YamlValue, name: str) -> None:
        self._version = _version(top)
        entries = top.mapping(_TOP[self._version])
        self._kind = entries.get("kind")
        if self._kind is not None:
            self._kind.choice("server", "graph")
        none = YamlValue(None, "", top.line)
        self._groups = {
            group: (value.line, tuple(_name(actor) for actor in value.items()))
            for group, value in entries.get("groups", none).mapping().items()
        }
        self._protected = [
            (value.line, _name(value)) for value in entries.get("protected_branches", none).items()
        ]
        self._rules = [_rule(value, self._version) for value in entries.get("rules", none).items()]
        self._attributes = {
            actor: read_attributes(value)
            for actor, value in entries.get("actors", none).mapping().items()
        }
        self._rows: list[RowRule] | None = None
        self._rows_line = 0
        if "rows" in entries:
            self._rows = [_row_rule(value, name) for value in entries["rows"].items()]
            self._rows_line = entries["rows"].line

    @property
    def bundle(self) -> Bundle:
        return Bundle(
            self._version,
            {name: actors for name, (_, actors) in self._groups.items()},
            BranchNames(tuple(name for _, name in self._protected)),
            tuple(lines.rule for lines in self._rules),
            self._attributes,
            None if self._rows is None else tuple(self._rows),
        )

    # -- checks, in their order ----------------------------------------------------------

    def check(self, scope: BundleScope) -> None:
        for name, (line, actors) in self._groups.items():
            self._check_group(name, line, actors)
        for line, branch in self._protected:
            if not branch.strip():
                raise YamlProblem("protected_branches contains a blank branch name", line)
        existing: set[str] = set()
        for lines in self._rules:
            _check_id(lines.rule.id, lines.line, existing)
            for message, line in self._faults(lines):
                raise YamlProblem(message, line)
        for lines in self._rules:
            for message, line in _repeated(lines):
                raise YamlProblem(message, line)
        for rule in self._rows or ():
            _check_id(rule.id, rule.line, existing)
            for message in self._row_faults(rule):
                raise YamlProblem(message, rule.line)
        self._check_kind(scope)

    def _check_group(self, name: str, line: int, actors: tuple[str, ...]) -> None:
        if not name.strip():
            raise YamlProblem("the name of a policy group must not be blank", line)
        if not _is_unicode(name):
            raise YamlProblem("the name of a policy group is not valid Unicode", line)
        if not actors and self._version == 1:
            raise YamlProblem(f"policy group '{name}' must not be empty", line)
        if not all(actor.strip() for actor in actors):
            raise YamlProblem(f"policy group '{name}' contains a blank actor id", line)

    def _check_kind(self, scope: BundleScope) -> None:
        for lines in self._rules:
            for message, line in _misplaced(lines, scope):
                raise YamlProblem(message, line)
        if self._version > 1 and self._kind is not None and self._kind.text() != scope:
            kind = self._kind.text()
            raise YamlProblem(f"a bundle of kind '{kind}' is bound to a {scope}", self._kind.line)
        if scope == "server" and self._rows is not None:
            raise YamlProblem(
                "rows are per-graph rules; move them to the bundle of a graph", self._rows_line
            )

    def _group_faults(self, label: str, group: str) -> Iterator[str]:
        if not group.strip():
            yield f"{label} has a blank group"
        if group not in self._groups:
            yield f"{label} references unknown group '{group}'"

    def _faults(self, lines: _WrittenRule) -> Iterator[tuple[str, int]]:
        rule, line = lines.rule, lines.line
        label = f"policy rule '{rule.id}'"
        for message in self._group_faults(label, rule.group):
            yield message, line
        if not rule.actions:
            yield f"{label} must include at least one action", line
        if len(lines.restrictions) > 1:
            first, second = lines.restrictions[:2]
            yield f"{label} may specify {first} or {second}, not both", line
        for action in lines.actions:
            for key in lines.restrictions:
                if action.text() not in _SCOPE_KEYS[self._version][key]:
                    word = action.text()
                    yield f"{label} uses {key} with unsupported action '{word}'", action.line
        for message in _blank_names(label, rule):
            yield message, line
        for action in lines.actions:
            word = action.text()
            if word in SERVER_ACTIONS and GRAPH_ACTIONS.intersection(rule.actions):
                yield (
                    f"{label} mixes the server-scoped action '{word}' with per-graph actions; "
                    "split into separate rules",
                    action.line,
                )

    def _row_faults(self, rule: RowRule) -> Iterator[str]:
        label = f"row rule '{rule.id}'"
        yield from self._group_faults(label, rule.group)
        if not rule.types:
            yield f"{label} must include at least one type"
        if not all(type_name.strip() for type_name in rule.types):
            yield f"{label} has a blank type"
        if rule.branches is not None and not all(name.strip() for name in rule.branches.names):
            yield f"{label} has a blank branch name"


def _version(top: YamlValue) -> int:
    entries = top.mapping()
    version = top.required(entries, "version")
    if version.whole() not in _TOP:
        raise YamlProblem("policy version must be 1 or 2", version.line)
    return version.whole()


def _check_id(rule_id: str, line: int, existing: set[str]) -> None:
    if not rule_id.strip():
        raise YamlProblem("the id of a policy rule must not be blank", line)
    if rule_id in existing:
        raise YamlProblem(f"duplicate policy rule id '{rule_id}'", line)
    existing.add(rule_id)


# -- rules for actions ---------------------------------------------------------------------------


def _rule(value: YamlValue, version: int) -> _WrittenRule:
    entries = value.mapping(("id", "allow"))
    rule_id = value.required(entries, "id")
    allow = value.required(entries, "allow")
    inside = allow.mapping(("actors", "actions", *_SCOPE_KEYS[version]))
    group = _group(allow, inside)
    actions = tuple(allow.required(inside, "actions").items())
    rule = PolicyRule(
        _name(rule_id),
        group,
        tuple(action.choice(*ACTIONS) for action in actions),
        branch_scope=_scope(inside, "branch_scope"),
        target_branch_scope=_scope(inside, "target_branch_scope"),
        branches=_branches(inside, "branches"),
        target_branches=_branches(inside, "target_branches"),
        queries=frozenset(_names(inside["queries"])) if "queries" in inside else None,
    )
    restrictions = tuple(key for key in _SCOPE_KEYS[version] if key in inside)
    return _WrittenRule(rule, rule_id.line, actions, restrictions)


def _scope(entries: dict[str, YamlValue], key: str) -> str | None:
    return entries[key].choice(*_SCOPES) if key in entries else None


def _branches(entries: dict[str, YamlValue], key: str) -> BranchNames | None:
    return BranchNames(_names(entries[key])) if key in entries else None


def _group(value: YamlValue, entries: dict[str, YamlValue]) -> str:
    actors = value.required(entries, "actors")
    return _name(actors.required(actors.mapping(("group",)), "group"))


def _name(value: YamlValue) -> str:
    """A text that can be stored and compared everywhere."""
    text = value.text()
    if not _is_unicode(text):
        raise YamlProblem(f"{value.path} is not valid Unicode", value.line)
    return text


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _names(value: YamlValue) -> tuple[str, ...]:
    return tuple(map(_name, value.items()))


def _blank_names(label: str, rule: PolicyRule) -> Iterator[str]:
    for names in (rule.branches, rule.target_branches):
        if names is not None and not all(name.strip() for name in names.names):
            yield f"{label} has a blank branch name"
    if rule.queries is not None and not all(name.strip() for name in rule.queries):
        yield f"{label} has a blank query name"


def _repeated(lines: _WrittenRule) -> Iterator[tuple[str, int]]:
    existing: set[str] = set()
    for action in lines.actions:
        word = action.text()
        if word in existing:
            yield (
                f"duplicate policy id '{lines.rule.id}:{word}': the action is listed twice",
                action.line,
            )
        existing.add(word)


def _misplaced(lines: _WrittenRule, scope: BundleScope) -> Iterator[tuple[str, int]]:
    """The actions of a rule that a bundle of this scope cannot allow."""
    label = f"policy rule '{lines.rule.id}'"
    for action in lines.actions:
        word = action.text()
        if scope == "graph" and word in SERVER_ACTIONS:
            yield (
                f"{label} uses the server-scoped action '{word}' in a Graph policy file; "
                "move it to the bundle that is bound to the cluster",
                action.line,
            )
        if scope == "server" and word in GRAPH_ACTIONS:
            yield (
                f"{label} uses the per-graph action '{word}' in a server policy file; "
                "move it to the bundle of a graph",
                action.line,
            )


# -- rules for rows ------------------------------------------------------------------------------


def read_attributes(value: YamlValue) -> Mapping[str, AttributeValue]:
    """The attributes of an actor by name; raises ``YamlProblem``."""
    attributes: dict[str, AttributeValue] = {}
    for name, given in value.mapping().items():
        if name in BUILT_IN_ATTRIBUTES:
            raise YamlProblem(f"every actor has '{name}': {given.path} cannot be set", given.line)
        if not name.isidentifier():
            raise YamlProblem(f"'{escape(name)}' cannot be the name of an attribute", given.line)
        if given.is_list:
            attributes[name] = tuple(item.atom() for item in given.items())
        else:
            attributes[name] = given.atom()
    return attributes


def _row_rule(value: YamlValue, bundle: str) -> RowRule:
    entries = value.mapping(("id", "actors", "types", "branches", "where"))
    rule_id = value.required(entries, "id")
    where = entries.get("where")
    return RowRule(
        _name(rule_id),
        _group(value, entries),
        _names(value.required(entries, "types")),
        _branches(entries, "branches"),
        None if where is None else _where(where, bundle, _name(rule_id)),
        rule_id.line,
    )


def _where(value: YamlValue, bundle: str, rule_id: str) -> Source:
    """The text of a condition, whose syntax is checked here and its names with a schema."""
    source = Source(f"{bundle}, row rule '{rule_id}'", value.text())
    try:
        parse_condition(source)
    except QueryError as error:
        finding = error.diagnostics[0]
        hint = f" ({finding.hint})" if finding.hint else ""
        raise YamlProblem(f"{value.path}: {finding.message}{hint}", value.line) from None
    return source
