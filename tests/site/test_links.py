"""Checks the links and descriptions in the built files, without a browser."""

import posixpath
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.site.visits import PAGES

pytestmark = pytest.mark.site


class Outline(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.targets |= {given[name] for name in ("id", "name") if name in given}
        self.links |= {given[name] for name in ("href", "src") if name in given}


@pytest.fixture(scope="module")
def outlines(site: Path) -> dict[str, Outline]:
    """Returns the outline of every page, by its path in the site."""
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    return {path.relative_to(site).as_posix(): Outline(path.read_text("utf-8")) for path in pages}


def test_every_link_leads_somewhere(outlines: dict[str, Outline], site: Path) -> None:
    """Links lead to existing files and headings, including those in notebooks and menus."""
    broken = []
    for page, outline in outlines.items():
        for link in outline.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(address.path)))
            target = path if address.path else page
            if (site / target).is_dir():
                target = posixpath.join(target, "index.html")
            place = unquote(address.fragment)
            is_there = not place or target not in outlines or place in outlines[target].targets
            if not (site / target).exists() or not is_there:
                broken.append(f"{page}: {link}")
    assert broken == []


def test_nothing_is_published_but_what_readers_ask_for(site: Path) -> None:
    assert [*site.rglob("*.py"), *site.rglob("__pycache__"), *site.rglob(".*"), *site.rglob("*.toml")] == []


def test_pages_have_descriptions(site: Path) -> None:
    for page in PAGES:
        text = (site / page).read_text(encoding="utf-8")
        description = re.search(r'<meta name="description" content="([^"]+)"', text)
        assert description and 40 <= len(unescape(description[1])) <= 320, page
