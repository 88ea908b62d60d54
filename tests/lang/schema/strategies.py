"""Random schema trees: well-formed ones, and ones that read well but mean nothing."""

from __future__ import annotations

from hypothesis import strategies as st

from omnigraph.lang.schema.ast import (
    Annotation,
    ArgKind,
    Cardinality,
    CheckConstraint,
    Declaration,
    EdgeDecl,
    IndexConstraint,
    InterfaceDecl,
    KeyConstraint,
    Member,
    NodeDecl,
    PropertyDecl,
    RangeConstraint,
    Ref,
    SchemaFile,
    UniqueConstraint,
)
from omnigraph.lang.types import SCALAR_NAMES, PropType, Scalar

WORDS = ["type", "kind", "when", "from", "to", "node", "edge", "enum", "query", "blob", "_x", "a1"]
names = st.sampled_from(WORDS) | st.from_regex(r"[a-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
# `true` and `false` are literals wherever a name could stand.
argument_names = names.filter(lambda name: name not in ("true", "false"))
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
enum_values = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)

_SCALARS = [scalar for name, scalar in SCALAR_NAMES.items() if name != "Blob"]


@st.composite
def types(draw: st.DrawFn) -> PropType:
    nullable = draw(st.booleans())
    shape = draw(st.sampled_from(["plain", "plain", "list", "enum", "vector", "blob"]))
    if shape == "enum":
        values = draw(st.lists(enum_values, min_size=1, max_size=12, unique=True))
        return PropType(Scalar.STRING, nullable, enum_values=tuple(values))
    if shape == "vector":
        return PropType(Scalar.VECTOR, nullable, dimension=draw(st.integers(1, 2_147_483_647)))
    if shape == "blob":
        return PropType(Scalar.BLOB, nullable)
    return PropType(draw(st.sampled_from(_SCALARS)), nullable, is_list=shape == "list")


@st.composite
def arguments(draw: st.DrawFn, *, bare: bool) -> tuple[str, ArgKind]:
    kinds = [ArgKind.STRING, ArgKind.INTEGER, ArgKind.FLOAT, ArgKind.BOOLEAN]
    kind = draw(st.sampled_from([*kinds, ArgKind.IDENT] if bare else kinds))
    if kind is ArgKind.STRING:
        return draw(texts), kind
    if kind is ArgKind.INTEGER:
        return draw(st.from_regex(r"[0-9]{1,6}", fullmatch=True)), kind
    if kind is ArgKind.FLOAT:
        return draw(st.from_regex(r"[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True)), kind
    if kind is ArgKind.BOOLEAN:
        return draw(st.sampled_from(["true", "false"])), kind
    return draw(argument_names), kind


@st.composite
def annotation_nodes(draw: st.DrawFn) -> Annotation:
    existing = ["key", "unique", "index"]
    name = draw(st.sampled_from(["description", "embed", "rename_from", *existing]) | names)
    if name == "card":
        name = "cards"
    if name in (*existing, "range", "check") or draw(st.booleans()):
        return Annotation(name)
    value, kind = draw(arguments(bare=True))
    keywords = draw(st.dictionaries(names, arguments(bare=False), max_size=2))
    ordered = sorted(keywords)
    kwargs = tuple((key, keywords[key][0]) for key in ordered)
    return Annotation(name, value, kwargs, (kind, *(keywords[key][1] for key in ordered)))


@st.composite
def properties(draw: st.DrawFn) -> PropertyDecl:
    actual = draw(st.lists(annotation_nodes(), max_size=3))
    return PropertyDecl(draw(names), draw(types()), tuple(actual))


bounds = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
columns = st.lists(argument_names, min_size=1, max_size=3).map(tuple)


@st.composite
def ranges(draw: st.DrawFn) -> RangeConstraint:
    low, high = draw(st.none() | bounds), draw(st.none() | bounds)
    if low is None and high is None:
        low = 0
    return RangeConstraint(draw(argument_names), low, high)


constraints = (
    st.builds(KeyConstraint, columns)
    | st.builds(UniqueConstraint, columns)
    | st.builds(IndexConstraint, columns)
    | ranges()
    | st.builds(CheckConstraint, argument_names, texts)
)


@st.composite
def members(draw: st.DrawFn) -> tuple[Member, ...]:
    return tuple(draw(st.lists(properties() | constraints, max_size=5)))


@st.composite
def edges(draw: st.DrawFn) -> EdgeDecl:
    cardinality = None
    if draw(st.booleans()):
        least = draw(st.integers(0, 5))
        cardinality = Cardinality(least, draw(st.none() | st.integers(least, 2**32 - 1)))
    body = draw(members()) if draw(st.booleans()) else None
    actual = tuple(draw(st.lists(annotation_nodes(), max_size=2)))
    source, target = Ref(draw(type_names)), Ref(draw(type_names))
    return EdgeDecl(draw(type_names), source, target, cardinality, members=body, annotations=actual)


@st.composite
def nodes(draw: st.DrawFn) -> NodeDecl:
    implements = tuple(Ref(name) for name in draw(st.lists(type_names, max_size=2)))
    actual = tuple(draw(st.lists(annotation_nodes(), max_size=2)))
    return NodeDecl(draw(type_names), implements, members=draw(members()), annotations=actual)


@st.composite
def interfaces(draw: st.DrawFn) -> InterfaceDecl:
    return InterfaceDecl(draw(type_names), members=tuple(draw(st.lists(properties(), max_size=3))))


@st.composite
def odd_files(draw: st.DrawFn) -> SchemaFile:
    """Trees that can be written and read, whether or not they mean something."""
    return SchemaFile(tuple(draw(st.lists(nodes() | edges() | interfaces(), max_size=4))))


# -- valid schemas ------------------------------------------------------------------------------

_plain_names = names.filter(lambda n: n not in ("id", "src", "dst") and not n.startswith("_row"))


@st.composite
def _valid_members(draw: st.DrawFn, *, edge: bool) -> tuple[Member, ...]:
    actual: list[Member] = []
    used = draw(st.lists(_plain_names, min_size=1, max_size=5, unique=True))
    for name in used:
        prop_type = draw(types())
        notes: list[Annotation] = []
        if prop_type.is_plain and draw(st.booleans()):
            notes.append(Annotation(draw(st.sampled_from(["index", "unique"]))))
        if draw(st.booleans()):
            notes.append(Annotation("description", "what it is", (), (ArgKind.STRING,)))
        actual.append(PropertyDecl(name, prop_type, tuple(notes)))
    plain = [m for m in actual if isinstance(m, PropertyDecl) and m.type.is_plain]
    required = [m for m in plain if not m.type.nullable]
    if required and not edge and draw(st.booleans()):
        keys = draw(st.lists(st.sampled_from(required), min_size=1, max_size=2, unique=True))
        actual.append(KeyConstraint(tuple(m.name for m in keys)))
    for prop in plain:
        if prop.type.scalar.is_numeric and not edge and draw(st.booleans()):
            actual.append(
                RangeConstraint(prop.name, draw(st.integers(-5, 0)), draw(st.none() | st.just(9.5)))
            )
    return tuple(draw(st.permutations(actual)))


@st.composite
def valid_files(draw: st.DrawFn) -> SchemaFile:
    """Trees that compile."""
    node_names = draw(st.lists(type_names, min_size=1, max_size=4, unique=True))
    edge_names = draw(st.lists(type_names, max_size=3, unique_by=str.lower))
    actual: list[Declaration] = [
        NodeDecl(n, members=draw(_valid_members(edge=False))) for n in node_names
    ]
    ends = st.sampled_from(node_names)
    for name in edge_names:
        body = draw(st.none() | _valid_members(edge=True))
        actual.append(EdgeDecl(name, Ref(draw(ends)), Ref(draw(ends)), members=body))
    return SchemaFile(tuple(draw(st.permutations(actual))))
