"""A reader of LaTeX formulas: symbols stay as they are written, everything else becomes tokens."""

from __future__ import annotations

import re

from read_formulas import Tree, tree_of

#: A letter, perhaps Greek or with a hat, with words above it and an index below it.
_NAME = (
    r"(?:\\hat\{(?:[A-Za-z]|\\eta)\}"
    r"|\\(?:ell|alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|pi|rho|sigma|tau"
    r"|varphi|chi|psi|omega|Delta|Psi)(?![a-zA-Z])|[a-zA-Z])(?:\^\{\\text\{[^{}]*\}\})?(?:_\{(?:[^{}]|\{[^{}]*\})*\}|_[a-z0-9])?"
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+)"
    rf"|(?P<text>\\ \\text\{{(?:and|or)\}}\s*\\ |\\text\{{not\}}\\ |(?:\\ )?\\text\{{(?:if |otherwise)\}})"
    rf"|(?P<name>{_NAME})"
    r"|(?P<sign>\\operatorname\{lcm\}|\\(?:begin|end)\{cases\}|\\\\|\\[a-zA-Z]+|\\,|[^\w\s\\])|(?P<space>\s+|$))"
)
_SIGNS = {
    r"\,": "·", r"\cdot": "*", r"\frac": "fraction", r"\mid": "∣", r"\le": "≤", r"\leq": "≤", r"\ge": "≥", r"\geq": "≥",
    r"\ne": "≠", r"\neq": "≠", r"\max": "max", r"\min": "min", r"\operatorname{lcm}": "lcm", r"\lceil": "⌈",
    r"\rceil": "⌉", r"\lfloor": "⌊", r"\rfloor": "⌋", r"\left": "", r"\right": "", r"\Bigl": "", r"\Bigr": "",
    r"\begin{cases}": "cases", r"\end{cases}": "end", r"\lbrace": "cases", r"\rbrace": "end", r"\\": ";", "&": "",
}


def read_latex(text: str) -> Tree:
    """Read a formula; ValueError for what is none. Names in the tree are LaTeX."""
    tokens, place = [], 0
    text = text.replace("{} ", "").strip()
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"no token at {text[place:][:40]!r} in {text}")
        place = token.end()
        words, sign = token["text"], token["sign"]
        if words:
            tokens.append(re.sub(r"\\text|\\ |[{}]", "", words).strip())
        elif sign:
            tokens.append(_SIGNS.get(sign, sign))
        else:
            tokens.append(token["number"] or f".{token['name']}")
    return tree_of([token for token in tokens if token])
