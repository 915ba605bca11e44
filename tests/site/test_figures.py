"""Figures on dark pages have no white slabs behind them, and on phones they can be read."""

import io

import pytest
from PIL import Image

from tests.site.visits import NARROW, NOTEBOOKS, Visit

pytestmark = pytest.mark.site

FIGURES = {
    "synthetic.html": ".md-typeset p > img",
    str(NOTEBOOKS[6].with_suffix(".html")): ".jp-RenderedImage img",
    "learning-path.html": ".course-picture img",
}


def commonest_colour(figure) -> tuple[int, ...]:
    image = Image.open(io.BytesIO(figure.screenshot())).convert("RGB")
    return max(image.getcolors(image.width * image.height))[1]


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize(("name", "selector"), FIGURES.items())
def test_background_is_that_of_the_page_and_wide_figures_scroll(visit: Visit, name: str, selector: str) -> None:
    page = visit.open(name).page
    for colours in ("default", "slate"):
        assert visit.colours() == colours
        behind = rgb(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        figure = page.locator(selector).first
        figure.scroll_into_view_if_needed()
        figure.evaluate("node => node.decode()")
        seen = commonest_colour(figure)
        assert max(abs(x - y) for x, y in zip(seen, behind, strict=True)) <= 3, (colours, seen, behind)
        visit.toggle_colours()
    page.set_viewport_size(NARROW)
    shown = """nodes => nodes.map(node => [node.naturalWidth, node.getBoundingClientRect().width,
        getComputedStyle(node.parentElement).overflowX])"""
    for natural, width, overflow in page.eval_on_selector_all(selector, shown):
        assert name == "learning-path.html" or (width >= min(natural, 540) and overflow == "auto")
