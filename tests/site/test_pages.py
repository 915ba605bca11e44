"""Tests every page in a browser."""

from pathlib import Path

import pytest

from tests.site.visits import IN_SIGHT, MATHS, NARROW, PAGES, Visit

pytestmark = pytest.mark.site


@pytest.mark.parametrize("name", PAGES)
def test_page_reads_well(visit: Visit, name: str) -> None:
    """Maths is typeset, folds open, pictures load, everything is local, and no page is too wide for a phone."""
    page = visit.open(name).page
    assert page.evaluate(MATHS) == []
    folded = page.locator(".jupyter-wrapper details.fold > :not(summary)")
    assert not any(folded.evaluate_all(IN_SIGHT))
    page.eval_on_selector_all(".jupyter-wrapper details", "nodes => nodes.forEach(node => { node.open = true })")
    assert all(folded.evaluate_all(IN_SIGHT))

    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    images = "nodes => nodes.filter(n => n.complete && !n.naturalWidth).map(n => n.src)"
    assert page.eval_on_selector_all("img", images) == []
    assert [url for url in visit.requests if not url.startswith((visit.address, "data:", "blob:"))] == []


def test_pages_read_well_from_disk(browser, site: Path) -> None:
    with Visit(browser, f"{site.as_uri()}/") as visit:
        for name in ("semantics.html", next(page for page in PAGES if "/15_" in page)):
            page = visit.open(name).page
            assert page.evaluate(MATHS) == [] and page.locator(".katex-display").count() >= 5
            assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Main'))")
            assert "hamiltonian" in visit.search("Hamiltonian").lower()
            assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
        assert visit.complaints == []
