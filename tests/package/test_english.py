"""The rules of the language that a machine can check: docstrings, comments and names, room by room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Rooms that keep every rule; counting programs and their tests keep those of docstrings and comments.
ROOMS = ("symbolic", "src/shardmath", "templates", "catalogue", "validation", "benchmarks", "fuzzing", "website")
ORACLES = "tests/oracles"
#: Folders that do not keep a rule yet; a folder that does must leave the list.
TO_DO: dict[str, set[str]] = {
    "docstrings": set(), "imperatives": {"src/shardmath/account"}, "comments": set(), "names": set(),
    "documented": set(), "errors": set(),
}
_FORBIDDEN = {"found", "given", "told", "one", "what"}
_RIDDLE = re.compile(r"(What|That|Whether|It is)\b")
#: A comment of Python, JavaScript, CSS or Jinja that begins with such a word.
_COMMENT = re.compile(r'(?:(?<![#"])#:? |// |/\* |\{# ?)(?=(?:What|That|Whether|It is)\b)')
#: Words that begin a description where a verb should say what a function does.
_DESCRIPTION = re.compile(r"(The|A|An|Every|All|Each|One|True|False|How|Which)\b(?!-)")
_PYTHON = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
_PROSE = [*_PYTHON, *sorted((ROOT / ORACLES).rglob("*.py"))]
_TEXTS = [*_PROSE, *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*"))
                     if path.suffix in {".jinja", ".js", ".css", ".html", ".toml"})]


@lru_cache(maxsize=1)
def _tree(text: str) -> ast.Module:
    """Parse a file once for all rules."""
    return ast.parse(text)


def _public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield public functions and classes of a module or class, with the public methods of the classes."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body)


def _is_decorated(function: ast.FunctionDef, *words: str) -> bool:
    return any(word in ast.unparse(decorator) for decorator in function.decorator_list for word in words)


def riddles(text: str) -> list[str]:
    """List the docstrings, also of fields, that begin with What, That, Whether or It is."""
    texts = [node.value.value for node in ast.walk(_tree(text))
             if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [words.splitlines()[0] for words in texts if isinstance(words, str) and _RIDDLE.match(words)]


def descriptions(text: str) -> list[str]:
    """List the docstrings of functions that describe a value and say no verb; a property is a value."""
    functions = [node for node in ast.walk(_tree(text)) if isinstance(node, ast.FunctionDef)]
    docstrings = [ast.get_docstring(node) for node in functions if not _is_decorated(node, "property")]
    return [words.splitlines()[0] for words in docstrings if words and _DESCRIPTION.match(words)]


def comments(text: str) -> list[str]:
    """List the comments that begin with What, That, Whether or It is."""
    return [line.strip() for line in text.splitlines() if _COMMENT.search(line)]


def nameless(text: str) -> list[str]:
    """List the variables and arguments with a name that says nothing; fields of documents are keys of JSON."""
    tree = _tree(text)
    fields = {id(node.target) for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef)
              for node in cls.body if isinstance(node, ast.AnnAssign)}
    stored = [node.id for node in ast.walk(tree)
              if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields]
    return sorted({*stored, *(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))} & _FORBIDDEN)


def undocumented(text: str) -> list[str]:
    """List the public functions and classes without a docstring."""
    return [node.name for node in _public(_tree(text).body) if not ast.get_docstring(node)]


def silent(text: str) -> list[str]:
    """List the public functions that raise an error and do not name it; a command's docstring is its ``--help``."""
    functions = [node for node in _public(_tree(text).body)
                 if isinstance(node, ast.FunctionDef) and not _is_decorated(node, "command")]
    raising = [node for node in functions
               if any(isinstance(part, ast.Raise) and part.exc and "_" not in ast.unparse(part.exc)[0]
                      for part in ast.walk(node))]
    named = re.compile("Error|Raise|raises|Refuse")
    return [node.name for node in raising if not named.search(ast.get_docstring(node) or "Error")]


_RULES = {
    "docstrings": (riddles, {*_PROSE}), "imperatives": (descriptions, {*_PYTHON}), "comments": (comments, {*_TEXTS}),
    "names": (nameless, {*_PYTHON}), "documented": (undocumented, {*_PYTHON}), "errors": (silent, {*_PYTHON}),
}


def test_every_room_keeps_every_rule() -> None:
    broken = []
    for path in _TEXTS:
        text = path.read_text(encoding="utf-8")
        broken += [f"{path.relative_to(ROOT)}: {rule}: {faults}" for rule, (faults_of, paths) in _RULES.items()
                   if path in paths and (faults := faults_of(text))]
    assert broken == []


def test_faults_are_seen() -> None:
    text = (
        '"""What it is."""\nclass Row:\n    """A row."""\n    what: str\n\ndef total(given):\n    # What is left.\n'
        '    found = given\n    return found\n\ndef first(rows):\n    """The first row."""\n    raise ValueError\n'
    )
    assert riddles(text) == ["What it is."]
    assert descriptions(text) == ["The first row."]
    assert comments(text) == ["# What is left."]
    assert len(comments("// That is all\n/* Whether */\n{# It is so #}\n## What a heading is")) == 3
    assert nameless(text) == ["found", "given"]
    assert undocumented(text) == ["total"]
    assert silent(text) == ["first"]
