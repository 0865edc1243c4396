"""Word embedding: the first stage's vocabulary matrix and the token ids that its backward pass needs."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Integer

from ..choices import ADAPTED, MEGATRON_PEAKS
from ..dimensions import BATCH, HIDDEN, SEQUENCE, SEQUENCE_SP, VOCAB
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, transient, weight
from ..parallel.mesh import VOCABULARY_RANKS
from ..parameters import symbols
from ..work import Ranks, Stream, Transfer
from ..work_rows import over_vocabulary

p, sp, rfull = symbols("p sp rfull")
_BACKWARD = ("embedding_backward",)
_PEAK: Any = {"peak": MEGATRON_PEAKS}
_SHARDED = Iverson(VOCABULARY_RANKS > 1)
_WHOLE = Iverson(Eq(VOCABULARY_RANKS, 1))

COMPONENTS = (
    Component(
        name="embedding",
        title="Word embedding",
        order=10,
        place=Place.FIRST,
        tensors=(
            weight("weight", "embedding", (VOCAB, HIDDEN), "megatron_core", "embedding matrix"),
            Tensor(
                "ids", "embedding", Role.INPUT, (SEQUENCE, BATCH), 8, Lifetime.IN_FLIGHT, "pytorch",
                "int64 token ids; the lookup keeps its input", when=_WHOLE, options={"token_ids": ("masked",)},
            ),
            Tensor(
                "ids_whole", "embedding", Role.INPUT, (SEQUENCE, BATCH), 8, Lifetime.IN_FLIGHT, "torchtitan",
                "int64 token ids, all that the lookup keeps", options={"token_ids": ("whole",), "pipeline": ("own",)},
            ),
            saved(
                "masked_ids", "embedding", (SEQUENCE, BATCH), 8, "megatron_core",
                "int64 ids with those of other vocabulary shards set to 0", when=_SHARDED, token_ids=("masked",),
                adapters=("none",),
            ),
            saved(
                "ids_mask", "embedding", (SEQUENCE, BATCH), 1, "megatron_core",
                "bool mask of the ids of other vocabulary shards", when=_SHARDED, token_ids=("masked",),
                adapters=("none",),
            ),
            saved("output", "embedding", (SEQUENCE_SP, BATCH, HIDDEN), 2, "transformers",
                  "output of a frozen embedding, a leaf that autograd holds for its gradient", when=1 - rfull,
                  adapters=ADAPTED, peak=("torch",)),
            transient("weight_gradient", "embedding", (VOCAB, HIDDEN), 2, "megatron_training",
                      "bf16 gradient of the embedding matrix, before it is added to the gradient buffer", _BACKWARD,
                      **_PEAK),
            transient("output_gradient", "embedding", (SEQUENCE, BATCH, HIDDEN), 2, "megatron_training",
                      "bf16 gradient of the whole output", _BACKWARD, **_PEAK),
            transient("received_gradient", "embedding", (SEQUENCE_SP, BATCH, HIDDEN), 2, "megatron_training",
                      "bf16 gradient received for the last layer of the stage, still bound", _BACKWARD,
                      when=Iverson(p > 1), **_PEAK),
        ),
        work=(
            Stream("lookup", "embedding", (SEQUENCE, BATCH, HIDDEN), 4, 8, "megatron_core",
                   "rows looked up; their gradients added up"),
            *over_vocabulary((
                Transfer("sum", "embedding", Ranks.TENSOR, (SEQUENCE, BATCH, HIDDEN), 2, sp + 2 * (1 - sp), sp,
                         "korthikanti2022", "rows of all vocabulary shards summed, their gradient gathered",
                         options={"positions": ("rotary", "partial")}),
                # Learned positions are added to whole sequences, which are cut into parts only then.
                Transfer("sum.whole", "embedding", Ranks.TENSOR, (SEQUENCE, BATCH, HIDDEN), 2, Integer(2), sp,
                         "megatron_core", "rows of all vocabulary shards summed, their gradient gathered",
                         options={"positions": ("learned",)}),
            )),
        ),
        note="Masked ids and mask cover the whole sequence even with sequence parallelism.",
    ),
)
