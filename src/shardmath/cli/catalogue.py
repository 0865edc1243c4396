"""The commands ``shardmath models``, ``gpus`` and ``networks``: what is known by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pydantic import BaseModel


@click.command(short_help="List the models known by name.")
def models() -> None:
    """List the models known by name, with their dimensions and sources."""
    from shardmath.catalogue import read
    from shardmath.reports.tables import print_table

    columns = ("hidden_size", "ffn_hidden_size", "num_layers", "num_attention_heads", "num_kv_heads", "head_dim",
               "vocab_size")
    titles = ("model", "hidden", "ffn", "layers", "heads", "kv heads", "head dim", "vocab", "source")
    rows = [
        (name, *(str(entry[column]) for column in columns), entry["source"])
        for name, entry in read("models").items()
    ]
    print_table(titles, rows, right=range(1, 8))


_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, with sources and notes.")


@click.command(short_help="List the GPUs known by name.")
@_as_json
def gpus(as_json: bool) -> None:
    """List the GPUs known by name, with memory, peak speeds and power.

    The node is the usual server. TFLOP/s are those of dense matrix products, in bf16 and in fp8, TB/s those of the
    GPU's memory. A link is NVLink or xGMI; its speed is that of all links of a GPU in each direction, and it joins so
    many GPUs. A minus says that there is none, or that no figure is known.
    """
    from shardmath.catalogue import read
    from shardmath.gpus import Gpu
    from shardmath.reports.tables import print_table

    known = [Gpu.named(name) for name in read("gpus")]
    if as_json:
        return _print_json(known)
    titles = ("gpu", "GiB", "node", "TFLOP/s", "in fp8", "TB/s", "link GB/s", "joins", "PCIe", "W")
    rows = [
        (gpu.name, f"{gpu.memory_gib:g}", str(gpu.node_size), _thousands(gpu.bf16_gflops), _thousands(gpu.fp8_gflops),
         _thousands(gpu.hbm_mb_per_s, 1_000_000), _thousands(gpu.link_mb_per_s), str(gpu.link_size or "-"),
         _thousands(gpu.pcie_mb_per_s), _thousands(gpu.power_watts, 1))
        for gpu in known
    ]
    print_table(titles, rows, right=range(1, 10))


@click.command(short_help="List the networks known by name.")
@_as_json
def networks(as_json: bool) -> None:
    """List the networks between servers known by name.

    The speed is that of one port in each direction. Where no number of ports is named, each GPU has one. Latency is
    what the collective library reckons with for each step of a ring.
    """
    from shardmath.catalogue import read
    from shardmath.machines import Network
    from shardmath.reports.tables import print_table

    known = [Network.named(name) for name in read("networks")]
    if as_json:
        return _print_json(known)
    rows = [
        (network.name, str(network.gbit_per_s), str(network.rails or "-"), _thousands(network.latency_ns),
         network.source)
        for network in known
    ]
    print_table(("network", "Gbit/s", "ports", "us", "source"), rows, right=range(1, 4))


def _thousands(value: int | None, unit: int = 1000) -> str:
    """A figure in a thousand times its unit, or in ``unit`` times; a minus where it is not known."""
    return "-" if value is None else f"{value / unit:,.10g}"


def _print_json(known: Sequence[BaseModel]) -> None:
    import json

    click.echo(json.dumps([entry.model_dump() for entry in known], indent=2))
