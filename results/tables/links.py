"""Links from short names: ``03#heading`` of a notebook, ``theory#name`` of a statement, ``page#heading`` of a page."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from theory.statements import STATEMENTS

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"\[(.+)\]\((.+)\)")
MARKUP = re.compile(r"[`*$]|<!--.*?-->|\[([^\]]*)\]\([^)]*\)")


def anchor(heading: str) -> str:
    """The id that the site gives a heading."""
    plain = MARKUP.sub(lambda found: found[1] or "", heading)
    kept = re.sub(r"[^\w\s-]", "", plain.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def link(root: Path, name: str) -> str:
    """A Markdown link from a page in ``docs``; without ``#`` it leads to the page as a whole.

    Raises:
        KeyError: If there is no such page or heading.
    """
    page, _, place = name.partition("#")
    if page == "theory" and place:
        if place not in {statement.name for statement in STATEMENTS}:
            raise KeyError(f"no statement {place!r}")
        return f"[Theory: {place}](theory.md#{anchor(place)})"
    path = next(root.glob(f"notebooks/{page}_*.ipynb"), None) if page.isdigit() else root / "docs" / f"{page}.md"
    if path is None or not path.exists():
        raise KeyError(f"no page {page}")
    title, places = _headings(path, path.stat().st_mtime_ns)
    address = f"notebooks/{path.name}" if page.isdigit() else f"{page}.md"
    if not place:
        return f"[{title}]({address})"
    if place not in places:
        raise KeyError(f"{path.name} has no heading #{place}")
    shown = (
        f"{page} · {places[place]}"
        if page.isdigit()
        else f"{title.removeprefix('Results: ').capitalize()}: {places[place]}"
    )
    return f"[{shown}]({address}#{place})"


def address(root: Path, name: str) -> str:
    """Where the :func:`link` of the same name leads."""
    return link(root, name).rpartition("](")[2].removesuffix(")")


def short_links(root: Path, names: Sequence[str]) -> str:
    """Links by the names of their pages, such as *notebook 03*; with headings only where two would be the same."""
    found = [LINK.fullmatch(link(root, name)) for name in names]
    links = [(one[1], one[2]) for one in found if one]
    short = [_page(name) for name, _ in links]
    shown = [one if short.count(one) == 1 else name for one, (name, _) in zip(short, links, strict=True)]
    return ", ".join(f"[{name}]({address})" for name, (_, address) in zip(shown, links, strict=True))


def _page(name: str) -> str:
    """The page that a link leads to, without the heading."""
    if name[:2].isdigit():
        return f"notebook {name[:2]}"
    page, _, rest = name.partition(": ")
    return rest.capitalize() if page == "Results" else page


@cache
def _headings(path: Path, _: int) -> tuple[str, dict[str, str]]:
    """The title of a page, and its other headings by id."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    found = [MARKUP.sub(lambda x: x[1] or "", heading) for heading in HEADING.findall(FENCE.sub("", text))]
    title = "Home" if path.stem == "index" else found[0]
    return title, {anchor(heading): heading for heading in found[1:]}
