"""Random schemas, and random lines for them: most of them good, some wrong in every way."""

from __future__ import annotations

import json
import string

from hypothesis import strategies as st

from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.types import INTEGER_RANGES, Scalar

# Names that mean something elsewhere: in records, in Python, in how decoders call their fields.
NAMES = ["from", "to", "type", "data", "edge", "class", "f0", "f1", "gc", "self", "name", "rank"]
TYPES = [
    "String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob",
    "enum(a, b)", "Vector(2)", "[String]", "[Bool]", "[I32]", "[U64]", "[F64]", "[Date]",
    "[DateTime]",
]  # fmt: skip
KEYS = ["String", "I64", "Bool", "F64", "Date", "DateTime", "U64"]


@st.composite
def catalogs(draw):
    """Two node types and an edge type; keys of any kind, of one column, of two, or none."""
    parts = [draw(_node("A")), draw(_node("B"))]
    properties = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    fields = "  ".join(draw(_property(name)) for name in properties)
    return compile_schema("\n".join([*parts, f"edge E: A -> B {{ {fields} }}"]))


@st.composite
def _node(draw, name):
    keys = [f"k{n}" for n in range(draw(st.integers(0, 2)))]
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    fields = [f"{key}: {draw(st.sampled_from(KEYS))}" for key in keys]
    fields += [draw(_property(item)) for item in names]
    fields += [f"@key({', '.join(keys)})"] if keys else []
    if draw(st.booleans()):
        fields += ["most: I32?", "@range(most, 0..9)", "mail: String?", '@check(mail, "@")']
    return f"node {name} {{ {'  '.join(fields)} }}"


@st.composite
def _property(draw, name):
    return f"{name}: {draw(st.sampled_from(TYPES))}{draw(st.sampled_from(['?', '?', '']))}"


# -- values as texts of JSON ------------------------------------------------------------------

texts = st.sampled_from(["", "a", "b", "@", '":', "x :", '"', "\\", "é☃𝄞", "\n", "2024-05-01", "1"])
texts |= st.text(st.characters(codec="utf-8"), max_size=5)
floats = st.floats(allow_nan=False, allow_infinity=False).map(repr)
days = st.dates().map(str)
moments = st.datetimes().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))
zones = st.sampled_from(["", "Z", "+02:00"])
spelled_moments = st.builds(lambda at, zone: at.isoformat() + zone, moments, zones)
numbers = st.sampled_from(
    [
        "0", "-0", "-0.0", "5.0", "1e3", "1E400", "1e-400", "0.99999999999999999999", "2.5",
        "9007199254740993", "18446744073709551616", "-9223372036854775809", "3.5e38", "1" * 400,
        "123456789012345678901234567890", "NaN", "Infinity", "01", "1.", "+1", "-",
    ]
)  # fmt: skip


def quoted(text):
    return json.dumps(text)


def _integers(scalar):
    low, high = INTEGER_RANGES[scalar]
    return (st.integers(0, 9) | st.integers(low, high)).map(str)


_PLAIN = {
    Scalar.STRING: texts.map(quoted),
    Scalar.BOOL: st.sampled_from(["true", "false"]),
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
    | st.integers(-9, 9).map(str),
    Scalar.F64: floats | st.integers(-9, 9).map(str),
    Scalar.DATE: days.map(quoted) | st.integers(-9, 9).map(str),
    Scalar.DATETIME: spelled_moments.map(quoted) | st.integers(-9, 9).map(str),
    Scalar.BLOB: st.sampled_from(['"base64:aGk="', '"base64:"']),
}
_PLAIN |= {scalar: _integers(scalar) for scalar in INTEGER_RANGES}

odd_values = st.recursive(
    numbers
    | texts.map(quoted)
    | st.sampled_from(["null", "true", "1", '"\\ud800"', '"\\u0041"', '"\\x"', "{}", "[]", '"']),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{','.join(items)}]")
        | inner.map(lambda item: f'{{"a":{item},"a":1}}')
    ),
    max_leaves=3,
)


@st.composite
def good_value(draw, type_):
    if type_.nullable and draw(st.booleans()):
        return "null"
    if type_.scalar is Scalar.VECTOR:
        return f"[{draw(st.integers(1, 9))}, {draw(_PLAIN[Scalar.F32])}]"
    item = _PLAIN[type_.scalar]
    if type_.enum_values:
        item = st.sampled_from(type_.enum_values).map(quoted)
    if type_.is_list:
        return f"[{', '.join(draw(st.lists(item, max_size=3)))}]"
    return draw(item)


# -- lines ------------------------------------------------------------------------------------

_MARKS = st.sampled_from([": "] * 12 + [":", " :", "\t: "])


@st.composite
def _object(draw, pairs):
    """An object of names and texts of values."""
    mark = draw(_MARKS)
    comma = draw(st.sampled_from([", ", ","]))
    return "{" + comma.join(f"{quoted(name)}{mark}{value}" for name, value in pairs) + "}"


@st.composite
def records(draw, catalog, flaws):
    """A record of some type; with flaws, some of them are wrong."""
    kinds = {**catalog.node_types, **catalog.edge_types}
    name = draw(st.sampled_from(sorted(kinds)))
    kind = kinds[name]
    data = []
    for prop in kind.properties.values():
        if not prop.type.nullable or draw(st.booleans()):
            data.append((prop.name, draw(good_value(prop.type))))
    if draw(st.integers(0, 4)) == 0:
        data.append(("id", draw(st.sampled_from(['"i"', '"j"', "null", "7", '""', '"1"']))))
    head = [("edge" if name == "E" else "type", quoted(name))]
    if name == "E":
        head += [("from", draw(texts.map(quoted))), ("to", draw(texts.map(quoted)))]
    if draw(st.integers(0, 4)) == 0:
        head.append(("id", draw(st.sampled_from(['"i"', '"j"', '""', '"1"']))))
    for pairs in (data, head) if flaws and draw(st.integers(0, 5)) == 0 else ():
        for _ in range(draw(st.integers(0, 1))):
            _spoil(draw, pairs)
    if data or draw(st.booleans()):
        head.insert(draw(st.integers(0, len(head))), ("data", draw(_object(data))))
    return draw(_object(head))


def _spoil(draw, pairs):
    existing = [name for name, _ in pairs] or ["none"]
    name = draw(st.sampled_from([*existing, *existing, "odd", "id", "from", "edge"]))
    match draw(st.integers(0, 3)):
        case 0 if pairs:
            del pairs[draw(st.integers(0, len(pairs) - 1))]
        case 1 if pairs:
            pairs[draw(st.integers(0, len(pairs) - 1))] = (name, draw(odd_values))
        case _:
            pairs.append((name, draw(odd_values)))


_ENDS = st.sampled_from(["\n"] * 40 + ["\r\n", "\n\n", " \n", "", " ", ",\n"])
_RAW = st.sampled_from(
    [b"", b"\xef\xbb\xbf", b"\xff", b"{", b"}", b'"', b"null\n", b'{"type": "A", "data":\n{}\n}\n']
)


@st.composite
def streams(draw, catalog):
    """The bytes of a file: mostly one record a line."""
    flaws = draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    actual = b""
    for record in draw(st.lists(records(catalog, flaws), max_size=14)):
        actual += record.encode("utf-8", "surrogatepass") + (draw(_ENDS) if flaws else end).encode()
        if flaws and draw(st.integers(0, 15)) == 0:
            actual += draw(_RAW)
    return actual if draw(st.booleans()) else actual.rstrip(b"\r\n")


def is_new_id(text):
    """Whether an id was made for its row, and no record named it."""
    return len(text) == 26 and set(text) <= set(string.digits + string.ascii_uppercase)
