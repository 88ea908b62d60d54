"""The rules of the source tree as functions from a parsed module to what it breaks.

Each rule takes a ``Module`` and yields one sentence per violation. The tables below are
``docs/architecture.md`` in a form that a test can run.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "omnigraph"
MAX_LINES = 500
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

# Top to bottom: a room may import from the groups below its own.
GROUPS: tuple[frozenset[str], ...] = (
    frozenset({"cli", "server", "cluster"}),
    frozenset({"remote", "mcp"}),
    frozenset({"api", "result", "policy"}),
    frozenset({"spark", "maintain", "evolve", "merge", "write", "read", "embed"}),
    frozenset({"commit", "topology"}),
    frozenset({"storage", "plan"}),
    frozenset({"lang", "client"}),
    frozenset({"argument_checks", "exhaustion", "identity"}),
    frozenset({"errors"}),
    frozenset({"diagnostics", "logs"}),
    frozenset({"yaml_tree"}),
    frozenset({"escaping", "progress", "representation"}),
    frozenset({"records"}),
)

# Inside a group nobody imports a neighbour, except as said here.
NEIGHBOURS: dict[str, frozenset[str]] = {
    "cli": frozenset({"server", "cluster"}),
    "server": frozenset({"cluster"}),
    "api": frozenset({"result"}),
    "spark": frozenset({"maintain", "evolve", "merge", "write", "read", "embed"}),
    "maintain": frozenset({"write", "read"}),
    "evolve": frozenset({"write", "read"}),
    "merge": frozenset({"write", "read"}),
    "write": frozenset({"read"}),
    "read": frozenset({"embed"}),
}

SURFACE = ""
"""The room of ``omnigraph/__init__.py``."""

# Processes that Spark starts for a data source have no caller that could hand settings over, and
# the surface imports NumPy for all.
MAY_USE_SETTINGS = {SURFACE, "api", "cli", "cluster", "server", "spark"}
# The annotations of `api` name what the surface loads lazily.
MAY_USE_SURFACE = GROUPS[0] | {"api", "mcp", "remote"}
WEB_FRAMEWORKS = {
    "aiohttp",
    "fastapi",
    "flask",
    "hypercorn",
    "litestar",
    "quart",
    "sanic",
    "starlette",
    "tornado",
    "uvicorn",
}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
STREAMS = {"stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__"}
TERMINAL_CALLS = {"print", "input", "breakpoint"}
TERMINAL_LIBRARIES = {"argparse", "getpass", "curses", "click", "typer", "rich"}

INLINE = {f"{PACKAGE}.storage.tables.inline", f"{PACKAGE}.storage.tables.ledger"}
MAY_COMMIT_STAGED = {
    *INLINE,
    f"{PACKAGE}.storage.tables.store",
    f"{PACKAGE}.storage.tables.made_versions",
    f"{PACKAGE}.storage.tables.next_version",
}
# Functions of Lance that write and commit at once. These names mean nothing else here ...
COMMITS_BY_NAME = frozenset(
    {
        "add_bases",
        "add_columns",
        "alter_columns",
        "cleanup_old_versions",
        "commit_batch",
        "commit_existing_index_segments",
        "compact_files",
        "create_index",
        "create_scalar_index",
        "deep_clone",
        "delete_config_keys",
        "disable_auto_cleanup",
        "drop_index",
        "enable_auto_cleanup",
        "execute_batches",
        "initialize_mem_wal",
        "mem_wal_writer",
        "migrate_manifest_paths_v2",
        "optimize_indices",
        "replace_field_metadata",
        "replace_schema",
        "replace_schema_metadata",
        "shallow_clone",
        "truncate_table",
        "update_config",
        "update_field_metadata",
        "update_metadata",
        "update_schema_metadata",
        "write_dataset",
    }
)
# ... and these are ordinary words, so they count only on a value that comes from Lance.
COMMITS_ON_DATASETS = frozenset(
    {
        "commit",
        "create",
        "create_branch",
        "delete",
        "drop_columns",
        "insert",
        "merge",
        "replace_metadata",
        "restore",
        "update",
    }
)
LANCE_PARTS = {"branches", "optimize", "tags"}
LANCE_HANDLES = {"checkout_version", "commit", "create_branch", "dataset", "write_dataset"}
OUR_HANDLES = {"open", "shared"}
"""How ``Datasets`` hands a Lance dataset out."""


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text, and its syntax tree."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Everything that is imported: statements, and calls with a literal name."""
        return tuple(_imports(self, self.tree, lazy=False))

    @property
    def room(self) -> str:
        """The part of the package that the module belongs to."""
        return room_of(self.name)


@dataclass(frozen=True)
class Import:
    """One imported module (or name in it), where, and whether a function must run first."""

    target: str
    line: int
    lazy: bool


def room_of(name: str) -> str:
    """``omnigraph.lang.query.ast`` → ``lang``; the surface for what is no room."""
    if _inside(name, f"{PACKAGE}.lang.diagnostics"):
        return "diagnostics"  # errors carry diagnostics, so they lie below the languages
    parts = name.split(".")
    existing = {room for group in GROUPS for room in group} | {"settings"}
    return parts[1] if len(parts) > 1 and parts[1] in existing else SURFACE


@functools.cache
def modules_under(root: Path) -> tuple[Module, ...]:
    """Every module of the package below a ``src`` directory."""
    matches = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        matches.append(Module(name, path.read_text("utf-8"), is_package))
    return tuple(matches)


# -- what a module imports ------------------------------------------------------------------------


def _imports(module: Module, node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            base = _base(module, child)
            for alias in child.names:
                yield Import(f"{base}.{alias.name}", child.lineno, lazy)
        elif isinstance(child, ast.Call):
            target = _imported_by_call(child)
            if target is not None:
                yield Import(target, child.lineno, lazy)
        inner_lazy = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            for statement in child.body:
                yield from _imports(module, ast.Module([statement], []), lazy=True)
            for statement in child.orelse:
                yield from _imports(module, ast.Module([statement], []), lazy=lazy)
            continue
        yield from _imports(module, child, lazy=inner_lazy)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".")
    keep = len(package) - node.level + (1 if module.is_package else 0)
    return ".".join([*package[:keep], *([node.module] if node.module else [])])


def _imported_by_call(call: ast.Call) -> str | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    if name not in {"import_module", "__import__", "find_spec"} or not call.args:
        return None
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _inside(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


# -- the rules ------------------------------------------------------------------------------------


def layering(module: Module) -> Iterator[str]:
    """A room imports only from the groups below it, or a neighbour that is allowed."""
    for imported in module.imports:
        if not _inside(imported.target, PACKAGE):
            continue
        target = room_of(imported.target)
        if not _may_import(module.room, target):
            name = target or "the public surface"
            yield f"line {imported.line}: {module.room or 'the surface'} may not import {name}"


def _may_import(room: str, target: str) -> bool:
    if room == target:
        return True
    if target == SURFACE:
        return room in MAY_USE_SURFACE
    if target == "settings":
        return room in MAY_USE_SETTINGS
    if room == SURFACE:
        return target not in GROUPS[0]
    if room == "settings":
        return target in {"errors", "diagnostics"}
    if _rank(target) == _rank(room):
        return target in NEIGHBOURS.get(room, frozenset())
    return _rank(target) > _rank(room)


def _rank(room: str) -> int:
    return next(rank for rank, group in enumerate(GROUPS) if room in group)


def lance_only_in_storage(module: Module) -> Iterator[str]:
    """Only ``storage`` imports Lance."""
    for imported in module.imports:
        if module.room != "storage" and _inside(imported.target, "lance"):
            yield f"line {imported.line}: only storage imports lance"


def lance_commits_only_inline(module: Module) -> Iterator[str]:
    """Only ``inline`` and ``ledger`` call what commits at once; staged commits also ``tables``."""
    if module.name in INLINE:
        return
    values: _LanceValues | None = None
    for imported in module.imports:
        if _inside(imported.target, "lance") and imported.target.split(".")[-1] in COMMITS_BY_NAME:
            yield f"line {imported.line}: {imported.target} commits by itself"
    for node in module.nodes:
        if not isinstance(node, ast.Attribute):
            continue
        receiver, name = node.value, node.attr
        if name == "commit" and module.name in MAY_COMMIT_STAGED and _is_class(receiver):
            continue
        is_commit = name in COMMITS_BY_NAME
        if name in COMMITS_ON_DATASETS or name == "execute":
            values = values or _LanceValues(module)
            is_commit |= values.builds(receiver) if name == "execute" else values.holds(receiver)
        if is_commit:
            yield f"line {node.lineno}: {ast.unparse(node)} commits by itself"


def _is_class(node: ast.expr) -> bool:
    """``LanceDataset`` or ``lance.LanceDataset``: what commits a staged transaction."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name == "LanceDataset"


class _LanceValues:
    """Which expressions of a module are datasets of Lance, as far as its own text tells.

    Names are followed through assignments and annotations of the whole module, whatever function
    they are in: that may find too much, never too little.
    """

    def __init__(self, module: Module) -> None:
        self._datasets = {"_dataset", "dataset", "LanceDataset", "Compaction"}
        self._builders: set[str] = set()
        self._libraries = {"lance"}
        for node in module.nodes:
            if isinstance(node, ast.Import):
                self._libraries |= {a.asname for a in node.names if a.name == "lance" and a.asname}
            elif isinstance(node, ast.ImportFrom) and _inside(node.module or "", "lance"):
                for alias in node.names:
                    if alias.name in self._datasets | LANCE_HANDLES:
                        self._datasets.add(alias.asname or alias.name)
        bindings = (ast.arg, ast.AnnAssign, ast.Assign, ast.NamedExpr, ast.withitem)
        nodes = [node for node in module.nodes if isinstance(node, bindings)]
        existing = -1
        while existing != len(self._datasets) + len(self._builders):
            existing = len(self._datasets) + len(self._builders)
            for node in nodes:
                self._learn(node)

    def holds(self, node: ast.expr | None) -> bool:
        """Whether an expression is a dataset, its class, or one of its collections."""
        if isinstance(node, ast.Name):
            return node.id in self._datasets
        if isinstance(node, ast.Attribute):
            return node.attr in self._datasets or (
                node.attr in LANCE_PARTS and self.holds(node.value)
            )
        if isinstance(node, ast.Call):
            return self._makes(node.func)
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self.holds(node.value)
        if isinstance(node, ast.IfExp):
            return self.holds(node.body) or self.holds(node.orelse)
        return False

    def builds(self, node: ast.expr | None) -> bool:
        """Whether an expression is an upsert that waits for its rows."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "merge_insert":
                return True
            node = node.func.value
        return isinstance(node, ast.Name) and node.id in self._builders

    def _makes(self, function: ast.expr) -> bool:
        """Whether a call of this gives a dataset."""
        if isinstance(function, ast.Name):
            return function.id in self._datasets
        if not isinstance(function, ast.Attribute):
            return False
        owner = function.value
        if function.attr in OUR_HANDLES:
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            return name.strip("_") == "datasets"
        from_library = isinstance(owner, ast.Name) and owner.id in self._libraries
        return (from_library and function.attr in LANCE_HANDLES | {"LanceDataset"}) or (
            function.attr in LANCE_HANDLES and self.holds(owner)
        )

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as kind):
                self._annotate(name, kind)
            case ast.AnnAssign(target=target, annotation=kind, value=value):
                self._annotate(_last(target), kind)
                self._bind(target, value)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._bind(target, value)

    def _annotate(self, name: str, annotation: ast.expr) -> None:
        if "LanceDataset" in ast.unparse(annotation):
            self._datasets.add(name)

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        name = _last(target)
        if name and self.holds(value):
            self._datasets.add(name)
        if name and self.builds(value):
            self._builders.add(name)


def _last(target: ast.expr) -> str:
    """The name that an assignment binds, also one of an object."""
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def pyspark_only_in_spark_and_lazily(module: Module) -> Iterator[str]:
    """Only ``spark`` imports PySpark, and only when a function needs it."""
    for imported in module.imports:
        if not _inside(imported.target, "pyspark"):
            continue
        if module.room != "spark":
            yield f"line {imported.line}: only spark imports pyspark"
        elif not imported.lazy:
            yield f"line {imported.line}: pyspark is imported inside functions only"


def web_framework_only_in_server(module: Module) -> Iterator[str]:
    """Only ``server`` imports a web framework."""
    for imported in module.imports:
        if module.room != "server" and imported.target.split(".")[0] in WEB_FRAMEWORKS:
            yield f"line {imported.line}: only server imports {imported.target.split('.')[0]}"


def agent_protocol_only_in_mcp(module: Module) -> Iterator[str]:
    """Only ``mcp/protocol.py`` and the route of the server import the package ``mcp``."""
    allowed = (f"{PACKAGE}.mcp.protocol", f"{PACKAGE}.server.agents")
    for imported in module.imports:
        name = imported.target.split(".")[0]
        if name in ("mcp", "mcp_types") and module.name not in allowed:
            yield f"line {imported.line}: only the protocol imports {name}"


def environment_only_in_settings(module: Module) -> Iterator[str]:
    """Only ``settings`` reads the environment, and the module that sends all of it elsewhere."""
    if module.name in (f"{PACKAGE}.settings", f"{PACKAGE}.cli.warm.client"):
        return
    yield from _uses_of(module, "os", ENVIRONMENT, "only settings reads the environment")


def terminal_only_in_cli(module: Module) -> Iterator[str]:
    """Only ``cli`` prints, reads or parses what belongs to a terminal."""
    if module.room == "cli":
        return
    yield from _uses_of(module, "sys", STREAMS | {"argv"}, "only cli knows the terminal")
    for imported in module.imports:
        if imported.target.split(".")[0] in TERMINAL_LIBRARIES:
            yield f"line {imported.line}: only cli knows the terminal"
    for node in module.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in TERMINAL_CALLS
        ):
            yield f"line {node.lineno}: only cli knows the terminal"


def _uses_of(module: Module, library: str, names: set[str], sentence: str) -> Iterator[str]:
    """Where ``library.name`` is used, under any name that the library was imported as."""
    aliases = {library}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            aliases |= {a.asname for a in node.names if a.name == library and a.asname}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == library:
            if any(alias.name in names or alias.name == "*" for alias in node.names):
                yield f"line {node.lineno}: {sentence}"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in names
            and isinstance(node.value, ast.Name)
            and node.value.id in aliases
        ):
            yield f"line {node.lineno}: {sentence}"


def fits_in_a_head(module: Module) -> Iterator[str]:
    """No module is longer than one person can hold in mind."""
    lines = module.text.count("\n")
    if lines > MAX_LINES:
        yield f"{lines} lines; a module has at most {MAX_LINES}"


def has_a_descriptive_name(module: Module) -> Iterator[str]:
    """A module is named for its idea."""
    vague = VAGUE_NAMES.intersection(part.strip("_") for part in module.name.split("."))
    if vague:
        yield f"the name says nothing: {', '.join(sorted(vague))}"


def says_what_it_is(module: Module) -> Iterator[str]:
    """A module starts with what lives in it."""
    if not ast.get_docstring(module.tree):
        yield "no docstring"


RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    layering,
    lance_only_in_storage,
    lance_commits_only_inline,
    pyspark_only_in_spark_and_lazily,
    web_framework_only_in_server,
    agent_protocol_only_in_mcp,
    environment_only_in_settings,
    terminal_only_in_cli,
    fits_in_a_head,
    has_a_descriptive_name,
    says_what_it_is,
)
