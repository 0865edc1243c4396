"""Cluster files: what they say, that they are written as they are read, and that nothing else gets in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL

from shardmath.account.time import on_nodes
from shardmath.catalogue import read
from shardmath.errors import InputError, InputWarning
from shardmath.generated.definitions import DEFAULTS, PARAMETERS
from shardmath.machines import Cluster, Network, read_cluster, write_cluster
from shardmath.machines.files import cluster_of, plain
from shardmath.machines.gpu import GIB, Gpu

USUAL = {name: value for name, value in DEFAULTS.items() if PARAMETERS[name][4] == "machine"}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "clusters"
README = (DOCS / "README.md").read_text(encoding="utf-8")
Written = Callable[[str], Cluster]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a text into a file and read it as a cluster."""
    def write_and_read(text: str) -> Cluster:
        path = tmp_path / "ours.toml"
        path.write_text(text, encoding="utf-8")
        return read_cluster(path)

    return write_and_read


def test_a_name_is_a_cluster(written: Written) -> None:
    cluster = written('gpu = "H100 80 GB"\nnetwork = "InfiniBand NDR"')
    assert cluster == Cluster.named("h100-80gb").model_copy(update={"name": "ours"})


def test_own_figures_stand_beside_those_of_the_catalogue(written: Written) -> None:
    cluster = written("""
        name = "lab"
        gpus_per_node = 4
        parameters = { context_bytes = 7 }
        [gpu]
        like = "a100-40gb"
        memory_gib = 39.5
        hbm_mb_per_s = 1_400_000
        [network]
        like = "hdr-200"
        rails = 2
    """)
    known = Cluster.named("a100-40gb")
    assert cluster.name == "lab"
    assert cluster.gpu.memory_bytes == 39 * GIB + GIB // 2
    assert cluster.gpu.source == "given by the user"
    assert cluster.values() == {
        **known.values(), "context_bytes": 7, "gpu_memory": cluster.gpu.memory_bytes, "node_size": 4,
        "nvlink_domain": 4, "link_peers": 3,  # four A100 have no switch
        "hbm_bandwidth": 1_400_000_000_000, "network_bandwidth": 12_500_000_000,
        "host_memory_bandwidth": 102_400_000_000,
    }


def test_a_gpu_of_ones_own(written: Written) -> None:
    cluster = written("""
        [gpu]
        memory_gib = 100
        node_size = 16
        bf16_gflops = 1_000_000
        hbm_mb_per_s = 4_000_000
        link = "xgmi"
        link_mb_per_s = 500_000
        link_size = 16
        [network]
        gbit_per_s = 400
        latency_ns = 9_000
    """)
    of_host = ("host_copy_bandwidth", "host_memory_bandwidth")  # nobody knows them here
    assert cluster.values() == {
        **{name: value for name, value in USUAL.items() if name not in of_host}, "nvlink_domain": 16,
        "power_milliwatts": 0, "cents_per_gpu_hour": 0,
        "matmul_flops": 10**15, "attention_flops": 10**15, "hbm_bandwidth": 4 * 10**12, "node_size": 16,
        "node_bandwidth": 5 * 10**11, "node_latency_ns": read("links")["xgmi"]["latency_ns"],
        "network_bandwidth": 5 * 10**10, "network_latency_ns": 9_000, "gpu_memory": 100 * GIB,
        "send_bandwidth": 12 * 10**9, "link_peers": 1,
    }


def test_links_that_end_within_a_node_are_said() -> None:
    a100 = Cluster.named("a100-80gb")
    assert on_nodes(a100, 4).is_linked
    with pytest.warns(InputWarning, match="links of a100-80gb join 8 GPUs, so all traffic inside a node"):
        assert not on_nodes(a100, 16).is_linked


def test_without_a_network_there_is_one_server(written: Written) -> None:
    assert written('gpu = "h100-80gb"').network is None


REFUSED = {
    "": "cluster = '",
    "gpu =": "cluster = '",
    "a = " + "[" * 30_000: "cluster = '",
    "gpus_per_node = 8": "gpu = absent: must be given: a name of `shardmath gpus`, or a table",
    "gpu = 100": "gpu = 100: must be a name or a table",
    "gpu = ['h200']": "gpu = ['h200']: must be a name or a table",
    'gpu = "h100-8gb"': "gpu = 'h100-8gb': must be a GPU of the catalogue; nearest legal: h100-80gb",
    'gpu = "h200"\nnetwork = "ndr-401"':
        "network = 'ndr-401': must be a network of the catalogue; nearest legal: ndr-400",
    'gpu = "h200"\nnetwrk = "ndr"': "netwrk = 'ndr': must not be given: there is no such key; nearest legal: network",
    'gpu = "h200"\ngpus_per_node = "8"': "gpus_per_node = '8': must be an integer; nearest legal: 8",
    'gpu = { like = "h201" }': "gpu = 'h201': must be a GPU of the catalogue; nearest legal: h20-96gb or h200-141gb",
    "gpu = { like = 5 }": "gpu = 5: must be a GPU of the catalogue",
    'gpu = { like = "h200", hbm_mb = 5 }':
        "gpu.hbm_mb = 5: must not be given: there is no such key; nearest legal: hbm_mb_per_s",
    'gpu = { like = "h200", memory_bytes = 5 }': "gpu.memory_bytes = 5: must not be given",
    'gpu = { like = "h200", memory_gib = nan }': "gpu.memory_gib = nan: must be a number of GiB above 0",
    'gpu = { like = "h200", hbm_mb_per_s = 0 }': "gpu.hbm_mb_per_s = 0: must be at least 1; nearest legal: 1",
    'gpu = { like = "h200", hbm_mb_per_s = 4.8e6 }':
        "gpu.hbm_mb_per_s = 4800000.0: must be an integer; nearest legal: 4800000",
    "gpu = { memory_gib = 80 }": "gpu.node_size = absent: must be given",
    "gpu = { node_size = 8 }": "gpu.memory_gib = absent: must be a number of GiB above 0",
    'gpu = "h200"\nnetwork = { like = "ndr", rails = 0 }': "network.rails = 0: must be at least 1; nearest legal: 1",
    'gpu = "h200"\nnetwork = { gbit_per_s = 400 }': "network.latency_ns = absent: must be given",
    'gpu = "h200"\nparameters = { context_byte = 1 }':
        "parameters.context_byte = 1: must not be given: a cluster has no such parameter; nearest legal: context_bytes",
    'gpu = "h200"\nparameters = 1': "parameters = 1: must be",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_files_that_are_refused(text: str, written: Written) -> None:
    with pytest.raises(InputError) as caught:
        written(text)
    assert str(caught.value).startswith(REFUSED[text])
    assert str(caught.value).isprintable()


def test_paths_that_lead_elsewhere(tmp_path: Path) -> None:
    for path, rule in ((tmp_path, "not of a folder"), (tmp_path / "none.toml", "an existing file")):
        with pytest.raises(InputError, match=rf"^cluster = .*{rule}"):
            read_cluster(path)


NAMES = st.text(min_size=1, max_size=20)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    """Any GPU of the catalogue, or one of one's own with figures known or not."""
    if draw(st.booleans()):
        return Gpu.named(draw(st.sampled_from(list(read("gpus")))))
    speeds = optional(st.integers(1, 10**9))
    linked = draw(st.booleans())
    return Gpu(
        name=draw(NAMES), memory_bytes=draw(st.integers(1, 2**45)), node_size=draw(st.integers(1, 72)),
        source=draw(NAMES), note=draw(st.text(max_size=9)), bf16_gflops=draw(speeds), fp8_gflops=draw(speeds),
        link="nvlink" if linked else None, link_mb_per_s=draw(st.integers(1, 10**9)) if linked else None,
        link_size=draw(st.integers(2, 72)) if linked else None, link_latency_ns=5 if linked else None,
        mesh_size=draw(optional(st.integers(2, 72))),
        power_watts=draw(optional(st.integers(1, 10**5))),
    )


NETWORKS = st.sampled_from(list(read("networks"))).map(Network.named) | st.builds(
    Network, name=NAMES, gbit_per_s=st.integers(1, 10**6), latency_ns=st.integers(0, 10**9),
    rails=optional(st.integers(1, 99)), send_mb_per_s=st.integers(1, 10**9), source=NAMES, note=st.text(max_size=9),
)
CLUSTERS = st.builds(
    Cluster, name=NAMES, gpu=gpus(), gpus_per_node=st.integers(1, 2**16), network=optional(NETWORKS),
    parameters=st.dictionaries(st.sampled_from(["context_bytes", "communicator_bytes"]), st.integers(0, 2**53)),
    cents_per_gpu_hour=optional(st.integers(0, 10**9)), pue_per_mille=st.integers(1000, 10**4),
)


@pytest.mark.slow
@given(CLUSTERS)
@settings(max_examples=200 if FULL else 60)
def test_clusters_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> None:
    path = tmp_path_factory.mktemp("clusters") / "c.toml"
    write_cluster(cluster, str(path))
    assert read_cluster(path) == cluster
    assert list(path.parent.iterdir()) == [path]


def test_names_of_the_catalogue_are_written_as_names() -> None:
    assert plain(Cluster.named("h100-80gb")) == {
        "name": "h100-80gb ndr-400", "gpu": "h100-80gb", "gpus_per_node": 8, "network": "ndr-400",
    }


def test_nothing_is_half_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^cluster = .*: must be a file, not a directory"):
        write_cluster(Cluster.named("h200"), str(tmp_path))
    with pytest.raises(InputError, match=r"^cluster = .*: must be a file that can be written"):
        write_cluster(Cluster.named("h200"), str(tmp_path / "none" / "c.toml"))
    assert list(tmp_path.iterdir()) == []


def outcome(read_it: Callable[[], object]) -> str:
    """What a person sees: nothing, or one line."""
    try:
        read_it()
    except InputError as error:
        return str(error)
    return ""


SCALARS = st.integers() | st.floats() | st.booleans() | st.text(max_size=9) | st.sampled_from(["h200", "ndr-400"])
KEYS = st.sampled_from(["like", "name", "rails", *Cluster.model_fields, *Gpu.model_fields, *Network.model_fields])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))


@pytest.mark.slow
@given(st.dictionaries(KEYS | st.text(max_size=5), VALUES, max_size=6), VALUES, VALUES)
@settings(max_examples=500 if FULL else 120)
def test_any_table_is_a_cluster_or_an_input_error(table: dict[str, Any], gpu: Any, network: Any) -> None:
    for declared in (table, {"gpu": "h200", **table}, {"gpu": gpu}, {"gpu": "h200", "network": network}):
        assert outcome(lambda declared=declared: cluster_of({"name": "c", **declared}).values()).isprintable()


@pytest.mark.slow
@given(st.binary(max_size=200) | VALUES.map(lambda value: tomli_w.dumps({"gpu": value}).encode("utf-8", "replace")))
def test_any_bytes_are_a_cluster_or_an_input_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("clusters") / "c.toml"
    path.write_bytes(content)
    assert outcome(lambda: read_cluster(path)).isprintable()


def test_the_example_is_the_one_that_is_shown() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    comment, rest = (DOCS / "example.toml").read_text(encoding="utf-8").split("\n", 1)
    assert comment.startswith("# ")
    assert rest == shown


def test_python_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS.parents[1])
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(block, {})


def test_every_key_is_explained_and_links_lead_somewhere() -> None:
    for key in Cluster.model_fields:
        assert f"`{key}`" in README or f"`[{key}]`" in README
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (DOCS / target).exists()


def test_the_refusal_of_the_readme_is_the_one_that_is_printed() -> None:
    with pytest.raises(InputError) as caught:
        Cluster.named("mi250x").values()
    assert f"    {caught.value}\n" in README
