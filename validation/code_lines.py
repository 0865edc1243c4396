"""``python -m validation.code_lines [PACKAGE=REPOSITORY]...``: write catalogue/code_lines.toml, the lines of code.toml.

Files of packages that the oracles install are read where they are installed; those of others, and all of a package that
is named with a clone of its repository, from git at the revision of code.toml. Lines of packages without either stay.
Each file has the digest that git gives it, so that anyone can tell if a file is the one that was read.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import tomli_w

from shardmath.catalogue import read
from shardmath.catalogue.code import packages, places

FILE = Path(__file__).resolve().parents[1] / "catalogue" / "code_lines.toml"
HEADER = "# Written by `python -m validation.code_lines`; do not edit.\n"


def installed(package: str, file: str) -> bytes | None:
    """Return a file of a package as it is installed; None if its version is another, or it is not there."""
    stated = packages()[package]
    try:
        package_here = distribution(stated.get("distribution", ""))
    except (PackageNotFoundError, ValueError):
        return None
    if package_here.version.partition("+")[0] != stated["version"]:
        return None
    path = Path(str(package_here.locate_file(file.removeprefix(stated.get("root", "")))))
    return path.read_bytes() if path.is_file() else None


def committed(package: str, file: str, repository: str) -> bytes:
    """Return a file as it is in a clone of the package's repository, at the revision. Raises CalledProcessError."""
    command = ["git", "-C", repository, "show", f"{packages()[package]['revision']}:{file}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def digest(content: bytes) -> str:
    """Return the digest that git gives a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def line_of(text: str, name: str, is_python: bool = True) -> int:
    """Return the line of a class or function, or the first inside of it with the text after ``>``.

    Where it is not Python: the first line with the name, or the first from there on with the text. Raises ValueError
    for a name or text that is not there.
    """
    qualified, _, part = name.partition(" > ")
    lines = text.splitlines()
    if not is_python:
        start = next((place for place, line in enumerate(lines) if qualified in line), len(lines))
        for number, line in enumerate(lines[start:], start + 1):
            if part in line:
                return number
        raise ValueError(f"no {name}")
    for node in _named(ast.parse(text), qualified):
        if not part:
            return node.lineno
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            if part in lines[number - 1]:
                return number
    raise ValueError(f"no {name}")


def _named(tree: ast.AST, qualified: str, above: str = "") -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yield the classes and functions of this qualified name; one may be defined twice, under two conditions."""
    for child in ast.iter_child_nodes(tree):
        inside = above
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inside = f"{above}.{child.name}".lstrip(".")
            if inside == qualified:
                yield child
        yield from _named(child, qualified, inside)


def lines(repositories: Mapping[str, str]) -> dict[str, Any]:
    """Return the digest and the lines of every file of code.toml, by package.

    Raises ValueError for a name that a file does not have, CalledProcessError for a file that a clone does not have.
    """
    before = read("code_lines") if FILE.is_file() else {}
    made: dict[str, Any] = {}
    for entry in places():
        files = made.setdefault(entry.package, {})
        if entry.file not in files:
            content = (committed(entry.package, entry.file, repositories[entry.package])
                       if entry.package in repositories else installed(entry.package, entry.file))
            files[entry.file] = {"digest": digest(content), "lines": {}, "content": content} if content else {
                **before[entry.package][entry.file], "content": None}
        file = files[entry.file]
        if file["content"] is not None:
            try:
                file["lines"][entry.name] = line_of(
                    file["content"].decode(), entry.name, entry.file.endswith(".py"))
            except ValueError as error:
                raise ValueError(f"{entry.package} {entry.file}: {error}") from None
    return {package: {name: {key: value for key, value in file.items() if key != "content"}
                      for name, file in files.items()} for package, files in made.items()}


def main(arguments: list[str]) -> int:
    """Write the file; return the exit code 0."""
    FILE.write_text(HEADER + tomli_w.dumps(lines(dict(item.split("=", 1) for item in arguments))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
