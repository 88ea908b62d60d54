"""What a bundle may say: every refusal with its text, its line and its order."""

from __future__ import annotations

import re
import textwrap
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Policy
from omnigraph.errors import InputError, PolicyInvalid

GROUPS = "groups:\n  staff: [ana, bo]\n"


def rule(text: str) -> str:
    return f"version: 1\n{GROUPS}rules:\n{textwrap.indent(text, '  ')}"


def allow(inside: str, rule_id: str = "r") -> str:
    return rule(f"- id: {rule_id}\n  allow: {{actors: {{group: staff}}, {inside}}}\n")


# A bundle, the stable part of the message, and the line.
REFUSALS: list[tuple[str, str, int]] = [
    ("version: 3\nactors: {}\n", "policy version must be 1", 1),
    ("groups: {}\nversion: 0\n", "policy version must be 1", 2),
    ("groups: {}\n", "missing key 'version'", 1),
    ("", "missing key 'version'", 1),
    ("version: '1'\n", "version must be a whole number", 1),
    ("version: 1\ngroups:\n  ' ': [ana]\n", "name of a policy group must not be blank", 3),
    ("version: 1\ngroups:\n  staff: []\n", "policy group 'staff' must not be empty", 3),
    ("version: 1\ngroups:\n  staff: [ana, ' ']\n", "'staff' contains a blank actor id", 3),
    ("version: 1\nprotected_branches: [main, '']\n", "blank branch", 2),
    (allow("actions: [read]", "' '"), "id of a policy rule must not be blank", 5),
    (
        f"version: 1\n{GROUPS}rules:\n"
        "  - {id: r, allow: {actors: {group: staff}, actions: [read]}}\n"
        "  - {id: r, allow: {actors: {group: staff}, actions: [read]}}\n",
        "duplicate policy rule id 'r'",
        6,
    ),
    (
        rule("- id: r\n  allow: {actors: {group: ' '}, actions: [read]}\n"),
        "policy rule 'r' has a blank group",
        5,
    ),
    (
        rule("- id: r\n  allow: {actors: {group: other}, actions: [read]}\n"),
        "references unknown group 'other'",
        5,
    ),
    (allow("actions: []"), "must include at least one action", 5),
    (
        allow("actions: [read], branch_scope: any, target_branch_scope: any"),
        "may specify branch_scope or target_branch_scope, not both",
        5,
    ),
    (
        allow("actions: [read, branch_merge], branch_scope: any"),
        "uses branch_scope with unsupported action 'branch_merge'",
        6,
    ),
    (
        allow("actions: [branch_merge, read], target_branch_scope: any"),
        "uses target_branch_scope with unsupported action 'read'",
        6,
    ),
    (
        allow("actions: [graph_list], branch_scope: any"),
        "uses branch_scope with unsupported action 'graph_list'",
        6,
    ),
    (
        allow("actions: [invoke_query], branch_scope: any"),
        "uses branch_scope with unsupported action 'invoke_query'",
        6,
    ),
    (
        allow("actions: [read, graph_list]"),
        "mixes the server-scoped action 'graph_list' with per-graph actions; split into "
        "separate rules",
        6,
    ),
    (allow("actions: [read, read]"), "duplicate policy id 'r:read'", 6),
    (
        allow("actions: [raed]"),
        "invalid rules[0].allow.actions[0] 'raed'; expected read, export",
        6,
    ),
    (allow("actions: [read], branch_scope: some"), "invalid rules[0].allow.branch_scope 'some'", 6),
    (allow("actions: [read], branch_scpoe: any"), "unknown key 'rules[0].allow.branch_scpoe'", 6),
    (allow("actions: [read], actions: [change]"), "duplicate key 'rules[0].allow.actions'", 6),
    ("version: 1\nversion: 1\n", "duplicate key 'version'", 2),
    ("version: 1\ngroups: {a: [x], a: [y]}\n", "duplicate key 'groups.a'", 2),
    ("version: 1\nrows: []\n", "unknown key 'rows'", 2),
    ("version: 1\nkind: cluster\n", "invalid kind 'cluster'; expected server or graph", 2),
    ("version: 1\ngroups: {staff: [no]}\n", "groups.staff[0] must be text; quote it", 2),
    ("version: 1\ngroups: {staff: [[ana]]}\n", "groups.staff[0] must be text", 2),
    ("version: 1\ngroups: {1: [ana]}\n", "key 'groups.1' must be text; quote it", 2),
    ("version: 1\ngroups: {? [a] : [b]}\n", "a key of groups must be text", 2),
    ("version: 1\ngroups: [staff]\n", "groups must be a mapping", 2),
    ("version: 1\nrules: {}\n", "rules must be a list", 2),
    ("version: 1\nrules: [{id: a}]\n", "missing key 'rules[0].allow'", 2),
    ("version: 1\nrules: [a]\n", "rules[0] must be a mapping", 2),
    ("version: 1\ngroups: {<<: {a: [b]}}\n", "must be text", 2),
    ("version: 1\n---\nversion: 1\n", "invalid YAML", 2),
    ("version: [1\n", "invalid YAML", 2),
    ("version: 1\ngroups: *staff\n", "invalid YAML", 2),
    ("[" * 100_000, "nested too deeply", 1),
    ("version: 1\x07", "invalid YAML", 1),
]


@pytest.mark.parametrize(("text", "message", "line"), REFUSALS)
def test_a_bundle_is_refused_with_its_line(text, message, line):
    with pytest.raises(PolicyInvalid) as refusal:
        Policy.parse(text, name="team.yaml")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith(f"policy 'team.yaml', line {line}: ")
    assert refusal.value.details == {"policy": "team.yaml", "line": line}
    assert refusal.value.code == "policy_invalid"


def test_a_graph_bundle_has_no_action_of_the_server():
    for action in ("graph_list", "config_manage"):
        with pytest.raises(PolicyInvalid) as refusal:
            Policy.parse(allow(f"actions: [{action}]"))
        assert f"server-scoped action '{action}'" in str(refusal.value)
        assert "Graph policy file" in str(refusal.value)


def test_a_server_bundle_has_no_action_of_a_graph():
    for action in ("read", "change", "invoke_query", "branch_merge", "read_history"):
        with pytest.raises(PolicyInvalid, match=f"per-graph action '{action}'"):
            Policy.parse(allow(f"actions: [{action}]"), scope="server")
    server = Policy.parse(allow("actions: [graph_list, config_manage, admin]"), scope="server")
    assert server.decide("ana", "graph_list").allowed


def test_the_first_fault_in_the_order_of_the_checks_is_reported():
    """Versions, groups, branches, rules one by one, repeated actions, then the kind."""
    faults = [
        ("version: 3", "version must be 1"),
        ("groups: {staff: [], other: [a]}", "must not be empty"),
        ("protected_branches: ['']", "blank branch"),
        ("first", "must include at least one action"),
        ("second", "duplicate policy id"),
        ("third", "Graph policy file"),
    ]
    good = {
        "version: 3": "version: 1",
        "groups: {staff: [], other: [a]}": "groups: {staff: [a]}",
        "protected_branches: ['']": "protected_branches: [main]",
        "first": "{id: b, allow: {actors: {group: staff}, actions: [read]}}",
        "second": "{id: c, allow: {actors: {group: staff}, actions: [read]}}",
        "third": "{id: a, allow: {actors: {group: staff}, actions: [read]}}",
    }
    bad = {
        "first": "{id: b, allow: {actors: {group: staff}, actions: []}}",
        "second": "{id: c, allow: {actors: {group: staff}, actions: [read, read]}}",
        "third": "{id: a, allow: {actors: {group: staff}, actions: [graph_list]}}",
    }
    for position, (_, message) in enumerate(faults):
        parts = [
            good[fault] if index < position else bad.get(fault, fault)
            for index, (fault, _) in enumerate(faults)
        ]
        text = "\n".join([*parts[:3], "rules:", *(f"  - {part}" for part in reversed(parts[3:]))])
        with pytest.raises(PolicyInvalid, match=message):
            Policy.parse(text)


def test_an_empty_bundle_denies_everything():
    for text in ("version: 1", "{version: 1, rules: [], groups: {}}", "version: 1\nrules:\n"):
        assert not Policy.parse(text).decide("ana", "read").allowed


QUERIES = "version: 2\ngroups: {g: [a]}\nrules:\n  - {id: r, allow: {actors: {group: g}, "


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("actions: [export], queries: [a]", "uses queries with unsupported action 'export'"),
        ("actions: [branch_merge], branches: [a]", "uses branches with unsupported action"),
        ("actions: [read], target_branches: [a]", "uses target_branches with unsupported action"),
        ("actions: [read], branches: [a], queries: [b]", "may specify branches or queries, not"),
        ("actions: [read], branches: ['']", "has a blank branch name"),
        ("actions: [invoke_query], queries: [' ']", "has a blank query name"),
        ("actions: [invoke_query], queries: a", "queries must be a list"),
        ("actions: [invoke_query], querys: [a]", "unknown key 'rules[0].allow.querys'"),
    ],
)
def test_a_restriction_of_version_2_is_checked_with_its_action(inside, message):
    with pytest.raises(PolicyInvalid, match=re.escape(message)) as refusal:
        Policy.parse(QUERIES + inside + "}}\n")
    assert refusal.value.details["line"] == 4
    text = (QUERIES + inside + "}}\n").replace("version: 2", "version: 1")
    with pytest.raises(PolicyInvalid):
        Policy.parse(text)


def test_in_version_2_reading_does_not_include_the_history():
    text = QUERIES + "actions: [read]}}\n"
    assert not Policy.parse(text).decide("a", "read_history").allowed
    assert Policy.parse(text.replace("version: 2", "version: 1")).decide("a", "read_history")


def test_a_group_of_version_2_may_wait_for_tokens():
    text = "{version: 2, groups: {g: []}}"
    assert Policy.parse(text).actors == ()
    with pytest.raises(PolicyInvalid, match="must not be empty"):
        Policy.parse(text.replace("2", "1"))


def test_the_kind_of_a_bundle_may_be_written_down():
    assert Policy.parse("{version: 1, kind: graph}").scope == "graph"
    assert Policy.parse("{version: 1, kind: server}", scope="server").scope == "server"


def test_anchors_of_yaml_can_be_used():
    text = "version: 1\ngroups: {a: &team [ana, bo], b: *team}\n"
    assert Policy.parse(text).actors == ("ana", "bo")


def test_a_file_is_read_and_errors_name_it(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("version: 1\n")
    policy = Policy.open(file)
    assert policy.name == str(file)
    assert len(policy.digest) == 64
    file.write_text("version: 1\n# other\n")
    assert Policy.open(file).digest != policy.digest
    with pytest.raises(InputError, match=r"cannot read policy '.*missing.yaml': no such file"):
        Policy.open(tmp_path / "missing.yaml")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyInvalid, match="is not UTF-8 text"):
        Policy.open(file)


def test_a_huge_file_is_refused():
    with pytest.raises(PolicyInvalid, match="more than"):
        Policy.parse("#" * 5_000_000)


@given(st.text(alphabet=st.sampled_from("version: 1\n-[]{},'\"&*!|>#?ab\t\\%@`"), max_size=60))
def test_any_text_is_a_bundle_or_a_typed_refusal(text):
    with suppress(PolicyInvalid):
        Policy.parse("version: 1\n" + text)
