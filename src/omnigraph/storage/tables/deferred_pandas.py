"""Loads pyarrow's datasets, and so Lance, without loading pandas, which no query needs.

Where pandas is installed, pyarrow loads it at the first conversion of a Python value, and
``pyarrow.dataset`` converts one while it is imported: that doubles the cost of ``import lance``.

pyarrow in Python (``pandas-shim.pxi``) keeps the module and seven classes of pandas to recognise
and to make frames. Here it gets stand-ins for them. A stand-in recognises objects by the real
class, which exists as soon as somebody has imported pandas, and loads pandas for everything else.
So frames as data, ``to_pandas`` and nanoseconds as ``pandas.Timestamp`` work as before, whether
pandas is imported before, after or never.

pyarrow in C++ loads pandas once, and remembers a failure: when it infers the type of a value, and
when it converts to NumPy. It never gets a stand-in: each name outside the list below is answered by
pandas itself. What a query executes therefore states the types of its values, and uses
``lang.values.numpy_view``.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_CLASSES = {
    "pandas": {"DataFrame", "Series", "Index", "Categorical"},
    "pandas.api.extensions": {"ExtensionArray", "ExtensionDtype"},
    "pandas.api.types": {"DatetimeTZDtype"},
}
_MODULES = {"pandas.api", "pandas.api.extensions", "pandas.api.types"}
_LOCK = threading.Lock()
"""Held while the stand-in is removed from ``sys.modules``, never during an import."""


class _StandInClass(type):
    """A class of pandas that is loaded when it is called or asked for an attribute."""

    def __instancecheck__(cls, instance: Any) -> bool:
        real = _loaded_class(cls)
        return real is not None and isinstance(instance, real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        real = _loaded_class(cls)
        return real is not None and issubclass(subclass, real)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _real_class(cls)(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_real_class(cls), name)


def _loaded_class(stand_in: type) -> type | None:
    """The real class if pandas is loaded; no object of the class exists before."""
    module = sys.modules.get(stand_in.__module__)
    return None if module is None else module.__dict__.get(stand_in.__name__)


def _real_class(stand_in: type) -> Any:
    return getattr(_load(stand_in.__module__), stand_in.__name__)


def _load(name: str) -> ModuleType:
    """The real module."""
    _remove_stand_in()
    return import_module(name)


def _remove_stand_in() -> None:
    # Of two threads the second must not remove the module that the first has begun to import.
    with _LOCK:
        if isinstance(sys.modules.get("pandas"), _StandInModule):
            del sys.modules["pandas"]


class _StandInModule(ModuleType):
    """A module of pandas. Only the thread that fills pyarrow's table gets stand-ins from it."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(name)
        self._stand_in_version = version
        self._stand_in_thread: int | None = threading.get_ident()

    def close(self) -> None:
        self._stand_in_thread = None

    def __getattr__(self, name: str) -> Any:
        module = self.__name__
        if threading.get_ident() == self._stand_in_thread:
            if name in _CLASSES.get(module, ()):
                return _StandInClass(name, (), {"__module__": module})
            if f"{module}.{name}" in _MODULES:
                return _StandInModule(f"{module}.{name}", self._stand_in_version)
            if name == "__version__":
                return self._stand_in_version
        return getattr(_load(module), name)


def defer_pandas() -> None:
    """Import ``pyarrow.dataset``; pandas stays unloaded until somebody needs it.

    Does nothing where pandas is loaded already or not installed.
    """
    if "pandas" in sys.modules or "pyarrow._dataset" in sys.modules:
        return
    version = _installed_version()
    if version is None:
        return
    lib: Any = import_module("pyarrow.lib")
    shim = getattr(lib, "_pandas_api", None)
    if shim is None:
        return
    stand_in = _StandInModule("pandas", version)
    # Another thread may have begun to import pandas meanwhile.
    if sys.modules.setdefault("pandas", stand_in) is not stand_in:
        return
    try:
        _ = shim.have_pandas
    finally:
        stand_in.close()
        _remove_stand_in()
    scalar = lib.scalar

    def typed_scalar(value: Any, type: Any = None, **options: Any) -> Any:
        """A constant of the module of datasets with its type, so that nothing is inferred."""
        if type is None and isinstance(value, bool):
            type = lib.bool_()
        return scalar(value, type, **options)

    lib.scalar = typed_scalar
    try:
        import_module("pyarrow.dataset")
    finally:
        lib.scalar = scalar


def _installed_version() -> str | None:
    """The version in the name of the directory beside the package; reading it would take longer."""
    spec = find_spec("pandas")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(next(iter(spec.submodule_search_locations)))
    names = [path.name for path in package.parent.glob("pandas-*.dist-info")]
    return names[0].split("-")[1].removesuffix(".dist") if len(names) == 1 else None
