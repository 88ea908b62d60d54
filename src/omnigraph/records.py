"""``dataclass`` whose methods are compiled when the first object is created.

``dataclasses.dataclass`` inspects the fields of a class and compiles up to seven functions while
its module is imported. A process that opens a graph and runs one query imports some two hundred
such classes and creates objects of a few dozen. Here a class with slots is created with shared
methods; its fields are inspected and its other methods compiled at the first use. The standard
library creates every other class, and those with ``order``, ``InitVar``, ``KW_ONLY`` or their own
version of a generated method other than ``__repr__``. ``dataclasses.fields``, ``replace``,
``asdict``, inheritance from and by other dataclasses, and pickling work as usual. An invalid
definition, such as a field without a default after one with a default, is refused at the first use.

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
from types import CodeType, FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field
    from dataclasses import dataclass as dataclass
    from typing import Any

_FIELDS = "__dataclass_fields__"
_PENDING = "__record_definition__"
_OWN = {"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__slots__"}
_OWN |= {"__match_args__"}
# What the standard library calls the two kinds of fields, to tell them apart.
_FIELD: Any = getattr(dataclasses, "_FIELD")  # noqa: B009 - mypy does not know it
_CLASS_VARIABLE: Any = getattr(dataclasses, "_FIELD_CLASSVAR")  # noqa: B009


class _Factory:
    """The default in a signature if a factory function creates the value."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


# -- created at the first use ------------------------------------------------------------


class _OnDemand:
    """A placeholder for an attribute of a class, created at its first lookup."""

    __slots__ = ("create", "name", "owner")

    def __init__(self, create: Callable[[Any], None]) -> None:
        self.create = create

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self.create(self.owner)
        value = self.owner.__dict__[self.name]
        bind = getattr(value, "__get__", None)
        return value if bind is None else bind(instance, owner)


# Two threads that create the same attribute set equal values.


def _create_fields(cls: Any) -> None:
    fields: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields.update(getattr(base, _FIELDS, {}))
    fields.update(_own_fields(cls, cls.__dict__[_PENDING]))
    setattr(cls, _FIELDS, fields)


def _create_match_args(cls: Any) -> None:
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields if field.init and not field.kw_only)
    setattr(cls, "__match_args__", names)  # noqa: B010 - mypy forbids the assignment


def _create_init(cls: Any) -> None:
    cls.__init__ = _compile_init(cls, _initial_values(cls))


class _Initial:
    """What a constructor has to know about a field."""

    __slots__ = ("default", "factory", "init", "kw_only", "name", "type")

    def __init__(self, name: str, annotation: Any, default: Any, described: Any = None) -> None:
        self.name, self.type, self.default = name, annotation, default
        self.factory: Any = dataclasses.MISSING
        self.init, self.kw_only = True, False
        if described is not None:
            self.default, self.factory = described.default, described.default_factory
            self.init, self.kw_only = described.init, described.kw_only is True


def _initial_values(cls: Any) -> list[_Initial]:
    """The fields in order, without the objects that describe them: most are plain."""
    values: dict[str, _Initial] = {}
    for base in cls.__mro__[-2::-1]:
        definition = base.__dict__.get(_PENDING)
        if definition is None:
            for field in filter(_is_field, base.__dict__.get(_FIELDS, {}).values()):
                values[field.name] = _Initial(field.name, field.type, None, field)
            continue
        defaults = definition["defaults"]
        for name, annotation in definition["annotations"].items():
            if not _is_class_variable(annotation):
                default = defaults.get(name, dataclasses.MISSING)
                described = default if isinstance(default, dataclasses.Field) else None
                values[name] = _Initial(name, annotation, default, described)
    return list(values.values())


def _own_fields(cls: Any, definition: dict[str, Any]) -> dict[str, Field[Any]]:
    """The fields that a class adds to those of its bases, as the standard library creates them."""
    fields: dict[str, Any] = {}
    for name, annotation in definition["annotations"].items():
        default = definition["defaults"].get(name, dataclasses.MISSING)
        if _is_class_variable(annotation):
            default = cls.__dict__.get(name, dataclasses.MISSING)
        field: Any = default
        if not isinstance(default, dataclasses.Field):
            field = dataclasses.field(default=default)
        field.name, field.type = name, annotation
        field._field_type = _CLASS_VARIABLE if _is_class_variable(annotation) else _FIELD
        if field.kw_only is dataclasses.MISSING and field._field_type is _FIELD:
            field.kw_only = False
        fields[name] = field
    return fields


def _is_class_variable(annotation: str) -> bool:
    return annotation.startswith(("ClassVar", "typing.ClassVar"))


def _is_field(field: Any) -> bool:
    """Whether it is a field of objects, and not a class variable."""
    return field._field_type is _FIELD


_CODE: dict[str, CodeType] = {}
"""The compiled constructors by their text, in which the fields have numbers for names."""


def _compile_init(cls: Any, fields: list[_Initial]) -> Callable[..., None]:
    """The constructor of a class.

    Compiling takes most of the time of completing a class, and renaming the variables of compiled
    code takes little: classes whose constructors differ only in names and defaults share it.
    """
    is_frozen = cls.__dataclass_params__.frozen
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": _FACTORY}
    types: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    keyword_defaults: dict[str, Any] = {}

    def assign(name: str, value: str) -> None:
        body.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")

    for number, field in enumerate(fields):
        name, value = f"_{number}", f"_{number}"
        default: Any = field.default
        if field.factory is not dataclasses.MISSING:
            names[f"_make{name}"] = field.factory
            default, value = _FACTORY, f"_make{name}() if {name} is _missing else {name}"
        if not field.init:
            if default is _FACTORY:
                assign(name, f"_make{name}()")
            elif default is not dataclasses.MISSING:
                names[f"_default{name}"] = default
                assign(name, f"_default{name}")
            continue
        types[field.name] = field.type
        if default is not dataclasses.MISSING:
            (keyword_defaults if field.kw_only else defaults)[field.name] = default
        elif defaults and not field.kw_only:
            raise TypeError(f"non-default argument {field.name!r} follows default argument")
        (keywords if field.kw_only else positional).append(name)
        assign(name, value)
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *keywords] if keywords else [])]
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
    code = _renamed(text, {f"_{number}": field.name for number, field in enumerate(fields)})
    compiled = FunctionType(code, names, "__init__", tuple(defaults.values()))
    compiled.__kwdefaults__ = keyword_defaults or None
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    compiled.__module__ = cls.__module__
    compiled.__annotations__ = {**types, "return": None}
    return compiled


def _renamed(text: str, names: dict[str, str]) -> CodeType:
    """The code of the function in a text, with other names for parameters and attributes."""
    if text not in _CODE:
        made: dict[str, Any] = {}
        exec(text, made)
        _CODE[text] = made["__init__"].__code__
    code = _CODE[text]
    return code.replace(
        co_varnames=tuple([names.get(name, name) for name in code.co_varnames]),
        co_names=tuple([names.get(name, name) for name in code.co_names]),
        co_consts=tuple([names.get(value, value) for value in code.co_consts]),
    )


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of some attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda self: ()
    (name,) = names
    return lambda self: (getattr(self, name),)


# -- methods that all records share ------------------------------------------------------


def _equals(self: Any, other: Any) -> Any:
    """``__eq__`` of a class until its first use."""
    cls = _class_that_has("__eq__", _equals, self)
    compared = _values_of(tuple(f.name for f in dataclasses.fields(cls) if f.compare))

    def equals(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return compared(self) == compared(other)
        return NotImplemented

    cls.__eq__ = equals
    return equals(self, other)


def _hash(self: Any) -> int:
    """``__hash__`` of a class until its first use."""
    cls = _class_that_has("__hash__", _hash, self)
    fields = [f for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    hashed = _values_of(tuple(field.name for field in fields))

    def hash_values(self: object) -> int:
        return hash(hashed(self))

    cls.__hash__ = hash_values
    return hash_values(self)


def _class_that_has(name: str, method: object, instance: object) -> Any:
    """The record from which an object inherits a shared method."""
    records = [cls for cls in type(instance).__mro__ if _PENDING in cls.__dict__]
    waiting = [cls for cls in records if cls.__dict__.get(name) is method]
    # Another thread may have replaced the method meanwhile.
    return (waiting or records)[0]


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _is_refused(self: Any, name: str) -> bool:
    """Whether an attribute is frozen; a subclass that is not a dataclass may add others."""
    return _FIELDS in type(self).__dict__ or name in getattr(type(self), _FIELDS)


def _after_records(self: Any) -> Any:
    """The methods of the classes after the last record in the order of inheritance."""
    last = [cls for cls in type(self).__mro__ if cls.__dict__.get("__setattr__") is _set_attribute]
    return super(last[-1], self)


def _set_attribute(self: Any, name: str, value: object) -> None:
    if _is_refused(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    _after_records(self).__setattr__(name, value)


def _delete_attribute(self: Any, name: str) -> None:
    if _is_refused(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    _after_records(self).__delattr__(name)


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


# -- the decorator -----------------------------------------------------------------------


def _parameters(*, frozen: bool, eq: bool) -> object:
    """The options of a class as ``dataclasses`` records them."""

    body = {"__doc__": "Has no fields."}
    make: Any = dataclasses.dataclass
    options = {"frozen": frozen, "eq": eq, "slots": True, "repr": False, "init": False}
    parameters = make(**options)(type("Same", (), body)).__dataclass_params__
    # Without these two options fewer functions are compiled.
    parameters.repr = parameters.init = True
    kept: object = parameters
    return kept


_PARAMETERS: dict[tuple[bool, bool], object] = {}


def _record(cls: Any, *, frozen: bool, eq: bool) -> type | None:
    """The class with slots; ``None`` if the standard library has to create it.

    Slots need a new class: Python determines the layout of objects when it creates their class.
    """
    body = dict(cls.__dict__)
    annotations = body.get("__annotations__", {})
    names = []
    for name, annotation in annotations.items():
        if type(annotation) is not str or "InitVar" in annotation or "KW_ONLY" in annotation:
            return None
        if not _is_class_variable(annotation):
            names.append(name)
    inherited: set[str] = set()
    for base in cls.__mro__[1:-1]:
        parameters = base.__dict__.get("__dataclass_params__")
        if parameters is not None and parameters.frozen is not frozen:
            return None
        slots = base.__dict__.get("__slots__", ())
        if parameters is not None and "__slots__" not in base.__dict__:
            return None
        inherited.update([slots] if isinstance(slots, str) else slots)
    defaults = {name: body.pop(name) for name in names if name in body}
    for default in defaults.values():
        if type(default).__hash__ is None:
            return None
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    if not body.get("__doc__"):
        body["__doc__"] = f"{cls.__name__}({', '.join(names)})"
    if (frozen, eq) not in _PARAMETERS:
        _PARAMETERS[frozen, eq] = _parameters(frozen=frozen, eq=eq)
    body |= {
        "__qualname__": cls.__qualname__,
        "__slots__": tuple(name for name in names if name not in inherited),
        "__dataclass_params__": _PARAMETERS[frozen, eq],
        _PENDING: {"annotations": annotations, "defaults": defaults, "frozen": frozen, "eq": eq},
        _FIELDS: _OnDemand(_create_fields),
        "__match_args__": _OnDemand(_create_match_args),
        "__init__": _OnDemand(_create_init),
    }
    body.setdefault("__repr__", _repr)
    if eq:
        body |= {"__eq__": _equals, "__hash__": _hash if frozen else None}
    if frozen:
        body |= {"__setattr__": _set_attribute, "__delattr__": _delete_attribute}
        body.setdefault("__getstate__", _get_state)
        body.setdefault("__setstate__", _set_state)
    made: type = type(cls)(cls.__name__, cls.__bases__, body)
    return made


if not TYPE_CHECKING:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """``dataclasses.dataclass``; a class with slots is completed at its first use."""

        def decorate(cls: type) -> type:
            rest = {**options}
            frozen, eq = rest.pop("frozen", False), rest.pop("eq", True)
            record = None
            if rest == {"slots": True} and _OWN.isdisjoint(cls.__dict__):
                record = _record(cls, frozen=frozen, eq=eq)
            return dataclasses.dataclass(**options)(cls) if record is None else record

        return decorate if cls is None else decorate(cls)
