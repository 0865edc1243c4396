"""The rules of the language that a machine can check: docstrings and names, room by room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Folders whose docstrings or names do not keep the rules yet; a folder that does must leave the list.
TO_DO: dict[str, set[str]] = {
    "docstrings": set(),
    "names": {
        "src/shardmath/commands",
        "src/shardmath/search",
    },
    "documented": set(),
}
_FORBIDDEN = {"found", "given", "told", "one", "what"}
_RIDDLE = re.compile(r"(What|That|Whether|It is)\b")
_FILES = [path for folder in ("symbolic", "src/shardmath") for path in sorted((ROOT / folder).rglob("*.py"))]


def _room(path: Path) -> str:
    """Return the folder of ``path``: one level of ``symbolic``, all of ``src/shardmath`` below its first folder."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:-1][:3] if parts[0] == "src" else parts[:-1][:2])


def _definitions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield every function and class."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node


def _public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield public functions and classes of a module or class, with the public methods of the classes."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body)


def riddles(tree: ast.Module) -> list[str]:
    """List the docstrings that begin with What, That, Whether or It is."""
    texts = [ast.get_docstring(tree), *(ast.get_docstring(node) for node in _definitions(tree))]
    return [text.splitlines()[0] for text in texts if text and _RIDDLE.match(text)]


def nameless(tree: ast.Module) -> list[str]:
    """List the variables and arguments with a name that says nothing."""
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return sorted({*stored, *(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))} & _FORBIDDEN)


def undocumented(tree: ast.Module) -> list[str]:
    """List the public functions and classes without a docstring."""
    return [node.name for node in _public(tree.body) if not ast.get_docstring(node)]


_RULES = {"docstrings": riddles, "names": nameless, "documented": undocumented}


@pytest.mark.parametrize("rule", _RULES)
def test_every_room_keeps_the_rule_or_is_to_do(rule: str) -> None:
    broken: dict[str, list[str]] = {}
    for path in _FILES:
        faults = _RULES[rule](ast.parse(path.read_text(encoding="utf-8")))
        if faults:
            broken.setdefault(_room(path), []).append(f"{path.relative_to(ROOT)}: {faults}")
    assert {room: files for room, files in broken.items() if room not in TO_DO[rule]} == {}
    assert TO_DO[rule] - broken.keys() == set()


def test_faults_are_seen() -> None:
    tree = ast.parse('"""What it is."""\ndef total(given):\n    found = given\n    return found\n')
    assert riddles(tree) == ["What it is."]
    assert nameless(tree) == ["found", "given"]
    assert undocumented(tree) == ["total"]
