"""The landing page: what a stranger sees in the first ten seconds."""

import re
from collections.abc import Iterator

import pytest

from tests.site.visits import DOCS, NARROW, Visit

pytestmark = pytest.mark.site

FIRST_VIEW = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def landing(browser, quick_address: str) -> Iterator[Visit]:
    """A visitor who may use the clipboard, on the landing page."""
    permissions = ["clipboard-read", "clipboard-write"]
    with Visit(browser, permissions=permissions) as visit:
        yield visit.open(quick_address + "index.html")


def bottom(visit: Visit, selector: str) -> float:
    box = visit.page.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


def test_first_view_holds_sentence_picture_and_code(landing: Visit) -> None:
    landing.page.set_viewport_size(FIRST_VIEW)
    for selector in ("h1", ".lead", ".hero-code pre", ".pipeline--wide", ".hero .md-button >> nth=2"):
        assert bottom(landing, selector) <= FIRST_VIEW["height"], selector


def test_first_view_on_a_phone_holds_sentence_and_doors(landing: Visit) -> None:
    landing.page.set_viewport_size(NARROW)
    for selector in ("h1", ".lead", ".hero .md-button >> nth=2"):
        assert bottom(landing, selector) <= NARROW["height"] / 2, selector
    assert bottom(landing, ".pipeline--narrow use") <= NARROW["height"]  # the picture begins
    assert not landing.page.locator(".pipeline--wide").is_visible()
    code = landing.page.locator(".hero-code pre code")
    widths = code.evaluate("node => [...node.querySelectorAll('.hll')].map(line => line.getBoundingClientRect().width)")
    assert len(widths) == 3


def test_doors_are_the_tabs(landing: Visit) -> None:
    landing.page.set_viewport_size(FIRST_VIEW)
    tabs = [text.strip() for text in landing.page.locator(".md-tabs__link").all_inner_texts()]
    buttons = [text.strip() for text in landing.page.locator(".hero .md-button").all_inner_texts()]
    cards = [text.strip() for text in landing.page.locator(".grid.cards li > p:first-child strong").all_inner_texts()]
    assert buttons == cards == tabs[1:4] == ["Learn", "Verify", "Use"]


@pytest.mark.parametrize("number", range(3))
def test_a_door_opens_into_its_tab(landing: Visit, quick_address: str, number: int) -> None:
    landing.open(quick_address + "index.html")
    button = landing.page.locator(".hero .md-button").nth(number)
    name = button.inner_text().strip()
    button.click()
    landing.page.wait_for_url(lambda url: "index.html" not in url)
    assert landing.page.locator(".md-tabs__item--active").inner_text().strip() == name


def test_code_can_be_copied(landing: Visit, quick_address: str) -> None:
    page = landing.open(quick_address + "index.html").page
    page.locator(".hero-code pre").hover()
    page.locator(".hero-code [data-md-type=copy], .hero-code .md-clipboard").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    fence = re.search(r"```python.*?\n(.*?)```", (DOCS / "index.md").read_text("utf-8"), re.DOTALL)
    assert copied.strip() == fence[1].strip()


def test_picture_is_seen_in_both_colours(landing: Visit, quick_address: str) -> None:
    page = landing.open(quick_address + "index.html").page
    fills = """names => names.map(name => {
        const node = document.querySelector(`.pipeline .${name}`), style = getComputedStyle(node);
        return style[name.startsWith("pl-arrow") || name.startsWith("pl-follow") ? "stroke" : "fill"];
    })"""
    names = ["pl-name", "pl-label", "pl-tiny", "pl-arrow", "pl-follow", "pl-blue", "pl-orange", "pl-green"]
    light = page.evaluate(fills, names)
    card = "getComputedStyle(document.querySelector('.hero-figure')).backgroundColor"
    for colours, bounds in (("default", (4.5, 2.0)), ("slate", (4.5, 3.0))):
        assert landing.colours() == colours
        behind = luminance(page.evaluate(card))
        for name, fill in zip(names, page.evaluate(fills, names), strict=True):
            low, high = sorted((behind, luminance(fill)))
            is_text = name in names[:5]
            assert (high + 0.05) / (low + 0.05) >= bounds[0 if is_text else 1], (colours, name)
        landing.toggle_colours()
    assert page.evaluate(fills, names) == light


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(…)``."""
    parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
