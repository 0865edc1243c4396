"""Dispatch of tokens to experts: how many a rank sends, and how many its own experts work on."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr, Ge, Gt, Integer, Le, Or

from ..expert_layers import FLEX
from ..functions import CeilDiv, Divides, FloorDiv, Iverson, Max, Min, pad_to
from ..parameters import symbols
from .rules import Rule

s, b, h, c, ts, q, E, e, et, load, cf, ec, xn = symbols("s b h c ts q E e et load cf ec xn")

_DROPLESS = Iverson(Eq(cf, 0))
#: Ranks that exchange tokens through DeepEP or HybridEP, and tokens of one of them.
_GROUP = e * et
_OWN = s * b / (c * ts)
#: Tokens of a rank, once for each expert that they are sent to.
_CHOSEN = s * b * q / (c * ts)


def definitions(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Return the derived symbols of expert layers, in computing order.

    Without a capacity every token reaches its experts, and ``load`` says how many the fullest rank has, rounded
    up to whole tokens. With one, every rank sends ``ec`` tokens to every expert, padding included. Ranks that
    share the width of an expert work on each other's tokens too. A token that is sent once for all experts of a rank
    arrives at most as often as they work on it, and no more arrive than all ranks have.
    """
    if choices["layers"] != "experts":
        return {}
    experts = Max(E, Integer(1))  # no experts, no division by their number: a rule refuses it by name
    arrived = {"xr": Min(xn, s * b * e * et / (c * ts))} if choices["dispatch"] in FLEX else {}
    return {
        "ec": CeilDiv(s * b * q * cf, 100 * c * ts * experts),
        "xs": _DROPLESS * _CHOSEN + E * ec,
        "xn": et * (_DROPLESS * CeilDiv(s * b * q * load, 100 * c * ts) + E * ec),
        **arrived,
    }


def freed(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return letters that have several legal values where Transformers sends tokens to the experts of other ranks."""
    return ("e",) if choices["dispatch"] == "huggingface_sent" else ()


def rules(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of groups that DeepEP or HybridEP exchange tokens in."""
    if choices["dispatch"] not in FLEX:
        return ()
    words = "times expert_tensor_parallel must be"
    servers = (
        Rule("flex_server", "e", Or(Le(_GROUP, 8), Divides(Integer(8), _GROUP)),
             f"{words} at most 8, or a multiple of 8: DeepEP's servers"),
        Rule("flex_ranks", "e", Le(_GROUP, 160), f"{words} at most 160, DeepEP's largest group"),
    )
    return (
        Rule("flex_group", "e", Ge(_GROUP, 2), f"{words} 2 or more: Megatron-Core's flex dispatcher needs other ranks"),
        *(servers if choices["dispatch"] == "deepep" else ()),
        Rule("flex_capacity", "cf", Eq(cf, 0), "must be 0 with this dispatch: a capacity is not counted yet there"),
    )


def buffer_bytes(choices: Mapping[str, str]) -> Expr:
    """Return bytes of a GPU that DeepEP or HybridEP takes outside of PyTorch's allocator; 0 without them.

    DeepEP has 10 channels, whose chunks of tokens are those of its tables (``get_dispatch_config``), and a workspace
    of 32 MiB; beyond a server NVSHMEM takes its heap in pieces of 512 MiB, of which it needs 256 MiB itself. HybridEP's
    one buffer holds all tokens of its group, with the weights of all experts.
    """
    if choices["layers"] != "experts" or choices["dispatch"] not in FLEX:
        return Integer(0)
    if choices["dispatch"] == "hybridep":
        return _OWN * _GROUP * (2 * h + 4 * FloorDiv(h, Integer(128)) + 4 * E * et)
    far = Iverson(Gt(_GROUP, 8))
    servers = Max(Integer(1), _GROUP / 8)
    chunk = 256 + 32 * far + 272 * Iverson(Gt(_GROUP, 64)) + 160 * Iverson(Gt(_GROUP, 128))
    near = 10 * Min(_GROUP, Integer(8)) * (chunk * (2 * h + 2056) + 4 * (2 * servers + 3))
    rdma = 10 * servers * (280 * (2 * h + 2072) + 144)
    return pad_to(near, Integer(128)) + far * pad_to(rdma + 2**28, Integer(2**29)) + 2**25
