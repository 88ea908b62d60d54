"""Random query files: every tree that the parser can give, and texts laid out at random.

Nothing here needs to make sense to the checker; it only has to be writable. Names are taken from
words that mean something elsewhere in the language.
"""

from __future__ import annotations

from hypothesis import strategies as st

from omnigraph.lang.diagnostics import Source
from omnigraph.lang.lexer import Kind, lex
from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import AGGREGATES
from omnigraph.lang.query.format import format_query_file
from omnigraph.lang.types import I64_RANGE, MOST_DIMENSIONS, SCALAR_NAMES, PropType, Scalar

_WORDS = [
    *("type", "kind", "when", "from", "to", "date", "datetime", "blob", "count", "now", "search"),
    *("not", "in", "is", "and", "or", "null_", "distinct", "as", "asc", "desc", "contains"),
    *("starts_with", "contains5", "starts_with1x", "nullable", "assigned", "_", "_x", "a1"),
    *("query", "match", "return", "order", "limit", "offset", "insert", "update", "delete"),
    *("set", "where", "nearest", "knows"),
]
_LITERAL_WORDS = ("null", "true", "false")

idents = st.sampled_from(_WORDS) | st.from_regex(r"[a-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
bare_names = idents.filter(lambda name: name not in _LITERAL_WORDS)
edge_names = idents.filter(lambda name: name != "not")
type_names = st.sampled_from(["Person", "Vector", "T", "String"]) | st.from_regex(
    r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True
)
texts = st.text(
    st.sampled_from('"\\\n\r\t{}/*$') | st.characters(codec="utf-8"),
    max_size=10,
)

# -- expressions ---------------------------------------------------------------------------------


def _literals(
    kind: ast.LiteralKind, values: st.SearchStrategy[object]
) -> st.SearchStrategy[object]:
    return st.builds(ast.LiteralExpr, st.just(kind), values)


literals = st.one_of(
    _literals(ast.LiteralKind.NULL, st.none()),
    _literals(ast.LiteralKind.BOOL, st.booleans()),
    _literals(ast.LiteralKind.INT, st.integers(*I64_RANGE)),
    _literals(ast.LiteralKind.FLOAT, st.floats(allow_nan=False, allow_infinity=False)),
    _literals(ast.LiteralKind.STRING, texts),
    _literals(ast.LiteralKind.DATE, texts),
    _literals(ast.LiteralKind.DATETIME, texts),
)
variables = st.builds(ast.VariableExpr, idents)
properties = st.builds(ast.PropertyExpr, idents, idents)
leaves = st.one_of(
    literals,
    variables,
    properties,
    st.builds(ast.NameExpr, bare_names),
    st.just(ast.CallExpr("now", ())),
    st.just(ast.ListExpr(())),
)


def _calls(name: str, *args: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.CallExpr]:
    return st.builds(ast.CallExpr, st.just(name), st.tuples(*args))


def _compounds(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    nearest = _calls("nearest", properties, inner)
    ranks = nearest | _calls("bm25", inner, inner)
    return st.one_of(
        st.builds(ast.CompareExpr, st.sampled_from(ast.CompareOp), inner, inner),
        st.builds(ast.InExpr, inner, inner),
        st.builds(ast.IsNullExpr, inner, st.booleans()),
        st.builds(ast.NotExpr, inner),
        st.builds(ast.AndExpr, several),
        st.builds(ast.OrExpr, several),
        st.builds(ast.ListExpr, st.lists(inner, max_size=3).map(tuple)),
        st.builds(ast.AggregateExpr, st.sampled_from(AGGREGATES), inner, st.booleans()),
        _calls("search", inner, inner),
        _calls("match_text", inner, inner),
        _calls("fuzzy", inner, inner),
        _calls("fuzzy", inner, inner, inner),
        ranks,
        _calls("rrf", ranks, ranks),
        _calls("rrf", ranks, ranks, inner),
    )


expressions: st.SearchStrategy[ast.Expr] = st.recursive(leaves, _compounds, max_leaves=6)
values = st.one_of(
    literals,
    variables,
    st.just(ast.CallExpr("now", ())),
    st.builds(ast.ListExpr, st.lists(literals, max_size=3).map(tuple)),
)

# -- clauses -------------------------------------------------------------------------------------

_u32 = st.integers(0, 2**32 - 1)
hops = st.just(ast.ONE_HOP) | st.builds(ast.Hops, _u32, st.none() | _u32)
matches = st.lists(st.builds(ast.PropertyMatch, idents, values), max_size=3).map(tuple)
_simple_clauses = st.one_of(
    st.builds(ast.BindingClause, idents, type_names, matches),
    st.builds(
        ast.TraversalClause, idents, edge_names, idents, hops, st.booleans(), st.none() | idents
    ),
    st.builds(ast.FilterClause, expressions),
)
clauses: st.SearchStrategy[ast.Clause] = st.recursive(
    _simple_clauses,
    lambda inner: st.builds(ast.NegationClause, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=4,
)

# -- bodies --------------------------------------------------------------------------------------


@st.composite
def orderings(draw: st.DrawFn, aliases: list[str]) -> ast.Ordering:
    if aliases and draw(st.booleans()):
        return ast.Ordering(ast.NameExpr(draw(st.sampled_from(aliases))), draw(st.booleans()))
    expr = draw(expressions)
    ranks_itself = isinstance(expr, ast.CallExpr) and expr.function == "nearest"
    return ast.Ordering(expr, not ranks_itself and draw(st.booleans()))


@st.composite
def reads(draw: st.DrawFn) -> ast.ReadBody:
    columns = st.builds(
        ast.Projection, expressions, st.none() | idents | st.sampled_from(_LITERAL_WORDS)
    )
    projections = draw(st.lists(columns, min_size=1, max_size=4))
    aliases = [projection.alias for projection in projections if projection.alias]
    limit = draw(st.none() | st.integers(0, I64_RANGE[1]))
    return ast.ReadBody(
        tuple(draw(st.lists(clauses, min_size=1, max_size=5))),
        tuple(projections),
        draw(st.booleans()),
        tuple(draw(st.lists(orderings(aliases), max_size=3))),
        limit,
        None if limit is None else draw(st.none() | st.integers(0, I64_RANGE[1])),
    )


assignments = st.lists(st.builds(ast.Assignment, idents, values), min_size=1, max_size=4).map(tuple)
statements = st.one_of(
    st.builds(ast.InsertStatement, type_names, assignments),
    st.builds(ast.UpdateStatement, type_names, assignments, expressions),
    st.builds(ast.DeleteStatement, type_names, expressions),
)
mutations = st.builds(ast.MutationBody, st.lists(statements, min_size=1, max_size=4).map(tuple))

# -- files ---------------------------------------------------------------------------------------

_scalars = st.sampled_from(list(SCALAR_NAMES.values()))
param_types = st.builds(PropType, _scalars, st.booleans(), st.booleans()) | st.builds(
    PropType,
    st.just(Scalar.VECTOR),
    st.booleans(),
    dimension=st.integers(1, MOST_DIMENSIONS),
)
params = st.lists(
    st.builds(ast.Param, idents, param_types), max_size=6, unique_by=lambda param: param.name
).map(tuple)
queries = st.builds(
    ast.Query, idents, params, reads() | mutations, st.none() | texts, st.none() | texts
)
query_files = st.builds(ast.QueryFile, st.lists(queries, max_size=3).map(tuple))

# -- texts ---------------------------------------------------------------------------------------

_gaps = st.sampled_from(["", " ", " ", "\n", "\n\n\n", "\t", "\r\n", "  \n \n"])
_comments = st.sampled_from(
    ["// {\n", '// "quoted\n', "/* } */", "/* two\n  lines */", "// where\r\n", "/**/", "//\n"]
)


@st.composite
def laid_out_texts(draw: st.DrawFn, files: st.SearchStrategy[ast.QueryFile] = query_files) -> str:
    """The text of a file with random white space and comments between its tokens."""
    busy = draw(st.booleans())
    gaps = st.one_of(_gaps, _comments) if busy else st.one_of(*[_gaps] * 12, _comments)
    out = ""
    for token in lex(Source("q", format_query_file(draw(files)))).tokens:
        gap = draw(gaps)
        if not gap and not _may_touch(out[-1:], token.text[:1]):
            gap = " "
        out += gap + token.text
        if token.kind is Kind.EOF:
            out += draw(_gaps)
    return out


def _may_touch(left: str, right: str) -> bool:
    brackets = "{}()[],:?@"
    return left in brackets or right in brackets
