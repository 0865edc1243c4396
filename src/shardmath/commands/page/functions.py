"""Translate the body of one Python function into JavaScript, statement by statement."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from inspect import signature
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmath.commands.page.translating import Translation

#: Words of JavaScript that are names in Python.
_RESERVED = frozenset(("case", "const", "default", "delete", "do", "export", "extends", "function",
                       "interface", "let", "new", "null", "private", "static", "super", "switch", "this", "typeof",
                       "var", "void"))
_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floorDivide",
    ast.Mod: "modulo", ast.Pow: "power", ast.BitOr: "union", ast.BitAnd: "common",
    ast.Eq: "equal", ast.NotEq: "unequal", ast.Lt: "less", ast.LtE: "atMost", ast.Gt: "more", ast.GtE: "atLeast",
    ast.In: "isIn", ast.NotIn: "isNotIn", ast.Is: "isSame", ast.IsNot: "isNotSame",
}
#: Functions and names of JavaScript that no variable hides.
_HELPERS = frozenset((*_OPERATORS.values(), "arguments", "at", "both", "collected", "either", "formatted",
                      "inherited", "inside", "iterated", "method", "named", "put", "python", "sliced", "truth",
                      "unpacked"))
#: Functions that the page has beside the built-in ones.
_KNOWN = ("difflib.get_close_matches", "json.dumps", "shlex.quote", "re.fullmatch", "re.findall", "re.finditer",
          "re.split", "re.sub")
_CLASSES = ("python.InputError", "python.ValueError")
#: Ways to write a number that the page knows.
_SHOWN = re.compile(r"|,|(\.\d+)?[fg]")


def literal(value: Any) -> str:
    """Return the JavaScript of plain data. Raises ValueError for any other."""
    match value:
        case None | bool() | int() | str():
            return json.dumps(value)
        case float():
            return f"new Real({json.dumps(value)})" if value.is_integer() else json.dumps(value)
        case re.Pattern():
            return f"new Pattern({json.dumps(value.pattern)})"
        case Enum():
            return f"python.{value.name}"
        case tuple() if hasattr(value, "_asdict"):
            return f"{{ {', '.join(f'{key}: {literal(item)}' for key, item in value._asdict().items())} }}"
        case Mapping():
            return f"new Map([{', '.join(f'[{literal(key)}, {literal(item)}]' for key, item in value.items())}])"
        case tuple() | list():
            return f"[{', '.join(map(literal, value))}]"
        case set() | frozenset():
            return f"[{', '.join(sorted(map(literal, value)))}]"
    raise ValueError(f"no JavaScript for {value!r}")


class Function:
    """The body of one function, or of a method of the class ``kind``, and the names that are its own."""

    def __init__(
        self, translation: Translation, names: Mapping[str, Any], tree: ast.FunctionDef | None, kind: str = "",
    ) -> None:
        self._translation, self._names, self._tree, self._kind = translation, names, tree, kind
        nodes = [*ast.walk(tree)] if tree is not None else []
        self._parameters = [item.arg for item in (*tree.args.args, *tree.args.kwonlyargs)] if tree is not None else []
        comprehended = {name.id for node in nodes if isinstance(node, ast.comprehension)
                        for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        caught = {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
        self._locals = {*self._parameters, *stored, *caught}
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
        """Return the function in JavaScript, with this name."""
        assert self._tree is not None
        star = "*" if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(self._tree)) else ""
        inputs = self._tree.args
        defaults = [None] * (len(inputs.args) - len(inputs.defaults)) + [*inputs.defaults, *inputs.kw_defaults]
        usual = ["" if default is None else f" = {self.expression(default)}" for default in defaults]
        parameters = [f"{_variable(item)}{default}" for item, default in zip(self._parameters, usual, strict=True)]
        declared = f"  let {', '.join(map(_variable, self._declared))};\n" if self._declared else ""
        return f"function{star} {name}({', '.join(parameters)}) {{\n{declared}{self._block(self._tree.body)}}}"

    def _block(self, body: Iterable[ast.stmt]) -> str:
        return "".join(f"  {self._statement(node)}\n" for node in body)

    def _statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Expr(ast.Constant()) | ast.Pass():
                return ""
            case ast.Expr(value):
                return f"{self.expression(value)};"
            case ast.Return(value):
                return f"return {self.expression(value) if value is not None else ''};"
            case ast.Raise(ast.Call() as call):
                return f"throw {self.expression(call)};"
            case ast.Raise(None, None):
                return "throw caught;"
            case ast.Continue():
                return "continue;"
            case ast.Break():
                return "break;"
            case ast.Delete([ast.Subscript(owner, key)]):
                return f'method("pop", {self.expression(owner)}, {self.expression(key)});'
            case ast.Assign(targets, value):
                return self._assign(targets, self.expression(value))
            case ast.AnnAssign(ast.Name() | ast.Attribute() as target, _, ast.expr() as value):
                return self._assign([target], self.expression(value))
            case ast.AugAssign(ast.Name(name)) if name in self._parameters:
                pass  # of a list Python changes the caller's, JavaScript a copy
            case ast.AugAssign(target, operator, value):
                return self._assign([target], self._operated(operator, target, value))
            case ast.If(test, body, orelse):
                other = f" else {{\n{self._block(orelse)}}}" if orelse else ""
                return f"if ({self._test(test)}) {{\n{self._block(body)}}}{other}"
            case ast.For(target, iterated, body, []):
                head = f"for ({self._target(target)} of iterated({self.expression(iterated)}))"
                return f"{head} {{\n{self._block(body)}}}"
            case ast.While(test, body, []):
                return f"while ({self._test(test)}) {{\n{self._block(body)}}}"
            case ast.Try(body, [ast.ExceptHandler(ast.expr() as kind, name, handled)], [], []):
                caught = f"const {_variable(name)} = caught;\n" if name else ""
                kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
                known = " || ".join(f"caught instanceof {self.expression(item)}" for item in kinds)
                other = f"if (!({known})) throw caught;\n"
                return f"try {{\n{self._block(body)}}} catch (caught) {{\n{other}{caught}{self._block(handled)}}}"
            case ast.With([ast.withitem(ast.Call(ast.Name("inside"), [part]), None)], body):
                thrown = f"throw inside({self.expression(part)}, caught);"
                return f"try {{\n{self._block(body)}}} catch (caught) {{ {thrown} }}"
        raise ValueError(f"no JavaScript for {ast.unparse(node)}")

    def _assign(self, targets: list[ast.expr], value: str) -> str:
        match targets:
            case [ast.Subscript(owner, key)]:
                return f"put({self.expression(owner)}, {self.expression(key)}, {value});"
            case [ast.Tuple(items)] if any(isinstance(item, ast.Subscript) for item in items):
                parts = (self._assign([item], f"parts_[{place}]") for place, item in enumerate(items))
                return f"{{ const parts_ = {value}; {' '.join(parts)} }}"
            case [ast.Subscript() as first, *others]:
                return f"{self._assign([first], f'(keptValue = {value})')} {self._assign(others, 'keptValue')}"
            case [ast.Tuple(items) as target] if not any(isinstance(item, ast.Starred) for item in items):
                return f"{self._target(target)} = unpacked({value}, {len(items)});"
            case [target]:
                return f"{self._target(target)} = {value};"
        raise ValueError("no JavaScript for several targets")

    def _target(self, node: ast.expr) -> str:
        match node:
            case ast.Name(name):
                return _variable(name)
            case ast.Tuple(items):
                return f"[{', '.join(map(self._target, items))}]"
            case ast.Starred(value):
                return f"...{self._target(value)}"
            case ast.Attribute(owner, name):
                return f"{self.expression(owner)}.{_word(name)}"
        raise ValueError(f"no JavaScript for the target {ast.unparse(node)}")

    def _test(self, node: ast.expr) -> str:
        return f"truth({self.expression(node)})"

    def _operated(self, operator: ast.AST, *parts: ast.expr) -> str:
        return f"{_OPERATORS[type(operator)]}({', '.join(map(self.expression, parts))})"

    def expression(self, node: ast.expr) -> str:
        """Return an expression in JavaScript. Raises ValueError for one that is not translated."""
        match node:
            case ast.Constant(value):
                return literal(value)
            case ast.Name():
                return self._name(node.id)
            case ast.JoinedStr(values):
                return f"[{', '.join(map(self.expression, values))}].join(\"\")"
            case ast.FormattedValue(value, -1, None | ast.JoinedStr([ast.Constant(str())]) as spec):
                shown = spec.values[0].value if spec else ""  # type: ignore[attr-defined]
                if not _SHOWN.fullmatch(shown):
                    raise ValueError(f"no JavaScript for the format {shown}")
                return f"formatted({self.expression(value)}, {json.dumps(shown)})"
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
            case ast.Tuple(items) | ast.List(items):
                return f"[{', '.join(map(self._item, items))}]"
            case ast.Set(items):
                return f"python.set([{', '.join(map(self._item, items))}])"
            case ast.Dict(keys, values):
                return f"union({', '.join(map(self._entry, keys, values))})" if keys else "new Map()"
            case ast.ListComp(item, loops):
                return self._comprehended(loops, lambda: self.expression(item))
            case ast.GeneratorExp(item, loops):
                return self._generated(loops, item)
            case ast.SetComp(item, loops):
                return f"python.set({self._comprehended(loops, lambda: self.expression(item))})"
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
        first = self.expression(loops[0].iter)
        return f"collected((keep) => {{ {self._loops(loops, first, lambda: f'keep({item()})')}; }})"

    def _generated(self, loops: list[ast.comprehension], item: ast.expr) -> str:
        """Return a generator, which asks for no item of the first loop before one of its own is asked for."""
        first = self.expression(loops[0].iter)
        body = self._loops(loops, "first_", lambda: f"yield {self.expression(item)}")
        return f"(function* (first_) {{ {body}; }})({first})"

    def _loops(self, loops: list[ast.comprehension], first: str, act: Callable[[], str]) -> str:
        """Return loops inside each other, the first over ``first``, around a statement."""
        self._inner.append({name.id for loop in loops for name in ast.walk(loop.target) if isinstance(name, ast.Name)})
        head = ""
        for place, loop in enumerate(loops):
            walked = first if place == 0 else self.expression(loop.iter)
            tests = "".join(f" if ({self._test(test)})" for test in loop.ifs)
            head += f"for (const {self._target(loop.target)} of iterated({walked})){tests} "
        text = head + act()
        self._inner.pop()
        return text

    def _lambda(self, parameters: list[str], body: ast.expr) -> str:
        self._inner.append({*parameters})
        text = f"(({', '.join(map(_variable, parameters))}) => {self.expression(body)})"
        self._inner.pop()
        return text

    def _name(self, name: str) -> str:
        if name in self._locals or any(name in names for names in self._inner):
            return _variable(name)
        return self._global(self._names, name)

    def _global(self, names: Mapping[str, Any], name: str) -> str:
        if name not in names:
            return f"python.{name}"
        value = names[name]
        if isinstance(value, FunctionType) or self._translation.is_replaced(value):
            return self._translation.of(value)
        if isinstance(value, type) and self._translation.is_made(value):
            return self._translation.maker(value)
        if isinstance(value, type | BuiltinFunctionType):
            return f"python.{value.__name__}"
        if isinstance(value, Enum):
            return f"python.{value.name}"
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
        if node.keywords and (positions := self._positions(node.func)):
            by_name = {item.arg: self.expression(item.value) for item in node.keywords}
            others = [by_name.get(name, "undefined") for name in positions[len(arguments):]]
            arguments += others[:max(place for place, other in enumerate(others, 1) if other != "undefined")]
        elif node.keywords:
            named = [f"{_word(item.arg or '')}: {self.expression(item.value)}" for item in node.keywords if item.arg]
            spread = [f"...named({self.expression(item.value)})" for item in node.keywords if item.arg is None]
            arguments.append(f"{{ {', '.join(named + spread)} }}")
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "super()":
            return f"inherited({', '.join(('self', json.dumps(self._kind), json.dumps(node.func.attr), *arguments))})"
        if isinstance(node.func, ast.Attribute) and self._module(node.func.value) is None:
            owner = self.expression(node.func.value)
            return f"method({', '.join((json.dumps(node.func.attr), owner, *arguments))})"
        called = self.expression(node.func)
        return f"{'new ' if called in _CLASSES else ''}{called}({', '.join(arguments)})"

    def _positions(self, node: ast.expr) -> tuple[str, ...]:
        """Return the names of the arguments of a function that is translated; none for all else that is called."""
        if isinstance(node, ast.Attribute) and (module := self._module(node.value)):
            value = vars(module).get(node.attr)
        else:
            value = self._names.get(node.id) if isinstance(node, ast.Name) and node.id not in self._locals else None
        if not isinstance(value, FunctionType) or self._translation.is_replaced(value):
            return ()
        return () if f"{value.__module__}.{value.__name__}" in _KNOWN else tuple(signature(value).parameters)

    def _module(self, node: ast.expr) -> ModuleType | None:
        if isinstance(node, ast.Attribute):
            value = getattr(self._module(node.value), node.attr, None)
        else:
            value = self._names.get(node.id) if isinstance(node, ast.Name) and node.id not in self._locals else None
        return value if isinstance(value, ModuleType) else None


def _word(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def _variable(name: str) -> str:
    return f"{name}_" if name in _HELPERS else _word(name)
