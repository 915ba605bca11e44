"""Every page, read as a visitor's browser does."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.visits import NARROW, PAGES, Visit

pytestmark = pytest.mark.site

# Of each kind of page one, for what takes a profile or a way of its own.
KINDS = ["index.html", "semantics.html", "api/layers.html", PAGES[-1]]


@pytest.fixture(scope="module")
def visit(browser) -> Iterator[Visit]:
    """One visitor for all pages: what they share is loaded once."""
    with Visit(browser) as visitor:
        yield visitor


def check_maths(page) -> None:
    """Whatever is marked as maths has become maths, and no dollar signs are left around."""
    untouched = "nodes => nodes.filter(node => !node.querySelector('.katex')).map(node => node.textContent)"
    assert page.eval_on_selector_all(".arithmatex", untouched) == []
    assert page.eval_on_selector_all(".katex-error", "nodes => nodes.map(node => node.textContent)") == []
    texts = page.eval_on_selector_all(
        ".jp-RenderedMarkdown",
        """nodes => nodes.map(node => {
            const copy = node.cloneNode(true);
            copy.querySelectorAll(".katex, code, pre").forEach(part => part.remove());
            return copy.textContent;
        })""",
    )
    assert [text for text in texts if re.search(r"\$[^$]+\$", text)] == []


@pytest.mark.parametrize("name", PAGES)
def test_page_reads_well(visit: Visit, quick_address: str, site: Path, name: str) -> None:
    assert (site / name).exists()
    page = visit.open(quick_address + name).page
    check_maths(page)
    assert "hamiltonian" in visit.search("Hamiltonian").lower()
    page.keyboard.press("Escape")
    visit.unfold()

    assert visit.colours() == "default"
    assert visit.poor_contrasts() == []
    visit.toggle_colours()
    assert visit.colours() == "slate"
    assert visit.poor_contrasts() == []

    page.set_viewport_size(NARROW)
    assert visit.width() <= NARROW["width"]
    images = "nodes => nodes.filter(n => n.complete && !n.naturalWidth).map(n => n.src)"
    assert page.eval_on_selector_all("img", images) == []
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith((quick_address, "data:", "blob:"))] == []


@pytest.mark.parametrize("name", KINDS)
def test_page_reads_well_from_disk(browser, quick_site: Path, name: str) -> None:
    with Visit(browser) as visit:
        page = visit.open((quick_site / name).as_uri()).page
        check_maths(page)
        assert "hamiltonian" in visit.search("Hamiltonian").lower()
        page.keyboard.press("Escape")
        visit.toggle_colours()
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def test_maths_is_typeset(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + "semantics.html").page
    assert page.locator(".katex-display").count() >= 5
    # KaTeX keeps the source for screen readers; what is shown are its glyphs, in its own font.
    family = page.eval_on_selector(".katex-html .mord", "node => getComputedStyle(node).fontFamily")
    assert family.startswith("KaTeX")
    assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Main'))")


def test_search_leads_to_the_page(visit: Visit, address: str) -> None:
    page = visit.open(address + "index.html").page
    assert "MultiHeadAttention" in visit.search("MultiHeadAttention")
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url("**/api/**")
    assert page.locator(".md-content").get_by_text("MultiHeadAttention").first.is_visible()


def test_colours_follow_the_system_and_are_remembered(browser, quick_address: str) -> None:
    with Visit(browser, colours="dark") as visit:
        visit.open(quick_address + "index.html")
        assert visit.colours() == "slate"
        visit.toggle_colours()
        visit.page.goto(quick_address + "api/layers.html")
        assert visit.colours() == "default"


@pytest.mark.parametrize("name", KINDS)
def test_first_key_skips_to_the_text(visit: Visit, quick_address: str, name: str) -> None:
    page = visit.open(quick_address + name).page
    if page.locator(".md-skip").count() == 0:
        pytest.skip("a page without headings to skip to")
    page.keyboard.press("Tab")
    skip = page.locator(".md-skip")
    assert skip.evaluate("node => node === document.activeElement")
    page.wait_for_function("getComputedStyle(document.querySelector('.md-skip')).opacity === '1'")
    box = skip.bounding_box()
    assert box["x"] >= 0 and box["y"] >= 0
    page.keyboard.press("Enter")
    assert page.url.split("#")[1] == skip.get_attribute("href").removeprefix("#")


def test_focus_is_seen(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + "index.html").page
    focused = """() => {
        const node = document.activeElement, style = getComputedStyle(node);
        const isOutlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
        return [node.tagName + " " + (node.textContent || node.className).trim().slice(0, 30), isOutlined];
    }"""
    found = []
    for _ in range(24):
        page.keyboard.press("Tab")
        found.append(page.evaluate(focused))
    names = [name for name, _ in found]
    assert {"A Learn", "A Verify", "A Use"} <= set(names)  # the doors can be reached
    assert [name for name, is_outlined in found if not is_outlined and not name.startswith("INPUT")] == []


def test_menu_on_a_phone_has_the_tabs(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + "index.html").page
    page.set_viewport_size(NARROW)
    tabs = page.locator(".md-nav--primary > .md-nav__list > .md-nav__item > :is(.md-nav__link, .md-nav__container)")
    assert tabs.first.bounding_box()["x"] < 0  # the menu waits outside of the view
    page.locator("label.md-header__button[for=__drawer]").click()
    page.wait_for_function("document.querySelector('.md-sidebar--primary').getBoundingClientRect().x >= 0")
    names = [tab.inner_text().strip() for tab in tabs.all() if tab.is_visible()]
    assert names == ["Home", "Learn", "Verify", "Use", "Reference", "Project"]
    tabs.get_by_text("Use", exact=True).first.click()
    link = page.locator(".md-nav--primary").get_by_role("link", name="When to use it")
    link.click()
    page.wait_for_url("**/when-to-use.html")
    assert page.locator("h1").inner_text().strip().startswith("When to use it")


@pytest.mark.parametrize("name", KINDS)
def test_print_is_dark_on_white(browser, quick_address: str, name: str) -> None:
    with Visit(browser, colours="dark") as visit:
        page = visit.open(quick_address + name).page
        assert visit.colours() == "slate"
        page.emulate_media(media="print")
        assert visit.poor_contrasts() == []
        assert page.evaluate("getComputedStyle(document.body).getPropertyValue('--md-default-bg-color')") != "#14191d"
        assert not page.locator(".md-header").is_visible() and not page.locator(".md-tabs").is_visible()
        assert page.locator("main h1").first.is_visible()
