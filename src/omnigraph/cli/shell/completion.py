"""Tab completion in the shell: keywords, and the names of this graph.

The text before the cursor is analysed by tokens, since it is rarely a whole query. Where the
context is ambiguous, more candidates are offered rather than none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.cli.shell.commands import COMMANDS, split_command
from omnigraph.cli.shell.input import SIGNS, is_command
from omnigraph.cli.shell.statements import CHANGES, HEADS, SOURCE
from omnigraph.errors import OmniGraphError
from omnigraph.escaping import has_controls
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.lexer import Kind, Token, lex
from omnigraph.lang.query.expressions import AGGREGATES, FUNCTIONS, edge_word
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.cli.shell.session import Session
    from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType

_WORDS = (
    "match return order limit offset distinct not and or in is null "
    "true false contains starts_with as asc desc set where"
)
KEYWORDS = (*HEADS, *(word for word in _WORDS.split() if word not in HEADS))


class Completion:
    """Completion candidates from a session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, pending: Sequence[str], before: str, word: str) -> list[str]:
        """The completions of a word, given the lines above it and the text before it."""
        try:
            if not pending and is_command(before + word) and (before + word).startswith(SIGNS):
                names: Iterable[str] = self._command(before, word)
            else:
                text = "\n".join((*pending, before))
                stored = SessionNames(tuple(self._session.queries), tuple(self._session.params))
                names = candidates(self._session.catalog, text, word, stored)
        except OmniGraphError:
            # The next statement will report why the graph cannot be read.
            return []
        # A name with control characters cannot be typed, and readline would print them.
        return sorted({name for name in names if name.startswith(word) and not has_controls(name)})

    def _command(self, before: str, word: str) -> Iterable[str]:
        if not before:
            return [f"{word[0]}{name}" for name in COMMANDS]
        name, rest = split_command(before)
        command = COMMANDS.get(name)
        words = [argument for argument in rest.split() if argument != "-c"]
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
class SessionNames:
    """Names of stored queries and parameters, which are not part of the graph."""

    queries: Sequence[str] = ()
    params: Sequence[str] = ()


def candidates(catalog: Catalog, before: str, word: str, names: SessionNames) -> Iterable[str]:
    """Everything allowed at the cursor; the caller filters by the word.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node Person { name: String @key } edge Knows: Person -> Person")
    >>> list(candidates(catalog, "match { $p: Person return { ", "$p.n", SessionNames()))
    ['$p.name']
    """
    tokens = lex(Source(SOURCE, before)).tokens[:-1]
    types = _variable_types(catalog, tokens)
    if word.startswith("$"):
        variable, dot, _ = word[1:].partition(".")
        if dot:
            owners = [types[variable]] if variable in types else _types(catalog)
            return [f"${variable}.{name}" for name in _properties(owners)]
        return [f"${name}" for name in (*_variables(tokens), *names.params)]
    last = tokens[-1] if tokens else None
    if last is None:
        return (*HEADS, *names.queries)
    if last.text == ":" and len(tokens) > 1 and tokens[-2].kind is Kind.VAR:
        return (*catalog.node_types, *map(edge_word, catalog.edge_types))
    if last.kind is Kind.IDENT and last.text in CHANGES:
        return (*catalog.node_types, *catalog.edge_types)
    if last.kind is Kind.VAR:
        return (*_edges(catalog, types.get(last.text[1:])), *KEYWORDS)
    owner = _enclosing_type(catalog, tokens)
    if owner is not None:
        return _properties([owner])
    if last.text == "." and len(tokens) > 1 and tokens[-2].kind is Kind.VAR:
        return _properties([types[tokens[-2].text[1:]]] if tokens[-2].text[1:] in types else ())
    return (
        *KEYWORDS,
        *FUNCTIONS,
        *AGGREGATES,
        *catalog.node_types,
        *map(edge_word, catalog.edge_types),
    )


def _types(catalog: Catalog) -> list[NodeType | EdgeType]:
    return [*catalog.node_types.values(), *catalog.edge_types.values()]


def _properties(owners: Iterable[NodeType | EdgeType]) -> list[str]:
    return sorted({name for owner in owners for name in owner.properties})


def _variables(tokens: Sequence[Token]) -> Iterable[str]:
    return {token.text[1:]: None for token in tokens if token.kind is Kind.VAR}


def _edges(catalog: Catalog, node: NodeType | EdgeType | None) -> list[str]:
    """The edges of a node type; all edges if the type is unknown."""
    edges = catalog.edge_types.values()
    matching = [
        edge for edge in edges if node is None or node.name in (edge.from_type, edge.to_type)
    ]
    return [edge_word(edge.name) for edge in matching or edges]


def _enclosing_type(catalog: Catalog, tokens: Sequence[Token]) -> NodeType | EdgeType | None:
    """The type whose properties are expected at the cursor: in its braces, or after ``where``."""
    open_graph: list[int] = []
    for at, token in enumerate(tokens):
        if token.text == "{":
            open_graph.append(at)
        elif token.text == "}" and open_graph:
            open_graph.pop()
    ends = {"{", ",", "where"}
    if tokens[-1].text not in ends and not (open_graph and tokens[-2].text == ":"):
        return None
    if tokens[-1].text == "where":
        owner = next((token for token in reversed(tokens) if token.kind is Kind.TYPE), None)
    elif open_graph and open_graph[-1] > 0:
        owner = tokens[open_graph[-1] - 1]
        if owner.text == "set" and open_graph[-1] > 1:
            owner = tokens[open_graph[-1] - 2]
    else:
        owner = None
    if owner is None or owner.kind is not Kind.TYPE:
        return None
    return catalog.node(owner.text) or catalog.edge(owner.text)


@dataclass(slots=True)
class _VariableTypes:
    """The types of variables, as far as patterns determine them."""

    catalog: Catalog
    types: dict[str, NodeType | EdgeType] = field(default_factory=dict)

    def bind(self, variable: str, name: str) -> None:
        node = self.catalog.node(name)
        if node is not None:
            self.types.setdefault(variable, node)

    def traverse(self, src: str, edge: EdgeType, dst: str) -> None:
        start, end = self.types.get(src), self.types.get(dst)
        is_back = (start is not None and start.name != edge.from_type) or (
            start is None and end is not None and end.name != edge.to_type
        )
        self.bind(src, edge.to_type if is_back else edge.from_type)
        self.bind(dst, edge.from_type if is_back else edge.to_type)


def _variable_types(catalog: Catalog, tokens: Sequence[Token]) -> dict[str, NodeType | EdgeType]:
    """``$p: Person`` binds a node, ``$p knows $f`` its other end, ``$p $w:knows $f`` an edge."""
    variables = _VariableTypes(catalog)
    plain = _without_hops(tokens)
    for at, token in enumerate(plain):
        if token.kind is not Kind.VAR:
            continue
        following = [token.text for token in plain[at + 1 : at + 5]]
        if following[:1] == [":"] and len(following) > 1:
            variables.bind(token.text[1:], following[1])
            continue
        variable = None
        if len(following) > 2 and following[0].startswith("$") and following[1] == ":":
            variable, following = following[0][1:], following[2:]
        if len(following) > 1 and following[1].startswith("$"):
            edge = catalog.edge(following[0])
            if edge is not None:
                variables.traverse(token.text[1:], edge, following[1][1:])
                if variable is not None:
                    variables.types[variable] = edge
    return variables.types


def _without_hops(tokens: Sequence[Token]) -> list[Token]:
    """The tokens without hop ranges such as ``{1, 3}`` and without direction signs."""
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
    """Paths that start with a word; directories end with a slash."""
    directory, _, start = word.rpartition("/")
    prefix = f"{directory}/" if "/" in word else ""
    try:
        with os.scandir(os.path.expanduser(prefix) or ".") as entries:
            names = [(entry.name, entry.is_dir()) for entry in entries]
    except OSError:
        return []
    return [
        f"{prefix}{name}{'/' if is_dir else ''}"
        for name, is_dir in names
        if not name.startswith(".") or start.startswith(".")
    ]
