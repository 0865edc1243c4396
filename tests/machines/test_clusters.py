"""Clusters: networks of the catalogue, and the parameters of a machine that follow from its parts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.account.time import machine_values
from shardmath.catalogue import read
from shardmath.commands.calibrate.runs import asked
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, EFFICIENCIES, ERROR_OF_EXPERTS, ERRORS, PARAMETERS
from shardmath.input.parameters import checked
from shardmath.machines import Cluster, Network
from shardmath.machines.gpu import Gpu
from shardmath.reports.time import within

#: Parameters of the machine that a cluster has defaults for.
USUAL = {name: value for name, value in DEFAULTS.items() if PARAMETERS[name][4] == "machine"}
KNOWN = [name for name in read("gpus") if name != "mi250x-64gb-per-gcd"]

#: What the servers of clouds and vendors have, 10^9 bit/s of all ports together for 8 GPUs.
SERVERS = {
    "hdr-200": 1600, "ndr-400": 3200, "xdr-800": 6400, "roce-400": 3200, "ethernet-100": 100, "efa-p4d": 400,
    "efa-p5": 3200, "efa-p5en": 3200, "efa-p6-b200": 3200, "efa-p6-b300": 6400, "tcpxo-200": 1600, "roce-100": 1600,
    "slingshot-200": 800,
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_gpu_has_an_eighth_of_its_server(name: str) -> None:
    assert Network.named(name).bandwidth(8) * 8 == SERVERS[name] * 10**9 // 8


@pytest.mark.parametrize("name", read("networks"))
def test_every_network_is_complete(name: str) -> None:
    network = Network.named(name)
    assert network.name == name
    assert network.source
    # Between what a bare message needs and what TCP needs.
    assert 1_000 <= network.latency_ns <= 100_000
    assert network.latency_ns > max(link["latency_ns"] for link in read("links").values())


@pytest.mark.parametrize(("given_name", "name"), [
    ("NDR", "ndr-400"), ("InfiniBand HDR 200", "hdr-200"), ("AWS EFA p5", "efa-p5"), ("efa_p5en", "efa-p5en"),
    ("slingshot", "slingshot-200"), ("ROCE-400", "roce-400"),
])
def test_names_that_are_forgiven(given_name: str, name: str) -> None:
    assert Network.named(given_name).name == name


@pytest.mark.parametrize(("name", "nearest"), [("ndr-40", "ndr-400"), ("roce", "roce-100 or roce-200 or roce-400"),
                                               ("", "edr-100"), ("token ring", "edr-100")])
def test_unknown_networks(name: str, nearest: str) -> None:
    with pytest.raises(InputError, match=r"^network = ") as caught:
        Network.named(name)
    assert nearest in str(caught.value.nearest)


@given(st.text())
def test_any_text_is_a_network_or_an_input_error(name: str) -> None:
    try:
        line = Network.named(name).name
    except InputError as error:
        line = str(error)
    assert line.isprintable()


@pytest.mark.parametrize("name", KNOWN)
def test_values_of_every_gpu_are_whole_and_ordered(name: str) -> None:
    values = Cluster.named(name, "efa-p4d").values()
    assert all(type(value) is int and checked(name, value) == value for name, value in values.items())
    assert all(values[name] > 0 for name in values if DEFAULTS.get(name, 1) and name != "power_milliwatts")
    assert values["network_bandwidth"] < values["node_bandwidth"] < values["hbm_bandwidth"]
    assert values["node_latency_ns"] < values["network_latency_ns"]
    assert values["matmul_flops"] == values["attention_flops"] == Gpu.named(name).bf16_gflops * 10**9
    assert values["gpu_memory"] == Gpu.named(name).memory_bytes


def test_a_dgx_h100() -> None:
    values = Cluster.named("h100-80gb").values()
    assert values == {
        **USUAL, **EFFICIENCIES["hopper"], "send_bandwidth": 12 * 10**9, "link_peers": 1,
        "matmul_flops": 989_400 * 10**9, "attention_flops": 989_400 * 10**9, "hbm_bandwidth": 3350 * 10**9,
        "node_bandwidth": 450 * 10**9, "node_latency_ns": 3400, "network_bandwidth": 50 * 10**9,
        "network_latency_ns": 14_000, "gpu_memory": 80 * 2**30, "node_size": 8,
        "nvlink_domain": 8, "power_milliwatts": 700_000, "cents_per_gpu_hour": 0,
    }
    assert Cluster.named("h100-80gb").values("fp8") == {**values, "matmul_flops": 1_978_900 * 10**9}


def test_nvlink_that_joins_pairs_serves_servers_of_two() -> None:
    gpu = Gpu.named("h100-pcie")
    of_eight, of_two = (Cluster(name="c", gpu=gpu, gpus_per_node=size).values(num_gpus=2) for size in (8, 2))
    assert (of_eight["node_bandwidth"], of_eight["node_latency_ns"]) == (64 * 10**9, 5700)
    assert (of_two["node_bandwidth"], of_two["node_latency_ns"]) == (300 * 10**9, 3400)


#: Links of a GPU on boards of four and of eight, whose GPUs are joined in pairs or by a switch.
BOARDS = [("h100-80gb", 8, 1), ("h100-80gb", 4, 3), ("a100-80gb", 4, 3), ("mi300x-192gb", 8, 7), ("h100-pcie", 4, 1)]


@pytest.mark.parametrize(("name", "size", "peers"), BOARDS)
def test_without_a_switch_the_links_of_a_gpu_are_divided(name: str, size: int, peers: int) -> None:
    """Of n GPUs of a board of g each has n - 1 of g - 1 parts of its links, and a message one."""
    gpu = Gpu.named(name)
    values = Cluster(name="c", gpu=gpu, gpus_per_node=size, network=Network.named("ndr-400")).values()
    assert values["link_peers"] == peers
    links = Fraction(values["node_bandwidth"] * values["node_per_mille"], 1000)
    for ranks in (2, 4):
        layout = {"tensor_parallel": ranks, "pipeline_parallel": 2, "num_gpus": 2 * ranks}
        evaluator = asked("llama-3.1-8b", gpu, **layout).evaluator
        known = {**asked("llama-3.1-8b", gpu, **layout).on_rank(0), **machine_values(evaluator, Cluster(
            name="c", gpu=gpu, gpus_per_node=size, network=Network.named("ndr-400")), 2 * ranks)}
        found = evaluator.times.terms(**{item: Fraction(known[item]) for item in evaluator.times.INPUTS})
        assert found["tensor.bandwidth"] == links * min(Fraction(ranks - 1, peers), 1)
        across = 2 * ranks > size
        assert found["pipeline.send_bandwidth"] == (12 * 10**9 if across else links / peers)


def test_messages_to_other_nodes_share_the_adapters() -> None:
    """All GPUs of a server send at once over one port of 100 Gb/s: each has its part, below the rate of a message."""
    cluster = Cluster.named("h100-80gb", "ethernet-100")
    job = asked("llama-3.1-8b", cluster.gpu, tensor_parallel=8, pipeline_parallel=2, num_gpus=16)
    known = {**job.on_rank(0), **machine_values(job.evaluator, cluster, 16)}
    found = job.evaluator.times.terms(**{item: Fraction(known[item]) for item in job.evaluator.times.INPUTS})
    reached = EFFICIENCIES["hopper"]["network_per_mille"]
    assert found["pipeline.send_bandwidth"] == Fraction(100 * 10**9 // 64 * reached, 1000)


def test_times_have_the_error_of_their_generation_of_gpus() -> None:
    """Constants of one's own have no error yet, and neither have GPUs on which nobody measured."""
    cluster = Cluster.named("h100-80gb")
    for with_experts, error in ((False, ERRORS["hopper"]), (True, ERROR_OF_EXPERTS)):
        assert cluster.error(with_experts) == error / 1000
        assert cluster.model_copy(update={"parameters": {"matmul_per_mille": 600}}).error(with_experts) is None
        assert cluster.model_copy(update={"parameters": {"context_bytes": 7}}).error(with_experts) == error / 1000
        assert all(Cluster.named(name).error(with_experts) is None
                   for name in ("mi300x-192gb", "rtx-4090-24gb", "l40s-48gb", "v100-32gb", "rtx-5090-32gb"))
        for name in ("h20-96gb", "h100-pcie-80gb", "gh200-96gb", "h800-80gb"):  # as an H100, but never measured
            like = Cluster.named(name)
            assert like.error(with_experts) == error / 1000
            assert not like.gpu.has_measured_steps
            assert within(error / 1000, with_experts, like).endswith(f"time; on {name} none was measured.")
        faster = cluster.gpu.model_copy(update={"hbm_mb_per_s": 2 * 3_350_000})
        larger = cluster.gpu.model_copy(update={"memory_bytes": 2**37})
        assert cluster.model_copy(update={"gpu": faster}).error(with_experts) is None
        assert cluster.model_copy(update={"gpu": larger}).error(with_experts) == error / 1000
    assert [Cluster.named(name).gpu.generation for name in ("a100-80gb", "b200", "b300")] == [
        "ampere", "blackwell", "blackwell_ultra"]


def test_a_card_without_a_link_uses_pcie_even_alone() -> None:
    values = Cluster(name="c", gpu=Gpu.named("l40s"), gpus_per_node=1).values(num_gpus=1)
    assert (values["node_bandwidth"], values["node_size"]) == (32 * 10**9, 1)


def test_nvlink_that_spans_servers_makes_one_node() -> None:
    values = Cluster.named("gb200").values()
    assert values["node_size"] == 72
    assert values["network_bandwidth"] == 50 * 10**9  # four ports of 400 Gbit/s for the four GPUs of a tray
    assert Cluster(name="c", gpu=Gpu.named("h100-80gb"), gpus_per_node=4).node_size == 4


@given(st.integers(1, 10**6), st.integers(1, 2**16), st.integers(1, 2**16))
def test_ports_are_shared_out_and_nothing_is_added(gbit: int, rails: int, gpus: int) -> None:
    network = Network(name="n", gbit_per_s=gbit, rails=rails, latency_ns=0, source="")
    assert 0 <= gbit * rails * 10**9 - network.bandwidth(gpus) * gpus * 8 < 8 * gpus
    assert network.model_copy(update={"rails": None}).bandwidth(gpus) == gbit * 10**9 // 8


def test_a_single_server_needs_no_network() -> None:
    cluster = Cluster.named("l40s")
    values = cluster.values(num_gpus=8)
    assert values["network_bandwidth"] == values["node_bandwidth"] == 32 * 10**9
    for num_gpus in (None, 9):
        with pytest.raises(InputError, match=r"^network = absent: must be given: a name of `shardmath networks`"):
            cluster.values(num_gpus=num_gpus)


@pytest.mark.parametrize(("gpu", "precision", "line"), [
    ("mi250x", "bf16", "gpu.link_mb_per_s = absent: must be given in a cluster file: no figure is known for mi250x"),
    ("a100-80gb", "fp8", "precision = 'fp8': must be one that a100-80gb multiplies matrices in; nearest legal: bf16"),
    ("h200", "fp18", "precision = 'fp18': must be bf16 or fp8; nearest legal: fp8"),
])
def test_figures_that_are_missing(gpu: str, precision: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        Cluster.named(gpu).values(precision)
    assert str(caught.value).startswith(line)


def test_a_gpu_of_which_only_the_memory_is_known_has_no_time_and_no_power() -> None:
    cluster = Cluster.named(Gpu.custom(80), "ndr-400")
    with pytest.raises(InputError, match=r"^gpu = 'custom-80gib': must have speeds"):
        cluster.values()
    with pytest.raises(InputError, match=r"^gpu = 'custom-80gib': must have speeds"):
        _ = cluster.power_watts


def test_power_has_what_the_building_adds() -> None:
    cluster = Cluster.named("h100-80gb")
    assert cluster.power_watts == 700
    assert 1000 * cluster.model_copy(update={"pue_per_mille": 1333}).power_watts == 700 * 1333


def test_parameters_are_those_of_the_machine() -> None:
    cluster = Cluster(name="c", gpu=Gpu.named("h200"), gpus_per_node=8, network=Network.named("ndr"),
                      parameters={"context_bytes": 5})
    assert cluster.values()["context_bytes"] == 5
    machine = {name for name, (*_, kind, _) in PARAMETERS.items() if kind in ("cluster", "machine")}
    assert cluster.values().keys() <= machine


@pytest.mark.parametrize(("fields", "line"), [
    ({"gpus_per_node": 0}, "gpus_per_node = 0: must be at least 1; nearest legal: 1"),
    ({"gpus_per_node": 8.0}, "gpus_per_node = 8.0: must be an integer; nearest legal: 8"),
    ({"cents_per_gpu_hour": 2.5}, "cents_per_gpu_hour = 2.5: must be an integer"),
    ({"pue_per_mille": 120}, "pue_per_mille = 120: must be at least 1000; nearest legal: 1000"),
    ({"parameters": {"contxt_bytes": 5}},
     "parameters.contxt_bytes = 5: must not be given: a cluster has no such parameter; nearest legal: context_bytes"),
    ({"parameters": {"node_size": 5}}, "parameters.node_size = 5: must not be given: a cluster has no such parameter"),
    ({"parameters": {"reserved_per_mille": 0}},
     "parameters.reserved_per_mille = 0: must be an integer from 1 to"),
    ({"parameters": [5]}, "parameters = [5]: must be"),
    ({"name": ""}, "name = ''"),
])
def test_clusters_that_are_refused(fields: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as caught:
        Cluster(**{"name": "c", "gpu": Gpu.named("h200"), "gpus_per_node": 8, **fields})
    assert str(caught.value).startswith(line)
