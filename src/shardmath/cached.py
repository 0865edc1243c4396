"""Generated modules that are not in the package: written to the user's cache once, and found there again."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def cached_module(kind: str, key: str, source: Callable[[], str]) -> ModuleType:
    """The module ``key`` of a kind, with the text of ``source`` if it is not there yet."""
    path = cache_folder() / kind / f"{key}.py"
    if not path.is_file():
        write_text(path, source())
    return module_of(f"shardmath_{kind}_{key}", path)


@cache
def sources_digest() -> str:
    """A digest of everything that generated modules are made from."""
    content = hashlib.sha256()
    for module in ("symbolic", "templates"):
        spec = find_spec(f"shardmath.{module}")
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path in sorted(path for path in root.rglob("*") if path.suffix in {".py", ".jinja"}):
            content.update(path.name.encode() + path.read_bytes())
    return content.hexdigest()


def cache_folder() -> Path:
    """The user's cache of this package."""
    from platformdirs import user_cache_path

    return user_cache_path("shardmath")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)


def module_of(name: str, path: Path) -> ModuleType:
    """The module in a file, loaded once."""
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
