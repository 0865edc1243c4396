"""Pages of the site that stand outside of docs/, links to them, and llms.txt: what MkDocs calls while it builds."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from notebooks import page_of
from reference import reference

ROOT = Path(__file__).resolve().parents[1]
#: Pages by their name on the site; links to their files lead to them.
PAGES = {
    "index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md",
    "formulas.md": "generated/formulas.md",
}
#: Page whose rows can be filtered, and the script that does so.
FILTERED, FILTER = "formulas.md", "filter.js"
#: Files of the site that stand beside this one.
OWN = (FILTER, "site.css")
#: Notebooks by the name of their page.
NOTEBOOKS = {f"notebooks/{path.stem}.md": path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
#: The page of `shardmath page`, which takes a minute where its formulas are not kept yet: `make docs` asks for it.
LIVE = "live.html"
WITH_LIVE = bool(os.environ.get("SHARDMATH_LIVE_PAGE"))
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_MATH = re.compile(r"```math\n(.*?)\n```", re.DOTALL)
#: Pictures that are drawn as narrow as a phone; where there is room their letters are larger.
_NARROW = re.compile(r"(!\[[^\]]*\]\(concepts/\w+\.svg\))")
_ALIGNED = re.compile(r"\\(?:begin|end)\{aligned\}|&")
_FENCE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add pages and files from outside of docs/."""
    for name, path in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    for path in _linked():
        files.append(File.generated(config, f"files/{path}.txt", content=(ROOT / path).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference.md", content=reference()))
    for name in OWN:
        files.append(File.generated(config, name, content=(ROOT / "website" / name).read_text(encoding="utf-8")))
    for name, path in NOTEBOOKS.items():
        files.append(File.generated(config, name, content=page_of(path)))
    if WITH_LIVE:
        from shardmath.commands.page import page

        files.append(File.generated(config, LIVE, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where the site has their files, and write displays as MathML; code stays as it is."""
    markdown = _MATH.sub(lambda display: _displayed(display[1]), markdown)
    source = PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if WITH_LIVE and page.file.src_uri == "page.md":
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n[Open the page with all models]({LIVE}). It was written by this command:\n{rest}"
    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _moved(link, source, page.file.src_uri), part) for part in parts[::2]]
    return _NARROW.sub(r'\1{ width="520" }', "".join(parts))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Add the field that filters the rows of formulas."""
    return f'{html}\n<script src="{FILTER}" defer></script>' if page.file.src_uri == FILTERED else html


def on_post_build(config: Any) -> None:
    """Write llms.txt: every page with its title and address, for programs that read the documentation."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.nav:
        for title, names in section.items():
            lines += [f"## {title}", "", *(f"- [{_title(name)}]({name})" for name in names), ""]
            for name in names:
                target = Path(config.site_dir, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_text(name), encoding="utf-8")
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def _pages() -> dict[str, Path]:
    """Return every page that is a file, by its name on the site."""
    own = {path.relative_to(ROOT / "docs").as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
    return {**own, **{name: ROOT / path for name, path in PAGES.items()}}


def _linked() -> list[str]:
    """Return the files outside of docs/ that pages link to and that are no pages, as paths from the root."""
    targets = set()
    for path in _pages().values():
        text = "".join(_FENCE.split(path.read_text(encoding="utf-8"))[::2])
        folder = path.parent.relative_to(ROOT).as_posix()
        targets.update(posixpath.normpath(posixpath.join(folder, link["path"])) for link in _LINK.finditer(text))
    return sorted(target for target in targets if target not in PAGES.values() and not target.startswith("docs/")
                  and (ROOT / target).is_file())


def _moved(link: re.Match[str], source: str, page: str) -> str:
    """Return a link of the file ``source`` as one of the page of the site that shows it."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
    of_page = {path: name for name, path in PAGES.items()}
    outside = not target.startswith("docs/") and (ROOT / target).is_file()
    on_site = of_page.get(target, f"files/{target}.txt" if outside else target.removeprefix("docs/"))
    return posixpath.relpath(on_site, posixpath.dirname(page) or ".") + (link["anchor"] or "")


def _displayed(latex: str) -> str:
    """Return a display as MathML, which browsers typeset themselves: one formula for each aligned line."""
    lines = _ALIGNED.sub("", latex).split(r"\\")
    return "\n\n".join(f"<p>{convert(line.strip(), display='block')}</p>" for line in lines)


def _text(name: str) -> str:
    if name == "reference.md":
        return reference()
    if name in NOTEBOOKS:
        return page_of(NOTEBOOKS[name])
    return _pages()[name].read_text(encoding="utf-8")


def _title(name: str) -> str:
    heading = re.search(r"^# (.+)$", _text(name), re.MULTILINE)
    return heading[1] if heading else name
