"""The model whose memory is asked about: its dimensions, by name or from a Hugging Face ``config.json``."""

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator

from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.generated.definitions import CHOICES
from shardmath.input.arguments import typed
from shardmath.input.records import Record
from shardmath.models.class_kernels import CLASS_KERNELS, bridge_kernels
from shardmath.models.naming import begun_by, model_called, plain_name
from shardmath.models.rotary import Factor, RopeScaling
from shardmath.models.rules import refuse_contradictions

__all__ = ["LARGEST", "Count", "Factor", "Model", "Size", "load_model", "stands_for"]

LARGEST = 2**31
"""Above every dimension of a model that fits on Earth; it keeps slips such as 1e30 out of the arithmetic."""

#: A repository of Hugging Face by its link.
_LINK = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)", re.ASCII | re.IGNORECASE)
#: Endings of files with weights.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".nemo", ".safetensors.index.json")
#: Bounds without ``Field``, whose defaults pydantic before 2.12 takes from one key to the next with the same type.
Size = Annotated[int, Ge(1), Le(LARGEST)]
Count = Annotated[int, Ge(0), Le(LARGEST)]
if TYPE_CHECKING:
    Normalisation = str
    Norms = str
    QkNorms = str
    Mlp = str
    Gelu = str
    Scores = str
    Family = str
else:
    Normalisation, Norms, QkNorms, Mlp, Gelu, Scores = (
        Literal[tuple(CHOICES[axis][1])] for axis in ("normalisation", "norms", "qk_norms", "mlp", "gelu", "scores")
    )
    Family = Literal[("", *CLASS_KERNELS)]


class Model(Record):
    """The dimensions of one decoder-only transformer: counts, without a unit. 0 means that it has no such thing.

    ``num_kv_heads`` heads of ``head_dim`` each serve ``num_attention_heads`` query heads, and their product
    need not be ``hidden_size``. ``ffn_hidden_size``: inner width of a dense layer's MLP. ``vocab_size`` counts
    rows of the embedding as released. ``max_seq_length``: the longest sequence in tokens that the source
    states. ``source``: where the numbers come from. ``note``: what of the model the ledger does not count.

    Biases: ``qkv_bias``, q, k and v (Qwen2); ``attention_output_bias``, the projection after attention;
    ``mlp_bias``, all projections of dense MLPs; ``linear_bias``, all of these (GPT); ``head_bias``, the LM head.
    ``qk_norm``: a norm on q and another on k, over each head with one scale (``qk_norms`` = ``head``, Qwen3), over each
    with a scale of its own (``heads``), or over all together (``width``). ``norms``: those of attention and MLP, one
    each (``pre``) or one before and one after each (``both``). ``learned_positions``: rows of the table of learned
    positions; without one, positions are rotary, or with ``alibi`` a slope of the scores. ``embedding_norm``: the word
    embedding is normalised (BLOOM). ``parallel_residual``: attention and MLP read the same input, each
    through a norm of its own or with ``one_norm`` through the same, and both outputs are added to it (GPT-NeoX).
    ``attention_softcapping``, ``logit_softcapping``: scores and logits are bounded by tanh (Gemma 2).
    ``attention_sinks``: every head has a trained logit beside its scores, of no key (GPT-OSS).
    ``attention_window``: tokens that a query attends to in layers with a window, itself included; all layers have one
    but every ``full_attention_step``-th (0: all of them). Where these have heads of another width and number, they are
    ``full_head_dim`` wide, ``full_num_kv_heads`` of them are those of keys and values, values are normalised without a
    scale in all layers, and with ``keys_as_values`` they come out of the projection of keys in layers without a window
    (Gemma 4). ``model_type``: the family where its classes in Transformers have kernels of their own. ``gelu``: how
    Hugging Face Transformers computes GELU, ``fused`` in one kernel, as all other implementations do, or in the steps
    of its ``gelu_new``, ``gelu_fast`` or ``gelu_python``, which keep more.

    Experts: layer i, counted from 1, has them if ``moe_layer_step`` divides i and i is above
    ``first_dense_layers``; the others have a dense MLP. A token is sent to ``moe_topk`` of ``num_experts``
    experts of inner width ``moe_ffn_hidden_size``, and to all shared experts, which are
    ``shared_expert_ffn_hidden_size`` wide together. ``shared_expert_gate``: a linear map to one number scales
    what the shared experts return (Qwen2-MoE). A token may use experts of ``expert_group_topk`` out of
    ``expert_groups`` groups only (DeepSeek); 0 where it may use all. ``num_mtp_layers``: modules that predict
    further tokens, which have experts as the last layer, or with ``dense_mtp_layers`` a dense MLP (K-EXAONE).
    ``expert_scores``: ``softmax`` of the chosen logits, which is that of all divided by the sum of
    the chosen ones, ``softmax_all`` if they are not divided, or ``sigmoid``. ``own_router``: the router of its
    classes in Transformers keeps other tensors than those that are counted there.

    Latent attention (MLA) if ``kv_lora_rank`` is above 0: keys and values are compressed to that width,
    queries to ``q_lora_rank`` (0: not). ``head_dim`` is then the width of a query or key head,
    ``qk_rope_head_dim`` its rotary part, ``v_head_dim`` the width of a value head, and every query head has
    a key and a value head of its own. Without latent attention, ``qk_rope_head_dim`` is the part of each head that
    the rotary embedding turns (GPT-NeoX); 0 for all of it.

    No size follows from these, and a launch script needs them: ``norm_epsilon``, what norms add to the variance;
    ``rope_base``, the base of the rotary embedding, and ``rope_scaling``, how its frequencies are scaled;
    ``routed_scaling_factor``, by which the scores of the chosen experts are multiplied. None, or 0 for the base, where
    the source does not state it, and where there is none.

    Raises ``InputError`` for anything that breaks a rule.

    Example:
        >>> model = shardmath.Model.named("llama-3.1-8b")
        >>> model.num_layers, model.hidden_size, model.model_copy(update={"num_layers": 16}).num_layers
        (32, 4096, 16)
    """

    name: Annotated[str, Field(min_length=1)]
    hidden_size: Size
    ffn_hidden_size: Size
    num_layers: Size
    num_attention_heads: Size
    num_kv_heads: Size
    head_dim: Size
    vocab_size: Size
    tied_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    max_seq_length: Size
    source: str
    note: str = ""
    normalisation: Normalisation = "rms"
    mlp: Mlp = "swiglu"
    gelu: Gelu = "fused"
    linear_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    norms: Norms = "pre"
    qk_norms: QkNorms = "head"
    one_norm: bool = False
    attention_softcapping: bool = False
    logit_softcapping: bool = False
    attention_sinks: bool = False
    attention_window: Count = 0
    full_attention_step: Count = 0
    full_head_dim: Count = 0
    full_num_kv_heads: Count = 0
    keys_as_values: bool = False
    model_type: Family = ""
    learned_positions: Count = 0
    alibi: bool = False
    embedding_norm: bool = False
    parallel_residual: bool = False
    num_experts: Count = 0
    moe_topk: Count = 0
    moe_ffn_hidden_size: Count = 0
    shared_expert_ffn_hidden_size: Count = 0
    shared_expert_gate: bool = False
    expert_scores: Scores = "softmax"
    expert_groups: Count = 0
    expert_group_topk: Count = 0
    own_router: bool = False
    first_dense_layers: Count = 0
    moe_layer_step: Size = 1
    q_lora_rank: Count = 0
    kv_lora_rank: Count = 0
    qk_rope_head_dim: Count = 0
    v_head_dim: Count = 0
    num_mtp_layers: Count = 0
    dense_mtp_layers: bool = False
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None
    rope_base: Factor = 0.0
    rope_scaling: RopeScaling | None = None
    routed_scaling_factor: Factor = 1.0

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        refuse_contradictions(self)
        return self

    @property
    def architecture(self) -> dict[str, str]:
        """The option of every architecture axis of the ledger, by the name of the axis."""
        return {
            "normalisation": self.normalisation,
            "norms": self.norms,
            "qk_norms": self.qk_norms,
            "mlp": self.mlp,
            "heads": self._heads,
            "layers": "experts" if self.num_experts else "dense",
            "predictions": "dense" if self.dense_mtp_layers and self.num_mtp_layers else "experts",
            "residual": self._residual,
            "positions": self._positions,
            "embedding_norm": "norm" if self.embedding_norm else "none",
            "window": "sliding" if self.attention_window else "none",
            "sinks": "trained" if self.attention_sinks else "none",
            "capping": "tanh" if self.attention_softcapping else "logits" if self.logit_softcapping else "none",
            "scores": self.expert_scores,
        }

    @property
    def bridge_kernels(self) -> dict[str, str]:
        """The kernels of the family's layers in Megatron-Bridge where they are not Llama's, by axis."""
        return bridge_kernels(self.model_type, self.architecture)

    @property
    def biases(self) -> str:
        """The option of the axis of biases: what has one beside queries, keys and values."""
        if self.head_bias:
            return "head"
        if self.attention_output_bias or self.mlp_bias:
            return "some"
        return "linear" if self.linear_bias else "qkv"

    @property
    def _heads(self) -> str:
        if self.kv_lora_rank:
            return "latent"
        return "two_widths" if self.full_head_dim else "grouped"

    @property
    def _residual(self) -> str:
        if not self.parallel_residual:
            return "sequential"
        return "parallel_one" if self.one_norm else "parallel"

    @property
    def _positions(self) -> str:
        if self.learned_positions or self.alibi:
            return "learned" if self.learned_positions else "alibi"
        return "partial" if self.qk_rope_head_dim and not self.kv_lora_rank else "rotary"

    @classmethod
    @typed
    def named(cls, name: str) -> "Model":
        """Find a model of the catalogue, such as ``llama-3.1-8b`` or ``meta-llama/Llama-3.1-8B``.

        Case does not matter, nor do the organisation before the slash and the ``Meta-`` and ``-hf`` that
        some repository names carry. The first words of a name will do if one name alone begins with them, as
        ``mixtral-8x7b``, and signs between letters and numbers may be left out, as in ``llama3.1-8b``. A model that
        was trained further, as ``meta-llama/Llama-3.1-8B-Instruct``, has the shape of what it comes from, which is
        returned. Raises ``InputError`` with the most similar names.

        Example:
            >>> shardmath.Model.named("meta-llama/Llama-3.1-8B").name
            'llama-3.1-8b'
        """
        known = _catalogue()
        return known[model_called(str(name), known)]

    @classmethod
    @typed
    def from_config(cls, path: str | os.PathLike[str]) -> "Model":
        """Read the model that a Hugging Face ``config.json`` describes; ``path`` is that file.

        Its name is that of its folder, or of the file if that has a name of its own. Raises ``InputError``
        for a file that cannot be read, and for a model whose parameters or activations are not covered; the
        error's field is then the key of the file.

        Example:
            >>> sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 8}
            >>> others = {"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 2048}
            >>> _ = Path("config.json").write_text(json.dumps({**sizes, **others}))
            >>> shardmath.Model.from_config("config.json").head_dim
            32
        """
        from shardmath.models.config_json import read_model

        return read_model(path)


@typed
def load_model(name_or_path: str | os.PathLike[str]) -> Model:
    """Read the model from a ``config.json`` if there is such a file, else find it in the catalogue.

    A path that exists or ends in ``.json`` is a path, and so is a folder that holds a ``config.json``, which
    is refused with the name of the file. Any other folder does not hide a model of the same name. Raises
    ``InputError``.

    Example:
        >>> shardmath.load_model("llama-3.1-8b").vocab_size
        128256
    """
    text = os.fspath(name_or_path)
    if link := _LINK.match(text):
        return _linked(link[1], text)
    if text.lower().endswith(_WEIGHTS):
        rule = "must be a model of the catalogue or the path of a config.json: weights are not read"
        raise InputError("model", text, rule, os.path.join(os.path.dirname(text), "config.json"))
    a_file = text.lower().endswith(".json") or os.path.isfile(os.path.join(text, "config.json"))
    a_namesake = os.path.isdir(text) and text.lower() in _catalogue()
    if a_file or (os.path.exists(text) and not a_namesake):
        return Model.from_config(text)
    return Model.named(text)


def _linked(repository: str, link: str) -> Model:
    """Find the model of a repository of Hugging Face in the catalogue. Nothing is downloaded."""
    try:
        return Model.named(repository)
    except InputError:
        rule = "must be a model of the catalogue or the path of a config.json; nothing is downloaded"
        config = f"https://huggingface.co/{repository}/resolve/main/config.json"
        raise InputError("model", link, rule, f"the path of a file saved from {config}") from None


def stands_for(model: Model, name: str) -> bool:
    """Tell whether ``model`` was found for ``name``, the name of another model that was trained from it."""
    return _catalogue().get(model.name) == model and model.name not in begun_by(plain_name(name), _catalogue())


@cache
def _catalogue() -> dict[str, Model]:
    return {name: Model(name=name, **fields) for name, fields in read("models").items()}
