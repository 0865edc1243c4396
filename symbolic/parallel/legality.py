"""Which configurations are legal: conditions that follow from the splits, and the few that do not.

Every rule has a name, the parameter to blame, and a text. A configuration breaks the first rule of
the list that does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import And, Eq, Expr, Ge, Gt, Integer, Le, Lt, Or
from sympy.logic.boolalg import Boolean, true

from ..choices import MTP_LOSSES, absent_values
from ..dimensions import FFN, HEADS, KV_FEATURES, KV_HEADS, QKV_FEATURES
from ..functions import Divides, Iverson, Max
from ..implementations import Implementation
from ..parameters import BY_LETTER, symbol, symbols
from . import deepspeed, dispatch, megatron_fsdp
from .data import fixed_by_choices
from .demands import state_rules
from .derived import MODEL_RANKS
from .dimensions import SHAPE_RULES
from .dimensions.tensor import RULE as TENSOR
from .mesh import PLACED
from .pipeline import PARTS, chunks
from .rules import Rule
from .schedules import SCHEDULES, SPLIT_BACKWARD
from .walked_layers import not_walked

N, n, t, c, p, D, L, B, b, s, a, k, f, sp, ts, w = symbols("N n t c p D L B b s a k f sp ts w")
rfull, rcore, rmlp, zero1, zero2, zero3, R = symbols("rfull rcore rmlp zero1 zero2 zero3 R")
E, e, et, fe, fs, ld, step, De, xb = symbols("E e et fe fs ld step De xb")
h, lk, mtp, load, cf, rn, q, gq, pos, lbias, win, wstep = symbols(
    "h lk mtp load cf rn q gq pos lbias win wstep")
rnorm, rup, ract, rshared, rmoe = symbols("rnorm rup ract rshared rmoe")
Lf, Ll, eemb, eloss, V, m = symbols("Lf Ll eemb eloss V m")


def _tensor_rule(name: str, dimension: object, text: str) -> Rule:
    condition = TENSOR.condition(dimension)  # type: ignore[arg-type]
    assert condition is not None
    return Rule(name, "t", condition, text)


def _implies(premise: Boolean, conclusion: Boolean) -> Boolean:
    return Or(~premise, conclusion)


_NODE = Rule("node", "t", Le(t, n), "must not exceed node_size: tensor parallelism stays inside a node")
_HEADS: tuple[Rule, ...] = (
    _tensor_rule("heads", HEADS, "must divide num_attention_heads"),
    _tensor_rule("kv_heads", KV_HEADS, "must divide num_kv_heads or be a multiple of it"),
)
#: Megatron-Core shares out the rows of its one matrix for queries, keys and values, whichever they are.
_FUSED_FEATURES = _tensor_rule("kv_features", QKV_FEATURES,
                               "must divide (num_attention_heads + 2 * num_kv_heads) * head_dim")
_KV_FEATURES = _tensor_rule("kv_features", KV_FEATURES, "must divide num_kv_heads * head_dim")
_FFN = _tensor_rule("ffn", FFN, "must divide ffn_hidden_size")
_TOKENS: tuple[Rule, ...] = (
    Rule("sequence", "c", Divides(c * ts, s), "times the sequence-parallel ranks must divide seq_length"),
    Rule("context", "c", _implies(Ge(c, 2), Divides(2 * c, s)),
         "must divide seq_length twice: a rank works on two chunks of the sequence, for equal causal work"),
    Rule("batch", "b", Divides(b * D, B), "times data_parallel must divide global_batch_size"),
    Rule("sequence_parallel", "sp", Or(Eq(sp, 0), Ge(t, 2)), "needs tensor_parallel of 2 or more"),
    Rule("replicas", "R", Divides(R, D * c), "must divide data_parallel * context_parallel"),
)
_STEP: tuple[Rule, ...] = (
    Rule("recompute", "rfull", Or(Eq(rfull, 0), And(Eq(rcore, 0), Eq(rmlp, 0))),
         "full recompute excludes the recompute of single modules"),
    Rule("gradients", "w", Or(Eq(w, 4), Eq(w, 2)), "must be 4 (fp32) or 2 (bf16)"),
    Rule("zero2", "zero2", Le(zero2, zero1), "needs sharded optimizer states"),
    Rule("zero3", "zero3", Le(zero3, zero2), "needs sharded gradients"),
)
#: Kernels that take some heads alone. Of Falcon's PyTorch has none for one key and value head of several query heads.
_KEY_HEADS = {
    "flex": (Rule("flex_heads", "t", Divides(t, k), "must divide num_kv_heads with attention = flex"),
             Rule("flex_context", "c", Eq(c, 1), "must be 1 with attention = flex")),
    "sdpa_masked": (Rule("key_heads", "k", Gt(k, 1),
                         "must be above 1 with attention = sdpa_masked: choose sdpa_steps"),),
    "sdpa_steps": (Rule("one_key_head", "k", And(Eq(k, 1), Gt(a, 1)),
                        "must be 1 with attention = sdpa_steps, of several query heads: choose sdpa_masked"),),
}
_POSITIONS = Rule("positions", "s", Le(s, pos), "must be at most learned_positions: the table has no more rows")
_WHOLE_HEADS = Rule("context_heads", "c", _implies(Ge(c, 2), And(Divides(c * t, a), Divides(c * t, k))),
                    "times tensor_parallel must divide num_attention_heads and num_kv_heads with context = all_to_all,"
                    " which shares out whole heads")
_EXPERTS: tuple[Rule, ...] = (
    Rule("shared_experts", "t", Divides(t, fs), "must divide shared_expert_ffn_hidden_size"),
    Rule("some_experts", "E", Ge(E, 1), "must be 1 or more in layers with experts"),
    Rule("expert_sequence", "sp", Or(Eq(t, 1), Eq(sp, 1)),
         "must be 1: experts and tensor parallelism need sequence parallelism"),
    Rule("expert_capacity", "cf", Or(Eq(cf, 0), Eq(load, 100)), "leaves no imbalance: expert_load_percent must be 100"),
    Rule("expert_recompute", "rfull",
         Or(Eq(rfull, 0), And(*(Eq(switch, 0) for switch in (rnorm, ract, rshared, rmoe)))),
         "full recompute excludes the recompute of parts of expert layers"),
    Rule("expert_groups", "gq", Divides(Max(gq, Integer(1)), q),
         "must divide moe_topk: so many of its best experts stand for a group"),
    Rule("mtp_projection", "t", Or(Eq(mtp, 0), Divides(t, h)), "must divide hidden_size for multi-token prediction"),
)


def _of_experts(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of expert layers, and of their variants that are not counted yet."""
    rules = list(_EXPERTS)
    if choices["scores"] == "softmax" or (choices["router"], choices["scores"]) == ("huggingface", "softmax_all"):
        rules.append(Rule("counted_groups", "gq", Eq(gq, 0),
                          "must be 0: groups are counted with Megatron-Core's router and scores of all experts, not yet"
                          " otherwise"))
    if choices["mlp"] == "swiglu_clamped":
        rules.append(Rule("bounded_experts", "ld", And(Eq(ld, 0), Eq(step, 1), Eq(fs, 0)),
                          "must be 0, without shared experts: dense layers have no bounded gate"))
    if choices["biases"] == "linear":
        rules.append(Rule("expert_biases", "et", Or(Eq(lbias, 0), Eq(et, 1)),
                          "must be 1 with linear_bias: Megatron-Core does not share the width of experts with biases"))
        rules.append(Rule("shared_biases", "fs", Or(Eq(lbias, 0), Eq(fs, 0)),
                          "must be 0 with linear_bias: Megatron-Core has no shared experts with biases"))
    if choices["precision"] == "autocast":
        rules.append(Rule("counted_experts", "E", Eq(E, 0), "must be 0: experts under autocast are not counted yet"))
    if choices["dispatch"] == "huggingface_sent":
        rules.append(Rule(
            "whole_experts", "e", Divides(e * De / R, E),
            "times the ranks that share out the same experts must divide num_experts: cut experts are not counted yet"))
        if choices["data_parallel"] != "fsdp":
            rules.append(Rule(
                "wrapped", "D", Eq(D, xb.xreplace(absent_values(choices))),
                "must be that of one batch without data_parallel = fsdp: Transformers wraps other ranks in FSDP2"))
    if choices["dispatch"] == "torchtitan":
        rules.append(Rule("expert_width", "et", Or(Eq(et, t), And(Ge(e, 2), Eq(et, 1))),
                          "must be tensor_parallel, or 1 with expert parallelism, in torchtitan"))
        rules += [
            Rule(f"expert_cut_{letter}", letter, Or(Eq(e, 1), Le(e * De / R, E), Divides(De / R, size)),
                 "must be a multiple of the ranks that share out an expert, where all are more than there are experts")
            for letter, size in (("fe", fe / et), ("h", h))
        ]
    rules += dispatch.rules(choices)
    if choices["dispatch"] == "allgather":
        rules.append(Rule("gathered_tokens", "cf", Eq(cf, 0), "must be 0 where every rank gathers all tokens"))
    if choices["recompute_method"] in PARTS:
        rules.append(Rule("expert_layers", "rfull", Eq(rfull, 0),
                          "must be 0: recompute of a part of the expert layers is not counted yet"))
    if choices["loss"] not in MTP_LOSSES:
        rules.append(Rule("counted_mtp", "mtp", Eq(mtp, 0),
                          f"must be 0: it is counted with loss = {', '.join(MTP_LOSSES)}, not yet otherwise"))
    return tuple(rules)


def _of_latent_attention(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of latent attention, and of its variants that are not counted yet."""
    rules = [
        Rule("latent", "lk", Ge(lk, 1), "must be 1 or more in latent attention"),
        Rule("latent_recompute", "rfull", Or(Eq(rfull, 0), And(Eq(rnorm, 0), Eq(rup, 0))),
             "full recompute excludes the recompute of parts of latent attention"),
    ]
    if choices["attention"] not in ("flash", "sdpa", "eager") or choices["precision"] == "autocast":
        rules.append(Rule("counted_latent", "lk", Eq(lk, 0),
                          "must be 0: latent attention is counted with attention = flash, sdpa or eager, without"
                          " autocast"))
    return tuple(rules)


def _pipeline(choices: Mapping[str, str], framework: str) -> tuple[Rule, ...]:
    """Return the rules of the schedule, and the equal chunks per stage that the formulas assume."""
    if choices["stages"] == "listed":
        return (Rule("listed_recompute", "rfull", Eq(rfull, 0), "must be 0: recompute of a part of the layers of listed"
                     " stages is not counted yet"),) if choices["recompute_method"] in PARTS else ()
    schedule, count = SCHEDULES[choices["schedule"]], chunks(choices)
    rules = list(schedule.rules_in(framework))
    if choices["stages"] == "even":
        rules.append(Rule("layers", "p", Divides(p * count, L),
                          "must divide num_layers" if count == 1 else
                          f"times {_named(count)} must divide num_layers"))
    else:
        own = Iverson(Lf > 0) + Iverson(Ll > 0)
        alone = Or(Eq(p, 1), Divides(count * Max(p - own, Integer(1)), L + eemb + eloss - Lf - Ll))
        rules += [
            Rule("layers", "p", alone, "must divide the layers that are left for the stages between first and last"),
            Rule("first_stage", "Lf", And(Divides(count, Lf), Or(Lt(Lf + Ll, L), And(Eq(Lf + Ll, L), Le(p, own)))),
                 "must leave layers for the other stages, and chunks of equal size"),
            Rule("last_stage", "Ll", Divides(count, Ll), "must give chunks of equal size"),
            Rule("one_stage", "Lf", Or(Ge(p, 2), And(Eq(Lf, 0), Eq(Ll, 0))), "must be 0 without a pipeline"),
            Rule("two_stages", "Lf", Or(Eq(Lf, 0), Eq(Ll, 0), Ge(p, 3), Eq(Lf + Ll, L)),
                 "and last_stage_layers must be all layers of two stages"),
            Rule("accounted", "eemb", Or(And(Eq(eemb, 0), Eq(eloss, 0)), And(Eq(Lf, 0), Eq(Ll, 0))),
                 "and account_for_loss need stages without numbers of their own"),
        ]
    if choices["recompute_method"] == "uniform":
        rules.append(Rule("recompute_groups", "rn", _implies(Eq(rfull, 1), _whole_groups(choices, count)),
                          "must divide the layers of every chunk: Megatron-Core's groups of layers are all as large"))
    if choices["layers"] == "experts" and count != 1:
        rules.append(Rule("alike_chunks", "ld", Or(Eq(count, 1), And(Eq(ld, 0), _alike_steps(choices, count))),
                          "must be 0 with several chunks per rank, which must have equal numbers of expert layers"))
    return tuple(rules)


def _whole_groups(choices: Mapping[str, str], count: Expr) -> Boolean:
    """Return the rule that recomputed groups of layers share out every chunk of every stage."""
    if choices["stages"] == "even":
        return Divides(rn * count * p, L)
    others = Max(p - Iverson(Lf > 0) - Iverson(Ll > 0), Integer(1))
    shares, layers = count * p, L + eemb + eloss
    own = And(Divides(rn * count, Lf), Divides(rn * count, Ll), Divides(rn * count * others, layers - Lf - Ll))
    accounted = And(Divides(rn * shares, layers - eemb * shares), Divides(rn * shares, layers - eloss * shares),
                    Or(Eq(shares, 2), Divides(rn * shares, layers)))
    return Or(And(Eq(p, 1), Divides(rn, L)),
              And(Ge(p, 2), Or(And(Eq(eemb, 0), Eq(eloss, 0), own), And(Or(Eq(eemb, 1), Eq(eloss, 1)), accounted))))


def _alike_steps(choices: Mapping[str, str], count: Expr) -> Boolean:
    """Return the rule of whole steps of layers in every chunk of a stage, each ending with experts."""
    if choices["stages"] == "even":
        return Divides(step * count * p, L)
    return Or(Eq(step, 1), And(Eq(eemb, 0), Eq(eloss, 0), Divides(step * count, Lf), Divides(step * count, Ll),
                               Divides(step * count * Max(p - Iverson(Lf > 0) - Iverson(Ll > 0), Integer(1)),
                                       L - Lf - Ll)))


def _of_torch_pipeline(choices: Mapping[str, str]) -> list[Rule]:
    """Return the rules of FSDP2 in a pipeline, and of its variants that are not counted yet."""
    if choices["pipeline"] == "own":
        return [Rule("fsdp_pipeline", "p", Eq(p, 1),
                     "must be 1: what FSDP keeps between the micro-batches of a pipeline is counted with a schedule")]
    schedule, single = choices["schedule"], choices["schedule"] in ("1f1b", "gpipe")
    rules = [
        Rule("fsdp_pipeline", "p", Ge(p, 2), "must be 2 or more where a schedule is chosen"),
        Rule("counted_chunks", "V", Eq(V, 1) if single else Le(V, 3),
             "must be 1: several chunks are not counted yet with this schedule" if single else
             "must be at most 3: PyTorch gathers and frees the parameters of more chunks in turn, not counted yet"),
    ]
    if choices["peak"] == "torch":
        rules.append(Rule("pipeline_gradients", "w", Eq(w, 4),
                          "must be 4 in a pipeline: torchtitan reduces in fp32, and bf16 sums are not counted yet"))
        least, words = (Integer(2), "2") if single else (2 * p, "2 pipeline_parallel")
        if schedule == "dualpipev":
            least, words = 2 * p + 1, "2 pipeline_parallel + 1"
        rules.append(Rule("counted_microbatches", "B", Ge(m, least),
                          f"must give at least {words} micro-batches: fewer are not counted yet"))
    if schedule in SPLIT_BACKWARD:
        rules.append(Rule("split_recompute", "rfull", Eq(rfull, 0),
                          "must be 0: recompute in a split backward pass is not counted yet"))
    if SCHEDULES[schedule].chunks == 2:
        rules.append(Rule("folded_chunks", "V", Eq(V, 2), "must be 2 with a schedule in a V"))
    return rules


def _of_torch(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of FSDP2, DTensor and PyTorch's moments, and of variants that are not counted yet."""
    rules: list[Rule] = []
    if choices["data_parallel"] == "fsdp":
        rules += _of_torch_pipeline(choices)
    if choices["gathered_input"] == "kept":
        rules.append(Rule("dtensor_sequence", "sp", Or(Eq(t, 1), Eq(sp, 1)),
                          "must be 1 with tensor parallelism: DTensor's plan shards the sequence of norms"))
    counted = {"layers": "dense", "mlp": "swiglu", "heads": "grouped"}
    unlike = any(choices[axis] != option for axis, option in counted.items())
    if choices["peak"] == "torch" and unlike and not_walked(choices):
        rules.append(Rule("counted_moments", "L", Eq(L, 0),
                          "of such layers have moments that are not counted yet: choose peak = saved"))
    elif choices["peak"] == "torch" and choices["layers"] == "experts":
        rules.append(Rule("counted_order", "step", Eq(step, 1),
                          "must be 1 with peak = torch: the moments of dense layers between those with experts are not"
                          " counted yet; choose peak = saved"))
        if choices["router"] == "torchtitan":
            rules += [
                Rule(f"counted_{name}", letter, Eq(degree, 1), "must be 1 with peak = torch in layers with experts: "
                     f"{words} are not counted yet; choose peak = saved")
                for name, letter, degree, words in (
                    ("sharded_experts", "t", t, "moments of tensor-parallel experts"),
                    ("sent_tokens", "e", e, "moments of tokens that are sent to other ranks' experts"),
                    ("rings", "c", c, "moments of rings of attention beside experts"),
                    ("replicas", "R", R, "moments of replicas of such layers"))
            ]
            rules.append(Rule("counted_shares", "D", Ge(D, 2), "must be 2 or more with peak = torch in layers with"
                              " experts: torchtitan has no FSDP2 on one rank; choose peak = saved"))
        if choices["biases"] == "linear":
            rules.append(Rule("counted_biases", "lbias", Eq(lbias, 1),
                              "must be 1 with peak = torch: moments of such layers without biases are not counted yet;"
                              " choose peak = saved"))
    return tuple(rules)


#: With which values the moments of a step are counted in DeepSpeed: name, letter, condition, words.
_MOMENTS_OF_DEEPSPEED: tuple[tuple[str, str, Boolean, str], ...] = (
    ("stage_0", "zero1", Eq(zero1, 1), "be 1 (stage 1, 2 or 3)"),
    ("width", "w", Eq(w, 2), "be 2 (bf16)"),
)


def _of_deepspeed(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Refuse DeepSpeed variants that are not counted yet: fp32 sums in stages with another optimizer, and groups."""
    if choices["data_parallel"] != "deepspeed":
        return ()
    return (
        *((Rule("deepspeed_gradients", "w", Or(Eq(w, 2), Eq(zero2, 1)),
                "must be 2 (bf16) in stages 0 and 1: fp32 sums are counted in stages 2 and 3"),)
          if choices["precision"] != "fp32" else ()),
        *((Rule("deepspeed_fp32", "zero3", Eq(zero3, 1),
                "must be 1 (stage 3) with precision = fp32, which is not counted yet in other stages"),)
          if choices["precision"] == "fp32" else ()),
        *(Rule(f"counted_{name}", letter, condition,
               f"must {words} with DeepSpeed and peak = torch: other moments are not counted yet; choose peak = saved")
          for name, letter, condition, words in _MOMENTS_OF_DEEPSPEED if choices["peak"] == "torch"),
        Rule("deepspeed_replicas", "R", Eq(R, 1), "must be 1: groups of ranks (MiCS) are not counted yet"),
    )


def _of_windows(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of attention windows, and of what kernels make of them that is not counted yet."""
    rules = []
    if choices["attention"] == "sdpa":
        rules.append(Rule("windowed_mask", "s", Lt(s, win),
                          "must be below attention_window with attention = sdpa, which else keeps a mask and repeated"
                          " keys and values, not counted yet: choose attention = flash"))
    if choices["attention"] == "unfused":
        rules.append(Rule("windowed_masks", "wstep", Eq(wstep, 0),
                          "must be 0 with attention = unfused: layers with a mask of their own beside others with a"
                          " shared one are not counted yet"))
    if choices["context"] == "ring":
        rules.append(Rule("windowed_context", "c", Eq(c, 1),
                          "must be 1: Transformer Engine has no windows in a ring; choose context = all_to_all or"
                          " all_gather"))
    return tuple(rules)


def _named(count: Expr) -> str:
    return str(count) if count.is_Integer else "virtual_pipeline"


def fixed_values(implementation: Implementation) -> dict[str, int]:
    """Return letters that have only one legal value in ``implementation``, with that value."""
    rooms = (dispatch, deepspeed, megatron_fsdp)
    free = tuple(letter for room in rooms for letter in room.freed(implementation.choices))
    fixed = {letter: value for letter, value in implementation.fixed.items() if letter not in free}
    return {**fixed, **fixed_by_choices(implementation.choices)}


def _gpus(absent: Mapping[Expr, Expr]) -> Rule:
    """Return the rule that every GPU has one place on the axes."""
    axes = [degree.name for degree in (*(rule.degree for rule in PLACED), p, D) if degree not in absent]
    return Rule("gpus", "N", Eq(N, (MODEL_RANKS * D).xreplace(absent)),
                f"must equal {' * '.join(BY_LETTER[letter].name for letter in axes)}")


def rules_for(implementation: Implementation) -> tuple[Rule, ...]:
    """Return the rules of what ``implementation`` has, preceded by what it cannot do: the letters that it fixes.

    A rule of a system takes the place of one with its name.
    """
    fixed, choices = fixed_values(implementation), implementation.choices
    pipeline = _pipeline(choices, implementation.framework)
    together = choices["projections"] == "fused" and choices["value"] != "repacked"
    features = _FUSED_FEATURES if together else _KV_FEATURES
    needed: tuple[Rule, ...] = (
        _gpus(absent_values(choices)), _NODE, *_HEADS, features, _FFN, *pipeline, *_TOKENS, *_STEP,
    )
    needed += tuple(rule for item in SHAPE_RULES if item.chosen(choices) for rule in item.rules)
    if choices["layers"] == "experts":
        needed += _of_experts(choices)
    if choices["heads"] == "latent":
        needed += _of_latent_attention(choices)
    if choices["context"] == "all_to_all":
        needed += (_WHOLE_HEADS,)
    if choices["positions"] == "learned":
        needed += (_POSITIONS,)
    needed += _KEY_HEADS.get(choices["attention"], ())
    if choices["sinks"] == "trained" and choices["context"] != "all_to_all":
        needed += (Rule("sinks_context", "c", Eq(c, 1),
                        "must be 1: Transformer Engine has no sinks then; choose context = all_to_all"),)
    if choices["window"] == "sliding":
        needed += _of_windows(choices)
    needed += state_rules(choices)
    needed += _of_torch(choices)
    needed += _of_deepspeed(choices)
    needed = tuple({rule.name: rule for rule in needed}.values())
    values = {symbol(letter): Integer(value) for letter, value in fixed.items()}
    own = tuple(
        Rule(BY_LETTER[letter].name, letter, Eq(symbol(letter), value),
             f"must be {value}: {implementation.uncounted[letter]} is not counted yet"
             if letter in implementation.uncounted else f"must be {value} in {implementation.framework}")
        for letter, value in fixed.items() if letter in _SETTABLE or _mentions(needed, letter)
    )
    taken = {rule.name for rule in own}
    kept = (rule for rule in needed if rule.name not in taken)
    return own + tuple(rule for rule in kept if rule.condition.xreplace(values) != true)


#: Letters whose fixed values a rule states although no other rule speaks of them.
_SETTABLE = ("t", "c", "p", "sp", "rfull", "rcore", "rmlp", "w", "zero1")


def _mentions(rules: tuple[Rule, ...], letter: str) -> bool:
    return any(symbol(letter) in rule.condition.free_symbols for rule in rules)
