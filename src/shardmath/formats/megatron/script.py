"""A launch script of Megatron-LM around the flags of a run: environment, rendezvous, data and schedule."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shardmath.errors import InputError
from shardmath.formats.megatron.kernels import HOST_AXIS, KEEPS_WEIGHTS
from shardmath.formats.megatron.rotary import BUILT_FACTOR
from shardmath.formats.megatron.writing import Flag, groups_of, vocabulary
from shardmath.formats.run import REPLACE, notes, title

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

#: The release whose parser knows all flags that are written.
RELEASE = "core_v0.16.1"
_GROUPS = ("MODEL_ARGS", "MOE_ARGS", "TRAINING_ARGS", "MODEL_PARALLEL_ARGS")
_STARTED = (
    f"# For Megatron-LM {RELEASE}, in the root of its repository. It starts as it is, on made-up tokens:",
    f"# lines under {REPLACE} are placeholders for your data, tokenizer, learning rate and iterations.",
)


def script(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Return a launch script, with its placeholders marked. Raises InputError for a run that would not start."""
    if explanation.choices[HOST_AXIS] == KEEPS_WEIGHTS:
        raise InputError(HOST_AXIS, KEEPS_WEIGHTS, "must be cpu: Megatron-LM asserts that"
                         " --optimizer-cpu-offload has --use-precision-aware-optimizer beside it", "cpu")
    flags = zip(_GROUPS, groups_of(explanation, layout), strict=True)
    groups = {name: [*map(shown, group)] for name, group in flags if group}
    groups |= {"DATA_ARGS": [*_data(explanation)], "SCHEDULE_ARGS": [*_schedule()]}
    processes, nodes = _processes(explanation)
    launcher = [f"--nproc_per_node {processes}", f"--nnodes {nodes}", *(_rendezvous(nodes) if nodes > 1 else ())]
    arrays = {"DISTRIBUTED_ARGS": launcher, **groups}
    lines = [
        "#!/bin/bash", title(explanation), *_STARTED, *_notes(explanation), *_on_every_node(nodes), "",
        *_environment(explanation),
        *(f"{name}=(\n" + "".join(f"    {line}\n" for line in array) + ")\n" for name, array in arrays.items()),
        'torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \\',
        *(f'    "${{{name}[@]}}"' + (" \\" if name != list(groups)[-1] else "") for name in groups), "",
    ]
    return "\n".join(lines)


def shown(flag: Flag) -> str:
    """Return a flag with its words as bash reads them."""
    return " ".join((f"--{flag[0]}", *map(shlex.quote, flag[1:])))


def _processes(explanation: Explanation) -> tuple[int, int]:
    """Return processes of a node, one for each GPU of a server, and nodes: the fewest that hold as many GPUs each."""
    gpus, size = explanation.inputs["num_gpus"], explanation.inputs["node_size"]
    if explanation.gpu.domain_size > explanation.gpu.node_size and size == explanation.gpu.domain_size:
        size = explanation.gpu.node_size  # a domain of links that spans servers
    nodes = next(nodes for nodes in range(-(-gpus // size), gpus + 1) if gpus % nodes == 0)
    return gpus // nodes, nodes


def _on_every_node(nodes: int) -> Iterator[str]:
    if nodes > 1:
        yield f"# Run it on each of {nodes} nodes, with another NODE_RANK from 0 to {nodes - 1} (srun with one task"
        yield "# for each node says it), and the host name of node 0 as MASTER_ADDR."


def _rendezvous(nodes: int) -> Iterator[str]:
    yield f'--node_rank "${{NODE_RANK:-${{SLURM_NODEID:?set NODE_RANK, from 0 to {nodes - 1}}}}}"'
    yield '--master_addr "${MASTER_ADDR:?set MASTER_ADDR, the host name of node 0}"'
    yield '--master_port "${MASTER_PORT:-29500}"'


def _environment(explanation: Explanation) -> Iterator[str]:
    """Return the environment that Megatron-LM asserts: one work queue for TP and CP, before Blackwell."""
    values = explanation.inputs
    if max(values["tensor_parallel"], values["context_parallel"]) > 1 and explanation.gpu.architecture != "blackwell":
        yield "export CUDA_DEVICE_MAX_CONNECTIONS=1"
        yield ""


def _notes(explanation: Explanation) -> Iterator[str]:
    """Return remarks on model settings that the script or Megatron-LM lacks."""
    yield from notes(explanation)
    scaling = explanation.model.rope_scaling
    if scaling is not None and scaling.kind == "llama3" and scaling.factor != BUILT_FACTOR:
        yield f"# pretrain_gpt.py builds its model with factor {BUILT_FACTOR:g}; --rope-scaling-factor is not used:"
        yield f"# pass rope_scaling_factor={scaling.factor:g} to GPTModel in gpt_builders.py."


def _data(explanation: Explanation) -> Iterator[str]:
    yield f"# {REPLACE} by your data, such as: --data-path PREFIX --split 99,1,0"
    yield "--mock-data"
    yield f"# {REPLACE} by your tokenizer, such as: --tokenizer-type HuggingFaceTokenizer --tokenizer-model FOLDER"
    yield from map(shown, vocabulary(explanation))


def _schedule() -> Iterator[str]:
    yield f"# {REPLACE} by your learning rate"
    yield "--lr 1e-4"
    yield "--min-lr 1e-5"
    yield "--lr-decay-style cosine"
    yield f"# {REPLACE} by your iterations"
    yield "--train-iters 1000"
    yield "--lr-warmup-iters 100"
    yield "--eval-interval 500"
    yield "--eval-iters 10"
    yield "--log-interval 10"
