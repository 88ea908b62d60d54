"""Configurations: every problem is reported, with its file, its line and its field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.cluster import config_reader, desired
from omnigraph.cluster.bundle import CONFIG, FileUnreadable, MemoryBundle
from omnigraph.cluster.reports import ValidateReport
from omnigraph.cluster.state_commands import validate_cluster
from tests.cluster.lab import CONFIG as VALID
from tests.cluster.lab import DUE, POLICY, SCHEMA, Lab, codes

FILES = {"kb.pg": SCHEMA, "queries/due.gq": DUE, "kb.policy.yaml": POLICY}


def validate(text: str, **changes: str | bytes | None) -> ValidateReport:
    """Check a configuration whose files are the usual ones, except for some."""
    named = {name.replace("__", "/").replace("_", "."): value for name, value in changes.items()}
    files = {CONFIG: text, **FILES, **named}
    contents = {
        name: value.encode() if isinstance(value, str) else value
        for name, value in files.items()
        if value is not None
    }
    return validate_cluster(MemoryBundle("lab", contents))


def problems(report: ValidateReport) -> list[tuple[str, str]]:
    return [(finding.code, finding.path) for finding in report.diagnostics]


def test_a_valid_configuration_has_resources_digests_and_dependencies():
    report = validate(VALID)
    assert report.ok
    document = report.to_json()
    assert list(document) == [
        "ok",
        "config_dir",
        "config_file",
        "resource_digests",
        "resources",
        "dependencies",
        "diagnostics",
    ]
    assert [(entry["address"], entry["kind"]) for entry in document["resources"]] == [
        ("graph.kb", "graph"),
        ("policy.kb-rules", "policy"),
        ("query.kb.due", "query"),
        ("schema.kb", "schema"),
    ]
    assert document["dependencies"] == [
        {"from": "policy.kb-rules", "to": "graph.kb"},
        {"from": "query.kb.due", "to": "graph.kb"},
        {"from": "query.kb.due", "to": "schema.kb"},
        {"from": "schema.kb", "to": "graph.kb"},
    ]


PROVIDER = "providers: {embedding: {main: {%s}}}\n"
MINIMAL = "version: 1\n"
KB = "graphs: {kb: {schema: kb.pg%s}}\n"

CASES = {
    "not yaml": ("a: [", [("invalid_cluster_yaml", CONFIG)]),
    "a list": ("[1]", [("invalid_cluster_yaml", CONFIG)]),
    "no version": ("graphs: {}", [("invalid_cluster_yaml", "version")]),
    "version as text": ("version: one", [("invalid_cluster_yaml", "version")]),
    "another version": ("version: 2", [("unsupported_cluster_config_version", "version")]),
    "unknown key": (MINIMAL + "grahps: {}", [("invalid_cluster_yaml", "grahps")]),
    "unknown key of a graph": (
        MINIMAL + KB % ", color: red",
        [("invalid_cluster_yaml", "graphs.kb.color")],
    ),
    "a removed key": (
        MINIMAL + KB % ", streaming: true",
        [("invalid_cluster_yaml", "graphs.kb.streaming")],
    ),
    "reserved keys": (
        MINIMAL + "ui: {}\naliases: {}\ngrahps: 1",
        [("future_phase_field", "ui"), ("future_phase_field", "aliases")],
    ),
    "a repeated key at the top": (
        MINIMAL + "version: 1",
        [("duplicate_yaml_key", "version")],
    ),
    "a repeated key in a flow mapping": (
        MINIMAL + "graphs: {kb: {schema: a.pg, schema: b.pg}}",
        [("duplicate_yaml_key", "graphs.kb.schema")],
    ),
    "a repeated key in an item of a list": (
        MINIMAL + "graphs:\n  kb:\n    schema: kb.pg\n    queries:\n      - {a: 1, a: 2}",
        [("duplicate_yaml_key", "graphs.kb.queries[0].a")],
    ),
    "two repeated keys": (
        MINIMAL + "metadata: {name: a, name: b}\nstate: {lock: true, lock: false}",
        [("duplicate_yaml_key", "metadata.name"), ("duplicate_yaml_key", "state.lock")],
    ),
    "a blank name": (
        MINIMAL + "metadata: {name: ' '}",
        [("empty_metadata_name", "metadata.name")],
    ),
    "another backend": (
        MINIMAL + "state: {backend: consul}",
        [("unsupported_state_backend", "state.backend")],
    ),
    "a lock that is no switch": (
        MINIMAL + "state: {lock: maybe}",
        [("invalid_cluster_yaml", "state.lock")],
    ),
    "another store": (MINIMAL + "storage: gs://b", [("invalid_storage_root", "storage")]),
    "a blank store": (MINIMAL + "storage: ' '", [("invalid_storage_root", "storage")]),
    "a bad name": (
        MINIMAL + "graphs: {1st: {schema: kb.pg}}",
        [("invalid_resource_id", "graphs.1st")],
    ),
    "an id that servers do not serve": (
        MINIMAL + "graphs: {my_kb: {schema: kb.pg}, readyz: {schema: kb.pg}}",
        [("invalid_resource_id", "graphs.my_kb"), ("invalid_resource_id", "graphs.readyz")],
    ),
    "the reserved id": (
        MINIMAL + "graphs: {cluster: {schema: kb.pg}}",
        [("invalid_resource_id", "graphs.cluster")],
    ),
    "no schema": (
        MINIMAL + "graphs: {kb: {}}",
        [("invalid_cluster_yaml", "graphs.kb.schema")],
    ),
    "a kind of provider": (
        MINIMAL + PROVIDER % "kind: magic, api_key: '${K}'",
        [("invalid_embedding_provider", "providers.embedding.main.kind")],
    ),
    "another word for a kind": (
        MINIMAL + PROVIDER % "provider: magic, api_key: '${K}'",
        [("invalid_embedding_provider", "providers.embedding.main.provider")],
    ),
    "two kinds": (
        MINIMAL + PROVIDER % "kind: mock, provider: mock",
        [("invalid_cluster_yaml", "providers.embedding.main.provider")],
    ),
    "a blank model": (
        MINIMAL + PROVIDER % "kind: mock, model: ' '",
        [("invalid_embedding_provider", "providers.embedding.main.model")],
    ),
    "no key": (
        MINIMAL + PROVIDER % "kind: openai",
        [("embedding_api_key_required", "providers.embedding.main.api_key")],
    ),
    "an empty key": (
        MINIMAL + PROVIDER % "kind: openai, api_key: ",
        [("embedding_api_key_required", "providers.embedding.main.api_key")],
    ),
    "no map of graphs": (MINIMAL + "graphs: [kb]", [("invalid_cluster_yaml", "graphs")]),
    "a graph that is no map": (
        MINIMAL + "graphs: {kb: kb.pg}",
        [("invalid_cluster_yaml", "graphs.kb"), ("invalid_cluster_yaml", "graphs.kb.schema")],
    ),
    "a schema that is no text": (
        MINIMAL + "graphs: {kb: {schema: [kb.pg]}}",
        [("invalid_cluster_yaml", "graphs.kb.schema")],
    ),
    "queries that are no text": (
        MINIMAL + KB % ", queries: 7",
        [("invalid_cluster_yaml", "graphs.kb.queries")],
    ),
    "queries of which one is no text": (
        MINIMAL + KB % ", queries: [7, queries/, no.gq]",
        [
            ("invalid_cluster_yaml", "graphs.kb.queries[0]"),
            ("query_file_missing", "graphs.kb.queries[2]"),
        ],
    ),
    "a query without a file": (
        MINIMAL + KB % ", queries: {due: {}, all: {file: }}",
        [
            ("invalid_cluster_yaml", "graphs.kb.queries.due.file"),
            ("invalid_cluster_yaml", "graphs.kb.queries.all.file"),
        ],
    ),
    "a policy without a file": (
        MINIMAL + KB % "" + "policies: {p: {applies_to: [kb]}}",
        [("invalid_cluster_yaml", "policies.p.file")],
    ),
    "bindings that are no list": (
        MINIMAL + KB % "" + "policies: {p: {file: kb.policy.yaml, applies_to: kb}}",
        [("invalid_cluster_yaml", "policies.p.applies_to")],
    ),
    "a binding that is no text": (
        MINIMAL + KB % "" + "policies: {p: {file: kb.policy.yaml, applies_to: [7, kb]}}",
        [("invalid_cluster_yaml", "policies.p.applies_to[0]")],
    ),
    "a key in the file": (
        MINIMAL + PROVIDER % "kind: openai, api_key: sk-secret",
        [("embedding_api_key_inline", "providers.embedding.main.api_key")],
    ),
    "no such provider": (
        MINIMAL + KB % ", embedding_provider: other",
        [("dangling_embedding_provider_reference", "graphs.kb.embedding_provider")],
    ),
    "a provider of another kind": (
        MINIMAL + KB % ", embedding_provider: graph.kb",
        [("wrong_kind_reference", "graphs.kb.embedding_provider")],
    ),
    "no schema file": (
        MINIMAL + "graphs: {kb: {schema: no.pg}}",
        [("schema_file_missing", "graphs.kb.schema")],
    ),
    "no query file": (
        MINIMAL + KB % ", queries: no.gq",
        [("query_file_missing", "graphs.kb.queries")],
    ),
    "a query of another name": (
        MINIMAL + KB % ", queries: {all: {file: queries/due.gq}}",
        [("query_key_mismatch", "graphs.kb.queries.all")],
    ),
    "a query twice": (
        MINIMAL + KB % ", queries: [queries/, queries/due.gq]",
        [("duplicate_query_name", "graphs.kb.queries[1]")],
    ),
    "no bindings": (
        MINIMAL + KB % "" + "policies: {p: {file: kb.policy.yaml}}",
        [("policy_missing_applies_to", "policies.p.applies_to")],
    ),
    "no such graph": (
        MINIMAL + "policies: {p: {file: kb.policy.yaml, applies_to: [wiki]}}",
        [("dangling_graph_reference", "policies.p.applies_to[0]")],
    ),
    "a binding of another kind": (
        MINIMAL + "policies: {p: {file: kb.policy.yaml, applies_to: [query.kb.due]}}",
        [("wrong_kind_reference", "policies.p.applies_to[0]")],
    ),
    "both kinds of bindings": (
        MINIMAL + KB % "" + "policies: {p: {file: none.yaml, applies_to: [kb, cluster]}}",
        [
            ("policy_mixed_binding_kinds", "policies.p.applies_to"),
            ("policy_file_missing", "policies.p.file"),
        ],
    ),
    "two policies of one graph": (
        MINIMAL
        + KB % ""
        + "policies:\n  p: {file: kb.policy.yaml, applies_to: [kb]}\n"
        + "  q: {file: kb.policy.yaml, applies_to: [graph.kb]}",
        [("duplicate_policy_binding", "policies.q.applies_to")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_configuration_names_the_field(case):
    text, expected = CASES[case]
    report = validate(text)
    assert not report.ok
    assert problems(report) == expected
    for finding in report.diagnostics:
        assert re.match(r"[\w./]+:[1-9][0-9]*: |[\w./]+:\d+:\d+: ", finding.message), finding
    assert "sk-secret" not in str(report.to_json())


def test_problems_name_file_and_line():
    report = validate(
        "version: 1\ngraphs:\n  kb:\n    schema: kb.pg\n    colour: red\n"
        "policies:\n  p:\n    file: kb.policy.yaml\n    applies_to: [wiki]\n",
        kb_pg="node Task {\n  name: Strin @key\n}\n",
    )
    assert [finding.line for finding in report.diagnostics] == [
        "ERROR invalid_cluster_yaml graphs.kb.colour: cluster.yaml:5: unknown key "
        "'graphs.kb.colour'",
        "ERROR dangling_graph_reference policies.p.applies_to[0]: cluster.yaml:9: there is no "
        "graph 'wiki'",
        report.diagnostics[2].line,
    ]
    assert report.diagnostics[2].code in ("schema_parse_error", "schema_catalog_error")
    assert report.diagnostics[2].message.startswith("kb.pg:2:9: ")


FILE_CASES = {
    "a schema that does not parse": ({"kb_pg": "node {"}, "schema_parse_error", "kb.pg:1:"),
    "a schema that does not fit": (
        {"kb_pg": SCHEMA + "edge Blocks: Task -> Nothing\n"},
        "schema_catalog_error",
        "kb.pg:4:",
    ),
    "a query that does not parse": (
        {"queries__due_gq": "query {"},
        "query_parse_error",
        "queries/due.gq:1:",
    ),
    "a query that does not fit": (
        {"queries__due_gq": "\n" + DUE.replace("Task", "Tusk")},
        "query_typecheck_error",
        "queries/due.gq:2:",
    ),
    "a query file in another encoding": (
        {"queries__due_gq": b"\n\n  \xff"},
        "query_parse_error",
        "queries/due.gq:3: the file is not UTF-8 text",
    ),
    "a schema in another encoding": (
        {"kb_pg": b"node\xff"},
        "schema_parse_error",
        "kb.pg:1: the file is not UTF-8 text",
    ),
    "a query that is declared twice": (
        {"queries__more_gq": "\n\n" + DUE},
        "duplicate_query_name",
        "queries/more.gq:3:7: query 'due' is declared in 'queries/due.gq' too",
    ),
    "a policy that is not one": (
        {"kb_policy_yaml": "version: 1\nrule: []\n"},
        "policy_invalid",
        "kb.policy.yaml:2: ",
    ),
    "a policy in another encoding": (
        {"kb_policy_yaml": b"\xff"},
        "policy_invalid",
        "kb.policy.yaml:1: the file is not UTF-8 text",
    ),
    "rows of a type that does not exist": (
        {
            "kb_policy_yaml": "version: 2\ngroups: {staff: [ana]}\nrows:\n"
            "  - {id: r, actors: {group: staff}, types: [Tusk]}\n"
        },
        "policy_invalid",
        "kb.policy.yaml:4: graph.kb: row rule 'r': unknown node or edge type `Tusk`",
    ),
}


@pytest.mark.parametrize("case", FILE_CASES)
def test_a_wrong_file_is_named_with_its_line(case):
    changes, code, text = FILE_CASES[case]
    report = validate(VALID, **changes)
    (error, *_) = [finding for finding in report.diagnostics if finding.severity == "error"]
    assert (error.code, error.message.startswith(text)) == (code, True), error


class Unlisted(MemoryBundle):
    """A directory of queries that nobody may list."""

    def listing(self, path: str) -> list[str]:
        raise FileUnreadable("permission denied")


def test_a_directory_that_cannot_be_listed_is_named_with_its_line():
    files = {CONFIG: VALID, **FILES}
    bundle = Unlisted("lab", {name: text.encode() for name, text in files.items()})
    (finding,) = validate_cluster(bundle).diagnostics
    assert finding.line == (
        "ERROR query_dir_unreadable graphs.kb.queries: cluster.yaml:6: cannot list 'queries/': "
        "permission denied"
    )


def test_a_configuration_in_another_encoding_is_named_with_its_line():
    bundle = MemoryBundle("lab", {CONFIG: b"version: 1\nmetadata: {name: \xe9}\n"})
    (finding,) = validate_cluster(bundle).diagnostics
    assert (finding.code, finding.path) == ("cluster_config_read_error", CONFIG)
    assert finding.message == "cluster.yaml:2: the file is not UTF-8 text"


def _codes_in(module) -> Iterator[str]:
    """The codes that a module reports."""
    words = (
        node.value
        for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    for word in words:
        if re.fullmatch(r"[a-z]+(_[a-z]+)+", word) and f"| `{word}` |" in PAGE:
            yield word


PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()


def test_every_code_of_a_configuration_has_a_case():
    reported = {*_codes_in(config_reader), *_codes_in(desired)}
    cases = {code for _, expected in CASES.values() for code, _ in expected}
    cases |= {code for _, code, _ in FILE_CASES.values()}
    # Tested apart: there is no file or directory, or it is a warning.
    elsewhere = {"config_dir_not_found", "cluster_config_read_error", "query_dir_unreadable"}
    elsewhere |= {"query_dir_empty", "query_typecheck_skipped", "policy_closes_rows"}
    elsewhere |= {"policy_check_skipped"}
    assert reported - elsewhere == cases


def test_queries_are_not_checked_against_an_invalid_schema():
    report = validate(VALID, kb_pg="node {")
    assert "query_typecheck_skipped" in codes(report, "warning")


def test_a_directory_without_queries_is_a_warning():
    report = validate(VALID, queries__due_gq=None, queries__readme_txt="x")
    assert report.ok
    assert problems(report) == [("query_dir_empty", "graphs.kb.queries")]


def test_a_missing_directory_or_file(tmp_path):
    lab = Lab(tmp_path / "lab")
    (lab.directory / CONFIG).unlink()
    assert codes(validate_cluster(lab.bundle)) == ["cluster_config_read_error"]
    assert codes(validate_cluster(type(lab.bundle)(tmp_path / "no"))) == ["config_dir_not_found"]


def digest(text: str, **changes: str) -> str:
    from omnigraph.cluster.desired import read_desired
    from omnigraph.cluster.diagnostics import DiagnosticLog

    files = {CONFIG: text, **FILES, **changes}
    contents = {name: value.encode() for name, value in files.items()}
    desired = read_desired(MemoryBundle("lab", contents), DiagnosticLog())
    assert desired is not None
    assert desired.config_digest is not None
    return desired.config_digest


def test_comments_and_formatting_do_not_change_the_digest_of_a_configuration():
    before = digest(VALID)
    assert digest(
        f"# a comment\n{VALID}".replace("metadata: {name: lab}", "metadata:\n  name: lab")
    )
    assert digest(f"# a comment\n{VALID}") == before
    assert digest(VALID.replace("lab", "other")) != before
    assert digest(VALID, **{"kb.pg": SCHEMA + "\n"}) != before


def test_digests_are_those_of_the_reference():
    import hashlib

    resources = validate(VALID).resources
    schema = hashlib.sha256(SCHEMA.encode()).hexdigest()
    query = hashlib.sha256(DUE.encode()).hexdigest()
    assert resources["schema.kb"].digest == schema
    assert resources["query.kb.due"].digest == query
    text = f"graph\0kb\0schema\0{schema}\0query\0due\0{query}\0"
    assert resources["graph.kb"].digest == hashlib.sha256(text.encode()).hexdigest()


def test_every_query_of_a_file_has_the_digest_of_the_file():
    both = DUE + DUE.replace("due", "all")
    resources = validate(VALID, queries__due_gq=both).resources
    assert resources["query.kb.due"].digest == resources["query.kb.all"].digest


def test_a_configuration_that_contains_itself_is_refused():
    report = validate("version: 1\ngraphs: &g\n  kb: *g\n")
    assert not report.ok
