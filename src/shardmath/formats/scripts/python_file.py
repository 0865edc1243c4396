"""A Python file of settings read, never run: what its functions assign to a configuration.

Assignments, attributes, calls of functions that are known, decided conditions, loops over what is known and plain data
are followed. ``notes`` of an interpreter say what was left out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Protocol

from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.formats.scripts.python_values import NOT_HERE, UNKNOWN, Built, Class, Function, Name, Outside, Values

#: Statements that are followed, and calls in one another: far more than any recipe has.
_MOST, _DEEPEST = 200_000, 20
#: Classes whose defaults are settings: models.
_PROVIDER = "Provider"
#: Names that a module has of its own.
PACKAGE = "__package__"


class _Returned(Exception):  # noqa: N818 - it ends a function, and is no error
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Others(Protocol):
    """Modules that a file imports."""

    def value(self, dotted: str) -> Any:
        """Return the value of a name; ``NOT_HERE`` where no file has it."""

    def scope(self, dotted: str) -> dict[str, Any] | None:
        """Return the names of a module; None where there is no file of it."""


class Interpreter(Values):
    """Follows functions of one or several files; ``outside`` says what functions of other modules return."""

    def __init__(self, path: str, outside: Outside) -> None:
        self.path, self.outside = path, outside
        self.statements = self.depth = 0
        self.built: list[Built] = []
        self.notes: dict[str, None] = {}
        self.modules: Others | None = None

    def module(self, text: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
        """Follow the statements of a module; its names. Raises InputError for a text that is not Python."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise InputError("model", self.path, f"must be complete Python: it has a fault{line}") from None
        scope = {} if names is None else names
        try:
            self._run(tree.body, scope)
        except _Returned:
            return scope
        except RecursionError:
            raise InputError("model", self.path, "must not nest so deeply") from None
        return scope

    def made(self, scope: Mapping[str, Any], kind: str, chosen: str | None, ends: tuple[str, ...]) -> Built | None:
        """Return the object ``kind`` that a file makes by the function ``chosen``, its statements or its only function.

        Functions are those whose names have one of ``ends``. Raises InputError where several could be meant.
        """
        functions = {name: value for name, value in scope.items() if isinstance(value, Function) and name.endswith(ends)
                     and not name.startswith("_")}
        if chosen is not None and isinstance(scope.get(chosen), Name):
            functions[chosen] = self.resolve(scope[chosen].dotted)
        if chosen is not None and not isinstance(functions.get(chosen), Function):
            rule = f"must be a function of the file: {', '.join(functions) or 'it has none'}"
            raise InputError("recipe", chosen, rule, nearest_names(chosen, functions))
        value = None if chosen else next((value for value in [*scope.values()][::-1] if _is(value, kind)), None)
        if value is None and chosen is None and len(functions) > 1 and "main" not in functions:
            rule = f"must name one of the functions with --set recipe=NAME: {', '.join(functions)}"
            raise InputError("recipe", ABSENT, rule)
        if value is None and functions:
            value = self.call(functions[chosen or ("main" if "main" in functions else next(iter(functions)))])
        if not _is(value, kind):
            value = next((value for value in reversed(self.built) if _is(value, kind)), None)
        return value if isinstance(value, Built) else None

    def resolve(self, dotted: str) -> Any:
        """Return the value of a name of another module; ``NOT_HERE`` where there are none, or none of that name."""
        return NOT_HERE if self.modules is None else self.modules.value(dotted)

    def make(self, made: Class, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return an object of a class of a file: that of a model with the defaults of its classes."""
        usual = self._defaults(made) if made.node.name.endswith(_PROVIDER) else {}
        value = self.outside(made.node.name, arguments, keywords)
        if isinstance(value, Built):
            value.fields = usual | value.fields
        return value

    def _defaults(self, made: Class) -> dict[str, Any]:
        """Return the defaults of a class and of those that it is made of, but for those of every model."""
        if self.depth >= _DEEPEST or made.node.name == f"GPTModel{_PROVIDER}":
            return {}
        fields: dict[str, Any] = {}
        self.depth += 1
        for base in reversed(made.node.bases):
            above = self.value_of(base, made.around)
            fields |= self._defaults(above) if isinstance(above, Class) else {}
        self.depth -= 1
        for item in made.node.body:
            if isinstance(item, ast.AnnAssign) and item.value is not None and isinstance(item.target, ast.Name):
                fields[item.target.id] = self.value_of(item.value, made.around)
        return fields

    def call(
        self, function: Function, arguments: tuple[Any, ...] = (), keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what a function returns; ``UNKNOWN`` below the deepest call."""
        if self.depth >= _DEEPEST:
            return UNKNOWN
        scope = dict(function.around)
        parameters = function.node.args
        named = [parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args)]
        defaults = [UNKNOWN] * (len(named) - len(parameters.defaults)) + [
            self.value_of(default, function.around) for default in parameters.defaults]
        scope |= dict(zip(named, defaults, strict=True)) | dict(zip(named, arguments, strict=False))
        for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            scope[parameter.arg] = UNKNOWN if default is None else self.value_of(default, function.around)
        named += [parameter.arg for parameter in parameters.kwonlyargs]
        if parameters.kwarg is not None:
            scope[parameters.kwarg.arg] = {name: value for name, value in (keywords or {}).items() if name not in named}
        scope |= {name: value for name, value in (keywords or {}).items() if name in named}
        self.depth += 1
        try:
            self._run(function.node.body, scope)
        except _Returned as end:
            return end.value
        finally:
            self.depth -= 1
        return None

    def _run(self, body: list[ast.stmt], scope: dict[str, Any]) -> None:
        for node in body:
            self.statements += 1
            if self.statements > _MOST:
                raise InputError("model", self.path, f"must have at most {_MOST} statements")
            self._statement(node, scope)

    def _statement(self, node: ast.stmt, scope: dict[str, Any]) -> None:
        if isinstance(node, ast.Assign):
            value = self.value_of(node.value, scope)
            for target in node.targets:
                self.assign(target, value, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value_of(node.value, scope), scope)
        elif isinstance(node, ast.AugAssign):
            value = self.combined(type(node.op), self.value_of(node.target, scope), self.value_of(node.value, scope))
            self.assign(node.target, value, scope)
        elif isinstance(node, ast.FunctionDef):
            scope[node.name] = Function(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope[node.name] = Class(node, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope)
        elif isinstance(node, ast.If):
            decided = self.value_of(node.test, scope)
            if decided is not UNKNOWN:
                self._run(node.body if decided else node.orelse, scope)
            else:
                self._left_out(node, f"the condition `{ast.unparse(node.test)[:80]}` is", scope)
        elif isinstance(node, ast.For):
            self._loop(node, scope)
        elif isinstance(node, ast.Return):
            raise _Returned(None if node.value is None else self.value_of(node.value, scope))
        elif isinstance(node, ast.Raise):
            raise _Returned(UNKNOWN)
        elif isinstance(node, ast.Expr):
            self.value_of(node.value, scope)
        elif isinstance(node, ast.With | ast.Try):
            self._run(node.body, scope)

    def _loop(self, node: ast.For, scope: dict[str, Any]) -> None:
        """Follow a loop over values that are known."""
        source = self.value_of(node.iter, scope)
        if not isinstance(source, list | tuple | dict) or any(
                isinstance(inner, ast.Break | ast.Continue) for inner in ast.walk(node)):
            self._left_out(node, f"the turns of the loop over `{ast.unparse(node.iter)[:80]}` are", scope)
            return
        for item in source:
            self.assign(node.target, item, scope)
            self._run(node.body, scope)

    def _left_out(self, node: ast.stmt, noun: str, scope: Mapping[str, Any]) -> None:
        """Note that statements were left out, if they change settings."""
        targets = [target for inner in ast.walk(node) if isinstance(inner, ast.Assign | ast.AugAssign)
                   for target in (inner.targets if isinstance(inner, ast.Assign) else [inner.target])]
        if any(isinstance(target, ast.Attribute) and self._is_setting(target, scope) for target in targets):
            self.notes[f"line {node.lineno}: {noun} not known without running the file: what depends on it is left"
                       " out"] = None

    def _is_setting(self, target: ast.Attribute, scope: Mapping[str, Any]) -> bool:
        return isinstance(self.value_of(target.value, scope), Built)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: dict[str, Any]) -> None:
        """Put names of other modules in a scope; relative ones from the package of the file."""
        above = ""
        if isinstance(node, ast.ImportFrom):
            package = str(scope.get(PACKAGE, "")).split(".")
            around = package[:len(package) - node.level + 1] if node.level else []
            above = ".".join(filter(None, (*around, node.module or ""))) + "."
        for alias in node.names:
            if alias.name == "*":
                names = (self.modules.scope(above[:-1]) if self.modules else None) or {}
                scope |= {name: value for name, value in names.items() if not name.startswith("_")}
                continue
            short = alias.asname or (alias.name if above else alias.name.partition(".")[0])
            scope[short] = Name(f"{above}{alias.name}" if alias.asname or above else short)


def _is(value: object, kind: str) -> bool:
    return isinstance(value, Built) and value.name == kind
