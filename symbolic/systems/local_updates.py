"""Local updates: data-parallel groups train some steps by themselves, then synchronise (local SGD, DiLoCo).

The groups are the replicas of hybrid sharding: each has all states, shared out inside as ZeRO says. Gradients stay
inside a group. Every H steps local SGD averages the parameters of all groups (Stich 2018). DiLoCo reduces outer
gradients, the global parameters minus those of the group, and an outer optimizer with Nesterov momentum updates the
global parameters (Douillard et al. 2023). Streaming DiLoCo cuts the parameters into P fragments, which take turns every
H/P steps, and reduces one while tau inner steps go on (Douillard et al. 2025).

Copies are those that torchft 0.2.0 makes, in fp32. A rank has outer states for the parameters that it updates.
Fragments are counted as equal shares of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sympy import And, Eq, Expr, Ge, Gt, Integer, Lt, Or, Symbol

from ..axis import Axis
from ..functions import CeilDiv, Divides, Iverson, Max, Min
from ..ledger import SITES, Role
from ..parallel.groups import GROUPS, Group
from ..parallel.rules import Rule
from ..parallel.weights import State
from ..parameters import symbols
from ..rates import host_link_time, stream_time
from ..terms import TermSet, product, term_symbol, total
from .system import Aspect, Choices, Part, System, Transient

NAME = "local_updates"
R, D, N, m, H, fr, lt, ob, Wo = symbols("R D N m H fr lt ob Wo")

#: Bytes of an element of the outer states and of the copies made for them.
FP32 = Integer(4)
GLOBAL = State("global_parameter", Role.OPTIMIZER, FP32, "fp32 global parameter", "torchft", resting=True)
MOMENTUM = State("outer_momentum", Role.OPTIMIZER, FP32, "fp32 outer momentum", "torchft", resting=True)
_STATES: Mapping[str, tuple[State, ...]] = {"diloco": (GLOBAL, MOMENTUM), "diloco_host": (MOMENTUM,)}
_DILOCO = tuple(_STATES)

#: Times that an element of a parameter is read or written when it is synchronised. Local SGD copies it and copies the
#: average back. DiLoCo subtracts it, copies it, restores the global one, updates momentum, gradient and
#: parameter, saves it in two copies, and mixes the kept copy in.
_PASSES: Mapping[str, Integer] = {
    "average": Integer(2 + 2),
    **dict.fromkeys(_DILOCO, Integer(3 + 2 + 2 + 3 + 3 + 3 + 2 + 2 + 3)),
}
#: Times that an element of a parameter passes the link to the host, on the stream that computes: global parameters come
#: for the outer gradients, come once more to be restored, and go back when they are updated.
_HOST_COPIES = Integer(3)


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "none":
        return ()
    return (
        Rule("local_groups", "R", And(Ge(R, 2), Divides(R, D)),
             "must be 2 or more and divide data_parallel: so many groups train by themselves"),
        Rule("fragment_turns", "fr", Divides(fr, H), "must divide inner_steps"),
        Rule("fragment_overlap", "lt", Lt(lt * fr, H), "must be less than inner_steps / fragments"),
        Rule("outer_bits", "ob", Or(*(Eq(ob, bits) for bits in (4, 8, 16, 32))), "must be 32, 16, 8 or 4"),
    )


def _groups(terms: TermSet) -> Iterator[Group]:
    return (group for group in GROUPS if not group.frozen and f"stage.{group.prefix}shard_elements" in terms)


def _elements(terms: TermSet) -> Expr:
    """Return parameters that rank r updates, with their padding."""
    return total(*(terms[f"stage.{group.prefix}shard_elements"].symbol for group in _groups(terms)))


def _fragment(terms: TermSet) -> Expr:
    return CeilDiv(_elements(terms), fr)


def _reduced(terms: TermSet, choices: Choices) -> Expr:
    """Outer gradients while other steps go on."""
    return product(Iverson(Gt(lt, 0)), FP32, _fragment(terms))


def _synchronised(terms: TermSet, choices: Choices) -> Expr:
    """Outer gradients and the kept copy of the group's own parameters."""
    return product(2 * FP32, _fragment(terms))


def _averaged(terms: TermSet, choices: Choices) -> Expr:
    return product(FP32, _elements(terms))


def _host(terms: TermSet, choices: Choices) -> Sequence[Symbol]:
    if choices[NAME] != "diloco_host":
        return ()
    return (terms.add("stage.host_local_updates", product(FP32, _elements(terms)), "bytes",
                      "rank r, on the host: fp32 global parameters"),)


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    if choices[NAME] == "none":
        return ()
    terms.include([f"stage.{group.prefix}shard_elements" for group in GROUPS
                   if terms.base is not None and f"stage.{group.prefix}shard_elements" in terms.base])
    fragment = terms.add("stage.outer_elements", _fragment(terms), "elements",
                         "rank r: parameters of a fragment, whose outer gradients are reduced at once")
    sent = terms.add("stage.outer_sent_bytes", product(Integer(2), ob, fragment, R - 1) / (8 * R), "bytes",
                     "rank r: outer gradients of a fragment that it sends to other groups")
    link = product(Iverson(Gt(Wo, 0)), Min(Wo * R / N, term_symbol("replica.bandwidth")))
    usual = product(Iverson(Eq(Wo, 0)), term_symbol("replica.bandwidth"))
    bandwidth = terms.add("outer.bandwidth", total(link, usual), "bytes/s",
                          "bandwidth of a rank to other groups, in one direction")
    reducing = terms.add("stage.outer_reducing",
                         total(product(Integer(2), term_symbol("replica.latency")), sent / bandwidth), "s",
                         "rank r: outer gradients of a fragment reduced over all groups")
    inner = product(m, terms["stage.microbatch_time"].symbol)
    terms.add("stage.outer_peak_bandwidth",
              sent / Max(product(lt, inner), inner), "bytes/s",
              "rank r: bandwidth that hides a fragment in the steps that it overlaps; without overlap, that ends it"
              " within the time of one step")
    copies = host_link_time(product(_HOST_COPIES, FP32, fragment)) if choices[NAME] == "diloco_host" else Integer(0)
    updating = terms.add("stage.outer_updating",
                         total(stream_time(product(_PASSES[choices[NAME]], FP32, fragment)), copies), "s",
                         "rank r: copies, outer optimizer and mixing of a fragment")
    waiting = total(Max(Integer(0), total(reducing, product(Integer(-1), lt, inner))), updating)
    terms.add("stage.outer_waiting", product(fr, waiting) / H, "s",
              "rank r: local updates synchronised, on average over the inner steps")
    return (Part("outer_waiting", "stage.outer_waiting", "local updates synchronised, on average over steps"),)


SYSTEM = System(
    Axis(NAME, "steps that data-parallel groups train by themselves", {
        "none": "gradients of all groups are reduced in every step",
        "average": "groups average their parameters every H steps (local SGD)",
        "diloco": "outer Nesterov momentum every H steps, global parameters on the GPU (DiLoCo)",
        "diloco_host": "the same with global parameters on the host, as torchft keeps them",
    }, rowless=("none", "average", *_DILOCO), asked={"diloco": "H fr lt ob Wo"}),
    ("megatron", "torchtitan"),
    words="local updates", changes=(Aspect.RANKS, Aspect.STATES),
    counted={"optimizer": ("adamw",), "precision": ("mixed",), "adapters": ("none",), "layers": ("dense",)},
    rules=_rules, host=_host, time=_time, lighter={"diloco_host": "diloco"},
    fixed=lambda choices: {"fr": 1, "lt": 0, "ob": 32} if choices[NAME] == "average" else {},
    states=lambda choices: _STATES.get(choices[NAME], ()),
    spent={"outer": "local updates are synchronised"},
    silent=lambda choices: () if choices[NAME] == "none" else ("replica", "expert_replica"),
    transients=(
        Transient("outer_gradients", "Outer gradients of a fragment",
                  tuple(name for name in SITES if name != "optimizer_step"), _reduced, "torchft", {NAME: _DILOCO}),
        Transient("outer_step", "Outer gradients and own parameters of a fragment", ("optimizer_step",),
                  _synchronised, "torchft", {NAME: _DILOCO}),
        Transient("outer_step", "Parameters that are averaged", ("optimizer_step",), _averaged, "stich2018",
                  {NAME: ("average",)}),
    ),
)
