"""Imports ``pyarrow.compute`` with functions that are created at their first use.

While it is imported, ``pyarrow.compute`` creates a Python function with signature and documentation
for each of some 250 functions of Arrow. That takes longer than opening a graph and looking up a
node. Here the module is executed with a short list of functions, and gets a ``__getattr__`` that
creates a function as the module itself does. ``dir``, ``import *`` and ``help`` show all of them;
only ``vars`` lacks the unused ones.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_MODULE = "pyarrow.compute"
_PARSER = "pyarrow.vendored.docscrape"
# Functions of Arrow whose names are keywords of Python, as pyarrow.compute renames them.
_RENAMED = {"and": "and_", "or": "or_"}
# While it is executed, the module takes this function from its list for an alias.
_TAKEN = "utf8_zero_fill"
_WITHOUT_OPTIONS = "negate"


class _ShortRegistry:
    """The registry of Arrow's functions with a list of one."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def list_functions(self) -> list[str]:
        return [_TAKEN]

    def get_function(self, name: str) -> Any:
        # Without options there is no documentation to parse. The name is removed after all.
        return self._registry.get_function(_WITHOUT_OPTIONS)


class _DeferredParser(ModuleType):
    """The parser of the documentation of options, which loads ``pydoc``.

    ``_parameters`` reads the plain form of it, and asks for the parser where it meets another.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(_PARSER), name)


class _Finder:
    """Finds ``pyarrow.compute`` with a loader that leaves its functions out.

    A loader is called under the lock of its module: another thread that imports the module waits.
    """

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec
        self._loader: Any = spec.loader
        spec.loader = self  # type: ignore[assignment]

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return self._spec if name == _MODULE else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__loader__ = self._spec.loader = self._loader
        try:
            _execute_without_functions(module, self._loader)
        except Exception:
            # Another pyarrow than expected: as if it had not been tried.
            vars(module).pop(_TAKEN, None)
            self._loader.exec_module(module)


def defer_compute_functions() -> None:
    """Import ``pyarrow.compute`` without its functions; nothing if it is imported already."""
    if _MODULE in sys.modules:
        return
    spec = find_spec(_MODULE)
    if spec is None or spec.loader is None:
        return
    finder = _Finder(spec)
    sys.meta_path.insert(0, finder)
    try:
        import_module(_MODULE)
    finally:
        sys.meta_path.remove(finder)


def _execute_without_functions(module: Any, loader: Any) -> None:
    compiled: Any = import_module("pyarrow._compute")
    registry = compiled.function_registry
    parser = sys.modules.get(_PARSER)
    if parser is None:
        sys.modules[_PARSER] = _DeferredParser(_PARSER)
    compiled.function_registry = lambda: _ShortRegistry(registry())
    try:
        loader.exec_module(module)
    finally:
        compiled.function_registry = registry
        if parser is None:
            del sys.modules[_PARSER]
    module.function_registry = registry
    stand_in = vars(module)[_TAKEN]
    aliases = [name for name, value in vars(module).items() if value is stand_in]
    for name in aliases:
        delattr(module, name)
    _make_functions_on_demand(module, dict.fromkeys(aliases, _TAKEN))


class _Documented(NamedTuple):
    """A parameter as the parser describes it."""

    name: str
    type: str
    desc: list[str]


def _parameters(doc: str) -> list[_Documented] | None:
    """The parameters of the documentation of options; ``None`` if it has an unknown form."""
    summary, underlined, listed = cleandoc(doc).partition("\nParameters\n----------\n")
    if not underlined or "---" in listed or "---" in summary:
        return None
    documented: list[_Documented] = []
    for line in listed.splitlines():
        if line and not line[0].isspace():
            name, _, type_name = line.partition(" : ")
            documented.append(_Documented(name.strip(), type_name.strip(), []))
        elif not documented or (line.strip() and not line.startswith("    ")):
            return None
        else:
            documented[-1].desc.append(line[4:])
    for parameter in documented:
        while parameter.desc and not parameter.desc[-1]:
            parameter.desc.pop()
    return documented


def _make_functions_on_demand(module: Any, aliases: dict[str, str]) -> None:
    parse = module._scrape_options_class_doc

    def options_doc(options_class: type) -> Any:
        documented = _parameters(options_class.__doc__ or "")
        return parse(options_class) if documented is None else SimpleNamespace(params=documented)

    module._scrape_options_class_doc = options_doc
    arrow_names = {**{shown: name for name, shown in _RENAMED.items()}, **aliases}

    def function(name: str) -> Any:
        """The function of Arrow behind a name; ``None`` if the module does not show it."""
        try:
            arrow_function = module.function_registry().get_function(arrow_names.get(name, name))
        except KeyError:
            return None
        kind, arity = arrow_function.kind, arrow_function.arity
        is_hidden = kind == "hash_aggregate" or (kind == "scalar_aggregate" and arity == 0)
        return None if is_hidden else arrow_function

    def names() -> list[str]:
        listed = [*module.function_registry().list_functions(), *arrow_names]
        return [*vars(module), *(name for name in listed if function(name) is not None)]

    def get_attribute(name: str) -> Any:
        if name == "__all__":
            return sorted({name for name in names() if not name.startswith("_")})
        arrow_function = None if name.startswith("_") else function(name)
        if arrow_function is None:
            raise AttributeError(f"module {_MODULE!r} has no attribute {name!r}")
        arrow_name = arrow_names.get(name, name)
        shown = _RENAMED.get(arrow_name, arrow_name)
        made = vars(module).get(shown) or module._wrap_function(shown, arrow_function)
        return vars(module).setdefault(name, vars(module).setdefault(shown, made))

    module.__getattr__ = get_attribute
    module.__dir__ = lambda: sorted(set(names()))
