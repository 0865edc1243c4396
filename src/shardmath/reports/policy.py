"""The content security policy of a page: its own scripts and styles, by their digests, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re

#: Where the template has the policy.
PLACE = 'http-equiv="Content-Security-Policy" content=""'
_SCRIPT = re.compile(r"<script(?: id=\"\w+\")?>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def with_policy(page: str, makes_scripts: bool = False) -> str:
    """Fill in the policy of a page that is complete otherwise: a browser refuses whatever is added later.

    With ``makes_scripts`` the page's own scripts may make further ones and workers of texts in the page.
    """
    scripts = _allowed("script-src", _SCRIPT.findall(page))
    made = [f"{scripts[0]} 'strict-dynamic'", "worker-src blob:"] if makes_scripts else scripts
    rules = [
        "default-src 'none'", *made, *_allowed("style-src", _STYLE.findall(page)), "base-uri 'none'",
        "form-action 'none'",
    ]
    assert page.count(PLACE) == 1
    return page.replace(PLACE, PLACE[:-1] + "; ".join(rules) + '"')


def _allowed(directive: str, texts: list[str]) -> list[str]:
    """Return the directive for inline texts; without any, ``default-src`` holds."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return [" ".join((directive, *(f"'sha256-{digest}'" for digest in digests)))] if digests else []
