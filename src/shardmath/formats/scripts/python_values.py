"""Values of a Python file that is read, never run: plain data, names of other modules, and what calls build.

Values that only a run could tell are ``UNKNOWN``, and nothing follows from them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

#: Characters or items of a value, far more than any recipe has, and integers that a power of two bounds.
_LONGEST, _LARGEST = 10_000, 2**62
BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.BitOr: operator.or_,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right, ast.NotIn: lambda left, right: left not in right,
}
#: Functions of Python on plain values, and methods of plain values.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "len": len, "min": min, "max": max, "list": list,
    "tuple": tuple, "dict": dict, "set": list, "sum": sum, "any": any, "all": all,
}
_PYTHON = "builtins."
_METHODS: Mapping[type, tuple[str, ...]] = {
    str: ("lower", "upper", "strip", "replace", "removeprefix", "removesuffix", "startswith", "endswith", "split"),
    dict: ("items", "keys", "values", "get", "update", "pop", "copy"), list: ("append", "extend", "copy"),
}


class _Itself:
    """A value whose copy is itself."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Unknown(_Itself):
    """A value that is not known without running the file."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN, NOT_HERE = Unknown(), Unknown()


@dataclass(eq=False)
class Built:
    """An object that a call builds: the name of the class or function, and what was given to it and assigned.

    ``usual`` are values of fields that nobody set: they are read, and are no settings of the file.
    """

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()
    usual: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any) -> Any:
        """Return the value of a field, ``default`` where it has none."""
        return self.fields.get(name, self.usual.get(name, default))


@dataclass(frozen=True)
class Name:
    """A name of another module, such as ``torch.bfloat16``."""

    dotted: str


@dataclass(frozen=True, eq=False)
class Function(_Itself):
    """A function of a file, with the names around it."""

    node: ast.FunctionDef
    around: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Class(_Itself):
    """A class of a file, with the names around it."""

    node: ast.ClassDef
    around: dict[str, Any]


#: Makes of the name of a function or class of another module, and what is given to it, what it returns.
Outside = Callable[[str, tuple[Any, ...], Mapping[str, Any]], Any]


def is_plain(value: Any, depth: int = 4) -> bool:
    """Tell whether a value is data without an unknown part."""
    if isinstance(value, list | tuple):
        return depth > 0 and len(value) <= _LONGEST and all(is_plain(item, depth - 1) for item in value)
    if isinstance(value, dict):
        return depth > 0 and all(is_plain(item, depth - 1) for item in value.values())
    return value is None or isinstance(value, str | int | float | Name)


class Values:
    """Expressions of one or several files; ``outside`` says what functions of other modules return."""

    outside: Outside
    built: list[Built]
    notes: dict[str, None]

    def call(self, function: Function, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what a function returns. Raises NotImplementedError: interpreters have it."""
        raise NotImplementedError

    def make(self, made: Class, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return an object of a class of a file. Raises NotImplementedError: interpreters have it."""
        raise NotImplementedError

    def resolve(self, dotted: str) -> Any:
        """Return the value of a name of another module; ``NOT_HERE`` where the module is not followed.

        Raises NotImplementedError: interpreters have it.
        """
        raise NotImplementedError

    def value_of(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        """Return the value of an expression."""
        read = getattr(self, f"_{type(node).__name__.lower()}", None)
        return UNKNOWN if read is None else read(node, scope)

    def _constant(self, node: ast.Constant, scope: Mapping[str, Any]) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Mapping[str, Any]) -> Any:
        usual = Name(f"{_PYTHON}{node.id}") if node.id in _FUNCTIONS else UNKNOWN
        return self._followed(scope.get(node.id, usual))

    def _followed(self, value: Any) -> Any:
        if not isinstance(value, Name):
            return value
        known = self.resolve(value.dotted)
        return value if known is NOT_HERE else known

    def _attribute(self, node: ast.Attribute, scope: Mapping[str, Any]) -> Any:
        owner = self.value_of(node.value, scope)
        if isinstance(owner, Class):
            owner = Name(owner.node.name)
        if isinstance(owner, Name):
            return self._followed(Name(f"{owner.dotted}.{node.attr}"))
        return owner.get(node.attr, UNKNOWN) if isinstance(owner, Built) else UNKNOWN

    def _list(self, node: ast.List | ast.Tuple | ast.Set, scope: Mapping[str, Any]) -> Any:
        values: list[Any] = []
        for item in node.elts:
            inner = item.value if isinstance(item, ast.Starred) else None
            value = self.value_of(item if inner is None else inner, scope)
            if inner is None:
                values.append(value)
            elif isinstance(value, list | tuple):
                values += value
            else:
                return UNKNOWN
        return values

    _set = _list

    def _tuple(self, node: ast.Tuple, scope: Mapping[str, Any]) -> Any:
        values = self._list(node, scope)
        return values if values is UNKNOWN else tuple(values)

    def _dict(self, node: ast.Dict, scope: Mapping[str, Any]) -> Any:
        items: dict[Any, Any] = {}
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.value_of(part, scope)
            if key is None:
                if not isinstance(value, dict):
                    return UNKNOWN
                items |= value
                continue
            name = self.value_of(key, scope)
            if not isinstance(name, str | int | tuple) or not is_plain(name):
                return UNKNOWN
            items[name] = value
        return items

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Mapping[str, Any]) -> Any:
        values = []
        for inner in self._each(node.generators, dict(scope)):
            if inner is None:
                return UNKNOWN
            values.append(self.value_of(node.elt, inner))
        return values

    _setcomp = _generatorexp = _listcomp

    def _each(self, generators: list[ast.comprehension], scope: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
        """Yield the names of each turn of a comprehension with one source; None where that is not known."""
        source = self.value_of(generators[0].iter, scope)
        if len(generators) > 1 or not isinstance(source, list | tuple | dict) or len(source) > _LONGEST:
            yield None
            return
        for item in source:
            self.assign(generators[0].target, item, scope)
            kept = [self.value_of(test, scope) for test in generators[0].ifs]
            if UNKNOWN in kept:
                yield None
                return
            if all(kept):
                yield scope

    def assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        """Assign a value to a name, an attribute, an item or several of these."""
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value_of(target.value, scope)
            if isinstance(owner, Built):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner, key = self.value_of(target.value, scope), self.value_of(target.slice, scope)
            if isinstance(owner, dict) and isinstance(key, str | int):
                owner[key] = value
        elif isinstance(target, ast.Tuple | ast.List):
            values = value if isinstance(value, tuple | list) and len(value) == len(target.elts) else (
                [UNKNOWN] * len(target.elts))
            for inner, part in zip(target.elts, values, strict=True):
                self.assign(inner, part, scope)

    def _joinedstr(self, node: ast.JoinedStr, scope: Mapping[str, Any]) -> Any:
        parts = [self.value_of(part.value if isinstance(part, ast.FormattedValue) else part, scope)
                 for part in node.values]
        plain = all(isinstance(part, str | int) for part in parts)
        return "".join(map(str, parts))[:_LONGEST] if plain else UNKNOWN

    def _subscript(self, node: ast.Subscript, scope: Mapping[str, Any]) -> Any:
        owner, key = self.value_of(node.value, scope), self.value_of(node.slice, scope)
        try:
            return owner[key] if isinstance(owner, dict | list | tuple) else UNKNOWN
        except (KeyError, IndexError, TypeError):
            return UNKNOWN

    def _unaryop(self, node: ast.UnaryOp, scope: Mapping[str, Any]) -> Any:
        value = self.value_of(node.operand, scope)
        if isinstance(value, Unknown | Name):
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN

    def _binop(self, node: ast.BinOp, scope: Mapping[str, Any]) -> Any:
        left, right = self.value_of(node.left, scope), self.value_of(node.right, scope)
        return self.combined(type(node.op), left, right)

    @staticmethod
    def combined(operation: type[ast.operator], left: Any, right: Any) -> Any:
        """Return the value of two operands; ``UNKNOWN`` where it would be too large or is not defined."""
        length = max((len(side) for side in (left, right) if isinstance(side, list | tuple | str)), default=0)
        times = max((side for side in (left, right) if isinstance(side, int)), default=0)
        text = isinstance(left, str) and operation is ast.Mod
        if operation not in BINARY or text or length * max(1, times) > _LONGEST or times > _LARGEST:
            return UNKNOWN
        try:
            return BINARY[operation](left, right)
        except (TypeError, ArithmeticError):
            return UNKNOWN

    def _boolop(self, node: ast.BoolOp, scope: Mapping[str, Any]) -> Any:
        ends = isinstance(node.op, ast.Or)
        value: Any = UNKNOWN
        unknown = False
        for part in node.values:
            value = self.value_of(part, scope)
            if isinstance(value, Unknown):
                unknown = True
            elif bool(value) == ends:
                return value
        return UNKNOWN if unknown else value

    def _compare(self, node: ast.Compare, scope: Mapping[str, Any]) -> Any:
        left, right = self.value_of(node.left, scope), self.value_of(node.comparators[0], scope)
        if len(node.ops) > 1 or type(node.ops[0]) not in _COMPARED or UNKNOWN in (left, right):
            return UNKNOWN
        held = right if isinstance(node.ops[0], ast.In | ast.NotIn) else ()
        if isinstance(held, list | tuple) and UNKNOWN in held:
            return UNKNOWN
        try:
            return _COMPARED[type(node.ops[0])](left, right)
        except TypeError:
            return UNKNOWN

    def _ifexp(self, node: ast.IfExp, scope: Mapping[str, Any]) -> Any:
        decided = self.value_of(node.test, scope)
        return UNKNOWN if decided is UNKNOWN else self.value_of(node.body if decided else node.orelse, scope)

    def _call(self, node: ast.Call, scope: Mapping[str, Any]) -> Any:
        values = self._list(ast.List([*node.args]), scope)
        arguments: tuple[Any, ...] = () if values is UNKNOWN else tuple(values)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value_of(keyword.value, scope)
            keywords |= ({keyword.arg: value} if keyword.arg is not None else value if isinstance(value, dict) else {})
        if isinstance(node.func, ast.Name) and node.func.id not in scope:
            return self._builtin(node.func.id, arguments, keywords)
        function = self.value_of(node.func, scope)
        if isinstance(function, Function):
            return self.call(function, arguments, keywords)
        if isinstance(function, Class):
            value = self.make(function, arguments, keywords)
        elif isinstance(function, Name):
            value = self._of_other(function.dotted, arguments, keywords)
        elif isinstance(node.func, ast.Attribute):
            owner = self.value_of(node.func.value, scope)
            if not isinstance(owner, Built):
                return self._method(owner, node.func.attr, arguments)
            value = self.outside(f"{owner.name}.{node.func.attr}", (owner, *arguments), keywords)
        else:
            return UNKNOWN
        if isinstance(value, Built):
            self.built.append(value)
        return value

    def _of_other(self, dotted: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what a function of another module returns; a note where it is not known and gets a configuration."""
        if dotted in ("copy.deepcopy", "deepcopy", "copy.copy") and len(arguments) == 1:
            return deepcopy(arguments[0])
        if dotted in ("typing.cast", "cast") and len(arguments) == 2:
            return arguments[1]
        if dotted in ("dataclasses.replace", "replace") and len(arguments) == 1 and isinstance(arguments[0], Built):
            whole = deepcopy(arguments[0])
            whole.fields |= keywords
            return whole
        value = self.outside(dotted, arguments, keywords)
        if value is UNKNOWN and any(isinstance(item, Built) for item in (*arguments, *keywords.values())):
            name = dotted.rpartition(".")[2]
            self.notes[f"{name} is a function of another file, which is not here: settings that it changes are not"
                       " read"] = None
        return value

    @staticmethod
    def _method(owner: Any, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return what a method of plain data returns."""
        if name not in _METHODS.get(type(owner), ()) or not all(map(is_plain, arguments)):
            return UNKNOWN
        try:
            value = getattr(owner, name)(*arguments)
        except (TypeError, ValueError, KeyError):
            return UNKNOWN
        long = isinstance(value, str) and len(value) > _LONGEST
        return UNKNOWN if long else list(value) if name in ("items", "keys", "values") else value

    @staticmethod
    def _builtin(name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what a function of Python returns."""
        first = arguments[0] if arguments else UNKNOWN
        if name == "getattr" and len(arguments) > 1 and isinstance(first, Built):
            return first.get(str(arguments[1]), arguments[2] if len(arguments) > 2 else UNKNOWN)
        if name == "hasattr" and len(arguments) == 2 and isinstance(first, Built):
            return True if first.get(str(arguments[1]), UNKNOWN) is not UNKNOWN else UNKNOWN
        if name == "setattr" and len(arguments) == 3 and isinstance(first, Built) and isinstance(arguments[1], str):
            first.fields[arguments[1]] = arguments[2]
            return None
        if name == "isinstance" and len(arguments) == 2:
            return _is_of(first, arguments[1])
        if name == "range" and 0 < len(arguments) < 4 and all(isinstance(item, int) for item in arguments):
            turns = range(*arguments) if 0 not in arguments[2:] else range(0)
            return [*turns] if len(turns) <= _LONGEST else UNKNOWN
        if name == "dict" and not arguments:
            return dict(keywords)
        if name not in _FUNCTIONS or keywords or not is_plain(arguments, 6):
            return UNKNOWN
        try:
            value = _FUNCTIONS[name](*arguments)
        except (TypeError, ValueError, OverflowError):
            return UNKNOWN
        return value if is_plain(value, 6) else UNKNOWN


def _is_of(value: Any, kind: Any) -> Any:
    """Tell whether a value is of a class, as far as that is known."""
    if isinstance(value, Unknown) or not isinstance(kind, Name | Class):
        return UNKNOWN
    if isinstance(kind, Name) and kind.dotted.startswith(_PYTHON):
        python = _FUNCTIONS[kind.dotted.removeprefix(_PYTHON)]
        return isinstance(value, python) if isinstance(python, type) else UNKNOWN
    named = kind.dotted.rpartition(".")[2] if isinstance(kind, Name) else kind.node.name
    if isinstance(value, Name | Built):
        return True if isinstance(value, Built) and value.name == named else UNKNOWN
    return False
