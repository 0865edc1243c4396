"""A cluster: GPUs, how many of them share a server, and the network; and the parameters of time that follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Annotated
from warnings import warn

from pydantic import Field, field_validator

from shardmath.errors import ABSENT, InputError, InputWarning, inside, nearest_names
from shardmath.generated.definitions import DEFAULTS, EFFICIENCIES, ERROR_OF_EXPERTS, ERRORS, PARAMETERS
from shardmath.input.arguments import typed
from shardmath.input.parameters import checked
from shardmath.input.records import Record
from shardmath.machines.gpu import GIVEN, Gpu
from shardmath.machines.kinds import kernels_on
from shardmath.machines.links import Links
from shardmath.machines.network import Network

GIGA, MEGA = 10**9, 10**6
PRECISIONS = ("bf16", "fp8")
#: Parameters that follow from the GPU, the server and the network, and are given there.
FACTS = (
    "matmul_flops", "attention_flops", "hbm_bandwidth", "node_bandwidth", "node_latency_ns", "network_bandwidth",
    "network_latency_ns", "send_bandwidth", "link_peers", "nvlink_domain", "gpu_memory", "node_size", "num_gpus",
    "server_gpus", "host_memory", "cents_per_gpu_hour", "power_milliwatts",
)
#: Figures of the host by parameter, with the figure of a GPU that they follow from.
OF_HOST = {"host_copy_bandwidth": "pcie_mb_per_s", "host_memory_bandwidth": "host_mb_per_s"}
#: Beginning of the names of figures of all stages together, where each has a machine of its own.
OF_ALL_STAGES = "all_stages_"
#: Parameters that a cluster may set by name: efficiencies, and memory that depends on the machine.
OTHERS = tuple(
    name for name, (*_, kind, _) in PARAMETERS.items()
    if kind in ("cluster", "machine") and name not in FACTS
    and not name.endswith("_link_bandwidth") and not name.startswith(OF_ALL_STAGES)
)


class Cluster(Record):
    """One kind of cluster, of any number of GPUs.

    ``gpus_per_node``: GPUs of one server. ``network``: None for a single server. ``parameters``: values of further
    parameters of the machine by name, such as efficiencies. ``cents_per_gpu_hour``: price of one GPU for an hour, in
    hundredths of your currency. ``pue_per_mille``: power usage effectiveness, what the building draws for 1000 W of
    the GPUs; 1000 counts the GPUs alone. ``links``: measured bandwidths between the nodes, if there are any; the
    network then has the bandwidth of the fastest link, which none exceeds. ``kinds``: several kinds of GPUs, in the
    order of the pipeline's stages; ``parameters`` are then those that all have, and all else is that of the first.
    Raises InputError for anything that breaks a rule.

    Example:
        >>> cluster = shardmath.Cluster.named("h100-80gb", "ndr-400")
        >>> cluster.gpus_per_node, cluster.network.name
        (8, 'ndr-400')
    """

    name: Annotated[str, Field(min_length=1)]
    gpu: Gpu
    gpus_per_node: Annotated[int, Field(ge=1, le=2**16)]
    network: Network | None = None
    parameters: dict[str, int] = Field(default_factory=dict)
    cents_per_gpu_hour: Annotated[int, Field(ge=0, le=10**9)] | None = None
    pue_per_mille: Annotated[int, Field(ge=1000, le=10**4)] = 1000
    links: Links | None = None
    kinds: tuple[Kind, ...] = ()

    @field_validator("parameters", mode="before")
    @classmethod
    def _are_parameters(cls, parameters: object) -> object:
        if isinstance(parameters, dict):
            for name, value in parameters.items():
                if name not in OTHERS:
                    rule = "must not be given: a cluster has no such parameter"
                    raise InputError(f"parameters.{name}", value, rule, nearest_names(str(name), OTHERS))
                with inside("parameters"):
                    checked(name, value)
        return parameters

    @classmethod
    @typed
    def named(cls, gpu: Gpu | str, network: Network | str | None = None) -> Cluster:
        """Return the usual servers with one kind of GPU, joined by a network; both by name or as they are.

        Without a network the servers are joined as the GPU's vendor does it, if that is known. Raises InputError for
        unknown names.

        Example:
            >>> shardmath.Cluster.named("a100-40gb", "roce-400").name
            'a100-40gb roce-400'
        """
        gpu = Gpu.named(gpu) if isinstance(gpu, str) else gpu
        network = gpu.network if network is None else network
        network = Network.named(network) if isinstance(network, str) else network
        name = gpu.name if network is None else f"{gpu.name} {network.name}"
        return cls(name=name, gpu=gpu, gpus_per_node=gpu.node_size, network=network)

    def of_one_kind(self) -> Cluster:
        """Return the cluster itself. Raises InputError where it has several kinds of GPUs.

        Example:
            >>> shardmath.Cluster.named("h100-80gb").of_one_kind().name
            'h100-80gb ndr-400'
        """
        if self.kinds:
            raise InputError("gpu", self.name, "must be a cluster of one kind of GPU: several are counted in explain,"
                             " sweep and recommend, not here yet", self.gpu.name)
        return self

    def joined(self, network: str | None) -> Cluster:
        """Return the cluster with another network between its servers, if one is named; with a warning if it has one.

        Raises InputError for an unknown name, and where several kinds of GPUs have networks of their own.

        Example:
            >>> alone = shardmath.Cluster(name="mine", gpu=shardmath.Gpu.custom(48), gpus_per_node=4)
            >>> alone.joined("roce-400").network.name
            'roce-400'
        """
        if network is None:
            return self
        if self.kinds:
            raise InputError("network", network, "must be given in the cluster file of several kinds of GPUs")
        named = Network.named(network)
        if self.network not in (None, named):
            warn(f"network = {named.name} wins over that of the cluster {self.name}", InputWarning, stacklevel=2)
        return self.model_copy(update={"network": named})

    def kernels(
        self, implementation: str, asked: Mapping[str, str] | None, declared: Mapping[str, object],
    ) -> Mapping[str, str] | None:
        """Return the asked kernel choices with those that the cluster needs. Raises InputError as ``kernels_on``.

        Example:
            >>> shardmath.Cluster.named("h100-80gb").kernels("megatron", {"dropout": "masks"}, {})
            {'dropout': 'masks'}
        """
        return kernels_on(self, implementation, asked, declared)

    @property
    def parts(self) -> tuple[Cluster, ...]:
        """Clusters of one kind of GPU each, in their order; the cluster itself where all GPUs are alike."""
        return tuple(kind.cluster for kind in self.kinds) or (self,)

    def with_cents(self, cents: Sequence[int | None]) -> Cluster:
        """Return the cluster with other prices of a GPU-hour, one for each of its ``parts``.

        Example:
            >>> shardmath.Cluster.named("h100-80gb").with_cents([250]).cents_per_gpu_hour
            250
        """
        own = [part.model_copy(update={"cents_per_gpu_hour": price})
               for part, price in zip(self.parts, cents, strict=True)]
        kinds = tuple(kind.model_copy(update={"cluster": part}) for kind, part in zip(self.kinds, own, strict=False))
        return self.model_copy(update={"cents_per_gpu_hour": cents[0], "kinds": kinds})

    @property
    def num_gpus(self) -> int:
        """GPUs of all kinds; 0 for a cluster of any number of one kind."""
        return sum(kind.gpus for kind in self.kinds)

    @property
    def nodes_of_kinds(self) -> tuple[int, ...]:
        """Nodes of each kind; none for one kind."""
        return tuple(-(-kind.gpus // kind.cluster.node_size) for kind in self.kinds)

    def machines(self, num_gpus: int) -> list[tuple[int, Gpu]]:
        """GPUs of a job on so many of them: how many there are of each kind.

        Example:
            >>> [(count, gpu.name) for count, gpu in shardmath.Cluster.named("h100-80gb").machines(16)]
            [(16, 'h100-80gb')]
        """
        return [(kind.gpus, kind.cluster.gpu) for kind in self.kinds] or [(num_gpus, self.gpu)]

    @property
    def node_size(self) -> int:
        """GPUs that reach each other without the network: those of a server, or of a link that spans servers."""
        return self.gpu.domain_size if self.gpu.domain_size > self.gpu.node_size else self.gpus_per_node

    @property
    def is_linked(self) -> bool:
        """True if NVLink or xGMI joins all GPUs of a server."""
        return self.gpu.link_size is not None and self.gpu.link_size >= self.gpus_per_node

    @property
    def link_peers(self) -> int:
        """GPUs that the links of a GPU are divided among: all others of a board without a switch, else 1."""
        return self.gpus_per_node - 1 if self.gpus_per_node == self.gpu.mesh_size else 1

    def error(self, with_experts: bool) -> float | None:
        """Return the share that nine of ten predicted steps were within.

        None with constants of one's own, and for GPUs that have those of measured ones but were not measured, such as
        a GeForce of A100's generation or a GPU with speeds of one's own.

        Steps of models ``with_experts`` have an error of their own, of all GPUs that were measured.

        Example:
            >>> shardmath.Cluster.named("h100-80gb").error(with_experts=False) < 0.2
            True
        """
        generation = self.gpu.generation
        own = self.parameters.keys() & EFFICIENCIES.get(generation, {}).keys()
        if own or not self.gpu.is_measured:
            return None
        return (ERROR_OF_EXPERTS if with_experts else ERRORS[generation]) / 1000

    @property
    def memory_parameters(self) -> dict[str, int]:
        """Those of ``parameters`` that change memory."""
        return {name: value for name, value in self.parameters.items() if PARAMETERS[name][4] == "cluster"}

    @property
    def power_watts(self) -> Fraction:
        """Return the watts of one GPU at full load, with its share of the building. Raises InputError if unknown."""
        return Fraction(self._known("power_watts") * self.pue_per_mille, 1000)

    @typed
    def values(self, precision: str = "bf16", num_gpus: int | None = None) -> dict[str, int]:
        """Return the parameters of the machine by name: FLOP/s, bytes/s of one GPU each direction, nanoseconds, bytes.

        ``precision`` is that of matrix products; attention is in bf16. A cluster without a network has values for
        ``num_gpus`` that fit in one server. Raises InputError, which says what to give, where a figure is not known.

        Example:
            >>> values = shardmath.Cluster.named("h100-80gb").values()
            >>> values["gpu_memory"], values["node_bandwidth"]
            (85899345920, 450000000000)
        """
        if precision not in PRECISIONS:
            raise InputError("precision", precision, "must be bf16 or fp8", nearest_names(precision, PRECISIONS))
        if precision == "fp8" and self.gpu.bf16_gflops and self.gpu.fp8_gflops is None:
            raise InputError("precision", precision, f"must be one that {self.gpu.name} multiplies matrices in", "bf16")
        way = "link" if self.is_linked or self.gpu.pcie_mb_per_s is None else "pcie"
        measured = None if self.links is None else self.links.inside()
        node = measured or MEGA * self._known(f"{way}_mb_per_s"), self._known(f"{way}_latency_ns")
        network = self._across(node, num_gpus)
        return {
            **self._usual(), **self._host(), **self.parameters,
            "matmul_flops": GIGA * self._known(f"{precision}_gflops"),
            "attention_flops": GIGA * self._known("bf16_gflops"),
            "hbm_bandwidth": MEGA * self._known("hbm_mb_per_s"),
            "node_bandwidth": node[0], "node_latency_ns": node[1],
            "network_bandwidth": network[0], "network_latency_ns": network[1],
            "send_bandwidth": MEGA * self.network.send_mb_per_s if self.network else network[0],
            "link_peers": self.link_peers if way == "link" else 1,
            "gpu_memory": self.gpu.memory_bytes, "node_size": self.node_size, "nvlink_domain": self.node_size,
            "cents_per_gpu_hour": self.cents_per_gpu_hour or 0,
            "power_milliwatts": int(1000 * self.power_watts) if self.gpu.power_watts else 0,
        }

    def _usual(self) -> dict[str, int]:
        """Return defaults of the machine's parameters: those of the GPU's generation, and usual ones elsewhere."""
        usual = {name: DEFAULTS[name] for name in OTHERS
                 if PARAMETERS[name][4] == "machine" and name in DEFAULTS and name not in OF_HOST}
        reached = {"network_per_mille": 1000, "flex_network_per_mille": 1000} if self.links else {}
        inner = {"node_per_mille": 1000} if self.links and self.links.inside() else {}
        return {**usual, **EFFICIENCIES.get(self.gpu.generation, {}), **reached, **inner}

    def _host(self) -> dict[str, int]:
        """Bytes/s of one GPU to its host, and of its share of the host's memory, as far as they are known."""
        shared = {"pcie_mb_per_s": 1, "host_mb_per_s": self.gpus_per_node}
        return {name: MEGA * getattr(self.gpu, figure) // shared[figure] for name, figure in OF_HOST.items()
                if getattr(self.gpu, figure) is not None}

    @property
    def servers(self) -> dict[str, int]:
        """Parameters of a server's host: the GPUs that share it, and its memory."""
        return {**self.gpu.servers, "server_gpus": self.gpus_per_node}

    def refuse_unknown_host(self, values: Mapping[str, int], inputs: Collection[str]) -> None:
        """Raise InputError where ``inputs`` need a figure of the host that is not among ``values``.

        Example:
            >>> shardmath.Cluster.named("h100-80gb").refuse_unknown_host({"host_bandwidth": 1}, ["host_bandwidth"])
        """
        for name, figure in OF_HOST.items():
            if name in inputs and name not in values:
                self._known(figure)

    def _across(self, node: tuple[int, int], num_gpus: int | None) -> tuple[int, int]:
        """Bytes/s and nanoseconds of the network; those of the node where nothing leaves it."""
        if self.network is not None and self.links is not None:
            return self.links.best(self.node_size), self.network.latency_ns
        if self.network is not None:
            return self.network.bandwidth(self.gpus_per_node), self.network.latency_ns
        if num_gpus is None or num_gpus > self.node_size:
            raise InputError("network", ABSENT, "must be given: a name of `shardmath networks`, or own figures")
        return node

    def _known(self, field: str) -> int:
        value = getattr(self.gpu, field)
        if value is None and self.gpu.source == GIVEN:
            rule = "must have speeds, which times need: a name of `shardmath gpus`, or a cluster file"
            raise InputError("gpu", self.gpu.name, rule)
        if value is None:
            rule = f"must be given in a cluster file: no figure is known for {self.gpu.name}"
            raise InputError(f"gpu.{field}", ABSENT, rule)
        return int(value)


class Kind(Record):
    """GPUs of one kind in a cluster of several: how many of them, and the cluster that they would be alone."""

    gpus: Annotated[int, Field(ge=1, le=2**31)]
    cluster: Cluster


Cluster.model_rebuild()
