"""Which rows an actor sees: rules of version 2, bound to an actor, a branch and a schema."""

from __future__ import annotations

import pytest

from omnigraph import Policy
from omnigraph.errors import PolicyInvalid
from omnigraph.identity import Identity
from omnigraph.lang.query import typed
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan.view import ALL, HIDDEN, WHOLE

CATALOG = compile_schema(
    """
node Person { name: String @key  tenant: String  level: I32?  born: Date? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""
)

BUNDLE = """
version: 2
groups:
  staff: [ana, bo]
  reviewers: []
  leads: [lea]
actors:
  ana: {tenants: [t1, t2], level: 3}
  bo: {tenants: [t2], level: high}
  lea: {level: 9}
rows:
  - id: own-tenants
    actors: {group: staff}
    types: [Person]
    where: tenant in $actor.tenants
  - id: young
    actors: {group: staff}
    types: [Person]
    where: level <= $actor.level
  - {id: edges, actors: {group: staff}, types: [Knows]}
  - {id: review, actors: {group: reviewers}, types: ["*"], branches: ["review/**"]}
  - {id: leads, actors: {group: leads}, types: ["*"], where: $actor.level > 5}
"""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.parse(BUNDLE, name="team")


def shown(view, key: str) -> str:
    rule = view.rule(key)
    return str(rule) if rule in (ALL, HIDDEN) else "some"


def test_a_type_that_no_rule_opens_is_hidden(policy):
    view = policy.view("ana", "main", CATALOG)
    keys = ("node:Person", "node:City", "edge:Knows", "edge:LivesIn")
    assert [shown(view, key) for key in keys] == ["some", "hidden", "all", "hidden"]
    assert not view.sees_all("edge:Knows")
    assert not view.is_whole


def test_rules_are_joined_by_or_in_their_order(policy):
    condition = policy.view("ana", "main", CATALOG).condition("node:Person")
    assert isinstance(condition, typed.Or)
    first, second = condition.operands
    assert isinstance(first, typed.Membership)
    assert first.options == typed.Constant(("t1", "t2"), first.options.type)
    assert isinstance(second, typed.Compare)
    assert second.right.value == 3


def test_a_rule_whose_attribute_does_not_convert_opens_nothing(policy):
    condition = policy.view("bo", "main", CATALOG).condition("node:Person")
    assert isinstance(condition, typed.Membership)


def test_a_rule_whose_attribute_is_missing_opens_nothing(policy):
    groups = frozenset({"staff"})
    view = policy.view(Identity("new", groups), "main", CATALOG)
    assert shown(view, "node:Person") == "hidden"
    assert shown(view, "edge:Knows") == "all"
    assert view.hides("edge:Knows")


def test_attributes_and_groups_come_with_a_token_too(policy):
    token = Identity("new", frozenset({"staff", "unknown"}), {"tenants": ("t9",), "level": 1})
    condition = policy.view(token, "main", CATALOG).condition("node:Person")
    assert isinstance(condition, typed.Or)
    assert condition.operands[0].options.value == ("t9",)


def test_the_bundle_decides_where_a_token_says_something_else(policy):
    token = Identity("ana", frozenset(), {"level": 100})
    condition = policy.view(token, "main", CATALOG).condition("node:Person")
    assert condition.operands[1].right.value == 3


def test_nobody_can_give_itself_another_id_or_group():
    policy = Policy.parse(
        """
version: 2
groups: {staff: [ana]}
rows:
  - {id: own, actors: {group: staff}, types: [Person], where: name = $actor.id}
  - {id: team, actors: {group: staff}, types: [City], where: name in $actor.groups}
"""
    )
    token = Identity("ana", frozenset({"x"}), {"id": "bo", "groups": ("y",)})
    view = policy.view(token, "main", CATALOG)
    assert view.condition("node:Person").right.value == "ana"
    assert view.condition("node:City").options.value == ("staff", "x")


def test_a_condition_about_the_actor_alone_opens_all_or_nothing(policy):
    assert policy.view("lea", "main", CATALOG) is WHOLE
    token = Identity("eve", frozenset({"leads"}), {"level": 5})
    view = policy.view(token, "main", CATALOG)
    assert all(view.hides(key) for key in ("node:Person", "node:City", "edge:Knows"))


def test_a_rule_may_be_for_some_branches_only(policy):
    reviewer = Identity("ria", frozenset({"reviewers"}))
    assert policy.view(reviewer, "review/1/fix", CATALOG).is_whole
    assert policy.view(reviewer, "main", CATALOG).hides("node:City")


def test_an_actor_without_a_group_and_nobody_see_nothing(policy):
    for actor in ("eve", None, Identity("eve", frozenset({"other"}))):
        view = policy.view(actor, "main", CATALOG)
        assert all(view.hides(key) for key in ("node:Person", "node:City", "edge:Knows"))


def test_without_rows_everybody_sees_all():
    for text in ("{version: 1}", "{version: 2}", "{version: 2, actors: {ana: {level: 1}}}"):
        assert Policy.parse(text).view(None, "main", CATALOG) is WHOLE
        assert not Policy.parse(text).restricts_rows


def test_empty_rows_close_everything():
    for text in ("{version: 2, rows: []}", "version: 2\nrows:\n"):
        assert Policy.parse(text).view("ana", "main", CATALOG).hides("node:Person")
        assert Policy.parse(text).restricts_rows


@pytest.mark.parametrize(
    "schema",
    [
        "node Person { name: String @key }",
        "node Person { name: String @key  tenant: I32 }",
        "node Other { tenant: String }",
    ],
)
def test_a_property_that_the_schema_lacks_hides_the_rows(policy, schema):
    catalog = compile_schema(schema)
    view = policy.view(Identity("x", frozenset({"staff"}), {"tenants": ("a",)}), "main", catalog)
    assert all(view.hides(node.table_key) for node in catalog.node_types.values())


def test_a_rule_for_all_types_opens_those_that_have_the_property():
    policy = Policy.parse(
        """
version: 2
groups: {staff: [ana]}
rows: [{id: r, actors: {group: staff}, types: ["*"], where: since is not null}]
"""
    )
    view = policy.view("ana", "main", CATALOG)
    keys = ("node:Person", "node:City", "edge:Knows", "edge:LivesIn")
    assert [shown(view, key) for key in keys] == ["hidden", "hidden", "some", "hidden"]


def test_dates_are_written_as_text():
    policy = Policy.parse(
        """
version: 2
groups: {staff: [ana, bo]}
actors: {ana: {start: "2020-02-01"}, bo: {start: "2020-02-31"}}
rows: [{id: r, actors: {group: staff}, types: [Person], where: born > $actor.start}]
"""
    )
    assert policy.view("ana", "main", CATALOG).condition("node:Person").right.value.year == 2020
    assert policy.view("bo", "main", CATALOG).hides("node:Person")


def test_views_are_made_once_for_each_actor_branch_class_and_schema(policy):
    first = policy.view("ana", "main", CATALOG)
    assert policy.view("ana", "draft", CATALOG) is first
    assert policy.view(Identity("ana"), "main", CATALOG) is first
    assert policy.view("bo", "main", CATALOG) is not first


ROWS = "version: 2\ngroups: {staff: [ana]}\nrows:\n  - "
REFUSALS = [
    ("version: 3\n", "policy version must be 1 or 2", 1),
    ("version: 2\nrow: []\n", "unknown key 'row'", 2),
    ("version: 2\nactors: {ana: {id: x}}\n", "every actor has 'id'", 2),
    ("version: 2\nactors: {ana: {groups: [x]}}\n", "every actor has 'groups'", 2),
    ("version: 2\nactors: {ana: {a-b: x}}\n", "'a-b' cannot be the name of an attribute", 2),
    ("version: 2\nactors: {ana: {a: 2020-01-01}}\n", "actors.ana.a must be text, a decimal", 2),
    ("version: 2\nactors: {ana: {a: 0x10}}\n", "actors.ana.a must be text, a decimal", 2),
    ("version: 2\nactors: {ana: {a: .inf}}\n", "actors.ana.a must be text, a decimal", 2),
    ("version: 2\nactors: {ana: {a: yes}}\n", "actors.ana.a must be text, a decimal", 2),
    ("version: 2\nactors: {ana: {a: [[1]]}}\n", "actors.ana.a[0] must be text, a decimal", 2),
    ("version: 2\nactors: {ana: {a: }}\n", "actors.ana.a must be text, a decimal", 2),
    ("version: 2\nactors: {ana: 1}\n", "actors.ana must be a mapping", 2),
    (ROWS + "{id: r}\n", "missing key 'rows[0].actors'", 4),
    (ROWS + "{id: r, actors: {group: staff}}\n", "missing key 'rows[0].types'", 4),
    (ROWS + "{id: r, actors: {group: staff}, types: [P], when: x}\n", "'rows[0].when'", 4),
    (ROWS + "{id: ' ', actors: {group: staff}, types: [P]}\n", "id of a policy rule must not", 4),
    (
        ROWS + "{id: r, actors: {group: other}, types: [P]}\n",
        "row rule 'r' references unknown group 'other'",
        4,
    ),
    (ROWS + "{id: r, actors: {group: ' '}, types: [P]}\n", "row rule 'r' has a blank group", 4),
    (ROWS + "{id: r, actors: {group: staff}, types: []}\n", "at least one type", 4),
    (ROWS + "{id: r, actors: {group: staff}, types: ['']}\n", "has a blank type", 4),
    (
        ROWS + "{id: r, actors: {group: staff}, types: [P], branches: ['']}\n",
        "row rule 'r' has a blank branch name",
        4,
    ),
    (
        ROWS + "{id: r, actors: {group: staff}, types: [P], where: 'a ='}\n",
        "rows[0].where: expected a value or a variable after `=`",
        4,
    ),
    (
        ROWS + "{id: r, actors: {group: staff}, types: [P], where: 1}\n",
        "rows[0].where must be text; quote it",
        4,
    ),
    (
        ROWS + "{id: r, actors: {group: staff}, types: [P]}\n"
        "  - {id: r, actors: {group: staff}, types: [P]}\n",
        "duplicate policy rule id 'r'",
        5,
    ),
    (
        "version: 2\ngroups: {g: [a]}\n"
        "rules: [{id: r, allow: {actors: {group: g}, actions: [read]}}]\n"
        "rows: [{id: r, actors: {group: g}, types: [P]}]\n",
        "duplicate policy rule id 'r'",
        4,
    ),
    ("version: 2\nkind: server\n", "a bundle of kind 'server' is bound to a graph", 2),
    ('version: 2\ngroups: {"\\ud800": [a]}\n', "group is not valid Unicode", 2),
    ('version: 2\ngroups: {a: ["\\ud800"]}\n', "groups.a[0] is not valid Unicode", 2),
]


@pytest.mark.parametrize(("text", "message", "line"), REFUSALS)
def test_a_bundle_of_version_2_is_refused_with_its_line(text, message, line):
    with pytest.raises(PolicyInvalid) as refusal:
        Policy.parse(text, name="team.yaml")
    assert message in str(refusal.value)
    assert refusal.value.details == {"policy": "team.yaml", "line": line}


def test_a_server_has_no_rows():
    with pytest.raises(PolicyInvalid, match="rows are per-graph rules"):
        Policy.parse("{version: 2, rows: []}", scope="server")
