"""Values that are not legal, on the page: the nearest legal ones, and names that people mean, as by the commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from shardmath.commands.page.translating import Translation
from shardmath.configuration.job import filling_batch
from shardmath.configuration.nearest import Attempts, as_it_was_asked, nearest_legal
from shardmath.errors import nearest_names, shortened
from shardmath.generated.definitions import PARAMETERS, sequences_at_once
from shardmath.input.meant import recompute_of
from shardmath.input.naming import by_name
from shardmath.input.parameters import TYPED, limits, meant_integer
from shardmath.machines.gpu import VENDORS
from shardmath.machines.network import OPERATORS
from shardmath.models.naming import model_called

#: Functions that the page has in its own way: its numbers are integers within their limits, and its words are known.
_REPLACED: Mapping[Callable[..., Any], str] = {
    limits: "limitsOf", meant_integer: "withinLimits", recompute_of: "noWord", sequences_at_once: "sequencesAtOnce",
    shortened: "shortened"}


def refusal_script() -> str:
    """Return JavaScript that finds legal values near others, and the names that people mean."""
    from shardmath.files.rendering import text_of

    translation = Translation(_REPLACED, {"ROWS": PARAMETERS}, (Attempts,))
    functions: dict[str, Callable[..., Any]] = {
        "nearestLegal": nearest_legal, "asAsked": as_it_was_asked, "nearestNames": nearest_names,
        "byName": by_name, "fillingBatch": filling_batch, "modelCalled": model_called}
    names = ", ".join(f"{name}: {translation.of(function)}" for name, function in functions.items())
    ignored = json.dumps({"gpu": VENDORS, "network": OPERATORS})
    return "\n".join((
        "(globalThis.shardmath ??= {}).refusals = (() => {", text_of("page/python.js"), text_of("page/limits.js"),
        *translation.texts(),
        f"return {{ InputError, {names}, IGNORED: {ignored}, TYPED: {json.dumps(dict(TYPED))} }};", "})();",
    ))
