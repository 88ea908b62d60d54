"""Nothing that a user types makes a traceback.

Every text goes through all that the two languages can do with it. Whatever comes out is an
answer or an ``OmniGraphError``, and every finding can be shown and points into the text. The
default run is short and always the same; ``make fuzz`` goes on for minutes with new seeds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

from omnigraph.cli import main
from omnigraph.errors import LanguageError, OmniGraphError
from omnigraph.lang.diagnostics import Diagnostic, Source
from omnigraph.lang.lexer import lex
from omnigraph.lang.query.checker import examine_query
from omnigraph.lang.query.format import format_queries, format_query_file
from omnigraph.lang.query.lint import lint_queries
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog import catalog_from_ir
from omnigraph.lang.schema.compile import analyze_schema, compile_schema
from omnigraph.lang.schema.format import format_schema, print_schema
from omnigraph.lang.schema.lint import lint_schema
from omnigraph.lang.schema.migrate import plan_migration
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.plan import compile_query, lower, optimize
from omnigraph.plan.explain import explain_json, explain_text
from tests.fuzz.grammar import QUERY_GRAMMAR, SCHEMA_GRAMMAR, Grammar, damaged, written
from tests.pages import PAGES, ROOT, blocks
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(6)

SECONDS_IN_CI = 3.0
SECONDS_IN_FUZZ = 120.0

SCHEMA = """
interface Named { name: String @key }
node Person implements Named {
  age: I32? tags: [String]? bio: String? @index vec: Vector(3)? @embed(bio) born: Date?
  seen: DateTime? kind: enum(staff, guest)? score: F64? photo: Blob? type: String? when: Date?
  big: U64? ok: Bool?
}
node Company implements Named { born: Date? from: String? to: String? }
node Doc { name: String @key bio: String @index vec: Vector(3) @embed(bio) score: F32? }
edge Knows: Person -> Person { score: F64? kind: enum(staff, guest)? }
edge WorksAt: Person -> Company { born: Date? }
edge Wrote: Person -> Doc
edge Likes: Company -> Doc { tags: [String]? }
"""
CATALOG = compile_schema(SCHEMA)

Feed = Callable[[str], None]


def show_everything(diagnostics: Iterable[Diagnostic], text: str) -> None:
    for actual in diagnostics:
        assert 0 <= actual.span.start <= actual.span.end <= len(text), actual
        assert actual.source.text == text
        assert actual.render()
        assert json.dumps(actual.to_json())
        assert actual.code
        assert actual.message


def responses(call: Callable[[], object], text: str) -> bool:
    """Whether the call gives an answer; only an error of our own may come instead."""
    refusal: OmniGraphError
    try:
        call()
    except OmniGraphError as error:
        refusal = error
    else:
        return True
    assert refusal.message
    assert json.dumps(refusal.to_json())
    if isinstance(refusal, LanguageError):
        assert refusal.diagnostics
        assert refusal.render()
        show_everything(refusal.diagnostics, text)
    return False


def feed_schema(text: str) -> None:
    source = Source("s.pg", text)
    file, problems = parse_schema(source)
    show_everything(problems, text)
    show_everything(analyze_schema(source)[1], text)
    if not problems:
        once = format_schema(source)
        assert parse_schema(Source("s.pg", once)) == (file, [])
        assert format_schema(Source("s.pg", once)) == once
        assert len(lex(Source("s.pg", once)).comments) == len(lex(source).comments)
    if not responses(lambda: compile_schema(source), text):
        return
    catalog = compile_schema(source)
    show_everything(lint_schema(file, source), text)
    assert catalog_from_ir(catalog.ir) == catalog
    for old, new in ((catalog, CATALOG), (CATALOG, catalog)):
        for step in plan_migration(old, new).steps:
            assert json.dumps(step.to_json())
            assert step.describe()


def feed_queries(text: str) -> None:
    source = Source("q.gq", text)
    file, problems = parse_queries(source)
    show_everything(problems, text)
    if not problems:
        once = format_queries(source)
        assert parse_queries(Source("q.gq", once)) == (file, [])
        assert format_queries(Source("q.gq", once)) == once
        assert len(lex(Source("q.gq", once)).comments) == len(lex(source).comments)
    for query in file.queries:
        checked, findings = examine_query(CATALOG, source, query)
        show_everything(findings, text)
        if checked is None:
            assert findings
        elif responses(lambda checked=checked: lower(checked, source), text):  # type: ignore[misc]
            plan = optimize(lower(checked, source))
            assert explain_text(plan)
            assert json.dumps(explain_json(plan))
    report = lint_queries(CATALOG, source, {"kind": "file", "path": "s.pg"})
    show_everything(report.diagnostics, text)
    assert json.dumps(report.to_json())
    responses(lambda: compile_query(CATALOG, source), text)


# -- texts ---------------------------------------------------------------------------------------


def derived(grammar: Grammar, rule: str) -> Callable[[random.Random], str]:
    """Texts of a grammar: most of them right, the others wrong in a few places."""

    def text(rng: random.Random) -> str:
        tokens = grammar.derive(rule, rng, rng.randint(3, 9))
        return written(damaged(tokens, rng) if rng.random() < 0.5 else tokens, rng)

    return text


def existing_texts(kind: str) -> list[bytes]:
    """Valid texts of the demo, the documentation and the tests."""
    files = [*(ROOT / "demo").glob(f"*.{kind}"), *(ROOT / "tests").rglob(f"*.{kind}")]
    texts = [path.read_bytes() for path in sorted(files)]
    for page in PAGES:
        texts += [b.text.encode() for b in blocks(page) if (b.file or "").endswith(f".{kind}")]
    return texts + ([SCHEMA.encode()] if kind == "pg" else [])


def mutated(kind: str) -> Callable[[random.Random], str]:
    """Known texts with damaged bytes."""
    existing = existing_texts(kind)
    queries = [part for text in existing for part in _parts(text)]

    def text(rng: random.Random) -> str:
        data = bytearray(rng.choice(queries))
        for _ in range(rng.randint(1, 8)):
            _mutate(data, rng, queries)
        return bytes(data).decode("utf-8", rng.choice(("replace", "surrogateescape")))

    return text


def _parts(text: bytes) -> Iterator[bytes]:
    """A text whole and in pieces; short texts are damaged more thoroughly."""
    yield text
    pieces = text.split(b"\n\n")
    yield from pieces if len(pieces) > 1 else ()


def _mutate(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            del data[at : at + rng.randint(1, 8)]
        case 2:
            data.insert(at, rng.choice(b'{}()[]:,@"?.-=$\\/*\n\t\x00\xff\xc3 aA1_'))
        case 3:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + rng.randint(1, 40)]
        case 4 if rng.random() < 0.2:
            del data[at:]
        case _:
            data[at : at + 3] = data[at : at + 3] * 2


SOURCES: dict[str, tuple[Callable[[random.Random], str], Feed]] = {
    "queries from the grammar": (derived(QUERY_GRAMMAR, "file"), feed_queries),
    "schemas from the grammar": (derived(SCHEMA_GRAMMAR, "schema"), feed_schema),
    "queries with damaged bytes": (mutated("gq"), feed_queries),
    "schemas with damaged bytes": (mutated("pg"), feed_schema),
}


def fuzz(name: str, seeds: Iterable[int], seconds: float) -> int:
    make, feed = SOURCES[name]
    end = time.monotonic() + seconds
    tried = 0
    for seed in seeds:
        if time.monotonic() > end:
            break
        text = make(random.Random(seed))
        try:
            feed(text)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}: {text!r}")
            raise
        tried += 1
    return tried


@pytest.mark.parametrize("name", SOURCES)
def test_random_texts_only_ever_give_answers_and_errors_of_our_own(name: str) -> None:
    assert fuzz(name, count(), SECONDS_IN_CI)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", SOURCES)
def test_many_random_texts(name: str) -> None:
    first = random.SystemRandom().randrange(2**48)
    assert fuzz(name, count(first), SECONDS_IN_FUZZ)


def test_the_commands_never_speak_of_internal_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, queries = tmp_path / "s.pg", tmp_path / "q.gq"
    end = time.monotonic() + SECONDS_IN_CI
    for seed in range(1_000):
        if time.monotonic() > end:
            break
        rng = random.Random(seed)
        schema_text = (
            SCHEMA if rng.random() < 0.7 else SOURCES["schemas with damaged bytes"][0](rng)
        )
        query_text = SOURCES[rng.choice([n for n in SOURCES if n.startswith("queries")])][0](rng)
        schema.write_bytes(schema_text.encode("utf-8", "surrogateescape"))
        queries.write_bytes(query_text.encode("utf-8", "surrogatepass"))
        for command in (
            ["lint", "--schema", str(schema), "--query", str(queries)],
            ["lint", "--schema", str(schema), "--json"],
            ["explain", "--schema", str(schema), "--query", str(queries)],
            ["fmt", "--stdout", str(schema), str(queries)],
            ["schema", "plan", str(schema), "--schema", str(schema)],
        ):
            code = main(command)
            shown = capsys.readouterr()
            assert code in (0, 1), (seed, command)
            assert "internal error" not in shown.err, (seed, command, shown.err)


# -- adversaries ---------------------------------------------------------------------------------

MANY = 10_000
LOTS = 20_000


def in_match(clauses: str) -> str:
    return f"query q() {{ match {{ $p: Person {clauses} }} return {{ $p.name }} }}"


HUGE_QUERIES = {
    "parentheses": in_match("(" * MANY + "1 = 1" + ")" * MANY),
    "open parentheses": in_match("(" * MANY),
    "brackets": in_match("$p.age in " + "[" * MANY + "]" * MANY),
    "open brackets in a value": "query q() { insert Person { tags: " + "[" * MANY,
    "negations": in_match("not { " * MANY + "$p knows $f" + " }" * MANY),
    "open negations": in_match("not { " * MANY),
    "nots": in_match("not " * MANY + "$p.ok"),
    "nots with parentheses": in_match("not (" * MANY + "$p.ok" + ")" * MANY),
    "calls": in_match("search(" * MANY),
    "aggregates": "query q() { match { $p: Person } return { " + "count(" * MANY,
    "braces": "{" * MANY + "}" * MANY,
    "closing braces": "query q() {" + "}" * MANY,
    "a chain of and": in_match(" and ".join(["$p.age > 1"] * LOTS)),
    "a chain of or": in_match(" or ".join(["$p.age > 1"] * LOTS)),
    "clauses": in_match("$p.age > 1\n" * LOTS),
    "bindings": in_match("$p: Person\n" * LOTS),
    "traversals": in_match("".join(f"$v{i} knows $v{i + 1}\n" for i in range(3_000))),
    "negated clauses": in_match("not { $p knows $_ }\n" * MANY),
    "wrong clauses": in_match("$p..\n" * LOTS),
    "projections": "query q() { match { $p: Person } return { " + "$p.age as a " * LOTS + "} }",
    "orderings": in_match("").removesuffix("}") + "order { " + "$p.age, " * LOTS + "$p.age } }",
    "parameters": "query q(" + ", ".join(f"$p{i}: I32" for i in range(MANY)) + ") { }",
    "assignments": "query q() { insert Person { " + "age: 1 " * LOTS + "} }",
    "statements": "query q() { " + "delete Person where age = 1 " * MANY + "}",
    "queries": "query q() { delete Person where age = 1 } // one\n" * MANY,
    "a list": in_match(f"$p.age in [{', '.join(['1'] * LOTS)}]"),
    "comments": "// one\n" * LOTS + in_match("/* in */ " * LOTS),
    "a name": in_match(f"$p.{'a' * 1_000_000} = 1"),
    "a type name": in_match(f"$q: {'A' * 1_000_000}"),
    "a query name": f"query {'q' * 1_000_000}() {{ }}",
    "a string": in_match(f'$p.name = "{"x" * 1_000_000}"'),
    "escapes": in_match('$p.name = "' + "\\q" * LOTS + '"'),
    "an integer": in_match("$p.age = " + "9" * 5_000),
    "a float": in_match(f"$p.score = {'9' * 5_000}.{'9' * 5_000}"),
    "a small float": in_match(f"$p.score = 0.{'0' * 5_000}1"),
    "hops": in_match(f"$p knows{{{'9' * 5_000},{'9' * 5_000}}} $f"),
    "a limit": in_match("").removesuffix("}") + f"limit {'9' * 5_000} }}",
    "an edge name": in_match("$p " + "k" * 1_000_000 + " $f"),
}
HUGE_SCHEMAS = {
    "braces": "node A {" * MANY,
    "brackets": "node A { a: " + "[" * MANY,
    "annotations": "node A " + "@x" * LOTS + " { }",
    "arguments": "node A { @unique(" + "a, " * LOTS + "a) }",
    "properties": "node A { " + " ".join(f"p{i}: I32?" for i in range(MANY)) + " }",
    "equal properties": "node A { " + "p: I32? " * MANY + " }",
    "types": "\n".join(f"node A{i} {{ name: String @key }}" for i in range(3_000)),
    "edges": "node A {} " + "\n".join(f"edge E{i}: A -> A" for i in range(3_000)),
    "equal types": "node A {}\n" * MANY,
    "interfaces": "node A implements " + "I, " * LOTS + "I {}",
    "enum values": "node A { e: enum(" + ", ".join(f"v{i}" for i in range(MANY)) + ") }",
    "equal enum values": "node A { e: enum(" + "v, " * MANY + "v) }",
    "a name": f"node {'A' * 1_000_000} {{ {'a' * 1_000_000}: I32 }}",
    "a dimension": f"node A {{ v: Vector({'9' * 5_000}) }}",
    "bounds": f"node A {{ a: I32 @range(a, {'9' * 5_000}..{'9' * 5_000}.5) }}",
    "a cardinality": f"node A {{}} edge E: A -> A @card({'9' * 5_000}..{'9' * 5_000})",
    "a string": f'node A @description("{"x" * 1_000_000}") {{}}',
    "comments": "// one\n" * LOTS + "node A { " + "/* in */ " * LOTS + "}",
    "wrong declarations": "nod A {}\n" * MANY,
}
ODD = {
    "nothing": "",
    "only comments": "// a\n/* b */\n// c",
    "white space": " \t\r\n",
    "zero bytes": "\x00" * 1_000,
    "a byte order mark": "\ufeff",
    "lone surrogates": '\ud800\udfff\udc80 // \ud800\n"\ud800"',
    "other line ends": "\r\r\n\n\x0b\x0c\x1c\x85\u2028\u2029",
    "an open string": '"',
    "an open escape": '"\\',
    "an open comment": "/*",
    "an open comment after a star": "/* *",
    "a slash": "/",
    "a dollar": "$",
    "quotes": '"' * 9_999,
    "stars": "/*" + "*" * LOTS,
    "other digits": "٣ ²",
    "wide letters": "ｎｏｄｅ Ａ {}",
}


@pytest.mark.parametrize("name", rotating([*HUGE_QUERIES], 6, "huge queries"))
def test_a_huge_query_is_answered(name: str) -> None:
    text = HUGE_QUERIES[name]
    source = Source("q.gq", text)
    file, problems = parse_queries(source)
    show_everything(problems, text)
    assert problems or format_query_file(file)
    if responses(lambda: compile_query(CATALOG, source), text):
        assert explain_text(compile_query(CATALOG, source))


@pytest.mark.parametrize("name", rotating([*HUGE_SCHEMAS], 4, "huge schemas"))
def test_a_huge_schema_is_answered(name: str) -> None:
    text = HUGE_SCHEMAS[name]
    source = Source("s.pg", text)
    file, problems = parse_schema(source)
    show_everything(problems, text)
    assert problems or print_schema(file)
    responses(lambda: compile_schema(source), text)


@pytest.mark.slow
def test_a_hundred_thousand_conditions_are_read_checked_and_printed() -> None:
    source = Source("q.gq", in_match("$p.age > 1\n" * 100_000))
    file, problems = parse_queries(source)
    checked, findings = examine_query(CATALOG, source, file.queries[0])
    assert (problems, findings) == ([], [])
    assert checked is not None
    assert explain_text(lower(checked, source))
    assert format_query_file(file)


@pytest.mark.parametrize("word", rotating(["and", "or"], 1, "long chains"))
def test_a_chain_beyond_the_limit_is_one_finding(word: str) -> None:
    source = Source("q.gq", in_match(f"$p.age > 1 {word} " * 100_000 + "$p.age > 1"))
    _, problems = parse_queries(source)
    assert [problem.code for problem in problems] == ["P008"]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_text_is_answered(name: str) -> None:
    odd = ODD[name]
    for text in (odd, f"{odd} {SCHEMA}", f"{SCHEMA} {odd}"):
        feed_schema(text)
    query = in_match('$p.name = "x"')
    for text in (
        odd,
        f"{odd} {query}",
        f"{query} {odd}",
        in_match(odd),
        in_match(f'$p.name = "{odd}"'),
    ):
        feed_queries(text)


@pytest.mark.parametrize(("kind", "feed"), [("gq", feed_queries), ("pg", feed_schema)])
def test_a_text_cut_anywhere_is_answered(kind: str, feed: Feed) -> None:
    text = existing_texts(kind)[0].decode()[:1_500]
    for end in range(0, len(text), 7):
        feed(text[:end])
        feed(text[end:])


def test_line_ends_of_other_systems_mean_the_same() -> None:
    for kind, feed in (("gq", feed_queries), ("pg", feed_schema)):
        for data in existing_texts(kind):
            feed(data.decode().replace("\n", "\r\n"))
