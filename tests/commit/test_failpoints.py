"""The catalogue of failpoints and the code that crosses them agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.commit import failpoints
from omnigraph.commit.failpoints import Failpoint, hooked, install, reached
from tests.architecture_rules import Module, modules_under

SRC = Path(__file__).parents[2] / "src"
CATALOGUE = failpoints.__name__


def calls_of_reached(module: Module) -> Iterator[tuple[int, str | None]]:
    """Line and member name of every call; ``None`` when the call names no member."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "reached":
            yield node.lineno, member_named_by(node)


def member_named_by(call: ast.Call) -> str | None:
    """The ``X`` of ``reached(Failpoint.X)``."""
    if len(call.args) != 1 or call.keywords:
        return None
    match call.args[0]:
        case ast.Attribute(ast.Name("Failpoint") | ast.Attribute(attr="Failpoint"), attr=name):
            return name if name in Failpoint.__members__ else None
    return None


def all_calls() -> list[tuple[str, str | None]]:
    return [
        (f"{module.name}, line {line}", name)
        for module in modules_under(SRC)
        if module.name != CATALOGUE and "failpoints" in module.text
        for line, name in calls_of_reached(module)
    ]


def test_every_failpoint_is_crossed_somewhere():
    passed = {name for _, name in all_calls()}
    nowhere = [str(point) for point in Failpoint if point.name not in passed]
    assert not nowhere, f"crossed nowhere: {', '.join(nowhere)}"


def test_every_call_names_a_member_of_the_catalogue():
    assert [where for where, name in all_calls() if name is None] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reached(Failpoint.PUBLISH_AFTER)", "PUBLISH_AFTER"),
        ("failpoints.reached(failpoints.Failpoint.PUBLISH_AFTER)", "PUBLISH_AFTER"),
        ("reached(Failpoint.NO_SUCH_PLACE)", None),
        ("reached('publish.after')", None),
        ("reached(Failpoint('publish.after'))", None),
        ("reached(point)", None),
        ("reached()", None),
    ],
)
def test_a_call_must_spell_out_the_member(text, expected):
    assert [name for _, name in calls_of_reached(Module("omnigraph.x", text))] == [expected]


def test_names_follow_their_values():
    assert [point.name for point in Failpoint] == [
        point.value.replace(".", "_").upper() for point in Failpoint
    ]


def test_every_failpoint_says_in_one_line_what_is_true_there():
    tree = ast.parse(Path(failpoints.__file__).read_text("utf-8"))
    body = next(
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Failpoint"
    )
    undescribed = []
    for member, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(member, ast.Assign):
            continue
        match after:
            case ast.Expr(ast.Constant(str(text))) if text and "\n" not in text:
                continue
        undescribed.append(ast.unparse(member))
    assert undescribed == []


def test_without_a_hook_nothing_happens():
    assert reached(Failpoint.WRITE_AFTER_SIDECAR) is None


def test_a_hook_sees_the_points_in_order_until_its_block_ends():
    passed: list[Failpoint] = []
    with hooked(passed.append):
        reached(Failpoint.WRITE_AFTER_SIDECAR)
        reached(Failpoint.WRITE_AFTER_TABLES)
    reached(Failpoint.WRITE_AFTER_PUBLISH)
    assert passed == [Failpoint.WRITE_AFTER_SIDECAR, Failpoint.WRITE_AFTER_TABLES]


def test_an_inner_hook_gives_way_to_the_outer_one_even_after_an_error():
    outer: list[Failpoint] = []

    def fail(point: Failpoint) -> None:
        raise LookupError(point)

    with hooked(outer.append):
        with pytest.raises(LookupError), hooked(fail):
            reached(Failpoint.TAG_BEFORE_WRITE)
        reached(Failpoint.PUBLISH_AFTER)
    assert outer == [Failpoint.PUBLISH_AFTER]


def test_an_installed_hook_stays_until_it_is_taken_out():
    passed: list[Failpoint] = []
    install(passed.append)
    try:
        reached(Failpoint.PUBLISH_AFTER)
    finally:
        install(None)
    reached(Failpoint.PUBLISH_AFTER)
    assert passed == [Failpoint.PUBLISH_AFTER]
