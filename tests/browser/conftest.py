"""A real Chromium for the page, from the system's packages; without it, and outside CI, these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_cases import MODELS, SCREEN

FOLDER = Path(__file__).parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason="chromium is not installed; `make page` installs it on Debian"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "CI needs chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with ``MODELS``."""
    from shardmath.commands.page import page

    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(MODELS, only=True), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with all models: the one that `make page` has just written, or one of its own."""
    if os.environ.get("WRITTEN_PAGE"):
        return Path(os.environ["WRITTEN_PAGE"]).resolve()
    from shardmath.commands.page import page

    path = tmp_path_factory.mktemp("page") / "whole.html"
    path.write_text(page(), encoding="utf-8")
    return path


Opener = Callable[..., Any]
#: Milliseconds that a page may take for something on a machine with other work.
PATIENCE = 600_000


@pytest.fixture
def opened(chromium: Any, written: Path) -> Iterator[Opener]:
    """Open the page at a link; an error of the page, and a request for anything but its file, fail the test."""
    contexts, errors, requests = [], [], []

    def open_at(
        link: str = "", size: tuple[int, int] = SCREEN, scheme: str = "light", path: Path = written
    ) -> Any:
        context = chromium.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        tab.goto(path.as_uri() + link)
        if tab.locator("#packed").count():
            tab.wait_for_selector("html[data-ready]")
        return tab

    yield open_at
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith("blob:null/")
            and (not url.startswith("file:") or not url.endswith(".html"))] == []
