"""Links from short names: ``03#heading`` of a notebook, ``theory#name`` of a statement, ``page#heading`` of a page."""

import json
import re
from functools import cache
from pathlib import Path

from theory.statements import STATEMENTS

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
MARKUP = re.compile(r"[`*$]|<!--.*?-->|\[([^\]]*)\]\([^)]*\)")


def anchor(heading: str) -> str:
    """The id that the site gives a heading."""
    plain = MARKUP.sub(lambda found: found[1] or "", heading)
    kept = re.sub(r"[^\w\s-]", "", plain.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def link(root: Path, name: str) -> str:
    """A Markdown link from a page in ``docs``.

    Args:
        root: Root of the tree.
        name: ``NN#heading``, ``theory#statement`` or ``page#heading``, with the heading's id. Without ``#`` the link
            leads to the page as a whole.

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
