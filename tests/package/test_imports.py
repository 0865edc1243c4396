"""Imports point one way: from definitions to what is derived from them, and from running code to generated files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from shardmath.symbolic import stored

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "shardmath": ROOT / "src" / "shardmath",
    "shardmath.catalogue": ROOT / "catalogue",
    "shardmath.generated": ROOT / "generated",
    "shardmath.symbolic": ROOT / "symbolic",
    "shardmath.templates": ROOT / "templates",
}

#: The modules and packages of ``shardmath.symbolic``, and modules of a package that are below others of it. Each
#: imports from lower layers and from its own package only.
LAYERS = (
    {"axis", "memo", "monomials", "run_out", "slicing", "workspaces"},
    {"splits"},
    {"functions", "parameters", "sources"},
    {"expert_layers"},
    {"dimension"},
    {"efficiencies", "work"},
    {"ledger"},
    {"dimensions", "recompute", "terms"},
    {"reserved", "verdict"},
    {"parallel.rules", "parallel.weights"},
    {"parallel.dimensions", "parallel.groups", "parallel.optimizers"},
    {"parallel.mesh"},
    {"rates", "work_rows"},
    {"systems"},
    {"choices"},
    {"implementations"},
    {"components"},
    {"parallel"},
    {"orders", "overheads"},
    {"accounts", "exact"},
    {"planning", "sensitivities", "timing"},
    {"factoring"},
    {"polynomials"},
    {"conditions", "extremes"},
    {"published", "simplify"},
    {"algebra"},
    {"printers"},
    {"documents"},
    {"plain"},
    {"compiled"},
    {"derive", "stored"},
    {"write"},
    {"unchanged"},
)
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}

#: The rooms of the compiler, which knows neither the mathematics nor what is derived from it; both are compiled by it.
COMPILER = (
    {"compiler.expressions"},
    {"compiler.flat", "compiler.inverses", "compiler.native", "compiler.nests", "compiler.proofs"},
    {"compiler.printers"},
    {"compiler.nesting"},
)
COMPILES = tuple(f"shardmath.{room}" for layer in COMPILER for room in sorted(layer - {"compiler.native"}))
#: The rooms of running code, lowest first. Each imports from lower layers and from itself only, also inside functions.
ROOMS = (
    {"answers", "divisors"},
    {"errors"},
    {"files"},
    {"input"},
    {"models", "machines"},
    *COMPILER,
    {"compiler"},
    {"configuration"},
    {"allocator"},
    {"steps"},
    {"account"},
    {"search.spaces"},
    {"search.nests"},
    {"search.boxes"},
    {"search.certificates"},
    {"search"},
    {"reports"},
    {"plots"},
    {"formats"},
    {
        "commands.calibrate", "commands.evaluate", "commands.explain", "commands.explore", "commands.formula",
        "commands.page", "commands.prove", "commands.recommend", "commands.scale",
        "commands.snapshot", "commands.sweep", "commands.verify",
    },
    {"commands.appendix", "commands.compare", "commands.fit", "commands.phases", "commands.plan"},
    {"commands.moves"},
    {"schemas"},
    {"cli"},
    {"__main__"},
)
HEIGHT = {name: height for height, layer in enumerate(ROOMS) for name in layer}

#: The modules that show or derive formulas, or put slices of other lengths into them; no other part of the running code
#: may import ``shardmath.symbolic``.
SHOW_FORMULAS = {
    "shardmath.account.slicing", "shardmath.commands.appendix.run",
    "shardmath.commands.compare.causes", "shardmath.commands.compare.changes", "shardmath.commands.compare.comparison",
    "shardmath.commands.compare.published", "shardmath.commands.compare.tensors", "shardmath.commands.fit.compiled",
    "shardmath.commands.fit.formula", "shardmath.commands.formula.assuming", "shardmath.commands.formula.calling",
    "shardmath.commands.formula.citing", "shardmath.commands.formula.computing", "shardmath.commands.formula.legend",
    "shardmath.commands.formula.report", "shardmath.commands.formula.run",
    "shardmath.commands.moves.formulas", "shardmath.commands.page.typesetting", "shardmath.commands.phases.change",
    "shardmath.commands.phases.run", "shardmath.compiler.evaluators", "shardmath.configuration.stages",
    "shardmath.steps.step",
}
HEAVY = {"jinja2", "llvmlite", "numba", "numpy", "pyarrow", "pydantic", "rich", "sympy"}
#: Other packages that load slowly, or that only an extra installs: imported where they are needed.
LATE = HEAVY | {
    "anyio", "distributed", "importlib", "matplotlib", "mcp", "mpmath", "platformdirs", "scipy", "tomli_w", "tomllib",
    "tree_sitter", "tree_sitter_bash", "yaml",
}
#: Modules of our own that load LLVM, Numba, NumPy or Jinja.
LOADING = ("shardmath.compiler.columns", "shardmath.compiler.native", "shardmath.compiler.nesting",
           "shardmath.files.rendering")
#: Two modules of a room that need each other: the second is imported inside a function of the first.
MUTUAL = {
    ("shardmath.account.anchor", "shardmath.account.accounting"),
    ("shardmath.models.model", "shardmath.models.config_json"),
    ("shardmath.search.spaces.declared", "shardmath.search.spaces.parts"),
}
#: What an answer looks up when it is printed, shown in a notebook or drawn: rooms above it.
SHOWN = {("shardmath.answers", "shardmath.reports.captured"), ("shardmath.answers", "shardmath.plots")}


@dataclass(frozen=True)
class Import:
    """``importer`` imports ``target``; ``lazy`` if only when a function is called, or for type checkers."""

    importer: str
    target: str
    lazy: bool
    in_function: bool


def _module_paths() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


MODULES = _module_paths()


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _statements(
    node: ast.AST, lazy: bool = False, in_function: bool = False,
) -> Iterator[tuple[ast.AST, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        late = lazy or inside or (_is_for_types(node) and child in node.body)
        yield child, late, inside
        yield from _statements(child, late, inside)


def _literal_start(node: ast.expr) -> str:
    """The text with which an argument begins, as far as it is written out."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return _literal_start(node.values[0])
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _targets(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        start = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
        base = ".".join(filter(None, [start, node.module]))
        return [name if (name := f"{base}.{alias.name}") in MODULES else base for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"import_module", "importlib.import_module"}:
        return list(filter(None, [_literal_start(node.args[0]).rstrip(".")]))
    return []


def _imports(module: str) -> Iterator[Import]:
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, lazy, in_function in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        yield from (Import(module, target, lazy, in_function) for target in _targets(node, package))


@cache
def _every_import() -> list[Import]:
    return [found for module in sorted(MODULES) for found in _imports(module)]


def _within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _part(module: str) -> str:
    """``simplify`` for ``shardmath.symbolic.simplify``, ``parallel`` for ``shardmath.symbolic.parallel.data``."""
    name = module.removeprefix("shardmath.symbolic").lstrip(".")
    while name and name not in LEVEL:
        name = name.rpartition(".")[0]
    return name or module.removeprefix("shardmath.symbolic").lstrip(".").partition(".")[0]


def _of(package: str) -> list[Import]:
    return [found for found in _every_import() if _within(found.importer, package)]


def _of_running_code() -> list[Import]:
    others = FOLDERS.keys() - {"shardmath"}
    return [found for found in _every_import() if not _within(found.importer, *others)]


def _room(module: str) -> str:
    """``search.nests`` for ``shardmath.search.nests.rows``, ``search`` for ``shardmath.search.layout``."""
    first, _, rest = module.removeprefix("shardmath.").partition(".")
    inner = f"{first}.{rest.partition('.')[0]}"
    return inner if inner in HEIGHT else first


def test_every_room_has_a_layer() -> None:
    rooms = {_room(found.importer) for found in _of_running_code()} - {"shardmath"}
    assert rooms == HEIGHT.keys()


def test_rooms_import_from_lower_rooms() -> None:
    wrong = [
        found for found in _of_running_code()
        if _within(found.target, "shardmath") and found.target in MODULES and found.importer != "shardmath"
        and (above := _room(found.importer)) != (below := _room(found.target)) and below in HEIGHT
        and HEIGHT[below] >= HEIGHT[above] and (found.importer, found.target) not in SHOWN
    ]
    assert not wrong


def test_every_symbolic_module_has_a_layer() -> None:
    present = {_part(module) for module in MODULES if _within(module, "shardmath.symbolic")} - {""}
    assert present - LEVEL.keys() == set(), "give each of these a place in LAYERS of this file"
    assert LEVEL.keys() - present == set(), "these are gone: take them out of LAYERS of this file"


def test_symbolic_modules_import_from_lower_layers() -> None:
    wrong = [
        found for found in _of("shardmath.symbolic")
        if _within(found.target, "shardmath.symbolic")
        and (below := _part(found.target)) != (above := _part(found.importer))
        and (not above or not below or LEVEL[below] >= LEVEL[above])
    ]
    assert not wrong


def test_symbolic_imports_no_running_code_but_the_compiler() -> None:
    allowed = ("shardmath.symbolic", "shardmath.catalogue", "shardmath.files.rendering", *COMPILES)
    wrong = [
        found for found in _of("shardmath.symbolic")
        if _within(found.target, "shardmath")
        and not _within(found.target, *allowed)
    ]
    assert not wrong


def test_symbolic_needs_sympy_and_nothing_else() -> None:
    outside = {
        found.target.partition(".")[0] for found in _of("shardmath.symbolic")
        if found.target.partition(".")[0] not in {*sys.stdlib_module_names, "shardmath"}
    }
    assert outside <= {"sympy", "mpmath"}


def test_the_compiler_knows_no_formulas() -> None:
    met = {found.target for found in _of_running_code() if _within(found.importer, *COMPILES)
           and _within(found.target, "shardmath") and not _within(found.target, *COMPILES)}
    assert met == {"shardmath.files.rendering"}


def test_one_module_parses_generated_source() -> None:
    """The others parse what a user typed: formulas, formulas of a space (for answers and for the page), a script.

    One parses functions of the package, which the page has in JavaScript.
    """
    parsing = {
        module for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "ast.parse"
    }
    assert parsing == {
        "shardmath.compiler.expressions.formulas", "shardmath.compiler.expressions.source",
        "shardmath.search.spaces.texts", "shardmath.commands.page.spaces", "shardmath.commands.page.translating",
        "shardmath.formats.scripts.python_file",
    }


def test_generated_files_stand_alone() -> None:
    roots = {found.target.partition(".")[0] for found in _of("shardmath.generated")}
    assert roots <= {*sys.stdlib_module_names, "llvmlite", "numba", "numpy"}


@pytest.mark.parametrize("package", ["shardmath.catalogue", "shardmath.templates"])
def test_data_packages_import_only_the_standard_library(package: str) -> None:
    roots = {found.target.partition(".")[0] for found in _of(package) if not _within(found.target, package)}
    assert roots <= sys.stdlib_module_names


def test_running_code_meets_the_mathematics_only_to_show_it() -> None:
    meeting = [
        found for found in _of_running_code()
        if _within(found.target, "shardmath.symbolic")
    ]
    assert [found for found in meeting if not found.lazy] == [], "import shardmath.symbolic inside the function"
    assert {found.importer for found in meeting} == SHOW_FORMULAS


def test_running_code_does_not_import_sympy() -> None:
    met = {(found.importer, found.target.partition(".")[0]) for found in _of_running_code()
           if _within(found.target, "sympy", "jinja2") and not found.lazy}
    assert met == {("shardmath.files.rendering", "jinja2")}


@pytest.mark.process
def test_planning_a_nest_needs_no_sympy() -> None:
    modules = sorted(module for module in MODULES if _within(module, *COMPILES) and module not in LOADING)
    assert _loaded_after(f"import {', '.join(modules)}") & HEAVY <= {"numpy"}


def test_imports_inside_functions_load_what_is_heavy() -> None:
    """The command line, and names of the package, are looked up on first use; all else says why it comes late."""
    inside = {
        (found.importer, found.target) for found in _of_running_code()
        if found.in_function and not _within(found.importer, "shardmath.cli") and found.importer != "shardmath"
        and found.target.partition(".")[0] not in LATE and not _within(found.target, *LOADING)
        and not _within(found.target, "shardmath.symbolic")
        and found.target != "shardmath.generated"  # the evaluator whose name was asked for
    }
    assert inside == MUTUAL | SHOWN


def test_kept_results_are_keyed_by_all_modules_that_compute_them() -> None:
    """``ledger`` only names the types of rows: no result is computed by it, nor by what it imports."""
    below: dict[str, set[str]] = {}
    for found in _of("shardmath.symbolic"):
        below.setdefault(found.importer, set()).add(found.target)
    needed, pending = {"shardmath.symbolic.ledger"}, ["shardmath.symbolic.stored"]
    while pending:
        module = pending.pop()
        if module not in needed and _within(module, "shardmath.symbolic"):
            needed.add(module)
            pending += below.get(module, ())
    assert sorted(needed - {"shardmath.symbolic.ledger"}) == [f"shardmath.symbolic.{name}" for name in stored.MODULES]


def test_no_module_imports_itself_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for found in _every_import():
        if not found.lazy and found.target in MODULES:
            graph.setdefault(found.importer, set()).add(found.target)
    assert list(TopologicalSorter(graph).static_order())


def _loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.process
def test_a_term_of_the_package_is_shown_without_sympy() -> None:
    shown = "from shardmath.commands.formula.report import show; show(shardmath.formula('fujii2024.total'))"
    assert "sympy" not in _loaded_after(f"import shardmath; import os; sys.stdout = open(os.devnull, 'w'); {shown};"
                                        " sys.stdout = sys.__stdout__")


@pytest.mark.process
def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _loaded_after("import shardmath")
    assert loaded & HEAVY == set()
    assert {module for module in loaded if module.startswith("shardmath.")} == set()


@pytest.mark.process
def test_the_command_line_starts_as_light() -> None:
    assert _loaded_after("import shardmath.cli.main") & HEAVY == set()
