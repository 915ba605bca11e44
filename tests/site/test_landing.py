"""The landing page: what a stranger sees in the first ten seconds."""

import re
from pathlib import Path

import pytest

from results.tables.claims import read_claims
from tests.site.visits import DOCS, NARROW, ROOT, Visit

pytestmark = pytest.mark.site

FIRST_VIEW = {"width": 1280, "height": 800}


def bottom(page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


def test_first_view_says_what_why_and_what_to_run(visit: Visit) -> None:
    page = visit.open("index.html").page
    page.set_viewport_size(FIRST_VIEW)
    words = ("h1", ".lead", ".hero-text pre", ".hero .md-button >> nth=2")
    for selector in (*words, *(f".hero-figure figcaption >> nth={i}" for i in range(3)), "#small"):
        assert bottom(page, selector) <= FIRST_VIEW["height"], selector

    page.set_viewport_size(NARROW)
    assert bottom(page, ".lead") <= NARROW["height"] / 2
    assert bottom(page, ".hero .md-button >> nth=2") <= 1.25 * NARROW["height"]
    assert not page.locator(".pipeline--wide").is_visible()
    for picture in page.locator(".hero .shown, #small canvas, .pipeline--narrow").all():
        box = picture.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"] and box["width"] >= 150
    assert page.locator(".how-code pre code .hll").count() == 3


def test_doors_are_the_tabs(site: Path) -> None:
    html = (site / "index.html").read_text("utf-8")
    tabs = re.findall(r'<a href="([^"]+)" class="md-tabs__link">\s*(\w+)', html)
    buttons = re.findall(r'<a class="md-button[^"]*" href="([^"]+)">(\w+)</a>', html)
    cards = re.findall(r"<strong>(\w+)</strong>", html.split('class="grid cards"')[1])
    assert buttons == tabs[1:4] and cards == [name for _, name in buttons] == ["Learn", "Verify", "Use"]


def test_code_can_be_copied(visit: Visit) -> None:
    page = visit.open("index.html").page
    text = (DOCS / "index.md").read_text("utf-8")
    for place, language in (("hero-text", "console"), ("how-code", "python")):
        page.locator(f".{place} pre").hover()
        page.locator(f".{place} [data-md-type=copy], .{place} .md-clipboard").first.click()
        copied = page.evaluate("navigator.clipboard.readText()")
        fence = re.search(rf"```{language}.*?\n(.*?)```", text, re.DOTALL)
        assert copied.strip() == fence[1].strip()


def test_what_it_says_is_so(site: Path) -> None:
    html = (site / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<!--.*?-->|<[^>]*>", "", html, flags=re.DOTALL).split())
    groups = [claim.group for claim in read_claims(ROOT) if claim.group != "slip"]
    counts = [groups.count(name) for name in ("reproduced", "conclusion", "proof", "open")]
    said = re.search(
        r"checked (\d+) of its claims: (\d+) hold, (\d+) conclusions and (\d+) arguments fall, and (\d+)", text
    )
    assert list(map(int, said.groups())) == [len(groups), *counts]
    command = re.search(r"```console\nmake (.*)\n", (DOCS / "index.md").read_text("utf-8"))[1]
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_a_mask_can_be_drawn_by_keyboard(visit: Visit) -> None:
    page = visit.open("index.html").page
    small = page.locator("#small")
    seen = [small.get_attribute("data-edges")]
    for selector, key in (("[name=blocks]", "ArrowRight"), ("[name=reach]", "ArrowLeft"), ("button", "Enter")):
        small.locator(selector).focus()
        page.keyboard.press(key)
        seen.append(small.get_attribute("data-edges"))
        assert seen[-1] != seen[-2], selector
        assert small.locator("[data-part=told]").inner_text().startswith(f"{seen[-1]} edges")


def test_pictures_are_seen_in_both_colours(visit: Visit) -> None:
    """Shapes, that is: of texts, those in pictures included, the contrast is judged on every page."""
    page = visit.open("index.html").page
    fills = "names => names.map(name => getComputedStyle(document.querySelector(name)).fill)"
    bounds = {f".shown .{name}": (3.0, 3.0) for name in ("wanted", "fitted", "sbm", "random-equal")}
    bounds |= {f".pipeline .pl-{name}": (2.0, 3.0) for name in ("blue", "orange", "green")}
    for place in range(2):
        colours = visit.colours()
        behind = luminance(page.evaluate("getComputedStyle(document.querySelector('.how-figure')).backgroundColor"))
        for (name, least), fill in zip(bounds.items(), page.evaluate(fills, list(bounds)), strict=True):
            low, high = sorted((behind, luminance(fill)))
            assert (high + 0.05) / (low + 0.05) >= least[place], (colours, name)
        visit.toggle_colours()


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(…)``."""
    parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
