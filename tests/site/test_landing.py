"""The landing page: what a stranger sees in the first ten seconds."""

import re
from collections.abc import Iterator

import pytest

from results.tables.errata import read_claims
from tests.site.visits import DOCS, NARROW, ROOT, Visit

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


def test_first_view_says_what_why_and_what_to_run(landing: Visit) -> None:
    landing.page.set_viewport_size(FIRST_VIEW)
    words = ("h1", ".lead", ".hero-text pre", ".hero .md-button >> nth=2")
    for selector in (*words, *(f".hero-figure figcaption >> nth={i}" for i in range(3)), "#small"):
        assert bottom(landing, selector) <= FIRST_VIEW["height"], selector


def test_first_view_on_a_phone_holds_the_words(landing: Visit) -> None:
    landing.page.set_viewport_size(NARROW)
    assert bottom(landing, ".lead") <= NARROW["height"] / 2
    assert bottom(landing, ".hero .md-button >> nth=2") <= 1.25 * NARROW["height"]
    assert not landing.page.locator(".pipeline--wide").is_visible()
    for picture in landing.page.locator(".hero .shown, #small canvas, .pipeline--narrow").all():
        box = picture.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"] and box["width"] >= 150
    code = landing.page.locator(".how-code pre code")
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
    text = (DOCS / "index.md").read_text("utf-8")
    for place, language in (("hero-text", "console"), ("how-code", "python")):
        page.locator(f".{place} pre").hover()
        page.locator(f".{place} [data-md-type=copy], .{place} .md-clipboard").first.click()
        copied = page.evaluate("navigator.clipboard.readText()")
        fence = re.search(rf"```{language}.*?\n(.*?)```", text, re.DOTALL)
        assert copied.strip() == fence[1].strip()


def test_command_is_one_of_the_makefile() -> None:
    fence = re.search(r"```console\n(.*?)```", (DOCS / "index.md").read_text("utf-8"), re.DOTALL)
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert fence[1].split()[0] == "make" and fence[1].split()[1] in targets


def test_counts_of_claims_are_those_of_the_errata(landing: Visit, quick_address: str) -> None:
    claims = [claim for claim in read_claims(ROOT) if claim.group != "slip"]
    groups = [claim.group for claim in claims]
    text = landing.open(quick_address + "index.html").page.locator(".hero-text").inner_text()
    counts = [groups.count(name) for name in ("reproduced", "conclusion", "proof", "open")]
    said = re.search(
        r"checked (\d+) of its claims: (\d+) hold, (\d+) conclusions and (\d+) arguments fall, and (\d+)", text
    )
    assert list(map(int, said.groups())) == [len(claims), *counts]


def test_a_mask_can_be_drawn_by_keyboard(landing: Visit, quick_address: str) -> None:
    page = landing.open(quick_address + "index.html").page
    small = page.locator("#small")
    seen = [small.get_attribute("data-edges")]
    for selector, key in (("[name=blocks]", "ArrowRight"), ("[name=reach]", "ArrowLeft"), ("button", "Enter")):
        small.locator(selector).focus()
        page.keyboard.press(key)
        seen.append(small.get_attribute("data-edges"))
        assert seen[-1] != seen[-2], selector
        assert small.locator("[data-part=told]").inner_text().startswith(f"{seen[-1]} edges")


def test_pictures_have_the_colours_of_the_page(landing: Visit, quick_address: str) -> None:
    page = landing.open(quick_address + "index.html").page
    fills = "names => names.map(name => getComputedStyle(document.querySelector(`.shown ${name}`)).fill)"
    names = ["text", ".wanted", ".fitted", ".sbm", ".random-equal"]
    for _ in ("default", "slate"):
        behind = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        for name, fill in zip(names, page.evaluate(fills, names), strict=True):
            low, high = sorted((behind, luminance(fill)))
            assert (high + 0.05) / (low + 0.05) >= (4.5 if name == "text" else 3.0), (landing.colours(), name)
        landing.toggle_colours()


def test_picture_is_seen_in_both_colours(landing: Visit, quick_address: str) -> None:
    page = landing.open(quick_address + "index.html").page
    fills = """names => names.map(name => {
        const node = document.querySelector(`.pipeline .${name}`), style = getComputedStyle(node);
        return style[name.startsWith("pl-arrow") || name.startsWith("pl-follow") ? "stroke" : "fill"];
    })"""
    names = ["pl-name", "pl-label", "pl-tiny", "pl-arrow", "pl-follow", "pl-blue", "pl-orange", "pl-green"]
    light = page.evaluate(fills, names)
    card = "getComputedStyle(document.querySelector('.how-figure')).backgroundColor"
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
