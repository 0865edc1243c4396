"""Inputs for one reader: guided by what they reach (`python -m fuzzing.one READER` with options of libFuzzer), plain
(`... READER --plain INPUTS SEED CORPUS`), or one of them again (`... READER FILE`).
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from fuzzing import findings
from fuzzing.mutating import mutated
from fuzzing.outcome import limited, scratch_folder, untimed, watched
from fuzzing.reader import Reader

#: Packages whose branches guide the inputs: those that read, not those that compute.
_GUIDED = ("shardmath", "tomllib", "yaml")
_NOT_GUIDED = ("shardmath.generated", "shardmath.symbolic", "shardmath.compiler.native")
LONGEST = 1 << 14


def tried(reader: Reader, data: bytes, folder: str) -> None:
    """Give a reader one input. Raises what it may not do."""
    cache = os.environ["XDG_CACHE_HOME"]
    with watched(folder, cache), limited():
        reader.read(data, folder)


def again(reader: Reader, path: str) -> int:
    """Return one input once more, with its traceback."""
    data, folder = Path(path).read_bytes(), scratch_folder()
    for seed in reader.seeds():
        reader.read(seed, folder)
    print(f"{len(data)} bytes: {data!r:.2000}")
    tried(reader, data, folder)
    print("no finding")
    return 0


def fuzz(name: str, arguments: list[str]) -> None:
    """Run libFuzzer with its own ``arguments``; findings are kept, and the next input follows."""
    import atheris

    with atheris.instrument_imports(include=[*_GUIDED], exclude=[*_NOT_GUIDED]):
        from fuzzing.readers import READERS

        reader = READERS[name]
        unhurried()
        seeds = [*reader.seeds()]
        folder = scratch_folder()
        for seed in seeds:  # imports what it needs, derives and compiles what it will need
            reader.read(seed, folder)
    words = [*reader.words()]

    def test(data: bytes) -> None:
        try:
            tried(reader, data, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            findings.keep(name, data, error)

    def change(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.25:
            return bytes(atheris.Mutate(data, most))
        return mutated(data, chance, words, seeds)[:most]

    atheris.Setup([sys.argv[0], *arguments], test, custom_mutator=change)
    atheris.Fuzz()


def plain(name: str, inputs: int, seed: int, corpus: Path) -> None:
    """Run inputs made from a corpus by chance alone, several times as fast as looking at the branches they reach."""
    from fuzzing.readers import READERS

    reader, chance, folder = READERS[name], random.Random(seed), scratch_folder()
    unhurried()
    seeds, words = [*reader.seeds()], [*reader.words()]
    for content in seeds:
        reader.read(content, folder)
    sources = [path.read_bytes() for path in sorted(corpus.iterdir())]
    for number in range(inputs):
        data = mutated(chance.choice(sources), chance, words, seeds)[:LONGEST]
        (corpus.parent / "last").write_bytes(data)  # stays if it ends this process
        try:
            tried(reader, data, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            findings.keep(name, data, error)
        if number % 100 == 99 or number == inputs - 1:
            print(f"#{number + 1}", flush=True)


def unhurried() -> None:
    """Let what is derived and compiled once take its time."""
    from shardmath.compiler import evaluators
    from shardmath.compiler.native import kernels, objects
    from shardmath.files import cached

    for module, function in ((evaluators, "cached_module"), (objects, "_compiled"), (cached, "cached_text"),
                             (kernels._Kept, "load_overload")):
        untimed(module, function)


def write_seeds(reader: Reader, corpus: Path) -> None:
    """Begin a corpus with published examples."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(reader.seeds()):
        (corpus / f"seed-{number:03d}").write_bytes(seed)


if __name__ == "__main__":
    os.environ.setdefault("XDG_CACHE_HOME", str(findings.CACHE / "cache"))
    if len(sys.argv) == 3 and not sys.argv[2].startswith("-"):
        from fuzzing.readers import READERS

        sys.exit(again(READERS[sys.argv[1]], sys.argv[2]))
    if sys.argv[2:3] == ["--plain"]:
        plain(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
    else:
        fuzz(sys.argv[1], sys.argv[2:])
