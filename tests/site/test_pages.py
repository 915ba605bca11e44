"""Every page, read as a visitor's browser does."""

from pathlib import Path

import pytest

from tests.site.visits import IN_SIGHT, MATHS, NARROW, PAGES, Visit

pytestmark = pytest.mark.site


@pytest.mark.parametrize("name", PAGES)
def test_page_reads_well(visit: Visit, name: str) -> None:
    """In light and dark and on a phone: maths is set, folds open, pictures come, and nothing from elsewhere."""
    page = visit.open(name).page
    assert page.evaluate(MATHS) == []
    folded = page.locator(".jupyter-wrapper details.fold > :not(summary)")
    assert not any(folded.evaluate_all(IN_SIGHT))
    page.eval_on_selector_all(".jupyter-wrapper details", "nodes => nodes.forEach(node => { node.open = true })")
    assert all(folded.evaluate_all(IN_SIGHT))

    assert visit.colours() == "default"
    visit.toggle_colours()
    assert visit.colours() == "slate"
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    images = "nodes => nodes.filter(n => n.complete && !n.naturalWidth).map(n => n.src)"
    assert page.eval_on_selector_all("img", images) == []
    assert [url for url in visit.requests if not url.startswith((visit.address, "data:", "blob:"))] == []


def test_pages_read_well_from_disk(browser, site: Path) -> None:
    with Visit(browser, f"{site.as_uri()}/") as visit:
        for name in ("semantics.html", PAGES[-1]):
            page = visit.open(name).page
            assert page.evaluate(MATHS) == [] and page.locator(".katex-display").count() >= 5
            assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Main'))")
            assert "hamiltonian" in visit.search("Hamiltonian").lower()
            assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
        assert visit.complaints == []


def test_search_leads_to_the_page(visit: Visit) -> None:
    page = visit.open("index.html").page
    assert "MultiHeadAttention" in visit.search("MultiHeadAttention")
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url("**/api/**")
    assert page.locator(".md-content").get_by_text("MultiHeadAttention").first.is_visible()


def test_colours_follow_the_system_and_are_remembered_and_print_is_dark_on_white(browser, address: str) -> None:
    with Visit(browser, address, colours="dark") as visit:
        page = visit.open("semantics.html").page
        assert visit.colours() == "slate"
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).getPropertyValue('--md-default-bg-color')") != "#14191d"
        assert not page.locator(".md-header").is_visible() and page.locator("main h1").first.is_visible()
        page.emulate_media(media="screen")
        visit.toggle_colours()
        page.goto(address + "index.html")
        assert visit.colours() == "default"


def test_keys_are_enough_and_focus_is_seen(visit: Visit) -> None:
    page = visit.open("semantics.html").page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips the menus
    assert page.url.split("#")[1] == page.locator(".md-skip").get_attribute("href").removeprefix("#")
    visit.open("index.html")
    focused = """() => {
        const node = document.activeElement, style = getComputedStyle(node);
        const isOutlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
        return [node.tagName + " " + (node.textContent || node.className).trim().slice(0, 30), isOutlined];
    }"""
    found = []
    for _ in range(24):
        page.keyboard.press("Tab")
        found.append(page.evaluate(focused))
    assert {"A Learn", "A Verify", "A Use"} <= {name for name, _ in found}  # the doors can be reached
    assert [name for name, is_outlined in found if not is_outlined and not name.startswith("INPUT")] == []


def test_menu_on_a_phone_has_the_tabs(visit: Visit) -> None:
    page = visit.open("index.html").page
    page.set_viewport_size(NARROW)
    tabs = page.locator(".md-nav--primary > .md-nav__list > .md-nav__item > :is(.md-nav__link, .md-nav__container)")
    page.locator("label.md-header__button[for=__drawer]").click()
    page.wait_for_function("document.querySelector('.md-sidebar--primary').getBoundingClientRect().x >= 0")
    names = [tab.inner_text().strip() for tab in tabs.all() if tab.is_visible()]
    assert names == ["Home", "Learn", "Verify", "Use", "Reference", "Project"]
    tabs.get_by_text("Use", exact=True).first.click()
    page.locator(".md-nav--primary").get_by_role("link", name="When to use it").click()
    page.wait_for_url("**/when-to-use.html")
