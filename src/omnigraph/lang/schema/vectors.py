"""``@vector``: the distance metric and the index of a vector property.

``@vector("cosine", method="ivf_sq", partitions=256, probes=20)``. The value is the metric; the
keywords configure the index and have defaults. Other programs ignore the annotation, so their
graphs may have any values: only a new schema is refused for invalid ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lang.closest import did_you_mean
from omnigraph.lang.diagnostics import SchemaReport, Source
from omnigraph.lang.schema.ast import Annotation, PropertyDecl, SchemaFile
from omnigraph.lang.types import MOST_DIMENSIONS, PropType
from omnigraph.records import dataclass

VECTOR = "vector"
METRICS = ("cosine", "l2", "dot")
EXACT_METHOD = "ivf_flat"
METHODS = (EXACT_METHOD, "ivf_sq", "ivf_pq")
MOST_PARTITIONS = 65_536

_NUMBERS = ("partitions", "sub_vectors", "probes")
_KEYWORDS = ("method", *_NUMBERS)


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """The options of a ``@vector``; ``None`` for those that are not set."""

    metric: str = METRICS[0]
    method: str | None = None
    partitions: int | None = None
    sub_vectors: int | None = None
    probes: int | None = None
    """The number of partitions that a search probes at first; ``None`` probes all."""


class VectorOptionError(ValueError):
    """An invalid ``@vector``; the message shows the correct syntax."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def vector_options(kind: PropType, annotation: Annotation | None) -> VectorOptions:
    """Read the annotation of a property; raises ``VectorOptionError``.

    >>> from omnigraph.lang.types import Scalar
    >>> kind = PropType(Scalar.VECTOR, dimension=8)
    >>> said = Annotation("vector", "l2", (("method", "ivf_pq"), ("sub_vectors", "4")))
    >>> options = vector_options(kind, said)
    >>> (options.metric, options.method, options.sub_vectors, options.probes)
    ('l2', 'ivf_pq', 4, None)
    """
    if annotation is None:
        return VectorOptions()
    if not kind.is_vector or kind.is_list:
        raise VectorOptionError(f"it is for vectors, and this is {kind}")
    metric = (annotation.value or METRICS[0]).lower()
    if metric not in METRICS:
        raise VectorOptionError(
            f"unknown metric '{annotation.value}'", f"the metrics are {', '.join(METRICS)}"
        )
    words = dict(annotation.kwargs)
    for word in words:
        if word not in _KEYWORDS:
            keywords = f"the keywords are {', '.join(_KEYWORDS)}"
            raise VectorOptionError(
                f"unknown keyword '{word}='", did_you_mean(word, _KEYWORDS) or keywords
            )
    method = words.get("method")
    if method is not None:
        method = method.lower()
        if method not in METHODS:
            raise VectorOptionError(
                f"unknown method '{words['method']}'", f"the methods are {', '.join(METHODS)}"
            )
    partitions, sub_vectors, probes = (_number(words, word) for word in _NUMBERS)
    _check_sub_vectors(kind, method, sub_vectors)
    if partitions is not None and probes is not None and probes > partitions:
        raise VectorOptionError(f"{probes} probes are more than its {partitions} partitions")
    return VectorOptions(metric, method, partitions, sub_vectors, probes)


def _number(words: Mapping[str, str], word: str) -> int | None:
    text = words.get(word)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MOST_PARTITIONS:
        raise VectorOptionError(
            f"'{word}' is '{text}'", f"write a whole number from 1 to {MOST_PARTITIONS}"
        )
    return int(text)


def _check_sub_vectors(kind: PropType, method: str | None, sub_vectors: int | None) -> None:
    if sub_vectors is None:
        return
    if method != "ivf_pq":
        raise VectorOptionError(
            "'sub_vectors' is only for method 'ivf_pq'", 'add method="ivf_pq" or leave it out'
        )
    if (kind.dimension or 0) % sub_vectors:
        raise VectorOptionError(
            f"{sub_vectors} sub-vectors do not divide {kind.dimension} dimensions evenly",
            f"choose a divisor of {kind.dimension}",
        )


def check_vectors(file: SchemaFile, source: Source) -> SchemaReport:
    """Findings about the vectors of a new schema and their ``@vector``."""
    report = SchemaReport(source)
    for declaration in file.declarations:
        for prop in declaration.properties:
            _check(report, declaration.name, prop)
    return report


def _check(report: SchemaReport, owner: str, prop: PropertyDecl) -> None:
    if prop.type.is_vector and (prop.type.dimension or 0) > MOST_DIMENSIONS:
        report.parse(
            "S004",
            f"Vector dimension {prop.type.dimension} exceeds maximum supported {MOST_DIMENSIONS}",
            prop.type_span,
            "every row takes 4 bytes a dimension, also where the vector is null",
        )
    annotations = [annotation for annotation in prop.annotations if annotation.name == VECTOR]
    where = f"{owner}.{prop.name}"
    for annotation in annotations[1:]:
        report.parse("S027", f"property {where} declares @vector multiple times", annotation.span)
    for annotation in annotations:
        try:
            vector_options(prop.type, annotation)
        except VectorOptionError as error:
            report.parse("S034", f"@vector on {where}: {error}", annotation.span, error.hint)
