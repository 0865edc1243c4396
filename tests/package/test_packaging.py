"""The package as people install it: complete, under one name, and working far from the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from tarfile import TarFile
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {package: Path(folder) for package, folder in SETUPTOOLS["package-dir"].items()}
LOOSE = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "MANIFEST.in")
SDIST = "from setuptools.build_meta import build_sdist; import sys; print(build_sdist(sys.argv[1]))"
FROM_THE_WHEEL = """
import sys
from importlib.metadata import distribution

import shardmath, shardmath.cli.main, shardmath.generated.definitions, shardmath.generated.megatron
from shardmath.catalogue import read
from shardmath.symbolic.derive import derive
from shardmath.symbolic.simplify import simplified
from shardmath.symbolic.stored import restore, stored

(command,) = distribution("shardmath").entry_points
assert command.load() is shardmath.cli.main.run
assert read("gpus") and read("models")
files = derive()
assert list(derive().items()) == list(files.items())
results, text = dict(simplified.results), stored()
simplified.results.clear()
restore(text)
assert simplified.results == results and len(results) > 3000
for name, text in files.items():
    with open(f"{sys.argv[1]}/{name}", "w", encoding="utf-8", newline="\\n") as file:
        file.write(text)
print("\\n".join(str(module.__file__) for name, module in sys.modules.items() if name.split(".")[0] == "shardmath"))
"""


def _files() -> dict[str, Path]:
    """The files of the package folders: path in the wheel, path in the checkout."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.parent.name != "__pycache__":
                found[f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}"] = path
    return found


def _run(arguments: list[str], cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        arguments, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a source distribution, built from a copy of the checkout, all without network."""
    folder = tmp_path_factory.mktemp("packaging")
    checkout = folder / "checkout"
    for source in FOLDERS.values():
        shutil.copytree(ROOT / source, checkout / source, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tests", "validation", "docs"):  # which must not come along
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LOOSE:
        shutil.copy(ROOT / name, checkout / name)
    sdist = _run([sys.executable, "-c", SDIST, str(folder)], checkout).split()[-1]
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    _run([sys.executable, "-m", "pip", "wheel", *options, str(folder / sdist)], folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with nothing but the installed wheel; what it depends on comes from the running environment."""
    target = wheel.parent / "installed"
    options = ["--quiet", "--no-index", "--no-deps", "--target", str(target)]
    _run([sys.executable, "-m", "pip", "install", *options, str(wheel)], wheel.parent)
    return target


def test_every_package_folder_is_named() -> None:
    present = {str(Path(name).parent).replace("/", ".") for name in _files() if name.endswith(".py")}
    assert set(SETUPTOOLS["packages"]) == present
    assert len(SETUPTOOLS["packages"]) == len(present)


def test_every_package_folder_says_that_it_is_one() -> None:
    names = {package.replace(".", "/") + "/__init__.py" for package in SETUPTOOLS["packages"]}
    assert names <= _files().keys()


@pytest.mark.slow
def test_wheel_has_every_file_and_no_other(wheel: Path) -> None:
    names = {name for name in ZipFile(wheel).namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert set(_files()) - names == set(), "name these in packages or package-data of pyproject.toml"
    assert names - set(_files()) == set(), "these are not in the checkout"


@pytest.mark.slow
def test_no_table_of_others_is_distributed(wheel: Path) -> None:
    (archive,) = wheel.parent.glob("*.tar.gz")
    with TarFile.open(archive) as file:
        sources = {name.partition("/")[2] for name in file.getnames()}
    with ZipFile(wheel) as built:
        names = sources | set(built.namelist())
    assert {"pyproject.toml", "NOTICE", "src/shardmath/files/cached.py", "symbolic/work.py"} <= sources
    assert not {name for name in names if name.split("/")[0] in {"tests", "validation", "docs"}}
    assert not {name for name in names if name.endswith((".csv", ".parquet", ".json", ".xlsx"))}


def test_the_notice_names_every_table_that_others_have_made() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    counted = (ROOT / "tests" / "data" / "README.md").read_text(encoding="utf-8")
    tables = {path.name for path in (ROOT / "tests" / "data").glob("*.csv")}
    named = {name for name in tables if f"tests/data/{name}" in notice}
    assert {name for name in tables if "runs" in name or "a100" in name or "b200" in name} <= named
    assert tables - named == {name for name in tables - named if f"`{name}`" in counted}
    head, *_ = (ROOT / "tests" / "data" / "hagemann2023_runs.csv").read_text(encoding="utf-8").splitlines()
    assert head == ("seq_length,num_gpus,micro_batch_size,tensor_parallel,pipeline_parallel,sequence_parallel,"
                    "recompute,kernel,status,step_seconds,mfu")


@pytest.mark.slow
def test_wheel_has_the_same_bytes(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        files = {name: path for name, path in _files().items() if name in archive.namelist()}
        assert [name for name, path in files.items() if archive.read(name) != path.read_bytes()] == []


@pytest.mark.slow
def test_wheel_claims_one_name_and_carries_its_licence(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (information,) = {name.split("/")[0] for name in archive.namelist()} - {"shardmath"}
        assert information == f"shardmath-{PROJECT['project']['version']}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{information}/METADATA").decode())
        assert metadata["License-Expression"] == "Apache-2.0"
        for name in ("LICENSE", "NOTICE"):
            assert archive.read(f"{information}/licenses/{name}") == (ROOT / name).read_bytes()


@pytest.mark.slow
def test_installed_wheel_works_elsewhere_and_derives_the_stored_files(installed: Path, tmp_path: Path) -> None:
    """Whatever the seed of hashes, the home, the time zone, the language and the width of the terminal are.

    The same twice in one process; simplified forms that were stored come back as they were.
    """
    folder = tmp_path / "derived"
    folder.mkdir()
    surrounding = {"PYTHONHASHSEED": "4242", "HOME": str(tmp_path), "TZ": "Asia/Tokyo", "LC_ALL": "C", "COLUMNS": "40"}
    modules = _run([sys.executable, "-c", FROM_THE_WHEEL, str(folder)], tmp_path, PYTHONPATH=str(installed),
                   **surrounding)
    assert {Path(line).is_relative_to(installed) for line in modules.splitlines()} == {True}
    stored = {path.name: path.read_bytes() for path in (ROOT / "generated").iterdir() if path.is_file()}
    derived = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in stored | derived if stored.get(name) != derived.get(name)} == set(), "run make derive"


@pytest.mark.slow
def test_installed_wheel_answers_on_the_command_line(installed: Path, tmp_path: Path) -> None:
    answer = _run([sys.executable, "-m", "shardmath", "models"], tmp_path, PYTHONPATH=str(installed))
    assert "llama-3.1-70b" in answer


def test_version_is_the_same_everywhere() -> None:
    import shardmath

    assert shardmath.__version__ == PROJECT["project"]["version"]


def test_conda_package_needs_what_the_project_needs() -> None:
    """The recipe beside pyproject.toml: name, version, licences, Python and the range of every dependency."""
    project = PROJECT["project"]
    recipe = yaml.safe_load((ROOT / "recipes" / "recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["package"]["name"], recipe["context"]["version"]) == (project["name"], project["version"])
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["license_file"] == project["license-files"]
    assert recipe["about"]["summary"] == project["description"]
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command.split(" = ") == list(*project["scripts"].items())
    needs = {Requirement(line.replace(" ", "", 1)) for line in recipe["requirements"]["run"]}
    assert needs == {Requirement(f"python{project['requires-python']}"), *map(Requirement, project["dependencies"])}
    assert set(PROJECT["build-system"]["requires"]) <= {
        line.replace(" ", "", 1) for line in recipe["requirements"]["host"]
    }


def test_image_is_made_of_all_that_a_wheel_needs() -> None:
    project = PROJECT["project"]
    text = (ROOT / "recipes" / "Containerfile").read_text(encoding="utf-8")
    asked = re.findall(r"\[([a-z,]+)\]", text)
    assert len(asked) == 2
    assert len(set(asked)) == 1, "built as it is installed"
    assert set(asked[0].split(",")) <= project["optional-dependencies"].keys()
    copied = re.findall(r"^COPY (?!--)(.+) /checkout", text, flags=re.MULTILINE)
    assert set(" ".join(copied).split()) == {*LOOSE, *(folder.parts[0] for folder in FOLDERS.values())}
    versions = re.findall(r"^FROM python:(\d+\.\d+)-slim", text, flags=re.MULTILINE)
    assert versions
    assert {f"Programming Language :: Python :: {version}" for version in versions} <= set(project["classifiers"])
    assert text.rstrip().endswith(f'ENTRYPOINT ["{next(iter(project["scripts"]))}"]')
