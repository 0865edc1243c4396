"""The order in which a rank allocates and frees its tensors during a step: births and deaths, beside the rows.

A row of the ledger says at which moments a tensor exists. Here stands the order between moments, as scripts of
events at the points of a step. An event is a word:

* ``save``: all saved tensors of the point's components, in the ledger's order; ``save:NAME`` those of one component.
* ``free``: the same tensors, freed in reverse order; ``free:NAME`` those of one component.
* ``+NAME``: a tensor of ``PASSING`` or of the point's moment; ``+*`` all others of the moment.
* ``-NAME``: it is freed; ``-*`` all of the moment are; ``-all`` all that still pass are.
* ``~NAME``: it is freed, and with tensor parallelism comes back when the stream of communication, which used it, has
  done so; ``^NAME`` is freed so by what is sent between stages.
* ``grad:NAME``: 16-bit gradients of the weights of a component, kept until the micro-batch is done, where they are.
* ``receive``: a message from another stage has arrived, so what was sent before it comes back.
* ``use:NAME``: a workspace, which is made at its first use and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Eq, Expr

from .dimension import ONE, Dimension
from .dimensions import BATCH, HIDDEN, SEQUENCE, SEQUENCE_SP, VOCAB
from .functions import Iverson
from .parameters import symbols
from .sources import BY_KEY

p, ts, tied, D, zero1 = symbols("p ts tied D zero1")

_WHOLE, _SHARE, _LOGITS = (SEQUENCE, BATCH, HIDDEN), (SEQUENCE_SP, BATCH, HIDDEN), (SEQUENCE, BATCH, VOCAB)
_SEVERAL = Iverson(p > 1)
_SCATTERED, _TIED_ALONE = Iverson(ts > 1), tied * Iverson(Eq(p, 1))
_NANOTRON: Mapping[str, tuple[str, ...]] = {"data_parallel": ("torch_ddp",)}

#: 1 where DistributedDataParallel takes gradients over into its buckets, tensor by tensor.
IN_BUCKETS = Iverson(D > 1) * (1 - zero1)


@dataclass(frozen=True, eq=False)
class Passing:
    """A tensor that lives between moments only: at none of the ledger's moments does it make a peak."""

    name: str
    shape: tuple[Dimension, ...]
    bytes: int
    meaning: str
    source: str
    when: Expr = ONE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a tensor that cites nothing."""
        if self.source not in BY_KEY:
            raise ValueError(f"tensor {self.name}: unknown source {self.source!r}")


def _nanotron(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE) -> Passing:
    return Passing(name, shape, 2, meaning, "nanotron", when, _NANOTRON)


PASSING: tuple[Passing, ...] = (
    _nanotron("o_proj.partial", _WHOLE, "output of the rank's heads, before it is summed over ranks", _SCATTERED),
    _nanotron("o_proj.output", _SHARE, "output of attention, before it is added to the layer's input"),
    _nanotron("down.partial", _WHOLE, "output of the rank's part of the MLP, before it is summed over ranks",
              _SCATTERED),
    _nanotron("down.output", _SHARE, "output of the MLP, before it is added"),
    _nanotron("logits", _LOGITS, "16-bit logits, of which the fp32 ones are made"),
    _nanotron("logits_gradient", _LOGITS, "16-bit gradient of the logits"),
    _nanotron("tied_gradient", (VOCAB, HIDDEN), "gradient of the tied matrix as the head has it, until the embedding's",
              _TIED_ALONE),
    _nanotron("embedding.raw_gradient", (VOCAB, HIDDEN), "gradient of the embedding, before DDP takes it over",
              IN_BUCKETS),
    _nanotron("sent_output", _SHARE, "output of the last layer, which is sent on", _SEVERAL),
    _nanotron("received_gradient", _SHARE, "its gradient, as it arrives", _SEVERAL),
    _nanotron("gate_up.input_gradient", _WHOLE, "gradient of the MLP's input"),
    _nanotron("gate_up.reduced", _SHARE, "the rank's share of its sum over ranks", _SCATTERED),
    _nanotron("o_proj.output_gradient", _SHARE, "gradient of attention's output"),
    _nanotron("qkv.input_gradient", _WHOLE, "gradient of attention's input"),
    _nanotron("qkv.reduced", _SHARE, "the rank's share of its sum over ranks", _SCATTERED),
)


@dataclass(frozen=True)
class Script:
    """The events at a point of a step, for implementations that chose one of the given variants."""

    point: str
    events: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


#: Points of a step in their order; of those of one implementation the last script that fits holds.
SCRIPTS: tuple[Script, ...] = (
    *(Script(point, events) for point, events in {
        "chunk_forward": "",
        "embedding_forward": "save",
        "layer_forward": "save",
        "experts_forward": "+* -*",
        "head_forward": "save",
        "loss_forward": "+* save -*",
        "after_forward": "+* -*",
        "stage_exchange": "+* -*",
        "backward_start": "+* -*",
        "loss_backward": "+* -* free",
        "head_backward": "+* free -*",
        "head_reduce": "+* -*",
        "combine_backward": "+* -*",
        "experts_backward": "+* -*",
        "layer_backward": "+* free -*",
        "embedding_backward": "free +* -*",
        "backward_end": "-all",
        "last_reduce": "+* -*",
        "optimizer_step": "+* -*",
    }.items()),
    Script("layer_forward", "use:thread_workspace.forward save:layer_input save:attention_norm save:attention"
           " +o_proj.partial +o_proj.output -o_proj.partial save:ffn_norm -o_proj.output"
           " save:swiglu +down.partial +down.output -down.partial -down.output", _NANOTRON),
    Script("loss_forward", "+logits +loss.shard_logits_fp32 -logits +* save -*", _NANOTRON),
    Script("after_forward", "+sent_output ^sent_output +* -*", _NANOTRON),
    Script("stage_exchange", "+* -* receive +received_gradient ^received_gradient", _NANOTRON),
    Script("chunk_forward", "receive", _NANOTRON),
    Script("loss_backward", "+logits_gradient free", _NANOTRON),
    # The first product of the backward pass makes the workspace of its thread, in the hole of the logits.
    Script("head_backward", "-logits_gradient +loss.shard_gradient +head.whole_gradient use:thread_workspace.backward"
           " +* ~head.whole_gradient -* +tied_gradient free grad:head grad:final_norm", _NANOTRON),
    Script("layer_backward", "use:thread_workspace.backward +swiglu.down.output_gradient +swiglu.down.input_gradient"
           " +* free:swiglu ~swiglu.down.output_gradient -* +gate_up.input_gradient +gate_up.reduced"
           " ~gate_up.input_gradient free:ffn_norm +o_proj.output_gradient +qkv.input_gradient"
           " +qkv.reduced ~qkv.input_gradient ~o_proj.output_gradient free:attention"
           " free:attention_norm -gate_up.reduced -qkv.reduced free:layer_input"
           " grad:swiglu grad:ffn_norm grad:attention grad:attention_norm", _NANOTRON),
    Script("embedding_backward", "grad:embedding +embedding.raw_gradient -embedding.raw_gradient +* -* free",
           _NANOTRON),
)


@dataclass(frozen=True)
class Birth:
    """When the states of a role are made, and in which pieces.

    ``piece`` is ``tensor`` for one allocation for each parameter, ``whole`` for one buffer of all, ``bucket`` for
    buffers of 25 MiB. ``late`` states are made by the first optimizer step.
    """

    state: str
    piece: str = "tensor"
    late: bool = False


_MOMENTS = ("exp_avg", "exp_avg_sq")

#: Births of states by the kind of data parallelism; a state that is not named is made tensor by tensor at the start,
#: an optimizer's state in the first step.
BIRTHS: Mapping[str, tuple[Birth, ...]] = {
    "torch_ddp": (Birth("main_gradient", "whole"), Birth("bucket", "bucket"), Birth("master_weight", "whole"),
                  *(Birth(name, late=True) for name in _MOMENTS)),
    "ddp": (Birth("main_gradient", "whole"), Birth("weight", "whole"), Birth("master_weight"),
            *(Birth(name, late=True) for name in _MOMENTS)),
    "fsdp": tuple(Birth(name, late=True) for name in _MOMENTS),
    "deepspeed": (Birth("weight"), *(Birth(name, "whole", late=True) for name in _MOMENTS)),
}


def scripts(choices: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the events at every point of a step under these choices."""
    return {
        item.point: tuple(item.events.split()) for item in SCRIPTS
        if all(choices[axis] in allowed for axis, allowed in item.options.items())
    }
