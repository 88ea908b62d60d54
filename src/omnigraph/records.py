"""``dataclass`` with an ``__init__`` that is compiled when the first object is created.

``dataclasses.dataclass`` compiles up to seven functions per class while its module is imported. A
process that opens a graph and runs one query imports some two hundred classes and creates objects
of a few dozen: compiling all of them takes longer than the query. Here a frozen class with slots
gets its fields and slots from the standard library, compiles its ``__init__`` at the first use, and
shares the code of its other methods. Every other class is created by the standard library.
``dataclasses.fields``, ``replace``, ``asdict`` and pickling work as usual.

>>> @dataclass(frozen=True, slots=True)
... class Point:
...     x: int
...     y: int = 0
>>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1))
(Point(x=1, y=0), True, True)
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field
    from dataclasses import dataclass as dataclass
    from typing import Any

_OWN = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")


class _Factory:
    """The default in a signature if a factory function creates the value."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _CompiledInit:
    """A placeholder for the ``__init__`` of a class, compiled at its first lookup."""

    __slots__ = ("owner",)

    def __init__(self, owner: type) -> None:
        self.owner = owner

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        # Two threads that get here at the same time compile the same function.
        compiled = _compile_init(self.owner)
        setattr(self.owner, "__init__", compiled)  # noqa: B010 - mypy forbids the assignment
        return compiled.__get__(instance, owner)


def _compile_init(cls: Any) -> Callable[..., None]:
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": _FACTORY}
    types: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = field.name
        has_factory = field.default_factory is not dataclasses.MISSING
        if has_factory:
            names[f"_make_{name}"] = field.default_factory
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
        if not field.init:
            if has_factory:
                body.append(f"_set(self, {name!r}, _make_{name}())")
            elif f"_default_{name}" in names:
                body.append(f"_set(self, {name!r}, _default_{name})")
            continue
        types[name] = field.type
        parameter, value = name, name
        if has_factory:
            parameter = f"{name}=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif f"_default_{name}" in names:
            parameter = f"{name}=_default_{name}"
        (keywords if field.kw_only else positional).append(parameter)
        body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *keywords] if keywords else [])]
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
    exec(text, names)
    compiled: Callable[..., None] = names["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    compiled.__module__ = cls.__module__
    compiled.__annotations__ = {**types, "return": None}
    return compiled


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of some attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda self: ()
    (name,) = names
    return lambda self: (getattr(self, name),)


def _add_comparison(cls: Any, fields: tuple[Field[Any], ...]) -> None:
    compared = _values_of(tuple(field.name for field in fields if field.compare))
    in_hash = [field for field in fields if (field.compare if field.hash is None else field.hash)]
    hashed = _values_of(tuple(field.name for field in in_hash))

    def equals(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return compared(self) == compared(other)
        return NotImplemented

    def hash_values(self: object) -> int:
        return hash(hashed(self))

    cls.__eq__ = equals
    cls.__hash__ = hash_values


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _add_freezing(cls: Any, names: frozenset[str]) -> None:
    def refuse_setting(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_deleting(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__ = refuse_setting
    cls.__delattr__ = refuse_deleting


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _frozen_record(cls: type, *, eq: bool) -> type:
    is_documented = bool(cls.__doc__)
    if not is_documented:
        # Otherwise the standard library would compute a signature.
        cls.__doc__ = cls.__name__
    record: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    fields = dataclasses.fields(record)
    if not is_documented:
        record.__doc__ = f"{cls.__name__}({', '.join(field.name for field in fields)})"
    record.__init__ = _CompiledInit(record)
    record.__repr__ = _repr
    if eq:
        _add_comparison(record, fields)
    _add_freezing(record, frozenset(field.name for field in fields))
    if "__getstate__" not in cls.__dict__:
        record.__getstate__ = _get_state
    if "__setstate__" not in cls.__dict__:
        record.__setstate__ = _set_state
    made: type = record
    return made


if not TYPE_CHECKING:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """``dataclasses.dataclass``; a frozen class with slots is compiled when it is used."""

        def decorate(cls: type) -> type:
            eq = options.get("eq", True)
            is_frozen_with_slots = {**options, "eq": eq} == {
                "frozen": True,
                "slots": True,
                "eq": eq,
            }
            if is_frozen_with_slots and not any(name in cls.__dict__ for name in _OWN):
                return _frozen_record(cls, eq=eq)
            return dataclasses.dataclass(**options)(cls)

        return decorate if cls is None else decorate(cls)
