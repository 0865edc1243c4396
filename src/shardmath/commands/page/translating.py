"""Translate Python functions and classes into JavaScript, with all that they call: the page answers as the commands do.

The functions write formats and read ``config.json``. JavaScript has the same names for what Python has built in
(``templates/page/python.js``): dictionaries are maps, tuples and lists are arrays.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Collection, Mapping
from textwrap import dedent
from types import FunctionType
from typing import Any

from shardmath.commands.page.functions import Function, literal


class Translation:
    """JavaScript of functions and of all that they use.

    ``replaced`` functions are the page's, by its name, and so are ``constants``. Of the ``classes`` objects are made.
    """

    def __init__(
        self, replaced: Mapping[Callable[..., Any], str], constants: Mapping[str, object] | None = None,
        classes: Collection[type] = (),
    ) -> None:
        self._classes = classes
        self._replaced, self._texts = dict(replaced), dict[str, str]()
        self._constants = {id(value): name for name, value in (constants or {}).items()}

    def of(self, function: Callable[..., Any]) -> str:
        """Translate a function; return its name in JavaScript."""
        if function in self._replaced:
            return self._replaced[function]
        assert isinstance(function, FunctionType)
        name = self._named(function.__module__, function.__name__)
        if name not in self._texts:
            self._texts[name] = ""  # so that a function may call itself
            self._texts[name] = self._text(function, name)
        return name

    def is_replaced(self, value: Any) -> bool:
        """Tell whether the page has a function of its own in place of a value."""
        return callable(value) and value in self._replaced

    def is_made(self, kind: type) -> bool:
        """Tell whether objects of a class are made."""
        return kind in self._classes

    def maker(self, kind: type) -> str:
        """Translate a class; return the name in JavaScript of the function that makes an object of it."""
        name = self._named(kind.__module__, kind.__name__)
        if name not in self._texts:
            self._texts[name] = ""
            own = ", ".join(f"{method}: {function}" for method, function in self.methods(kind).items())
            self._texts[name] = f"function {name}(...values) {{ return python.made({{ {own} }}, values); }}"
        return name

    def methods(self, kind: type) -> dict[str, str]:
        """Translate the methods that a class itself defines; return the name in JavaScript of each."""
        return self._members(kind, {own: getattr(value, "__func__", value) for own, value in vars(kind).items()})

    def properties(self, kind: type) -> dict[str, str]:
        """Translate the properties of a class; return the name in JavaScript of the function of each."""
        own = {name: value.fget for name, value in vars(kind).items() if isinstance(value, property)}
        return self._members(kind, own)

    def _members(self, kind: type, members: Mapping[str, Any]) -> dict[str, str]:
        names = {}
        for own, function in members.items():
            is_hidden = own.startswith("__") and not (own == "__init__" and self.is_made(kind))
            if isinstance(function, FunctionType) and function not in self._replaced and not is_hidden:
                names[own] = name = self._named(kind.__module__, f"{kind.__name__}_{own}")
                self._texts[name] = self._text(function, name, kind.__name__)
        return names

    def _text(self, function: FunctionType, name: str, kind: str = "") -> str:
        tree = ast.parse(dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        return Function(self, function.__globals__, tree, kind).text(name)

    def value(self, module: str, name: str, value: Any) -> str:
        """Return the JavaScript of a constant of a module, which is declared once."""
        if id(value) in self._constants:
            return self._constants[id(value)]
        named = self._named(module, name)
        if named not in self._texts:
            self._texts[named] = ""
            text = self._declared(module, name) if _has_functions(value) else literal(value)
            del self._texts[named]  # behind the constants in it
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
                    return Function(self, vars(home), None).expression(node.value)
            if isinstance(node, ast.ImportFrom) and node.module and name in {item.name for item in node.names}:
                return self._declared(node.module, name)
        raise ValueError(f"{module} has no constant {name}")

    @staticmethod
    def _named(module: str, name: str) -> str:
        """Return a name with its module's in front, below its room: those of two rooms may be called alike."""
        return "_".join((*(module.split(".")[2:] or [module.rpartition(".")[2]]), name.lstrip("_")))


def translated(functions: Mapping[str, Callable[..., Any]], replaced: Mapping[Callable[..., Any], str]) -> str:
    """Return JavaScript that declares functions and all that they use, and ``WRITERS`` with their own names."""
    translation = Translation(replaced)
    names = {name: translation.of(function) for name, function in functions.items()}
    listed = ", ".join(f"{json.dumps(name)}: {own}" for name, own in names.items())
    return "\n".join((*translation.texts(), f"const WRITERS = {{ {listed} }};", ""))


def _has_functions(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_functions, value.values()))
    return any(map(_has_functions, value)) if isinstance(value, tuple | list) else isinstance(value, FunctionType)
