"""Modules that a Python file imports and that stand beside it, such as those of a checkout: followed, never run."""

from __future__ import annotations

import os
from typing import Any

from shardmath.errors import InputError
from shardmath.files.reading import read_text
from shardmath.formats.scripts.python_file import PACKAGE, Interpreter
from shardmath.formats.scripts.python_values import NOT_HERE, Name

#: Folders above a file where modules are looked for, modules that are followed, bytes of one, and names that are only
#: other names of one another.
_FOLDERS, _MOST, LARGEST, _LINKS = 8, 200, 2**19, 10


class Modules:
    """Modules by dotted name, looked for in the folders ``roots``; each is parsed when a name of it is first used."""

    def __init__(self, interpreter: Interpreter, roots: tuple[str, ...], known: frozenset[str]) -> None:
        self.interpreter, self.roots, self.known = interpreter, roots, known
        self.scopes: dict[str, dict[str, Any] | None] = {}

    def value(self, dotted: str) -> Any:
        """Return the function, class or plain value of a name, wherever it is defined; ``NOT_HERE`` without a file."""
        for _ in range(_LINKS):
            module, _, name = dotted.rpartition(".")
            scope = self.scope(module) if module and name not in self.known else None
            value = NOT_HERE if scope is None else scope.get(name, NOT_HERE)
            if not isinstance(value, Name):
                return value
            dotted = value.dotted
        return NOT_HERE

    def scope(self, dotted: str) -> dict[str, Any] | None:
        """Return the names of a module; None for one that has no file here or is no Python."""
        if dotted in self.scopes or len(self.scopes) >= _MOST:
            return self.scopes.get(dotted)
        self.scopes[dotted] = None
        path = self._path(dotted)
        if path is None:
            return None
        names: dict[str, Any] = {PACKAGE: dotted if path.endswith("__init__.py") else dotted.rpartition(".")[0]}
        self.scopes[dotted] = names
        try:
            self.interpreter.module(read_text("model", path, "a Python file", LARGEST), names)
        except InputError:
            self.scopes[dotted] = None
            return None
        return names

    def _path(self, dotted: str) -> str | None:
        parts = dotted.split(".")
        if not all(part.isidentifier() for part in parts):
            return None
        paths = (os.path.join(root, *parts) + end for root in self.roots for end in (".py", f"{os.sep}__init__.py"))
        return next(filter(os.path.isfile, paths), None)


def follow(interpreter: Interpreter, path: str, known: frozenset[str]) -> dict[str, Any]:
    """Let an interpreter follow the modules beside the file at ``path``; the names that the file starts with.

    Functions that are ``known`` are left to the interpreter. Relative imports are those of the folder, whose package is
    named from the uppermost folder that is looked in.
    """
    folders = [os.path.dirname(os.path.abspath(path))]
    while len(folders) < _FOLDERS and folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    interpreter.modules = Modules(interpreter, tuple(folders), known)
    package = os.path.relpath(folders[0], folders[-1]).replace(os.sep, ".").strip(".")
    return {PACKAGE: package}
