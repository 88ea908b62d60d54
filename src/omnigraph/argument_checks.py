"""Argument checks, driven by annotations.

Every function that users call is marked ``public``; a value that does not fit the annotation of
its parameter raises an ``InputError`` that names the argument. Rules beyond a plain type (a path
that is not blank, a minimum) are expressed with ``typing.Annotated``. The checks of a function are
built at its first call, so importing it resolves no annotation.
"""

from __future__ import annotations

import collections.abc as abc
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from omnigraph.errors import InputError
from omnigraph.records import dataclass

P = ParamSpec("P")
R = TypeVar("R")
Check: TypeAlias = Callable[[str, Any], None]
"""Raises for the named argument if its value does not fit."""


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """A further check of an annotated parameter; ``wanted`` replaces its type in messages."""

    check: Check | None = None
    wanted: str | None = None


UNCHECKED = ArgumentRule()
"""For a parameter that is checked elsewhere, with better errors."""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of each call against the annotations of the function.

    >>> @public
    ... def half(number: int) -> float:
    ...     return number / 2
    >>> half("4")
    Traceback (most recent call last):
    ...
    omnigraph.errors.InputError: number must be a whole number, not str
    """
    code = inspect.unwrap(function).__code__
    positional = code.co_varnames[: code.co_argcount]
    # An annotation is resolved when an argument is passed: that may load what it names.
    rules: dict[str, _Rule | None] = {}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Python itself refuses too many or unknown arguments, in the call.
        for name, value in chain(zip(positional, args, strict=False), kwargs.items()):
            if name not in rules:
                rules[name] = _rule_for(function, name)
            rule = rules[name]
            if rule is not None:
                rule.check(name, value)
        return function(*args, **kwargs)

    return call


def _rule_for(function: Callable[..., Any], parameter: str) -> _Rule | None:
    annotations = inspect.get_annotations(function)
    if parameter == "return" or parameter not in annotations:
        return None
    hints = get_type_hints(
        SimpleNamespace(__annotations__={parameter: annotations[parameter]}),
        getattr(function, "__globals__", {}),
        include_extras=True,
    )
    return _rule_of(hints[parameter])


def check_fields(value: Any) -> None:
    """Check the fields of a dataclass against their annotations, as its ``__post_init__`` does.

    >>> @dataclass
    ... class Pair:
    ...     left: int
    ...     def __post_init__(self):
    ...         check_fields(self)
    >>> Pair("4")
    Traceback (most recent call last):
    ...
    omnigraph.errors.InputError: left must be a whole number, not str
    """
    for name, rule in _field_rules(value.__class__).items():
        rule.check(name, getattr(value, name))


@functools.cache
def _field_rules(kind: Any) -> dict[str, _Rule]:
    hints = get_type_hints(kind, include_extras=True)
    rules = {field.name: _rule_of(hints[field.name]) for field in fields(kind)}
    return {name: rule for name, rule in rules.items() if rule is not None}


def reads_json(what: str) -> Callable[[Callable[[Any], R]], Callable[[Any], R]]:
    """Decorates a function that decodes a JSON object: malformed data raises ``InputError``.

    >>> @reads_json("point")
    ... def read_point(value):
    ...     return value["x"], value["y"]
    >>> read_point({"x": 1})
    Traceback (most recent call last):
    ...
    omnigraph.errors.InputError: invalid point: 'y' is missing
    """

    def checked(function: Callable[[Any], R]) -> Callable[[Any], R]:
        @functools.wraps(function)
        def read(value: Any) -> R:
            if not isinstance(value, Mapping):
                raise InputError(f"a {what} must be a dict, not {type(value).__name__}")
            try:
                return function(value)
            except KeyError as error:
                raise InputError(f"invalid {what}: {error} is missing") from None
            except (TypeError, ValueError, AttributeError) as error:
                raise InputError(f"invalid {what}: {error}") from None

        return read

    return checked


@dataclass(frozen=True, slots=True)
class _Rule:
    fits: Callable[[Any], bool]
    wanted: str
    further: tuple[Check, ...] = ()
    choices: tuple[str, ...] = ()
    by_class: Mapping[type, tuple[Check, ...]] = field(default_factory=dict)
    """Classes whose instances fit, with what is left to check: most values need no more."""

    def check(self, name: str, value: Any) -> None:
        left = self.by_class.get(value.__class__)
        if left is None:
            left = self._left(name, value)
        if left:
            try:
                for further in left:
                    further(name, value)
            except InputError as error:
                error.details.setdefault("argument", name)
                raise

    def _left(self, name: str, value: Any) -> tuple[Check, ...]:
        if self.fits(value):
            return () if value is None else self.further
        if self.choices and isinstance(value, str):
            raise InputError(f"invalid {name} {value!r}; expected {self.wanted}")
        raise InputError(f"{name} must be {self.wanted}, not {type(value).__name__}")


def _rule_of(hint: Any) -> _Rule | None:
    """The rule of an annotation; ``None`` if every value fits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_rule_of(arguments[0]), arguments[1:])
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is Literal:
        return _choice(arguments, arguments)
    kind = origin or hint
    if kind is abc.Callable:
        return _Rule(callable, "a function")
    if not isinstance(kind, type) or kind in (Any, object):
        return None
    if issubclass(kind, Mapping):
        further = (_text_keys,) if arguments and arguments[0] is str else ()
        return _Rule(_is_mapping, "a dict", further, by_class={dict: further})
    if kind in _PLAIN:
        return _PLAIN[kind]
    if issubclass(kind, Enum):
        return _choice(tuple(kind), tuple(str(member.value) for member in kind))
    if issubclass(kind, Iterable) and arguments and arguments[0] is str:
        return _Rule(_is_names, "a list of names", (_names,))
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    wanted = f"{article} {kind.__name__}"
    return _Rule(lambda value: isinstance(value, kind), wanted, by_class={kind: ()})


def _choice(values: tuple[Any, ...], names: tuple[str, ...]) -> _Rule:
    wanted = " or ".join(filter(None, (", ".join(map(repr, names[:-1])), repr(names[-1]))))
    members = frozenset(values)

    def fits(value: Any) -> bool:
        return value in (members if value.__class__ is str else values)

    return _Rule(fits, wanted, (), names)


def _annotated(rule: _Rule | None, markers: tuple[Any, ...]) -> _Rule | None:
    if UNCHECKED in markers:
        return None
    for marker in markers:
        if isinstance(marker, ArgumentRule):
            rule = rule or _Rule(lambda value: True, "")
            further = rule.further if marker.check is None else (*rule.further, marker.check)
            by_class = {
                kind: left if marker.check is None or kind is NoneType else (*left, marker.check)
                for kind, left in rule.by_class.items()
            }
            wanted = marker.wanted or rule.wanted
            rule = _Rule(rule.fits, wanted, further, rule.choices, by_class)
    return rule


def _union(members: tuple[Any, ...]) -> _Rule | None:
    rules = [_rule_of(member) for member in members if member is not NoneType]
    checked = [rule for rule in rules if rule is not None]
    if len(checked) < len(rules):
        return None
    may_be_none = NoneType in members

    def fits(value: Any) -> bool:
        return (may_be_none and value is None) or any(rule.fits(value) for rule in checked)

    def further(name: str, value: Any) -> None:
        for rule in checked:
            if rule.fits(value):
                for check in rule.further:
                    check(name, value)
                return

    choices = tuple(dict.fromkeys(choice for rule in checked for choice in rule.choices))
    if any(rule.wanted == "text" for rule in checked):
        choices = ()
    wanted = " or ".join(dict.fromkeys(rule.wanted for rule in checked))
    return _Rule(fits, wanted, (further,), choices, _classes_of(checked, may_be_none))


def _classes_of(rules: list[_Rule], may_be_none: bool) -> dict[type, tuple[Check, ...]]:
    """The classes of values for which the first rule that fits is known."""
    classes: dict[type, tuple[Check, ...]] = {NoneType: ()} if may_be_none else {}
    for rule in rules:
        if not rule.by_class:
            break
        for kind, left in rule.by_class.items():
            classes.setdefault(kind, left)
    return classes


# -- what fits ------------------------------------------------------------------------------------


def _text(name: str, value: Any) -> None:
    if value.__class__ is str and value.isascii() and "\0" not in value:
        return
    text = os.fspath(value)
    if "\0" in text:
        raise InputError(f"{name} holds a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{name} is not valid Unicode") from None


def _text_keys(name: str, value: Mapping[Any, Any]) -> None:
    for key in value:
        if not isinstance(key, str):
            raise InputError(f"a key of {name} must be text, not {type(key).__name__}")
        _text(f"a key of {name}", key)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_names(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _names(name: str, value: Iterable[Any]) -> None:
    # An iterator can be read only once.
    if isinstance(value, abc.Collection):
        for item in value:
            if not isinstance(item, str):
                raise InputError(f"{name} must be a list of names, not of {type(item).__name__}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)


_PLAIN: dict[type, _Rule] = {
    str: _Rule(lambda value: isinstance(value, str), "text", (_text,), by_class={str: (_text,)}),
    int: _Rule(_is_whole, "a whole number", by_class={int: ()}),
    float: _Rule(_is_number, "a number", by_class={float: (), int: ()}),
    bool: _Rule(lambda value: isinstance(value, bool), "True or False", by_class={bool: ()}),
    datetime: _Rule(lambda value: isinstance(value, datetime), "a datetime"),
    timedelta: _Rule(lambda value: isinstance(value, timedelta), "a timedelta"),
    os.PathLike: _Rule(is_path, "a path", (_text,)),
}


# -- annotations ----------------------------------------------------------------------------------


def not_blank(name: str, value: str | os.PathLike[str]) -> None:
    if not os.fspath(value).strip():
        raise InputError(f"{name} is empty")


def at_least(least: int) -> ArgumentRule:
    """The smallest number that a parameter accepts."""

    def check(name: str, value: float) -> None:
        if not value >= least:
            raise InputError(f"{name} must be at least {least}")

    return ArgumentRule(check)


def _above_zero(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name} must be above 0")


Location = Annotated[str | os.PathLike[str], ArgumentRule(not_blank, "a path")]
"""A path or an address."""
Natural = Annotated[int, at_least(0)]
"""A whole number, zero or more."""
Positive = Annotated[int, at_least(1)]
"""A whole number, one or more."""
Rate = Annotated[float, ArgumentRule(_above_zero)]
"""A number above zero."""
