"""Draws the nodes and edges of a result as SVG.

The layout is force-directed and starts from fixed positions, so the same rows always give the same
picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.records import dataclass
from omnigraph.result.columns import Link, ResultColumn
from omnigraph.result.frames import node_columns

_MOST_NODES = 40
_MOST_EDGES = 120
_WIDTH, _HEIGHT, _MARGIN = 520, 340, 44
_RADIUS = 9
_ROUNDS = 120
_LABEL = 16
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#d67195")
_STROKES = ("#8a8f98", "#c08a3e", "#6f9e6b", "#a07f9b", "#b56b6b", "#6a9c98")

Node = tuple[str, str]
Positions = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Scene:
    """The distinct nodes and edges to draw, in the order of the rows."""

    nodes: dict[Node, int] = field(default_factory=dict)
    edges: dict[tuple[int, int, str], None] = field(default_factory=dict)
    left_out: bool = False


def draw(
    columns: Sequence[ResultColumn], links: Sequence[Link], rows: Sequence[tuple[Any, ...]]
) -> str:
    """The picture of the first nodes and edges; empty if no node was returned."""
    scene = _scene(columns, links, rows)
    if not scene.nodes:
        return ""
    pairs = [(src, dst) for src, dst, _ in scene.edges]
    positions = _layout(len(scene.nodes), pairs)
    colours = _assign((type_name for type_name, _ in scene.nodes), _COLOURS)
    strokes = _assign((edge_type for _, _, edge_type in scene.edges), _STROKES)
    parts = [
        _edge(positions, src, dst, edge_type, strokes[edge_type], (dst, src) in pairs)
        for src, dst, edge_type in scene.edges
    ]
    parts += [_node(positions[at], node, colours[node[0]]) for node, at in scene.nodes.items()]
    return (
        f'<figure style="margin:0"><svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="10" fill="currentColor">'
        f"<title>{len(scene.nodes)} nodes, {len(scene.edges)} edges</title>"
        f"{''.join(parts)}</svg>{_legend(scene, colours, strokes)}</figure>"
    )


def _scene(
    columns: Sequence[ResultColumn], links: Sequence[Link], rows: Sequence[tuple[Any, ...]]
) -> _Scene:
    types = node_columns(columns)
    scene = _Scene()
    for row in rows:
        here: dict[int, int] = {}
        for position, type_name in types.items():
            node = type_name, str(row[position])
            if node not in scene.nodes and len(scene.nodes) >= _MOST_NODES:
                scene.left_out = True
                continue
            here[position] = scene.nodes.setdefault(node, len(scene.nodes))
        for link in links:
            if link.src not in here or link.dst not in here:
                continue
            edge = here[link.src], here[link.dst], link.edge_type
            if edge not in scene.edges and len(scene.edges) >= _MOST_EDGES:
                scene.left_out = True
            else:
                scene.edges.setdefault(edge)
    return scene


def _assign(names: Any, colours: tuple[str, ...]) -> dict[str, str]:
    return {name: colours[at % len(colours)] for at, name in enumerate(dict.fromkeys(names))}


# -- positions -----------------------------------------------------------------------------------


def _layout(count: int, edges: Sequence[tuple[int, int]]) -> Positions:
    """A force-directed layout (Fruchterman-Reingold) with a fixed number of steps."""
    angles = np.arange(count) * math.pi * (3 - math.sqrt(5))
    spread = np.sqrt((np.arange(count) + 0.5) / count)
    positions: Positions = np.stack([spread * np.cos(angles), spread * np.sin(angles)], axis=1)
    if count > 1:
        ends = np.array([pair for pair in edges if pair[0] != pair[1]], np.intp).reshape(-1, 2)
        wanted = 1.6 / math.sqrt(count)
        for heat in np.linspace(0.2, 0.005, _ROUNDS):
            positions += _step(positions, ends, wanted, float(heat))
    return _fitted(positions)


def _step(
    positions: Positions, ends: npt.NDArray[np.intp], wanted: float, heat: float
) -> Positions:
    offsets = positions[:, None, :] - positions[None, :, :]
    distance = np.maximum(np.linalg.norm(offsets, axis=2), 1e-3)
    force: Positions = (offsets * (wanted**2 / distance**2)[:, :, None]).sum(axis=1)
    pull = positions[ends[:, 0]] - positions[ends[:, 1]]
    pull *= np.linalg.norm(pull, axis=1, keepdims=True) / wanted
    np.subtract.at(force, ends[:, 0], pull)
    np.add.at(force, ends[:, 1], pull)
    force -= positions * 0.4  # disconnected parts would drift apart
    size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
    moved: Positions = force / size * np.minimum(size, heat)
    return moved


def _fitted(positions: Positions) -> Positions:
    """The positions scaled to the picture, with room for the labels."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    box = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    extent = np.where(high - low > 1e-9, high - low, np.inf)
    # Almost the same scale in both directions: a little stretch keeps a path from becoming a ball.
    scale = np.minimum(box / extent, 1.6 * (box / extent).min())
    scale = np.where(np.isfinite(extent), scale, 0)
    centre = np.array([_WIDTH, _HEIGHT]) / 2
    fitted: Positions = centre + (positions - (low + high) / 2) * scale
    return fitted


# -- shapes ---------------------------------------------------------------------------------------


def _node(position: Positions, node: Node, colour: str) -> str:
    type_name, id_ = node
    x, y = position
    label = id_ if len(id_) <= _LABEL else id_[: _LABEL - 1] + "…"
    return (
        f"<g><title>{escape(type_name)} {escape(id_)}</title>"
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" fill="{colour}"/>'
        f'<text x="{x:.1f}" y="{y + _RADIUS + 11:.1f}" text-anchor="middle">{escape(label)}</text>'
        "</g>"
    )


def _edge(positions: Positions, src: int, dst: int, label: str, stroke: str, bent: bool) -> str:
    title = f"<title>{escape(label)}</title>"
    pen = f'fill="none" stroke="{stroke}" stroke-width="1.3"'
    if src == dst:
        x, y = positions[src]
        loop = (
            f"M {x - 5:.1f} {y - 7:.1f} C {x - 22:.1f} {y - 34:.1f} "
            f"{x + 22:.1f} {y - 34:.1f} {x + 6:.1f} {y - 8.5:.1f}"
        )
        tip = _arrow(x + 5, y - 7.5, -0.53, 0.85, stroke)
        return f'<g>{title}<path d="{loop}" {pen}/>{tip}</g>'
    start, end = positions[src], positions[dst]
    along = end - start
    length = max(float(np.hypot(*along)), 1e-6)
    side = np.array([-along[1], along[0]]) / length
    # Two edges between one pair are bent, each to the left of its own direction.
    control = (start + end) / 2 + side * (min(0.18 * length, 26) if bent else 0)
    heading = end - control
    heading /= max(float(np.hypot(*heading)), 1e-6)
    leaving = control - start
    leaving /= max(float(np.hypot(*leaving)), 1e-6)
    first, last = start + leaving * _RADIUS, end - heading * (_RADIUS + 5)
    path = (
        f"M {first[0]:.1f} {first[1]:.1f} Q {control[0]:.1f} {control[1]:.1f} "
        f"{last[0]:.1f} {last[1]:.1f}"
    )
    tip = end - heading * (_RADIUS + 1)
    head = _arrow(tip[0], tip[1], heading[0], heading[1], stroke)
    return f'<g>{title}<path d="{path}" {pen}/>{head}</g>'


def _arrow(x: float, y: float, dx: float, dy: float, colour: str) -> str:
    """An arrowhead with its tip at (x, y). SVG markers need ids, which may clash in a notebook."""
    left = f"{x - 7 * dx - 3 * dy:.1f},{y - 7 * dy + 3 * dx:.1f}"
    right = f"{x - 7 * dx + 3 * dy:.1f},{y - 7 * dy - 3 * dx:.1f}"
    return f'<polygon points="{x:.1f},{y:.1f} {left} {right}" fill="{colour}"/>'


def _legend(scene: _Scene, colours: dict[str, str], strokes: dict[str, str]) -> str:
    entries = [(name, colour, "●") for name, colour in colours.items()]
    entries += [(name, stroke, "→") for name, stroke in strokes.items()]
    texts = [
        f'<span style="white-space:nowrap"><span style="color:{colour}">{sign}</span> '
        f"{escape(name)}</span>"
        for name, colour, sign in entries
    ]
    if scene.left_out:
        texts.append(f"the first {len(scene.nodes)} nodes")
    return f'<figcaption style="font-size:smaller">{" &nbsp; ".join(texts)}</figcaption>'
