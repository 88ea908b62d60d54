"""Random texts of the two languages, derived from their grammars.

The grammars below are those of the languages, in one notation. ``Grammar.derive`` follows them to a
list of tokens, ``damaged`` makes a wrong derivation of a right one, and ``written`` puts tokens on
paper. Everything is a function of the random generator that is passed in, so a seed is a test case.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

QUERIES = """
file        = { query } ;
query       = "query" Ident "(" [ param { "," param } ] ")" qannots "{" ( read | { stmt }+ ) "}" ;
qannots     = [ "@" "description" "(" String ")" ] [ "@" "instruction" "(" String ")" ]
              [ "@" "deprecated" "(" String ")" ] ;
param       = Var ":" ptype ;
ptype       = ( "[" scalar "]" | scalar | "Vector" "(" Integer ")" ) [ "?" ] ;
scalar      = "String" | "Blob" | "Bool" | "I32" | "I64" | "U32" | "U64" | "F32" | "F64"
            | "DateTime" | "Date" ;
read        = "match" "{" { clause }+ "}" "return" [ "distinct" ] "{" { projection }+ "}"
              [ "order" "{" ordering { "," ordering } "}" ]
              [ "limit" Integer [ "offset" Integer ] ] ;
clause      = binding | binding | traversal | traversal | filter | filter | textclause | negation ;
negation    = "not" "{" { clause }+ "}" ;
binding     = Var ":" TypeName [ "{" [ pmatch { "," pmatch } [ "," ] ] "}" ] ;
pmatch      = Ident ":" value ;
value       = literal | Var | "now" "(" ")" ;
traversal   = Var [ Var ":" ] ( Edge | "<" Edge ">" ) [ "{" Integer "," [ Integer ] "}" ] Var ;
filter      = condition ;
condition   = both { "or" both } ;
both        = negated { "and" negated } ;
negated     = comparison | comparison | "not" "(" condition ")" ;
comparison  = expr cmp expr | expr cmp expr | expr "contains" expr | expr "starts_with" expr
            | expr "in" ( list | Var ) | expr "is" [ "not" ] "null" | "(" condition ")" ;
cmp         = ">=" | "<=" | "!=" | ">" | "<" | "=" ;
textclause  = search | fuzzy | matchtext ;
projection  = ( agg | expr | condition ) [ "as" Ident ] [ "," ] ;
ordering    = nearest | bm25 | rrf | expr [ "asc" | "desc" ] ;
expr        = Var "." Ident | Var "." Ident | Var | literal | Ident | now | nearest | search | fuzzy
            | matchtext | bm25 | rrf | agg ;
now         = "now" "(" ")" ;
nearest     = "nearest" "(" Var "." Ident "," expr ")" ;
search      = "search" "(" expr "," expr ")" ;
fuzzy       = "fuzzy" "(" expr "," expr [ "," expr ] ")" ;
matchtext   = "match_text" "(" expr "," expr ")" ;
bm25        = "bm25" "(" expr "," expr ")" ;
rrf         = "rrf" "(" rank "," rank [ "," expr ] ")" ;
rank        = nearest | bm25 ;
agg         = ( "count" | "sum" | "avg" | "min" | "max" ) "(" [ "distinct" ] expr ")" ;
list        = "[" [ literal { "," literal } ] "]" ;
literal     = String | String | number | number | list | "datetime" "(" String ")"
            | "date" "(" String ")" | "true" | "false" | "null" ;
number      = [ "-" ] ( Float | Integer ) ;
stmt        = insert | update | delete ;
insert      = "insert" TypeName "{" { Ident ":" value [ "," ] }+ "}" ;
update      = "update" TypeName "set" "{" { Ident ":" value [ "," ] }+ "}" "where" predicate ;
delete      = "delete" TypeName "where" predicate ;
predicate   = Ident cmp value | Ident cmp value | condition ;
"""

SCHEMAS = """
schema      = { declaration } ;
declaration = interface | node | node | edge | edge ;
interface   = "interface" TypeName "{" { property } "}" ;
node        = "node" TypeName { annotation } [ "implements" TypeName { "," TypeName } ]
              "{" { property | property | constraint } "}" ;
edge        = "edge" TypeName ":" TypeName "->" TypeName [ cardinality ] { annotation }
              [ "{" { property | constraint } "}" ] ;
cardinality = "@" "card" "(" Integer ".." [ Integer ] ")" ;
property    = Ident ":" type { annotation } ;
type        = ( list | enum | vector | scalar | scalar ) [ "?" ] ;
list        = "[" scalar "]" ;
enum        = "enum" "(" EnumValue { "," EnumValue } ")" ;
vector      = "Vector" "(" Integer ")" ;
scalar      = "String" | "Blob" | "Bool" | "I32" | "I64" | "U32" | "U64" | "F32" | "F64"
            | "DateTime" | "Date" ;
constraint  = "@" ( "key" | "unique" | "index" | "range" | "check" ) "(" carg { "," carg } ")" ;
carg        = bounds | literal | Ident | Ident ;
bounds      = number ".." [ number ] | ".." number ;
number      = [ "-" ] ( Float | Integer ) ;
annotation  = "@" Note [ "(" aarg { "," kwarg } ")" ] ;
aarg        = literal | Ident ;
kwarg       = Ident "=" literal ;
literal     = String | Float | Integer | "true" | "false" ;
"""

# What the leaves of the grammars are taken from: mostly names of the schema the queries are
# checked against, so that derivations get past the checker now and then.
LEAVES: dict[str, tuple[str, ...]] = {
    "Ident": (
        *("name", "age", "tags", "bio", "vec", "born", "seen", "kind", "from", "to", "score"),
        *("not", "in", "is", "null", "type", "when", "date", "id", "src", "query", "match"),
    ),
    "Note": ("key", "unique", "index", "embed", "description", "instruction", "rename_from", "x"),
    "TypeName": ("Person", "Person", "Company", "Doc", "Knows", "WorksAt", "Vector", "Nowhere"),
    "Edge": ("knows", "knows", "worksAt", "wrote", "likes", "not", "in", "contains", "nowhere"),
    "Var": ("$p", "$p", "$f", "$c", "$d", "$e", "$text", "$n", "$list", "$vector", "$_"),
    "String": ('"x"', '"staff"', '"2024-01-31"', '""', '"say \\"hi\\"\\n"', '"é ☃ \U0001f600"'),
    "Integer": ("0", "1", "2", "3", "5", "4294967296", "9223372036854775807"),
    "Float": ("0.0", "1.5", "0.25", "123456789.000001"),
    "EnumValue": ("a", "b", "staff", "b-1", "1st", "_"),
}
STRAY_TOKENS = (
    *("{", "}", "(", ")", "[", "]", ":", ",", ".", "..", "->", "@", "?", "=", "<", ">", "!=", "-"),
    *("query", "match", "return", "not", "and", "or", "in", "is", "null", "as", "order", "limit"),
    *(
        '"open',
        "/* open",
        "// line",
        "$",
        "$P",
        "'x'",
        ";",
        "\x00",
        "\ufeff",
        "\ud800",
        "é",
        "\u2028",
    ),
    *("99999999999999999999", "1.", ".5", "1e5", "0x1f", "node", "edge", "enum", "implements"),
)

_SYMBOL = re.compile(r'"([^"]*)"|([A-Za-z0-9_]+)|(\}\+|[=;|(){}\[\]])')
_MANY = 4


@dataclass(frozen=True)
class Part:
    """A piece of a grammar: ``kind`` says how its parts are put together."""

    kind: str  # text, rule, sequence, choice, optional, repeat
    text: str = ""
    parts: tuple[Part, ...] = ()
    least: int = 0


class Grammar:
    """A grammar: quoted tokens, ``[ ]`` for what may be left out, ``{ }`` for what repeats.

    >>> grammar = Grammar('list = "[" [ item { "," item } ] "]" ; item = "x" | list ;', {})
    >>> " ".join(grammar.derive("list", random.Random(4)))
    '[ x , [ x ] , [ ] , [ ] ]'
    """

    def __init__(self, text: str, leaves: dict[str, tuple[str, ...]]) -> None:
        self._leaves = leaves
        self._symbols = [match.groups(default="") for match in _SYMBOL.finditer(text)]
        self._at = 0
        self.rules: dict[str, Part] = {}
        while self._at < len(self._symbols):
            name = self._symbols[self._at][1]
            self._at += 2
            self.rules[name] = self._choice()
            self._at += 1
        self._heights = self._measure()

    # -- reading the notation ------------------------------------------------------------

    def _choice(self) -> Part:
        parts = [self._sequence()]
        while self._symbols[self._at][2] == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Part("choice", parts=tuple(parts))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while True:
            text, name, sign = self._symbols[self._at]
            if sign in (";", "|", ")", "]", "}", "}+") and not text:
                return Part("sequence", parts=tuple(parts))
            self._at += 1
            if sign in ("(", "[", "{"):
                inner = self._choice()
                closing = self._symbols[self._at][2]
                self._at += 1
                kind = {"(": "sequence", "[": "optional", "{": "repeat"}[sign]
                parts.append(Part(kind, parts=(inner,), least=int(closing == "}+")))
            else:
                parts.append(Part("rule", name) if name else Part("text", text))

    def _measure(self) -> dict[str, int]:
        """How high the lowest derivation of every rule is, so that deriving can end."""
        heights = dict.fromkeys(self.rules, 1_000)
        for _ in self.rules:
            for name, part in self.rules.items():
                heights[name] = min(heights[name], 1 + self._height(part, heights))
        return heights

    def _height(self, part: Part, heights: dict[str, int]) -> int:
        match part.kind:
            case "rule":
                return heights.get(part.text, 0)
            case "choice":
                return min(self._height(inner, heights) for inner in part.parts)
            case "sequence":
                return max((self._height(inner, heights) for inner in part.parts), default=0)
            case "repeat" if part.least:
                return self._height(part.parts[0], heights)
            case _:
                return 0

    # -- deriving ------------------------------------------------------------------------

    def derive(self, rule: str, rng: random.Random, depth: int = 9) -> list[str]:
        """The tokens of one text; beyond ``depth`` the lowest alternatives are taken."""
        out: list[str] = []
        self._derive(self.rules[rule], rng, depth, out)
        return out

    def _derive(self, part: Part, rng: random.Random, depth: int, out: list[str]) -> None:
        match part.kind:
            case "text":
                out.append(part.text)
            case "rule" if part.text in self._leaves:
                out.append(rng.choice(self._leaves[part.text]))
            case "rule":
                self._derive(self.rules[part.text], rng, depth - 1, out)
            case "choice":
                options = part.parts
                if depth <= 0:
                    lowest = self._height(part, self._heights)
                    options = tuple(o for o in options if self._height(o, self._heights) == lowest)
                self._derive(rng.choice(options), rng, depth, out)
            case "sequence":
                for inner in part.parts:
                    self._derive(inner, rng, depth, out)
            case "optional":
                if depth > 0 and rng.random() < 0.4:
                    self._derive(part.parts[0], rng, depth, out)
            case _:
                for _ in range(part.least + (rng.randrange(_MANY) if depth > 0 else 0)):
                    self._derive(part.parts[0], rng, depth, out)


QUERY_GRAMMAR = Grammar(QUERIES, LEAVES)
SCHEMA_GRAMMAR = Grammar(SCHEMAS, LEAVES)


def damaged(tokens: Sequence[str], rng: random.Random) -> list[str]:
    """A derivation that went wrong in a few places."""
    actual = list(tokens) or [""]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(actual))
        other = rng.choice(STRAY_TOKENS if rng.random() < 0.6 else actual)
        match rng.randrange(4):
            case 0:
                actual[at] = ""
            case 1:
                actual[at] = other
            case 2:
                actual.insert(at, actual[at])
            case _:
                actual.insert(at, other)
    return actual


def written(tokens: Sequence[str], rng: random.Random) -> str:
    """Tokens as a text, with some freedom of layout."""
    gaps = (*[" "] * 12, "\n", "\n", "\n\n", "\t", "\r\n", " // why\n", " /* { */ ", "")
    out: list[str] = []
    for token in tokens:
        gap = rng.choice(gaps)
        if not gap and token[:1] not in "{}()[],:?":
            gap = " "
        out += (gap, token)
    return "".join(out)
