"""What holds for any schema, tried on random ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import SchemaError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.ast import Declaration, NodeDecl, SchemaFile
from omnigraph.lang.schema.catalog import catalog_from_ir, catalog_of, text_of
from omnigraph.lang.schema.compile import analyze_schema, compile_schema
from omnigraph.lang.schema.format import format_schema, print_schema
from omnigraph.lang.schema.identity import evolve_identity, initial_identity
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.migrate import plan_migration
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.steps import step_from_json
from tests.lang.schema.strategies import odd_files, valid_files

pytestmark = pytest.mark.rotates(3)

few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(odd_files())
def test_a_printed_tree_reads_back_as_the_same_tree(file: SchemaFile) -> None:
    text = print_schema(file)
    read, diagnostics = parse_schema(Source("s.pg", text))
    assert (read, diagnostics) == (file, [])


@few
@given(odd_files())
def test_formatting_is_idempotent_and_keeps_the_tree(file: SchemaFile) -> None:
    once = format_schema(Source("s.pg", print_schema(file)))
    assert format_schema(Source("s.pg", once)) == once
    assert parse_schema(Source("s.pg", once))[0] == file


_COMMENTS = ("// note {", "/* a */", "// own line 'x", "/* b\n c */")
_SPACES = ["\n", "\n\n\n", " ", "  // note {\n", " /* a */ ", "\n// own line 'x\n", "/* b\n c */"]


@few
@given(odd_files(), st.randoms(use_true_random=False))
def test_no_comment_is_ever_lost_by_formatting(file: SchemaFile, rng: random.Random) -> None:
    source = Source("s.pg", print_schema(file))
    words = _tokens(source)
    text, expected = "", []
    for word in words:
        gap = rng.choice(_SPACES)
        expected += [
            c for c in ("// note {", "/* a */", "// own line 'x", "/* b\n c */") if c in gap
        ]
        text += gap + word
    once = format_schema(Source("s.pg", text + "\n"))
    for comment in set(expected):
        assert once.count(comment) >= expected.count(comment)
    assert parse_schema(Source("s.pg", once))[0] == file
    assert format_schema(Source("s.pg", once)) == once


def _tokens(source: Source) -> list[str]:
    """Pieces between which anything may stand; enum values and numbers stay whole."""
    from omnigraph.lang.lexer import lex

    tokens = lex(source).tokens
    words: list[str] = []
    end = -1
    for token in tokens:
        if token.start == end and words and (_wordy(token.text[:1]) and _wordy(words[-1][-1:])):
            words[-1] += token.text
        else:
            words.append(token.text)
        end = token.end
    return [word for word in words if word]


def _wordy(char: str) -> bool:
    return char.isalnum() or char in ("_", "-")


@few
@given(valid_files(), st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_order_of_declarations(
    file: SchemaFile, rng: random.Random
) -> None:
    declarations = list(file.declarations)
    rng.shuffle(declarations)
    shuffled: list[Declaration] = []
    for declaration in declarations:
        members = list(declaration.members or ())
        rng.shuffle(members)
        if isinstance(declaration, NodeDecl):
            shuffled.append(NodeDecl(declaration.name, members=tuple(members)))
        else:
            shuffled.append(declaration)
    other = compile_schema(print_schema(SchemaFile(tuple(shuffled))))
    assert compile_schema(print_schema(file)).schema_hash == other.schema_hash


@few
@given(valid_files())
def test_a_catalog_survives_its_stored_form(file: SchemaFile) -> None:
    catalog = compile_schema(print_schema(file))
    for text in (catalog.ir.compact(), catalog.ir.pretty()):
        assert catalog_from_ir(SchemaIR.parse(text)) == catalog


@few
@given(valid_files())
def test_a_schema_needs_no_migration_to_itself(file: SchemaFile) -> None:
    catalog = compile_schema(print_schema(file))
    assert plan_migration(catalog, catalog).steps == ()


@few
@given(valid_files(), valid_files())
def test_planning_is_deterministic_and_identity_follows_it(
    first: SchemaFile, second: SchemaFile
) -> None:
    old, new = compile_schema(print_schema(first)), compile_schema(print_schema(second))
    plan = plan_migration(old, new)
    assert plan == plan_migration(old.ir, new.ir)
    assert [step_from_json(step) for step in plan.to_json()["steps"]] == list(plan.steps)
    if plan.supported:
        evolved = evolve_identity(initial_identity(old), plan.steps, new)
        living = {f"node:{n}" for n in new.node_types} | {f"edge:{n}" for n in new.edge_types}
        assert set(evolved.types) == living


def test_damaged_texts_only_ever_give_schema_errors() -> None:
    base = (
        'interface N { name: String @key } node A @description("x") implements N {'
        ' s: enum(a, b-1)? v: Vector(3) @embed(name, model="m") @range(r, -1..2.5) r: F64?'
        ' @check(name, "^a") } edge E: A -> A @card(0..1) { w: [I32]? @unique(src, dst) }'
    )
    rng = random.Random(7)
    alphabet = '{}()[]:,@"?.-=$\\/*\n\t\x00é\ud800 nodeA1_'
    for _ in range(600):
        text = list(base)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(text))
            action = rng.random()
            if action < 0.4:
                del text[at : at + rng.randint(1, 5)]
            elif action < 0.8:
                text.insert(at, rng.choice(alphabet))
            else:
                text[at:at] = text[rng.randrange(len(text)) :][:20]
        _compile("".join(text))
    for _ in range(200):
        _compile(bytes(rng.randrange(256) for _ in range(60)).decode("latin-1"))


def _compile(text: str) -> None:
    _, diagnostics = analyze_schema(Source("s.pg", text))
    if diagnostics:
        with pytest.raises(SchemaError) as caught:
            compile_schema(text)
        assert caught.value.render()
    else:
        assert compile_schema(text).schema_hash


@few
@given(valid_files())
def test_a_catalog_survives_as_text(file: SchemaFile) -> None:
    """With its hash and the ids of types and properties: another process has the same one."""
    catalog = compile_schema(print_schema(file))
    again = catalog_of(text_of(catalog))
    assert again == catalog
    assert text_of(again) == text_of(catalog)
    for kind in (*catalog.node_types.values(), *catalog.edge_types.values()):
        find = again.node_types if kind.table_key.startswith("node:") else again.edge_types
        actual = find[kind.name]
        assert actual.type_id == kind.type_id
        ids = {name: prop.prop_id for name, prop in kind.properties.items()}
        assert {name: prop.prop_id for name, prop in actual.properties.items()} == ids
        assert actual.arrow_schema().equals(kind.arrow_schema())


def test_the_text_of_a_catalog_keeps_ids_that_are_no_hashes_of_names() -> None:
    text = text_of(compile_schema("node A { name: String @key }"))
    (node,) = SchemaIR.parse(text).nodes
    other = text.replace(str(node.type_id), "7").replace(str(node.properties[0].prop_id), "8")
    kind = catalog_of(other).node_types["A"]
    assert (kind.type_id, kind.properties["name"].prop_id) == (7, 8)
    assert text_of(catalog_of(other)) == other
