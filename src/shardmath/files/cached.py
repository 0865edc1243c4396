"""Sealed files in the user's cache: derived once, and never used if damaged.

Folders and files are the user's alone, and nothing is read or kept where another user may write. Each version of
Python, of shardmath and of the libraries behind it has a folder of its own. Without a cache that can be written
everything is derived anew in each process, which takes longer and gives the same.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.abc import SourceLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType

from shardmath import __version__
from shardmath.files.private import UnsafeError, check_folder, make_folder, open_file
from shardmath.files.trimming import note_use, trim
from shardmath.files.writing import replacing

#: Libraries that derive or compile what is kept.
_LIBRARIES = ("sympy", "jinja2", "numpy", "numba", "llvmlite")
#: Characters of a module from which on its compiled form is kept too: half a megabyte takes 0.1 s to compile.
_LONG = 1 << 16
#: Languages of what is derived: other templates are frames of documents.
_CODE = ("py", "js", "c")
#: How the first line of every file begins; the seal follows.
_MARK = b"# shardmath "
#: Makes the context that something of a kind is made in; see ``watch``.
_Watch = Callable[[str], AbstractContextManager[object]]
#: Folders of caches that this process has bounded.
_trimmed = set[Path]()
_watched: list[_Watch] = [lambda kind: nullcontext()]


def watch(making: _Watch) -> None:
    """Have everything that is not in the cache made inside of ``making(kind)``, so that a person can be told."""
    _watched[:] = [making]


def making(kind: str) -> AbstractContextManager[object]:
    """Return the context to make something of a kind in, for those who call ``kept`` and ``keep`` themselves."""
    return _watched[0](kind)


def cached_module(kind: str, key: str, source: Callable[[], str]) -> ModuleType:
    """Return the module ``key`` of a kind, with the text of ``source`` if it is not there yet."""
    title = f"shardmath_{kind.replace('/', '_')}_{key}"
    path = str(_path(kind, f"{key}.py") or f"<{kind}/{key}.py>")
    if title in sys.modules and sys.modules[title].__file__ == path:
        return sys.modules[title]
    loader = _Text(kind, key, path, cached_text(kind, f"{key}.py", source))
    spec = spec_from_loader(title, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[title] = module
    return module


def source_of(module: ModuleType) -> str:
    """Return the text of a module of the package or of the cache."""
    spec = module.__spec__
    if spec is not None and isinstance(spec.loader, _Text):
        return spec.loader.text
    return Path(str(module.__file__)).read_text(encoding="utf-8")


def cached_text(kind: str, name: str, text: Callable[[], str]) -> str:
    """Return the text of the file ``name`` of a kind; make and keep it unless it is there and whole."""
    content = kept(kind, name)
    if content is not None:
        return content.decode()
    with making(kind):
        made = text()
    keep(kind, name, made.encode())
    return made


def kept(kind: str, name: str) -> bytes | None:
    """Return the file of a name: None unless it exists, is whole, and only this user or root can have written it."""
    path = _path(kind, name)
    if path is None:
        return None
    try:
        check_folder(path.parent)
        with open(open_file(path), "rb") as file:
            line, content = file.readline(len(_MARK) + 66), file.read()
    except UnsafeError as error:
        _say_once(f"{error.filename} {error.strerror}: nothing is read from it")
        return None
    except OSError:
        return None
    if line == _seal(kind, name, content):
        note_use(path)
        return content
    warnings.warn(f"{path} is damaged, and is made anew", stacklevel=2)
    return None


def keep(kind: str, name: str, content: bytes) -> None:
    """Keep ``content`` under a name, whole or not at all; an OSError is not raised but told once.

    The first file that a process keeps bounds the cache: see ``trim``.
    """
    path = _path(kind, name)
    try:
        if path is None:
            raise OSError(0, "there is no home")
        make_folder(path.parent)
        with replacing(path, permissions=0o600) as file:
            file.write(_seal(kind, name, content) + content)
        _trim_once(user_folder(), path)
    except UnsafeError as error:
        _say_once(f"{error.filename} {error.strerror}: nothing is kept in it")
    except OSError as error:
        _say_once(f"nothing can be kept in {'a cache' if path is None else user_folder()}: {error.strerror}")


def key_of(*made_from: object) -> str:
    """Return a name for what is made from these, by how Python writes them."""
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]


def sources() -> list[Path]:
    """Return the files that generated modules are made from; frames of documents and of the page are none of them."""
    files: list[Path] = []
    for module in ("compiler", "divisors", "files.rendering", "symbolic", "templates"):
        spec = find_spec(f"shardmath.{module}")
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin)
        files += sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
        if module == "templates":
            files += sorted(item for ending in _CODE for item in path.parent.glob(f"*.{ending}.jinja"))
    return files


@cache
def sources_digest() -> str:
    """Return a digest of everything that generated modules are made from."""
    content = hashlib.sha256()
    for path in sources():
        content.update(path.name.encode() + path.read_bytes())
    return content.hexdigest()


def module_of(name: str, path: Path) -> ModuleType:
    """Return the module in a file that somebody else wrote, loaded once."""
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _Text(SourceLoader):
    """Loads a module from a text that was checked; what it compiles a long one to is kept as checked as the text."""

    def __init__(self, kind: str, key: str, path: str, text: str) -> None:
        self._kind, self._name, self._path, self.text = kind, f"{key}.code", path, text

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        return self.text.encode()

    def get_code(self, fullname: str) -> CodeType | None:
        if len(self.text) < _LONG:
            return super().get_code(fullname)
        digest = hashlib.sha256(self.text.encode()).digest()
        content = kept(self._kind, self._name)
        if content is not None and content.startswith(digest):
            known: CodeType = marshal.loads(content[len(digest):])
            return known
        code = super().get_code(fullname)
        keep(self._kind, self._name, digest + marshal.dumps(code))
        return code


def user_folder() -> Path:
    """Return the folder of all that is kept; it is not absolute for a user without a home."""
    from platformdirs import user_cache_path

    return user_cache_path("shardmath")


@cache
def versions() -> str:
    """Name the versions that made a file: of Python, of shardmath, and, by a digest, of the libraries behind it."""
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:3]))
    made_by = repr((sys.version, sys.implementation.cache_tag, [(name, version(name)) for name in _LIBRARIES]))
    return f"{__version__}-python-{python}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"


def _path(kind: str, name: str) -> Path | None:
    """Where a file is kept; None for a user without a home."""
    folder = user_folder()
    return folder / versions() / kind / name if folder.is_absolute() else None


def _seal(kind: str, name: str, content: bytes) -> bytes:
    """Return the first line of a file: nothing else has it, neither a part of this file nor another file."""
    return _MARK + hashlib.sha256(f"{kind}/{name}\n".encode() + content).hexdigest().encode() + b"\n"


def _trim_once(folder: Path, newest: Path) -> None:
    if folder not in _trimmed:
        _trimmed.add(folder)
        trim(folder, newest)


@cache
def _say_once(line: str) -> None:
    warnings.warn(line, stacklevel=4)
