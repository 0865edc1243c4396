"""The commands ``shardmath models``, ``gpus`` and ``networks``: what is known by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardmath.cli.titled import Exampled
from shardmath.errors import InputError, nearest_listed
from shardmath.input.naming import begun_with
from shardmath.reports.answers import answer

if TYPE_CHECKING:
    from pydantic import BaseModel

Entry = TypeVar("Entry", bound="BaseModel")

_words = click.argument("words", nargs=-1, metavar="[WORD]...")
_as_json = click.option("--json", is_flag=True, help="Print JSON, with sources and notes.")


@click.command(cls=Exampled, short_help="List models.", examples=("qwen3", "mixtral --json"))
@_words
@_as_json
def models(words: tuple[str, ...], json: bool) -> None:
    """List models with their dimensions and sources; filter by words.

    A word may be anywhere in the name, the source or the note.
    """
    from shardmath.catalogue import read
    from shardmath.models.model import Model
    from shardmath.reports.tables import print_table

    known = _with(words, "model", (Model.named(name) for name in read("models")))
    if json:
        return _print("models", known)
    titles = ("model", "hidden", "ffn", "layers", "heads", "kv heads", "head dim", "vocab", "source")
    rows = [
        (
            model.name, str(model.hidden_size), str(model.ffn_hidden_size), str(model.num_layers),
            str(model.num_attention_heads), str(model.num_kv_heads), str(model.head_dim), str(model.vocab_size),
            model.source,
        )
        for model in known
    ]
    print_table(titles, rows, right=range(1, 8), spare=("vocab", "head dim", "kv heads", "source"))


@click.command(cls=Exampled, short_help="List GPUs.", examples=("h100", "nvlink --json"))
@_words
@_as_json
def gpus(words: tuple[str, ...], json: bool) -> None:
    """List GPUs with memory, peak speeds and power; filter by words.

    node: GPUs of the usual server. TFLOP/s: dense matrix products in bf16 and fp8. TB/s: memory bandwidth. link: NVLink
    or xGMI, all links of a GPU in each direction. joins: GPUs of one link domain. "-" means none or unknown. A word may
    be anywhere in the name, the source or the note.
    """
    from shardmath.catalogue import read
    from shardmath.machines.gpu import Gpu
    from shardmath.reports.tables import print_table

    known = _with(words, "GPU", (Gpu.named(name) for name in read("gpus")))
    if json:
        return _print("gpus", known)
    titles = ("gpu", "GiB", "node", "TFLOP/s", "in fp8", "TB/s", "link GB/s", "joins", "PCIe", "W")
    rows = [
        (gpu.name, f"{gpu.memory_gib:g}", str(gpu.node_size), _thousands(gpu.bf16_gflops), _thousands(gpu.fp8_gflops),
         _thousands(gpu.hbm_mb_per_s, 1_000_000), _thousands(gpu.link_mb_per_s), str(gpu.link_size or "-"),
         _thousands(gpu.pcie_mb_per_s), _thousands(gpu.power_watts, 1))
        for gpu in known
    ]
    print_table(titles, rows, right=range(1, 10), spare=("PCIe", "joins"))


@click.command(cls=Exampled, short_help="List networks.", examples=("infiniband", "--json"))
@_words
@_as_json
def networks(words: tuple[str, ...], json: bool) -> None:
    """List networks between servers; filter by words.

    Speed: one port in each direction. Ports: per server; one per GPU if "-". Latency: one ring step, as the collective
    library models it. A word may be anywhere in the name, the source or the note.
    """
    from shardmath.catalogue import read
    from shardmath.machines import Network
    from shardmath.reports.tables import print_table

    known = _with(words, "network", (Network.named(name) for name in read("networks")))
    if json:
        return _print("networks", known)
    rows = [
        (network.name, str(network.gbit_per_s), str(network.rails or "-"), _thousands(network.latency_ns),
         network.source)
        for network in known
    ]
    print_table(("network", "Gbit/s", "ports", "us", "source"), rows, right=range(1, 4), spare=("source",))


def _with(words: tuple[str, ...], kind: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries of which some text has each word, or whose name begins like it: ``llama3`` is Llama 3.

    Raises InputError if there is none.
    """
    every = {str(getattr(entry, "name", "")): entry for entry in entries}
    begun = {word: begun_with(word, every) for word in words}
    matching = [entry for name, entry in every.items()
                if all(word.lower() in _texts(entry) or name in begun[word] for word in words)]
    if not matching:
        listed = click.get_current_context().command_path
        raise InputError("word", " ".join(words), f"must be in the texts of a {kind} of the catalogue",
                         nearest_listed(words[0], every, listed))
    return matching


def _texts(entry: BaseModel) -> str:
    own: dict[str, Any] = entry.model_dump()
    return "\n".join(str(own.get(name, "")) for name in ("name", "source", "note")).lower()


def _thousands(value: int | None, unit: int = 1000) -> str:
    """Return a figure in a thousand times its unit, or in ``unit`` times; a minus where it is not known."""
    return "-" if value is None else f"{value / unit:,.10g}"


def _print(document: str, known: Iterable[BaseModel]) -> None:
    click.echo(answer(document, {document: [entry.model_dump() for entry in known]}))
