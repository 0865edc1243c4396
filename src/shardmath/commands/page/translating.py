"""Translate plain Python functions into JavaScript, with all that they call: the page writes files as the commands do.

The functions are those that write formats: they take an account and return text. JavaScript has the same names for
what Python has built in (``templates/page/python.js``): dictionaries are maps, tuples and lists are arrays.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

#: Words of JavaScript that are names in Python.
_RESERVED = frozenset(("case", "const", "default", "delete", "do", "export", "extends", "function", "interface", "let",
                       "new", "null", "private", "static", "super", "switch", "this", "typeof", "var", "void"))
_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floorDivide",
    ast.Mod: "modulo", ast.BitOr: "union",
    ast.Eq: "equal", ast.NotEq: "unequal", ast.Lt: "less", ast.LtE: "atMost", ast.Gt: "more", ast.GtE: "atLeast",
    ast.In: "isIn", ast.NotIn: "isNotIn", ast.Is: "isSame", ast.IsNot: "isNotSame",
}
#: Functions that the page has beside the built-in ones.
_KNOWN = ("json.dumps", "shlex.quote", "re.fullmatch", "re.findall")


class Translation:
    """JavaScript of functions and of all that they use; ``replaced`` functions are the page's, by its name."""

    def __init__(self, replaced: Mapping[Callable[..., Any], str]) -> None:
        self._replaced, self._texts = dict(replaced), dict[str, str]()

    def of(self, function: Callable[..., Any]) -> str:
        """Translate a function; return its name in JavaScript."""
        if function in self._replaced:
            return self._replaced[function]
        assert isinstance(function, FunctionType)
        name = self._named(function.__module__, function.__name__)
        if name not in self._texts:
            self._texts[name] = ""  # so that a function may call itself
            tree = ast.parse(dedent(inspect.getsource(function))).body[0]
            assert isinstance(tree, ast.FunctionDef)
            self._texts[name] = _Function(self, function.__globals__, tree).text(name)
        return name

    def value(self, module: str, name: str, value: Any) -> str:
        """Return the JavaScript of a constant of a module, which is declared once."""
        named = self._named(module, name)
        if named not in self._texts:
            self._texts[named] = ""
            text = self._declared(module, name) if _has_functions(value) else literal(value)
            self._texts[named] = f"const {named} = {text};"
        return named

    def texts(self) -> list[str]:
        """Return all declarations: constants first, as functions stand anywhere."""
        return sorted(self._texts.values(), key=lambda text: text.startswith("function"))

    def _declared(self, module: str, name: str) -> str:
        home = sys.modules[module]
        for node in ast.parse(inspect.getsource(home)).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Name) and target.id == name:
                    return _Function(self, vars(home), None).expression(node.value)
        raise ValueError(f"{module} has no constant {name}")

    @staticmethod
    def _named(module: str, name: str) -> str:
        return f"{module.rpartition('.')[2]}_{name.lstrip('_')}"


def translated(functions: Mapping[str, Callable[..., Any]], replaced: Mapping[Callable[..., Any], str]) -> str:
    """Return JavaScript that declares functions and all that they use, and ``WRITERS`` with their own names."""
    translation = Translation(replaced)
    names = {name: translation.of(function) for name, function in functions.items()}
    listed = ", ".join(f"{json.dumps(name)}: {own}" for name, own in names.items())
    return "\n".join((*translation.texts(), f"const WRITERS = {{ {listed} }};", ""))


def literal(value: Any) -> str:
    """Return the JavaScript of plain data. Raises ValueError for any other."""
    match value:
        case None | bool() | int() | str():
            return json.dumps(value)
        case float():
            return f"new Real({json.dumps(value)})" if value.is_integer() else json.dumps(value)
        case re.Pattern():
            return f"new Pattern({json.dumps(value.pattern)})"
        case Mapping():
            return f"new Map([{', '.join(f'[{literal(key)}, {literal(item)}]' for key, item in value.items())}])"
        case tuple() | list():
            return f"[{', '.join(map(literal, value))}]"
        case set() | frozenset():
            return f"[{', '.join(sorted(map(literal, value)))}]"
    raise ValueError(f"no JavaScript for {value!r}")


def _has_functions(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_functions, value.values()))
    return any(map(_has_functions, value)) if isinstance(value, tuple | list) else isinstance(value, FunctionType)


class _Function:
    """The body of one function, and the names that are its own."""

    def __init__(self, translation: Translation, names: Mapping[str, Any], tree: ast.FunctionDef | None) -> None:
        self._translation, self._names, self._tree = translation, names, tree
        nodes = [*ast.walk(tree)] if tree is not None else []
        self._parameters = [item.arg for item in tree.args.args] if tree is not None else []
        comprehended = {name.id for node in nodes if isinstance(node, ast.comprehension)
                        for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._locals = {*self._parameters, *stored}
        self._inner: list[set[str]] = []
        self._declared = sorted(stored - {*self._parameters} - (comprehended - self._assigned(nodes)))

    @staticmethod
    def _assigned(nodes: Iterable[ast.AST]) -> set[str]:
        """Return the names that statements assign."""
        targets = [target for node in nodes for target in (
            node.targets if isinstance(node, ast.Assign) else
            [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr) else ())]
        return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}

    def text(self, name: str) -> str:
        assert self._tree is not None
        star = "*" if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(self._tree)) else ""
        first = len(self._parameters) - len(self._tree.args.defaults)
        parameters = [
            _word(item) + (f" = {self.expression(self._tree.args.defaults[place - first])}" if place >= first else "")
            for place, item in enumerate(self._parameters)
        ]
        declared = f"  let {', '.join(map(_word, self._declared))};\n" if self._declared else ""
        return f"function{star} {name}({', '.join(parameters)}) {{\n{declared}{self._block(self._tree.body)}}}"

    def _block(self, body: Iterable[ast.stmt]) -> str:
        return "".join(f"  {self._statement(node)}\n" for node in body)

    def _statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Expr(ast.Constant()):
                return ""
            case ast.Expr(value):
                return f"{self.expression(value)};"
            case ast.Return(value):
                return f"return {self.expression(value) if value is not None else ''};"
            case ast.Raise(ast.Call() as call):
                return f"throw {self.expression(call)};"
            case ast.Assign(targets, value):
                return self._assign(targets, self.expression(value))
            case ast.AnnAssign(ast.Name() as target, _, ast.expr() as value):
                return self._assign([target], self.expression(value))
            case ast.AugAssign(target, operator, value):
                return self._assign([target], self._operated(operator, target, value))
            case ast.If(test, body, orelse):
                other = f" else {{\n{self._block(orelse)}}}" if orelse else ""
                return f"if ({self._test(test)}) {{\n{self._block(body)}}}{other}"
            case ast.For(target, iterated, body, []):
                head = f"for ({self._target(target)} of iterated({self.expression(iterated)}))"
                return f"{head} {{\n{self._block(body)}}}"
        raise ValueError(f"no JavaScript for {ast.unparse(node)}")

    def _assign(self, targets: list[ast.expr], value: str) -> str:
        match targets:
            case [ast.Subscript(owner, key)]:
                return f"put({self.expression(owner)}, {self.expression(key)}, {value});"
            case [ast.Subscript() as first, *others]:
                return f"{self._assign([first], f'(keptValue = {value})')} {self._assign(others, 'keptValue')}"
            case [target]:
                return f"{self._target(target)} = {value};"
        raise ValueError("no JavaScript for several targets")

    def _target(self, node: ast.expr) -> str:
        match node:
            case ast.Name(name):
                return _word(name)
            case ast.Tuple(items):
                return f"[{', '.join(map(self._target, items))}]"
        raise ValueError(f"no JavaScript for the target {ast.unparse(node)}")

    def _test(self, node: ast.expr) -> str:
        return f"truth({self.expression(node)})"

    def _operated(self, operator: ast.AST, *parts: ast.expr) -> str:
        return f"{_OPERATORS[type(operator)]}({', '.join(map(self.expression, parts))})"

    def expression(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value):
                return literal(value)
            case ast.Name():
                return self._name(node.id)
            case ast.JoinedStr(values):
                return f"[{', '.join(map(self.expression, values))}].join(\"\")"
            case ast.FormattedValue(value, _, spec):
                shown = json.dumps(spec.values[0].value) if isinstance(spec, ast.JoinedStr) else '""'  # type: ignore[attr-defined]
                return f"formatted({self.expression(value)}, {shown})"
            case ast.BinOp(left, operator, right):
                return self._operated(operator, left, right)
            case ast.UnaryOp(ast.Not(), operand):
                return f"!{self._test(operand)}"
            case ast.UnaryOp(ast.USub(), operand):
                return f"(-{self.expression(operand)})"
            case ast.BoolOp(operator, values):
                name = "both" if isinstance(operator, ast.And) else "either"
                return f"{name}({', '.join(f'() => {self.expression(value)}' for value in values)})"
            case ast.Compare(left, operators, rights):
                pairs = zip(operators, [left, *rights], rights, strict=False)
                return f"({' && '.join(self._operated(*pair) for pair in pairs)})"
            case ast.IfExp(test, body, orelse):
                return f"({self._test(test)} ? {self.expression(body)} : {self.expression(orelse)})"
            case ast.NamedExpr(target, value):
                return f"({self._target(target)} = {self.expression(value)})"
            case ast.Tuple(items) | ast.List(items) | ast.Set(items):
                return f"[{', '.join(map(self._item, items))}]"
            case ast.Dict(keys, values):
                return f"union({', '.join(map(self._entry, keys, values))})" if keys else "new Map()"
            case ast.ListComp(item, loops) | ast.GeneratorExp(item, loops) | ast.SetComp(item, loops):
                return self._comprehended(loops, lambda: self.expression(item))
            case ast.DictComp(key, value, loops):
                pair = ast.Tuple([key, value], ast.Load())
                return f"new Map({self._comprehended(loops, lambda: self.expression(pair))})"
            case ast.Lambda(arguments, body):
                return self._lambda([item.arg for item in arguments.args], body)
            case ast.Yield(value):
                return f"yield {self.expression(value) if value is not None else ''}"
            case ast.YieldFrom(value):
                return f"yield* iterated({self.expression(value)})"
            case ast.Subscript(owner, ast.Slice(lower, upper, None)):
                ends = [self.expression(end) if end is not None else "undefined" for end in (lower, upper)]
                return f"sliced({self.expression(owner)}, {', '.join(ends)})"
            case ast.Subscript(owner, key):
                return f"at({self.expression(owner)}, {self.expression(key)})"
            case ast.Attribute() | ast.Call():
                return self._reached(node)
        raise ValueError(f"no JavaScript for {ast.unparse(node)}")

    def _item(self, node: ast.expr) -> str:
        return f"...iterated({self.expression(node.value)})" if isinstance(node, ast.Starred) else self.expression(node)

    def _entry(self, key: ast.expr | None, value: ast.expr) -> str:
        if key is None:
            return self.expression(value)
        return f"new Map([[{self.expression(key)}, {self.expression(value)}]])"

    def _comprehended(self, loops: list[ast.comprehension], item: Callable[[], str]) -> str:
        own = {name.id for loop in loops for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
        head = ""
        first = self.expression(loops[0].iter)
        self._inner.append(own)
        for place, loop in enumerate(loops):
            walked = first if place == 0 else self.expression(loop.iter)
            tests = "".join(f" if ({self._test(test)})" for test in loop.ifs)
            head += f"for (const {self._target(loop.target)} of iterated({walked})){tests} "
        text = f"collected((keep) => {{ {head}keep({item()}); }})"
        self._inner.pop()
        return text

    def _lambda(self, parameters: list[str], body: ast.expr) -> str:
        self._inner.append({*parameters})
        text = f"(({', '.join(map(_word, parameters))}) => {self.expression(body)})"
        self._inner.pop()
        return text

    def _name(self, name: str) -> str:
        if name in self._locals or any(name in names for names in self._inner):
            return _word(name)
        return self._global(self._names, name)

    def _global(self, names: Mapping[str, Any], name: str) -> str:
        if name not in names:
            return f"python.{name}"
        value = names[name]
        if isinstance(value, FunctionType):
            return self._translation.of(value)
        if isinstance(value, type):
            return f"python.{value.__name__}"
        home = names["__name__"]
        return self._translation.value(home, name, value)

    def _reached(self, node: ast.Attribute | ast.Call) -> str:
        """Return an attribute, or a call of a function, of a class or of a method."""
        if isinstance(node, ast.Attribute):
            module = self._module(node.value)
            if module is not None:
                known = f"{module.__name__}.{node.attr}"
                return f"python.{node.attr}" if known in _KNOWN else self._global(vars(module), node.attr)
            return f"{self.expression(node.value)}.{_word(node.attr)}"
        arguments = [*map(self._item, node.args)]
        if node.keywords:
            named = [f"{_word(item.arg or '')}: {self.expression(item.value)}" for item in node.keywords if item.arg]
            spread = [f"...named({self.expression(item.value)})" for item in node.keywords if item.arg is None]
            arguments.append(f"{{ {', '.join(named + spread)} }}")
        if isinstance(node.func, ast.Attribute) and self._module(node.func.value) is None:
            owner = self.expression(node.func.value)
            return f"method({', '.join((json.dumps(node.func.attr), owner, *arguments))})"
        called = self.expression(node.func)
        return f"{'new ' if called in _CLASSES else ''}{called}({', '.join(arguments)})"

    def _module(self, node: ast.expr) -> ModuleType | None:
        value = self._names.get(node.id) if isinstance(node, ast.Name) and node.id not in self._locals else None
        return value if isinstance(value, ModuleType) else None


_CLASSES = ("python.InputError", "python.ValueError")


def _word(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name
