"""Cluster files: one small TOML file that says which GPUs, servers and network a job runs on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shardmath.catalogue import read
from shardmath.errors import ABSENT, InputError, inside, nearest_names
from shardmath.files.reading import read_text, toml_table
from shardmath.files.writing import whole_file
from shardmath.input.arguments import typed
from shardmath.machines.cluster import Cluster, Kind
from shardmath.machines.gpu import GIB, Gpu
from shardmath.machines.links import links_of
from shardmath.machines.network import Network

LARGEST = 2**16
"""Bytes of a file, far more than any cluster needs."""
KINDS = 16
"""Kinds of GPUs in a cluster."""


@typed
def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Return the cluster that the file at ``path`` describes; it is named after the file if it has no name of its own.

    Raises InputError for a file that cannot be read and for everything in it that is wrong; its field is then the
    path inside of the file, such as ``gpu.hbm_mb_per_s``.

    Example:
        >>> file = Path("mine.toml")
        >>> _ = file.write_text("gpu = 'h100-80gb'")
        >>> shardmath.read_cluster(file).gpus_per_node
        8
    """
    text = os.fspath(path)
    content = read_text("cluster", text, "a cluster file", LARGEST)
    try:
        declared = toml_table("cluster", text, content)
    except RecursionError:
        raise InputError("cluster", text, "must not have so many lists inside each other") from None
    return cluster_of({"name": Path(text).stem, **declared}, os.path.dirname(text))


def is_cluster_file(gpu: str) -> bool:
    """Tell whether a text is the path of a cluster file rather than the name of a GPU."""
    return gpu.endswith(".toml")


def any_cluster(gpu: Gpu | Cluster | str | os.PathLike[str], network: str | None = None) -> Cluster:
    """Return a cluster from itself, the path of a cluster file, or usual servers of a GPU, with a network.

    A ``network`` wins over that of a cluster, with a warning. Raises InputError for unknown names and for files that
    are none.
    """
    if isinstance(gpu, os.PathLike) or (isinstance(gpu, str) and is_cluster_file(gpu)):
        gpu = read_cluster(gpu)
    return gpu.joined(network) if isinstance(gpu, Cluster) else Cluster.named(gpu, network)


def cluster_of(declared: Mapping[str, Any], folder: str = "") -> Cluster:
    """Return the cluster that plain data describes: what a file in ``folder`` holds.

    Raises InputError as ``read_cluster`` does.
    """
    _refuse_unknown("", declared, Cluster.model_fields)
    if "kinds" in declared:
        return _mixed(declared, folder)
    if "gpu" not in declared:
        raise InputError("gpu", ABSENT, "must be given: a name of `shardmath gpus`, or a table of own figures")
    gpu = _gpu(declared["gpu"])
    network = _network(declared["network"]) if "network" in declared else None
    links = links_of(declared["links"], folder) if "links" in declared else None
    if links is not None and network is None:
        raise InputError("network", ABSENT, "must be given with links: its latency is that of every link")
    return Cluster(**{"gpus_per_node": gpu.node_size, **declared, "gpu": gpu, "network": network, "links": links})


def _mixed(declared: Mapping[str, Any], folder: str) -> Cluster:
    """Get the cluster of several kinds of GPUs; what stands beside the kinds is that of each that does not say it."""
    links = links_of(declared["links"], folder) if "links" in declared else None
    kinds = declared["kinds"]
    shared = {key: value for key, value in declared.items() if key not in ("kinds", "name", "links")}
    for key in ("gpu", "gpus_per_node"):
        if key in shared:
            raise InputError(key, shared[key], "must be given in each of the kinds, not beside them")
    if not isinstance(kinds, list) or not all(isinstance(kind, Mapping) for kind in kinds):
        raise InputError("kinds", kinds, "must be tables, each with gpu and gpus")
    if not 2 <= len(kinds) <= KINDS:
        rule = f"must be 2 to {KINDS} kinds of GPUs; one kind needs none of them: give gpu"
        raise InputError("kinds", len(kinds), rule, str(min(max(len(kinds), 2), KINDS)))
    of_kind = {*Cluster.model_fields} - {"name", "kinds", "links"}
    made = []
    for number, kind in enumerate(kinds):
        with inside(f"kinds[{number}]"):
            _refuse_unknown("", kind, {*of_kind, "gpus"})
            if "gpus" not in kind:
                raise InputError("gpus", ABSENT, "must be given: how many GPUs of this kind there are")
            parameters = {"parameters": {**shared.get("parameters", {}), **kind.get("parameters", {})}}
            own = {**shared, **kind, **parameters, "name": declared["name"]}
            gpus = own.pop("gpus")
            if "network" not in own:
                raise InputError("network", ABSENT, "must be given: stages on different kinds send over it")
            made.append(Kind(gpus=gpus, cluster=cluster_of(own)))
    alike = set.intersection(*({*kind.cluster.parameters.items()} for kind in made))
    cluster = made[0].cluster.model_copy(update={"kinds": tuple(made), "parameters": dict(sorted(alike)),
                                                 "links": links})
    if links is not None and len(links) != sum(cluster.nodes_of_kinds):
        rows = " + ".join(map(str, cluster.nodes_of_kinds))
        rule = f"must have {rows} rows, one for each node of the kinds in their order"
        raise InputError("links.mb_per_s", f"{len(links)} rows", rule, str(sum(cluster.nodes_of_kinds)))
    return cluster


def write_cluster(cluster: Cluster, path: str) -> None:
    """Write a cluster file that ``read_cluster`` reads as an equal cluster; it appears whole or not at all.

    Raises InputError where no file can be written.
    """
    import tomli_w

    with whole_file("cluster", path) as file:
        file.write(tomli_w.dumps(plain(cluster)))  # type: ignore[call-overload]


def plain(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as plain data for ``cluster_of``; entries of the catalogue by their names."""
    if cluster.kinds:
        kinds = [{"gpus": kind.gpus, **plain(kind.cluster)} for kind in cluster.kinds]
        links = {} if cluster.links is None else {"links": cluster.links.model_dump(exclude_defaults=True)}
        return {"name": cluster.name, **links,
                "kinds": [{k: v for k, v in kind.items() if k != "name"} for kind in kinds]}
    own = cluster.model_dump(exclude_none=True, exclude_defaults=True)
    own["gpu"]["memory_gib"] = _whole(own["gpu"].pop("memory_bytes") / GIB)
    if _in_catalogue(cluster.gpu):
        own["gpu"] = cluster.gpu.name
    if _in_catalogue(cluster.network):
        own["network"] = own["network"]["name"]
    return own


def _in_catalogue(part: Gpu | Network | None) -> bool:
    try:
        return part is not None and type(part).named(part.name) == part
    except InputError:
        return False


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _gpu(declared: object) -> Gpu:
    if isinstance(declared, str):
        return Gpu.named(declared)
    figures = _figures("gpu", declared, {"memory_gib", *Gpu.model_fields} - {"memory_bytes"}, Gpu)
    with inside("gpu"):
        return Gpu.of(figures)


def _network(declared: object) -> Network:
    if isinstance(declared, str):
        return Network.named(declared)
    figures = _figures("network", declared, {*Network.model_fields}, Network)
    with inside("network"):
        return Network(**figures)


def _figures(key: str, declared: object, known: set[str], kind: type[Gpu | Network]) -> dict[str, Any]:
    """Own figures of a GPU or a network, and for the rest those of the one in the catalogue that it is ``like``."""
    if not isinstance(declared, Mapping):
        raise InputError(key, declared, "must be a name or a table")
    _refuse_unknown(f"{key}.", declared, {"like", *known})
    own = {"source": "given by the user", "note": "", **declared}
    if "like" not in own:
        return {"name": f"own {key}", **own}
    like = own.pop("like")
    if not isinstance(like, str):
        raise InputError(key, like, f"must be a {'GPU' if kind is Gpu else key} of the catalogue")
    like = kind.named(like).name
    return {**read(f"{key}s")[like], "name": f"{like} with own figures", **own}


def _refuse_unknown(place: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    for key, value in table.items():
        if key not in known:
            raise InputError(f"{place}{key}", value, "must not be given: there is no such key",
                             nearest_names(str(key), known))

