"""nanotron's step: scripts of its modules, and tensors that pass between the ledger's moments."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..components.head import IS_EMBEDDING
from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HIDDEN, SEQUENCE, VOCAB
from ..functions import Iverson
from ..parameters import symbols
from .words import SCATTERED, SHARE, WHOLE, Passing, Script

p, D, zero1 = symbols("p D zero1")

_LOGITS = (SEQUENCE, BATCH, VOCAB)
_SEVERAL = Iverson(p > 1)
_NANOTRON: Mapping[str, tuple[str, ...]] = {"data_parallel": ("torch_ddp",)}

#: 1 where DistributedDataParallel takes gradients over into its buckets, tensor by tensor.
IN_BUCKETS = Iverson(D > 1) * (1 - zero1)


def _nanotron(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE) -> Passing:
    return Passing(name, shape, 2, meaning, "nanotron", when, _NANOTRON)


PASSING: tuple[Passing, ...] = (
    _nanotron("o_proj.partial", WHOLE, "output of the rank's heads, before it is summed over ranks", SCATTERED),
    _nanotron("o_proj.output", SHARE, "output of attention, before it is added to the layer's input"),
    _nanotron("down.partial", WHOLE, "output of the rank's part of the MLP, before it is summed over ranks",
              SCATTERED),
    _nanotron("down.output", SHARE, "output of the MLP, before it is added"),
    _nanotron("logits", _LOGITS, "16-bit logits, of which the fp32 ones are made"),
    _nanotron("logits_gradient", _LOGITS, "16-bit gradient of the logits"),
    _nanotron("tied_gradient", (VOCAB, HIDDEN), "gradient of the tied matrix as the head has it, until the embedding's",
              IS_EMBEDDING),
    _nanotron("embedding.raw_gradient", (VOCAB, HIDDEN), "gradient of the embedding, before DDP takes it over",
              IN_BUCKETS),
    _nanotron("sent_output", SHARE, "output of the last layer, which is sent on", _SEVERAL),
    _nanotron("received_gradient", SHARE, "its gradient, as it arrives", _SEVERAL),
    _nanotron("gate_up.input_gradient", WHOLE, "gradient of the MLP's input"),
    _nanotron("gate_up.reduced", SHARE, "the rank's share of its sum over ranks", SCATTERED),
    _nanotron("o_proj.output_gradient", SHARE, "gradient of attention's output"),
    _nanotron("qkv.input_gradient", WHOLE, "gradient of attention's input"),
    _nanotron("qkv.reduced", SHARE, "the rank's share of its sum over ranks", SCATTERED),
)

SCRIPTS: tuple[Script, ...] = (
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
