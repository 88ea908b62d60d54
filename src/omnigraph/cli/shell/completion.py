"""What Tab offers in the shell: words of the language and names of this graph.

The text before the cursor is read by its tokens, since it hardly ever is a whole query. What
cannot be told gives more candidates rather than none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.cli.shell.commands import COMMANDS, split_command
from omnigraph.cli.shell.input import SIGNS, is_command
from omnigraph.cli.shell.statements import CHANGES, HEADS, SOURCE
from omnigraph.errors import OmniGraphError
from omnigraph.escaping import has_controls
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.lexer import Kind, Token, lex
from omnigraph.lang.query.expressions import AGGREGATES, FUNCTIONS, edge_word

if TYPE_CHECKING:
    from omnigraph.cli.shell.session import Session
    from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType

_WORDS = (
    "match",
    "return",
    "order",
    "limit",
    "offset",
    "distinct",
    "not",
    "and",
    "or",
    "in",
    "is",
    "null",
    "true",
    "false",
    "contains",
    "starts_with",
    "as",
    "asc",
    "desc",
    "set",
    "where",
)
KEYWORDS = (*HEADS, *(word for word in _WORDS if word not in HEADS))


class Completion:
    """Candidates from what a session knows."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, pending: Sequence[str], before: str, word: str) -> list[str]:
        """What a word may become, given the lines above it and the text before it."""
        try:
            if not pending and is_command(before + word) and (before + word).startswith(SIGNS):
                found: Iterable[str] = self._command(before, word)
            else:
                text = "\n".join((*pending, before))
                found = candidates(self._session.catalog, text, word, self._names())
        except OmniGraphError:
            # Nothing is offered where the graph cannot be asked; the next statement says why.
            return []
        # A name with control characters cannot be typed, and readline would show them.
        return sorted({each for each in found if each.startswith(word) and not has_controls(each)})

    def _names(self) -> Names:
        return Names(tuple(self._session.queries), tuple(self._session.params))

    def _command(self, before: str, word: str) -> Iterable[str]:
        if not before:
            return [f"{word[0]}{name}" for name in COMMANDS]
        name, rest = split_command(before)
        command = COMMANDS.get(name)
        words = [each for each in rest.split() if each != "-c"]
        if command is None or len(words) >= len(command.words):
            return ()
        kind = command.words[len(words)]
        return self._values(kind, word) if isinstance(kind, str) else kind

    def _values(self, kind: str, word: str) -> Iterable[str]:
        graph = self._session.graph
        if kind == "file":
            return _files(word)
        if kind == "query":
            return self._session.queries
        branches = list(graph.branches.list())
        if kind == "branch":
            return branches
        tags = [tag.name for tag in graph.tags.list()]
        commits = [commit.commit_id for commit in graph.commits(self._session.branch)]
        return ["none", *branches, *tags, *commits]


@dataclass(frozen=True, slots=True)
class Names:
    """Names that are not the graph's: of stored queries, and of parameters."""

    queries: Sequence[str] = ()
    params: Sequence[str] = ()


def candidates(catalog: Catalog, before: str, word: str, names: Names) -> Iterable[str]:
    """All that may stand at the cursor; whoever asks takes what starts with the word.

    >>> from omnigraph.lang.schema import compile_schema
    >>> catalog = compile_schema("node Person { name: String @key } edge Knows: Person -> Person")
    >>> list(candidates(catalog, "match { $p: Person return { ", "$p.n", Names()))
    ['$p.name']
    """
    tokens = lex(Source(SOURCE, before)).tokens[:-1]
    known = _kinds_of_variables(catalog, tokens)
    if word.startswith("$"):
        variable, dot, _ = word[1:].partition(".")
        if dot:
            kinds = [known[variable]] if variable in known else _kinds(catalog)
            return [f"${variable}.{name}" for name in _properties(kinds)]
        return [f"${name}" for name in (*_variables(tokens), *names.params)]
    last = tokens[-1] if tokens else None
    if last is None:
        return (*HEADS, *names.queries)
    if last.text == ":" and len(tokens) > 1 and tokens[-2].kind is Kind.VAR:
        return (*catalog.node_types, *map(edge_word, catalog.edge_types))
    if last.kind is Kind.IDENT and last.text in CHANGES:
        return (*catalog.node_types, *catalog.edge_types)
    if last.kind is Kind.VAR:
        return (*_edges(catalog, known.get(last.text[1:])), *KEYWORDS)
    kind = _kind_around(catalog, tokens)
    if kind is not None:
        return _properties([kind])
    if last.text == "." and len(tokens) > 1 and tokens[-2].kind is Kind.VAR:
        return _properties([known[tokens[-2].text[1:]]] if tokens[-2].text[1:] in known else ())
    return (
        *KEYWORDS,
        *FUNCTIONS,
        *AGGREGATES,
        *catalog.node_types,
        *map(edge_word, catalog.edge_types),
    )


def _kinds(catalog: Catalog) -> list[NodeType | EdgeType]:
    return [*catalog.node_types.values(), *catalog.edge_types.values()]


def _properties(kinds: Iterable[NodeType | EdgeType]) -> list[str]:
    return sorted({name for kind in kinds for name in kind.properties})


def _variables(tokens: Sequence[Token]) -> Iterable[str]:
    return {token.text[1:]: None for token in tokens if token.kind is Kind.VAR}


def _edges(catalog: Catalog, kind: NodeType | EdgeType | None) -> list[str]:
    """The edges that a node may have; all where its type is not known."""
    edges = catalog.edge_types.values()
    fitting = [
        edge for edge in edges if kind is None or kind.name in (edge.from_type, edge.to_type)
    ]
    return [edge_word(edge.name) for edge in fitting or edges]


def _kind_around(catalog: Catalog, tokens: Sequence[Token]) -> NodeType | EdgeType | None:
    """The type whose properties are written at the cursor: in its braces, or after ``where``."""
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.text == "{":
            opened.append(at)
        elif token.text == "}" and opened:
            opened.pop()
    ends = {"{", ",", "where"}
    if tokens[-1].text not in ends and not (opened and tokens[-2].text == ":"):
        return None
    if tokens[-1].text == "where":
        owner = next((token for token in reversed(tokens) if token.kind is Kind.TYPE), None)
    elif opened and opened[-1] > 0:
        owner = tokens[opened[-1] - 1]
        if owner.text == "set" and opened[-1] > 1:
            owner = tokens[opened[-1] - 2]
    else:
        owner = None
    if owner is None or owner.kind is not Kind.TYPE:
        return None
    return catalog.node(owner.text) or catalog.edge(owner.text)


@dataclass(slots=True)
class _Known:
    """Types of variables, as far as patterns tell."""

    catalog: Catalog
    kinds: dict[str, NodeType | EdgeType] = field(default_factory=dict)

    def bind(self, variable: str, name: str) -> None:
        kind = self.catalog.node(name)
        if kind is not None:
            self.kinds.setdefault(variable, kind)

    def traverse(self, src: str, edge: EdgeType, dst: str) -> None:
        start, end = self.kinds.get(src), self.kinds.get(dst)
        is_back = (start is not None and start.name != edge.from_type) or (
            start is None and end is not None and end.name != edge.to_type
        )
        one, other = edge.from_type, edge.to_type
        self.bind(src, other if is_back else one)
        self.bind(dst, one if is_back else other)


def _kinds_of_variables(
    catalog: Catalog, tokens: Sequence[Token]
) -> dict[str, NodeType | EdgeType]:
    """``$p: Person`` binds a node, ``$p knows $f`` its other end, ``$p $w:knows $f`` an edge."""
    known = _Known(catalog)
    plain = _without_hops(tokens)
    for at, token in enumerate(plain):
        if token.kind is not Kind.VAR:
            continue
        following = [each.text for each in plain[at + 1 : at + 5]]
        if following[:1] == [":"] and len(following) > 1:
            known.bind(token.text[1:], following[1])
            continue
        variable = None
        if len(following) > 2 and following[0].startswith("$") and following[1] == ":":
            variable, following = following[0][1:], following[2:]
        if len(following) > 1 and following[1].startswith("$"):
            edge = catalog.edge(following[0])
            if edge is not None:
                known.traverse(token.text[1:], edge, following[1][1:])
                if variable is not None:
                    known.kinds[variable] = edge
    return known.kinds


def _without_hops(tokens: Sequence[Token]) -> list[Token]:
    """Without ``{1, 3}`` after an edge, and without the signs of an edge in both directions."""
    plain: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "{" and at + 1 < len(tokens) and tokens[at + 1].kind is Kind.INT:
            while at < len(tokens) and tokens[at].text != "}":
                at += 1
        elif token.text not in ("<", ">"):
            plain.append(token)
        at += 1
    return plain


def _files(word: str) -> list[str]:
    """Paths that start with a word; directories with their sign."""
    directory, _, start = word.rpartition("/")
    place = os.path.expanduser(f"{directory}/" if "/" in word else ".")
    try:
        with os.scandir(place) as found:
            entries = [(each.name, each.is_dir()) for each in found]
    except OSError:
        return []
    lead = f"{directory}/" if "/" in word else ""
    return [
        f"{lead}{name}{'/' if is_dir else ''}"
        for name, is_dir in entries
        if not name.startswith(".") or start.startswith(".")
    ]
