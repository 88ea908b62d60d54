"""``records.dataclass`` against ``dataclasses.dataclass``: the same class, compiled later."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import threading
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from omnigraph.records import dataclass


def define(decorator: Any) -> dict[str, type]:
    """The same classes by either decorator."""

    @decorator(frozen=True, slots=True)
    class Base:
        """A class with each form of field."""

        kind: ClassVar[str] = "base"
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: int = field(default=4, repr=False, compare=False)
        e: int = field(default=5, kw_only=True)
        f: int = field(default=6, init=False)
        g: int = field(default=7, hash=False)

    @decorator(frozen=True, slots=True)
    class Derived(Base):
        h: float = 0.5

        def __post_init__(self) -> None:
            object.__setattr__(self, "h", self.h * 2)

        def twice(self) -> int:
            return super().__sizeof__() and self.a * 2

    @decorator(frozen=True, slots=True)
    class Empty:
        pass

    @decorator(frozen=True, slots=True)
    class One:
        x: Any

    @decorator(frozen=True, slots=True, eq=False)
    class ByIdentity:
        x: int

    @decorator(frozen=True, slots=True)
    class OwnText:
        x: int

        def __repr__(self) -> str:
            return "own"

    @decorator(frozen=True, slots=True, order=True)
    class Ordered:
        x: int

    @decorator(slots=True)
    class Changing:
        x: int
        y: list[int] = field(default_factory=list)
        z: int = field(default=3, init=False)

    @decorator(slots=True, eq=False)
    class Counter:
        x: int = 0

    class Heir(One):
        pass

    made = (Base, Derived, Empty, One, ByIdentity, OwnText, Ordered, Changing, Counter, Heir)
    return {item.__name__: item for item in made}


OURS, STANDARD = define(dataclass), define(dataclasses.dataclass)
MADE = {
    "Base": [
        ((1,), {}),
        ((1, "x", [2]), {"e": 9, "d": 0}),
        ((), {}),
        ((1,), {"f": 2}),
        ((1,) * 7, {}),
    ],
    "Derived": [((1,), {"h": 2.0}), ((1, "b"), {}), ((), {"a": 1, "z": 2})],
    "Empty": [((), {}), ((1,), {})],
    "One": [((None,), {}), (([1],), {}), ((), {"x": 1})],
    "ByIdentity": [((1,), {})],
    "OwnText": [((1,), {})],
    "Ordered": [((1,), {})],
    "Changing": [((1,), {}), ((1, [2]), {}), ((1, [2], 3), {})],
    "Counter": [((), {}), ((1,), {})],
    "Heir": [((1,), {})],
}


def outcome(call: Any, *args: Any, **options: Any) -> Any:
    try:
        return call(*args, **options)
    except Exception as error:
        return type(error), str(error).replace(".<locals>", "")


@pytest.mark.parametrize("name", list(OURS))
def test_a_class_has_the_shape_that_the_standard_library_gives_it(name):
    ours, standard = OURS[name], STANDARD[name]
    assert [(f.name, f.type, f.kw_only) for f in fields(ours)] == [
        (f.name, f.type, f.kw_only) for f in fields(standard)
    ]
    assert ours.__match_args__ == standard.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(standard, "__slots__", None)
    assert repr(ours.__dataclass_params__) == repr(standard.__dataclass_params__)
    assert (ours.__hash__ is None) == (standard.__hash__ is None)
    assert str(inspect.signature(ours)) == str(inspect.signature(standard))
    assert inspect.get_annotations(ours.__init__) == inspect.get_annotations(standard.__init__)


CALLS = [(name, args, options) for name, calls in MADE.items() for args, options in calls]


@pytest.mark.parametrize(("name", "args", "options"), CALLS)
def test_an_object_behaves_as_one_of_the_standard_library(name, args, options):
    ours, standard = OURS[name], STANDARD[name]
    one, other = outcome(ours, *args, **options), outcome(standard, *args, **options)
    if isinstance(other, tuple):
        assert one == other
        return
    assert is_dataclass(one)
    assert repr(one) == repr(other)
    assert asdict(one) == asdict(other)
    assert (one == ours(*args, **options)) is (other == standard(*args, **options))
    assert (one == other, one != other, one == 5) == (False, True, False)
    assert outcome(same_hash, one) == outcome(same_hash, other)
    for change in ({}, {"x": 8}, {"a": 3}, {"f": 3}):
        assert outcome(changed, one, change) == outcome(changed, other, change)
    for name in ours.__match_args__:
        assert outcome(setattr, one, name, 1) == outcome(setattr, other, name, 1)
        assert outcome(delattr, one, name) == outcome(delattr, other, name)


def same_hash(value: Any) -> bool:
    return hash(value) == hash(copy.copy(value))


def changed(value: Any, change: dict[str, Any]) -> dict[str, Any]:
    return asdict(replace(value, **change))


@dataclass(frozen=True, slots=True)
class Kept:
    x: int
    y: tuple[str, ...] = ()


def test_objects_are_pickled_and_copied():
    kept = Kept(1, ("a",))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(kept, protocol)) == kept
    assert copy.deepcopy(kept) == kept
    assert copy.copy(kept) == kept


@pytest.mark.parametrize("name", ["x", "new"])
def test_nothing_can_be_assigned(name):
    with pytest.raises(FrozenInstanceError):
        setattr(Kept(1), name, 2)
    with pytest.raises(FrozenInstanceError):
        delattr(Kept(1), name)


def test_a_recursive_value_is_shown():
    one = OURS["One"]([])
    one.x.append(one)
    other = STANDARD["One"]([])
    other.x.append(other)
    assert repr(one) == repr(other)


def test_threads_make_the_first_object_at_once():
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            x: int
            y: int = 2

        start = threading.Barrier(4)
        made: list[Any] = []

        def make(cls: type = Fresh, start: Any = start, made: list[Any] = made) -> None:
            start.wait()
            made.append(cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Fresh(1, 2)] * 4


def inheriting(base: Any, decorator: Any, **options: Any) -> Any:
    @decorator(**options)
    class Heir(base):
        y: int = 2

    made = Heir(1)
    return repr(made), asdict(made), made == Heir(1), outcome(setattr, made, "y", 3)


HOW = [{"frozen": True, "slots": True}, {"slots": True}, {"frozen": True}, {}]


@pytest.mark.parametrize("of_base", HOW)
@pytest.mark.parametrize("options", HOW)
@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_a_class_inherits_as_in_the_standard_library(of_base, options, decorator):
    """Whichever of both is decorated here; a frozen one only from a frozen one."""

    def base(decorator: Any) -> Any:
        @decorator(**of_base)
        class Base:
            x: int

        return Base

    ours = outcome(inheriting, base(dataclass), decorator, **options)
    standard = dataclasses.dataclass
    assert ours == outcome(inheriting, base(standard), standard, **options)


def test_a_subclass_that_is_no_dataclass_has_attributes_of_its_own():
    class Wider(Kept):
        pass

    wider = Wider(1)
    wider.more = 2
    assert wider.more == 2
    del wider.more
    for change in (lambda: setattr(wider, "x", 2), lambda: delattr(wider, "x")):
        with pytest.raises(FrozenInstanceError):
            change()


def test_objects_that_init_did_not_make_are_compared_and_matched():
    """As after unpickling in a process that has made none."""
    made = []
    for _ in range(2):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            x: int
            y: int = 2

        one, other = Fresh.__new__(Fresh), Fresh.__new__(Fresh)
        for fresh in (one, other):
            for name in ("x", "y"):
                object.__setattr__(fresh, name, 1)
        made.append((one, other))
    assert made[0][0] == made[0][1]
    assert hash(made[1][0]) == hash(made[1][1])

    @dataclass(frozen=True, slots=True)
    class Matched:
        x: int
        y: int

    empty: Any = Matched.__new__(Matched)
    empty.__setstate__([1, 2])
    match empty:
        case Matched(x, y):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("not matched")


@pytest.mark.parametrize("default", [[], {}, set()])
def test_a_default_that_objects_would_share_is_refused_at_once(default):
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass(frozen=True, slots=True)
        class Shared:
            x: Any = default


def test_a_field_without_a_default_after_one_with_a_default_is_refused_at_the_first_use():
    @dataclass(frozen=True, slots=True)
    class Order:
        x: int = 0
        y: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="'y' follows default"):
        Order(1, 2)


def test_classes_that_differ_in_names_and_defaults_keep_their_own():
    @dataclass(slots=True)
    class First:
        _1: int
        _0: int = 5

    @dataclass(slots=True)
    class Second:
        self_: int
        _set: int = 6

    assert (First(1)._1, First(1)._0, First(_0=3, _1=2)._0) == (1, 5, 3)
    assert (Second(self_=1)._set, Second(1, 2)._set) == (6, 2)
    with pytest.raises(TypeError, match="'self_'"):
        Second()


def test_a_class_keeps_its_own_representation():
    @dataclass(frozen=True, slots=True)
    class Brief:
        x: int

        def __repr__(self) -> str:
            return f"<{self.x}>"

    assert (repr(Brief(1)), Brief(1) == Brief(1)) == ("<1>", True)


def test_other_forms_of_fields_are_left_to_the_standard_library():
    @dataclass(frozen=True, slots=True)
    class Forms:
        x: int
        start: dataclasses.InitVar[int]
        _: dataclasses.KW_ONLY
        y: int = 1

        def __post_init__(self, start: int) -> None:
            object.__setattr__(self, "x", start)

    assert asdict(Forms(1, 5, y=3)) == {"x": 5, "y": 3}


def test_every_record_of_the_package_is_well_defined():
    """A wrong definition is refused at the first use, which may be late."""
    import omnigraph

    checked = 0
    for name in sorted(omnigraph.__all__):
        value = getattr(omnigraph, name)
        checked += isinstance(value, type) and is_dataclass(value)
    for module in [m for n, m in sorted(sys.modules.items()) if n.startswith("omnigraph")]:
        for value in list(vars(module).values()):
            if isinstance(value, type) and is_dataclass(value):
                assert inspect.signature(value) is not None
                checked += 1
    assert checked > 200
