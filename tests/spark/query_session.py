"""A session for tests of queries, which are many and small: nothing is compiled for them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from omnigraph.spark import SparkEngine

AT_ONCE = 4
"""A job of Spark takes a while whatever it does; so many queries are on their way together."""

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def quick_session(spark: SparkEngine) -> Any:
    """A session of the test process, as a user would hand it over."""
    if spark.is_connect:
        return spark.session
    session = spark.session.newSession()
    for name, value in _INTERPRETED.items():
        session.conf.set(name, value)
    return session


def both(graph: Any, session: Any, text: str, params: Any = None, **how: Any) -> tuple[Any, Any]:
    """The answers of Spark and of the embedded engine to one query, as tables."""
    declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in (params or {}).items())
    values = {name: value for name, (_, value) in (params or {}).items()}
    query = f"query q({declared}) {{ {text} }}"
    spark = graph.query(query, None, values, engine="spark", spark=session, **how)
    return spark.to_arrow(), graph.query(query, None, values, **how).to_arrow()


def same(graph: Any, session: Any, text: str, params: Any = None, **how: Any) -> list[Any]:
    """Ask both engines; the rows, in the order of the query if it has one.

    Sums are compared up to the last digits, which depend on the order of addition.
    """
    actual, expected = both(graph, session, text, params, **how)
    assert actual.schema == expected.schema, text
    rows, wanted = (_plain(table) for table in (actual, expected))
    if " order {" not in text:
        rows, wanted = sorted(rows, key=repr), sorted(wanted, key=repr)
    assert rows == wanted, text
    return rows


def all_same(graph: Any, session: Any, texts: Iterable[str], **how: Any) -> list[int]:
    """Ask both engines many queries; how many rows each has."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        rows = threads.map(lambda text: same(graph, session, text, **how), texts)
        return [len(actual) for actual in rows]


def _plain(table: Any) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(map(_rounded, row)) for row in zip(*columns, strict=True)]


def _rounded(value: Any) -> Any:
    return float(f"{value:.12g}") if isinstance(value, float) else value
