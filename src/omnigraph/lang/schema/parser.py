"""Parses schema texts: a recursive descent parser that continues after an error.

After an invalid property or declaration, parsing continues with the next one. Semantic errors
(unknown names, forbidden combinations) are reported later, by ``check``.
"""

from __future__ import annotations

from omnigraph.lang.diagnostics import NOWHERE, Diagnostic, Source, Span
from omnigraph.lang.lexer import Kind, decode_string
from omnigraph.lang.parsing import ParseFailure, Parser
from omnigraph.lang.schema.arguments import (
    read_check,
    read_columns,
    read_constraint_arguments,
    read_range,
)
from omnigraph.lang.schema.ast import (
    COLUMN_CONSTRAINTS,
    Annotation,
    ArgKind,
    Cardinality,
    CheckConstraint,
    Constraint,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Member,
    NodeDecl,
    PropertyDecl,
    RangeConstraint,
    Ref,
    SchemaFile,
)
from omnigraph.lang.schema.type_syntax import read_type
from omnigraph.lang.types import U32_RANGE

CONSTRAINT_WORDS = ("key", "unique", "index", "range", "check")
DECLARATION_WORDS = ("interface", "node", "edge")
_CARD_HINT = "write it right after the target type: `edge E: A -> B @card(0..1)`"


def parse_schema(source: Source) -> tuple[SchemaFile, list[Diagnostic]]:
    """Parse a schema text; never raises, whatever the text is.

    >>> file, errors = parse_schema(Source("s.pg", "node A { name: String  age: Int }"))
    >>> file.nodes[0].properties[0].name, errors[0].message
    ('name', 'unknown type `Int`')
    """
    parser = _SchemaParser(source)
    file = parser.file()
    try:
        source.text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = "the text is not valid Unicode and cannot be stored"
        parser.report("S015", message, Span(error.start, error.start + 1))
    return file, parser.diagnostics


class _SchemaParser(Parser):
    def file(self) -> SchemaFile:
        declarations: list[Declaration] = []
        complete = True
        while not self.at_kind(Kind.EOF) and not self.too_many:
            word = self.token.text
            try:
                declarations.append(self._declaration())
            except ParseFailure:
                # Nothing refers to an edge, so a lost edge makes no other name unknown.
                complete = complete and word.startswith("edge")
                self._skip_to_declaration()
        complete = complete and not self.too_many
        span = Span(0, len(self.source.text))
        return SchemaFile(tuple(declarations), span=span, complete=complete)

    # -- declarations --------------------------------------------------------------------

    def _declaration(self) -> Declaration:
        start = self.token.start
        if self.accept_word("interface"):
            return self._interface(start)
        if self.accept_word("node"):
            return self._node(start)
        if self.accept_word("edge"):
            return self._edge(start)
        hint = None
        if self.at("}"):
            hint = "this `}` closes nothing"
        elif self.at("@"):
            hint = 'annotations follow the name: `node Person @description("…") { … }`'
        raise self.unexpected(
            "`node`, `edge` or `interface`", "at the start of a declaration", hint
        )

    def _type_name(self, context: str) -> Ref:
        token = self.token
        if token.kind is Kind.TYPE:
            self.advance()
            return Ref(token.text, span=token.span)
        hint = None
        if token.kind is Kind.IDENT:
            hint = f"type names start with an upper-case letter: `{_capitalised(token.text)}`"
        raise self.unexpected("a type name", context, hint)

    def _interface(self, start: int) -> InterfaceDecl:
        name = self._type_name("after `interface`")
        if self.at("@") or self.at("implements"):
            what = "annotations" if self.at("@") else "interfaces of their own"
            raise self.fail("S013", f"interfaces have no {what}", self.token.span)
        members, complete, body = self._body("interface")
        return InterfaceDecl(
            name.name,
            members=members,
            span=self.since(start),
            name_span=name.span,
            body=body,
            complete=complete,
        )

    def _node(self, start: int) -> NodeDecl:
        name = self._type_name("after `node`")
        annotations = self._annotations()
        implements: list[Ref] = []
        if self.accept_word("implements"):
            implements.append(self._type_name("after `implements`"))
            while self.accept(","):
                implements.append(self._type_name("after `,`"))
            annotations += self._annotations()
        members, complete, body = self._body("node")
        return NodeDecl(
            name.name,
            tuple(implements),
            members=members,
            annotations=annotations,
            span=self.since(start),
            name_span=name.span,
            body=body,
            complete=complete,
        )

    def _edge(self, start: int) -> EdgeDecl:
        name = self._type_name("after `edge`")
        self.expect(":", "after the edge name")
        from_type = self._type_name("as the source of the edge")
        self.expect("->", "between the source and the target of the edge")
        to_type = self._type_name("as the target of the edge")
        cardinality = None
        if self.at("@") and self.ahead().text == "card" and self.ahead(2).text == "(":
            cardinality = self._cardinality()
        annotations = self._annotations()
        members: tuple[Member, ...] | None = None
        complete, body = True, NOWHERE
        if self.at("{"):
            members, complete, body = self._body("edge")
        return EdgeDecl(
            name.name,
            from_type,
            to_type,
            cardinality,
            members=members,
            annotations=annotations,
            span=self.since(start),
            name_span=name.span,
            body=body,
            complete=complete,
        )

    def _cardinality(self) -> Cardinality:
        start = self.advance().start
        self.advance()
        self.expect("(", "after `@card`")
        hint = "write `@card(0..1)`, or `@card(1..)` for no upper limit"
        if not self.at_kind(Kind.INT):
            raise self.unexpected("a number", "as the lower bound of `@card`", hint)
        least = self.integer_value(self.advance(), U32_RANGE)
        if not self.accept(".."):
            raise self.unexpected("`..`", "in `@card`", hint)
        most = None
        if self.at_kind(Kind.INT):
            most = self.integer_value(self.advance(), U32_RANGE)
        self.expect(")", "after the bounds of `@card`")
        span = self.since(start)
        if most is not None and least > most:
            self.report("S008", f"cardinality min ({least}) exceeds max ({most})", span)
        return Cardinality(least, most, span=span)

    # -- bodies --------------------------------------------------------------------------

    def _body(self, owner: str) -> tuple[tuple[Member, ...], bool, Span]:
        """The members between braces, whether all of them were parsed, and the braces."""
        opening = self.expect("{", f"before the properties of the {owner}")
        members: list[Member] = []
        complete = True
        while not self.at("}"):
            if self.at_kind(Kind.EOF) or self._at_declaration():
                self.report(
                    "P010",
                    f"the `{{` of this {owner} is not closed",
                    opening.span,
                    "add `}` after its last property",
                )
                return tuple(members), False, self.since(opening.start)
            if self.too_many:
                return tuple(members), False, self.since(opening.start)
            try:
                member = self._member(owner)
            except ParseFailure:
                complete = False
                self._skip_to_member()
                continue
            if member is None:
                complete = False
            else:
                members.append(member)
        self.advance()
        return tuple(members), complete, self.since(opening.start)

    def _member(self, owner: str) -> Member | None:
        if self.at_kind(Kind.IDENT):
            return self._property()
        if self._at_constraint():
            return self._constraint(owner)
        hint = None
        if self.at(","):
            hint = "properties need no comma between them"
        elif self.at_kind(Kind.TYPE):
            lower = self.token.text[0].lower() + self.token.text[1:]
            hint = f"property names start with a lower-case letter: `{lower}`"
        elif self.at("@"):
            hint = "constraints of a body name their properties: `@key(name)`"
        raise self.unexpected("a property or a constraint", "in the body", hint)

    def _property(self) -> PropertyDecl:
        name = self.advance()
        self.expect(":", f"after the property name `{name.text}`")
        type_start = self.token.start
        prop_type, values = read_type(self)
        type_span = self.since(type_start)
        annotations = self._annotations()
        return PropertyDecl(
            name.text,
            prop_type,
            annotations,
            span=self.since(name.start),
            name_span=name.span,
            type_span=type_span,
            enum_values=values,
        )

    def _constraint(self, owner: str) -> Constraint | None:
        start = self.advance().start
        word = self.advance().text
        arguments = read_constraint_arguments(self, word)
        span = self.since(start)
        if owner == "interface":
            self.report(
                "S013",
                f"@{word} constraints are not supported in an interface body",
                span,
                f"annotate the property instead: `name: String @{word}`"
                if word in ("key", "unique", "index")
                else "declare it on the nodes that implement the interface",
            )
            return None
        spans = tuple(argument.span for argument in arguments)
        if word == "range":
            ranged = read_range(self, arguments, span)
            return ranged and RangeConstraint(*ranged, span=span, column_spans=spans[:1])
        if word == "check":
            checked = read_check(self, arguments, span)
            return checked and CheckConstraint(*checked, span=span, column_spans=spans[:1])
        columns = read_columns(self, word, arguments)
        if columns is None:
            return None
        return COLUMN_CONSTRAINTS[word](columns, span=span, column_spans=spans)

    # -- annotations ---------------------------------------------------------------------

    def _annotations(self) -> tuple[Annotation, ...]:
        annotations: list[Annotation] = []
        while self.at("@") and not self._at_constraint():
            annotations.append(self._annotation())
        return tuple(annotations)

    def _annotation(self) -> Annotation:
        start = self.advance().start
        name = self.expect_kind(Kind.IDENT, "an annotation name", "after `@`").text
        if name == "card":
            raise self.fail("S001", "@card is not allowed here", self.since(start), _CARD_HINT)
        value: str | None = None
        kinds: list[ArgKind] = []
        pairs: dict[str, tuple[str, ArgKind]] = {}
        if self.accept("("):
            if self.at_kind(Kind.IDENT) and self.ahead().text == "=":
                raise self.fail(
                    "P010",
                    f"the first argument of `@{name}` must be a value, not a keyword",
                    self.token.span,
                    f"write `@{name}(value, {self.token.text}=…)`",
                )
            value, kind = self._argument(f"as the argument of `@{name}`")
            kinds.append(kind)
            while self.accept(","):
                self._keyword(name, pairs)
            self.expect(")", f"after the arguments of `@{name}`")
        ordered = sorted(pairs)
        kinds.extend(pairs[key][1] for key in ordered)
        kwargs = tuple((key, pairs[key][0]) for key in ordered)
        return Annotation(name, value, kwargs, tuple(kinds), span=self.since(start))

    def _keyword(self, annotation: str, pairs: dict[str, tuple[str, ArgKind]]) -> None:
        token = self.expect_kind(Kind.IDENT, "a keyword such as `model=`", "after `,`")
        self.expect("=", f"after the keyword `{token.text}`")
        if self.at_kind(Kind.IDENT) and self.token.text not in ("true", "false"):
            raise self.unexpected("a literal", f"as the value of `{token.text}`")
        value, kind = self._argument(f"as the value of `{token.text}`")
        if token.text in pairs:
            self.report("S014", f"@{annotation} has two arguments '{token.text}='", token.span)
        pairs[token.text] = (value, kind)

    def _argument(self, context: str) -> tuple[str, ArgKind]:
        """A literal or a bare identifier; numbers and booleans are kept as text."""
        token = self.token
        if token.kind is Kind.STRING:
            self.advance()
            return decode_string(self.source, token, self.diagnostics), ArgKind.STRING
        kind = {
            Kind.INT: ArgKind.INTEGER,
            Kind.FLOAT: ArgKind.FLOAT,
            Kind.IDENT: ArgKind.IDENT,
        }.get(token.kind)
        if kind is None:
            hint = None
            if token.kind is Kind.TYPE:
                hint = f'write the name in quotes: `"{token.text}"`'
            elif self.at(")"):
                hint = "leave the parentheses out when there is no argument"
            raise self.unexpected("a literal or a name", context, hint)
        self.advance()
        if token.text in ("true", "false"):
            kind = ArgKind.BOOLEAN
        return token.text, kind

    # -- lookahead and recovery ----------------------------------------------------------

    def _at_constraint(self) -> bool:
        if not self.at("@"):
            return False
        word = self.ahead()
        return (
            word.kind is Kind.IDENT
            and word.text in CONSTRAINT_WORDS
            and self.ahead(2).text == "("
            and self.ahead(2).kind is Kind.PUNCT
        )

    def _at_declaration(self) -> bool:
        """Whether a new declaration starts here; no property starts like one."""
        token = self.token
        if token.kind is not Kind.IDENT:
            return False
        if token.text in DECLARATION_WORDS:
            return self.ahead().kind is Kind.TYPE
        return False

    def _at_glued_declaration(self) -> bool:
        """Whether ``nodePerson {`` or ``edgeKnows: A -> B`` is here; only used in recovery."""
        text, after = self.token.text, self.ahead()
        if self.token.kind is not Kind.IDENT:
            return False
        for word in DECLARATION_WORDS:
            rest = text[len(word) :]
            if text.startswith(word) and rest[:1].isupper():
                if word == "edge":
                    return after.text == ":" and self.ahead(3).text == "->"
                return after.text in ("{", "implements")
        return False

    def _skip_to_declaration(self) -> None:
        while not self.at_kind(Kind.EOF):
            if self._at_declaration() or self._at_glued_declaration():
                return
            self.advance()

    def _skip_to_member(self) -> None:
        """Move to the next probable property or constraint, or to the end of the body."""
        depth = 0
        while not self.at_kind(Kind.EOF):
            if self._at_declaration() or self._at_constraint():
                return
            if self.at_kind(Kind.IDENT) and self.ahead().text == ":":
                return
            if self.at("{"):
                depth += 1
            elif self.at("}"):
                if depth == 0:
                    return
                depth -= 1
            self.advance()


def _capitalised(word: str) -> str:
    bare = word.lstrip("_")
    return bare[:1].upper() + bare[1:] if bare else "Name"
