"""Figures on dark pages have no white slabs behind them, and on phones they can be read."""

import io
from collections.abc import Iterator

import pytest
from PIL import Image

from tests.site.visits import NARROW, NOTEBOOKS, Visit

pytestmark = pytest.mark.site

FIGURES = {
    "synthetic.html": ".md-typeset p > img",
    str(NOTEBOOKS[6].with_suffix(".html")): ".jp-RenderedImage img",
    "learning-path.html": ".course-picture img",
}


@pytest.fixture(scope="module")
def visit(browser) -> Iterator[Visit]:
    with Visit(browser) as visitor:
        yield visitor


def commonest_colour(figure) -> tuple[int, ...]:
    image = Image.open(io.BytesIO(figure.screenshot())).convert("RGB")
    return max(image.getcolors(image.width * image.height))[1]


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize(("page_name", "selector"), FIGURES.items())
def test_background_is_that_of_the_page(visit: Visit, quick_address: str, page_name: str, selector: str) -> None:
    page = visit.open(quick_address + page_name).page
    for colours in ("default", "slate"):
        assert visit.colours() == colours
        behind = rgb(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        figure = page.locator(selector).first
        figure.scroll_into_view_if_needed()
        figure.evaluate("node => node.decode()")
        seen = commonest_colour(figure)
        assert max(abs(x - y) for x, y in zip(seen, behind, strict=True)) <= 3, (colours, seen, behind)
        visit.toggle_colours()


@pytest.mark.parametrize(("page_name", "selector"), list(FIGURES.items())[:2])
def test_figures_on_a_phone_scroll(visit: Visit, quick_address: str, page_name: str, selector: str) -> None:
    page = visit.open(quick_address + page_name).page
    page.set_viewport_size(NARROW)
    assert visit.width() <= NARROW["width"]
    shown = """nodes => nodes.map(node => [node.naturalWidth, node.getBoundingClientRect().width,
        getComputedStyle(node.parentElement).overflowX])"""
    for natural, width, overflow in page.eval_on_selector_all(selector, shown):
        assert width >= min(natural, 540) and overflow == "auto"
