"""Finds the route of a path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from omnigraph.records import dataclass
from omnigraph.server import heads
from omnigraph.server.routes import Route

_REMEMBERED = 1024
"""How many paths are matched once only."""


class _PathNode:
    """The routes below one segment of a path."""

    __slots__ = ("literals", "methods", "parameter")

    def __init__(self) -> None:
        self.literals: dict[str, _PathNode] = {}
        self.parameter: _PathNode | None = None
        self.methods: dict[str, Route] = {}


@dataclass(frozen=True, slots=True)
class Match:
    """The routes at a path by method, and the values of its parameters."""

    methods: Mapping[str, Route]
    values: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The value of the header ``Allow``."""
        names = {*self.methods, *(["HEAD"] if "GET" in self.methods else [])}
        return ", ".join(sorted(names))

    def route(self, method: str) -> Route | None:
        """The route of a method; ``HEAD`` is that of ``GET``."""
        return self.methods.get("GET" if method == "HEAD" else method)


class RouteTable:
    """Finds the route of a path. A literal segment wins over a parameter.

    >>> from omnigraph.server.routes import ROUTES
    >>> table = RouteTable(ROUTES)
    >>> table.match(("graphs", "g", "branches", "a/b")).route("DELETE").operation_id
    'cluster_deleteBranch'
    >>> table.match(("graphs", "g", "branches", "merge")).allowed
    'POST'
    """

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._root = _PathNode()
        for route in routes:
            node = self._root
            for part in route.path.split("/")[1:]:
                if part.startswith("{"):
                    node.parameter = node.parameter or _PathNode()
                    node = node.parameter
                else:
                    node = node.literals.setdefault(part, _PathNode())
            node.methods[route.method] = route

        self.find = lru_cache(_REMEMBERED)(self._find)
        """The routes of an encoded path, if need be below a graph; ``None`` if there are none."""

    def _find(self, raw_path: bytes, only_graph: str | None) -> Match | None:
        segments = heads.segments_of(raw_path)
        match = self.match(segments)
        if match is None and only_graph is not None:
            match = self.match(("graphs", only_graph, *segments))
        return match

    def match(self, segments: tuple[str, ...]) -> Match | None:
        """The routes of a path, whose segments are decoded; ``None`` if there are none."""
        node: _PathNode | None = self._root
        values: list[str] = []
        for segment in segments:
            assert node is not None
            literal = node.literals.get(segment)
            if literal is None:
                if node.parameter is None or not segment:
                    return None
                values.append(segment)
            node = literal or node.parameter
        assert node is not None
        return Match(node.methods, tuple(values)) if node.methods else None
