"""A Python file of settings read, never run: what its functions assign to a configuration.

Assignments, attributes, calls of functions that are known, decided conditions and plain data are followed. Values that
only a run could tell are ``UNKNOWN``, and nothing follows from them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardmath.errors import ABSENT, InputError, nearest_names

#: Statements that are followed, and calls in one another: far more than any recipe has.
_MOST, _DEEPEST, _LONGEST = 20_000, 20, 10_000
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right, ast.NotIn: lambda left, right: left not in right,
}


class Unknown:
    """A value that is not known without running the file."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(eq=False)
class Built:
    """An object that a call builds: the name of the class or function, and what was given to it and assigned."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Name:
    """A name of another module, such as ``torch.bfloat16``."""

    dotted: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function of a file, with the names around it."""

    node: ast.FunctionDef
    around: dict[str, Any]


#: Makes of the name of a function or class of another module, and what is given to it, what it returns.
Outside = Callable[[str, tuple[Any, ...], Mapping[str, Any]], Any]


class _Returned(Exception):  # noqa: N818 - it ends a function, and is no error
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _is(value: object, kind: str) -> bool:
    return isinstance(value, Built) and value.name == kind


class Interpreter:
    """Follows functions of one or several files; ``outside`` says what functions of other modules return."""

    def __init__(self, path: str, outside: Outside) -> None:
        self.path, self.outside = path, outside
        self.statements = self.depth = 0
        self.built: list[Built] = []

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
        except RecursionError:
            raise InputError("model", self.path, "must not nest so deeply") from None
        return scope

    def made(self, scope: Mapping[str, Any], kind: str, chosen: str | None, ends: tuple[str, ...]) -> Built | None:
        """Return the object ``kind`` that a file makes by the function ``chosen``, its statements or its only function.

        Functions are those whose names have one of ``ends``. Raises InputError where several could be meant.
        """
        functions = {name: value for name, value in scope.items() if isinstance(value, Function) and name.endswith(ends)
                     and not name.startswith("_")}
        if chosen is not None and chosen not in functions:
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
            self._value(default, function.around) for default in parameters.defaults]
        scope |= dict(zip(named, defaults, strict=True)) | dict(zip(named, arguments, strict=False))
        for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            scope[parameter.arg] = UNKNOWN if default is None else self._value(default, function.around)
        if parameters.kwarg is not None:
            scope[parameters.kwarg.arg] = {name: value for name, value in (keywords or {}).items() if name not in named}
        scope |= {name: value for name, value in (keywords or {}).items() if name in scope}
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
            value = self._value(node.value, scope)
            for target in node.targets:
                self._assign(target, value, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self._value(node.value, scope), scope)
        elif isinstance(node, ast.FunctionDef):
            scope[node.name] = Function(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope[node.name] = Name(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                short = alias.asname or (alias.name if above else alias.name.partition(".")[0])
                scope[short] = Name(f"{above}{alias.name}" if alias.asname or above else short)
        elif isinstance(node, ast.If):
            decided = self._value(node.test, scope)
            if decided is not UNKNOWN:
                self._run(node.body if decided else node.orelse, scope)
        elif isinstance(node, ast.Return):
            raise _Returned(None if node.value is None else self._value(node.value, scope))
        elif isinstance(node, ast.Expr):
            self._value(node.value, scope)
        elif isinstance(node, ast.With | ast.Try):
            self._run(node.body, scope)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._value(target.value, scope)
            if isinstance(owner, Built):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Tuple):
            values = value if isinstance(value, tuple | list) and len(value) == len(target.elts) else (
                [UNKNOWN] * len(target.elts))
            for inner, part in zip(target.elts, values, strict=True):
                self._assign(inner, part, scope)

    def _value(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        read = getattr(self, f"_{type(node).__name__.lower()}", None)
        return UNKNOWN if read is None else read(node, scope)

    def _constant(self, node: ast.Constant, scope: Mapping[str, Any]) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Mapping[str, Any]) -> Any:
        return scope.get(node.id, UNKNOWN)

    def _attribute(self, node: ast.Attribute, scope: Mapping[str, Any]) -> Any:
        owner = self._value(node.value, scope)
        if isinstance(owner, Name):
            return Name(f"{owner.dotted}.{node.attr}")
        return owner.fields.get(node.attr, UNKNOWN) if isinstance(owner, Built) else UNKNOWN

    def _list(self, node: ast.List | ast.Tuple, scope: Mapping[str, Any]) -> Any:
        return [self._value(item, scope) for item in node.elts]

    def _tuple(self, node: ast.Tuple, scope: Mapping[str, Any]) -> Any:
        return tuple(self._list(node, scope))

    def _dict(self, node: ast.Dict, scope: Mapping[str, Any]) -> Any:
        items = [(UNKNOWN if key is None else self._value(key, scope), self._value(value, scope))
                 for key, value in zip(node.keys, node.values, strict=True)]
        return dict(items) if all(isinstance(key, str | int | tuple) for key, _ in items) else UNKNOWN

    def _subscript(self, node: ast.Subscript, scope: Mapping[str, Any]) -> Any:
        owner, key = self._value(node.value, scope), self._value(node.slice, scope)
        try:
            return owner[key] if isinstance(owner, dict | list | tuple) else UNKNOWN
        except (KeyError, IndexError, TypeError):
            return UNKNOWN

    def _unaryop(self, node: ast.UnaryOp, scope: Mapping[str, Any]) -> Any:
        value = self._value(node.operand, scope)
        if isinstance(value, Unknown | Built | Name):
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN

    def _binop(self, node: ast.BinOp, scope: Mapping[str, Any]) -> Any:
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        length = max((len(side) for side in (left, right) if isinstance(side, list | str)), default=0)
        times = max((side for side in (left, right) if isinstance(side, int)), default=0)
        if type(node.op) not in _BINARY or length * max(1, times) > _LONGEST or times > 2**62:
            return UNKNOWN
        try:
            return _BINARY[type(node.op)](left, right)
        except (TypeError, ArithmeticError):
            return UNKNOWN

    def _boolop(self, node: ast.BoolOp, scope: Mapping[str, Any]) -> Any:
        value: Any = UNKNOWN
        for part in node.values:
            value = self._value(part, scope)
            if isinstance(value, Unknown) or bool(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def _compare(self, node: ast.Compare, scope: Mapping[str, Any]) -> Any:
        left, right = self._value(node.left, scope), self._value(node.comparators[0], scope)
        if len(node.ops) > 1 or type(node.ops[0]) not in _COMPARED or UNKNOWN in (left, right):
            return UNKNOWN
        try:
            return _COMPARED[type(node.ops[0])](left, right)
        except TypeError:
            return UNKNOWN

    def _ifexp(self, node: ast.IfExp, scope: Mapping[str, Any]) -> Any:
        decided = self._value(node.test, scope)
        return UNKNOWN if decided is UNKNOWN else self._value(node.body if decided else node.orelse, scope)

    def _call(self, node: ast.Call, scope: Mapping[str, Any]) -> Any:
        arguments = tuple(self._value(argument, scope) for argument in node.args)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._value(keyword.value, scope)
            keywords |= ({keyword.arg: value} if keyword.arg is not None else value if isinstance(value, dict) else {})
        if isinstance(node.func, ast.Name) and node.func.id not in scope:
            return self._builtin(node.func.id, arguments)
        function = self._value(node.func, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "upper", "strip") and not arguments:
            text = self._value(node.func.value, scope)
            return getattr(text, node.func.attr)() if isinstance(text, str) else UNKNOWN
        if isinstance(function, Function):
            return self.call(function, arguments, keywords)
        if isinstance(function, Name):
            value = self.outside(function.dotted, arguments, keywords)
        elif isinstance(node.func, ast.Attribute) and isinstance(owner := self._value(node.func.value, scope), Built):
            value = self.outside(f"{owner.name}.{node.func.attr}", (owner, *arguments), keywords)
        else:
            return UNKNOWN
        if isinstance(value, Built):
            self.built.append(value)
        return value

    @staticmethod
    def _builtin(name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "getattr" and len(arguments) > 1 and isinstance(arguments[0], Built):
            return arguments[0].fields.get(str(arguments[1]), arguments[2] if len(arguments) > 2 else UNKNOWN)
        if name == "isinstance" and len(arguments) == 2 and isinstance(arguments[1], Unknown):
            return isinstance(arguments[0], str) if not isinstance(arguments[0], Unknown) else UNKNOWN
        return UNKNOWN
