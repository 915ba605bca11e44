"""The landing page: what a stranger sees in the first ten seconds."""

import json
import re
from pathlib import Path

import pytest

from results.claims import n_claims
from tests.site.visits import DOCS, ROOT, Visit

pytestmark = pytest.mark.site

PICTURES = DOCS / "assets" / "landing"


def test_what_it_says_is_so(site: Path) -> None:
    html = (site / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<!--.*?-->|<[^>]*>", "", html, flags=re.DOTALL).split())
    said = r"checked (\d+) of its claims: (\d+) hold, (\d+) conclusions and (\d+) arguments fall, and (\d+)"
    groups = ("all", "reproduced", "conclusion", "proof", "open")
    assert [int(n) for n in re.search(said, text).groups()] == [n_claims(group) for group in groups]
    command = re.search(r"```console\nmake (.*)\n", (DOCS / "index.md").read_text("utf-8"))[1]
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_pictures_are_those_of_the_results() -> None:
    def cells(name: str, kind: str) -> set[tuple[int, int]]:
        path = re.search(rf'<path class="{kind}"[^>]* d="([^"]*)"', (PICTURES / f"{name}.svg").read_text("utf-8"))[1]
        runs = [tuple(map(int, run)) for run in re.findall(r"M(\d+) (\d+)h(\d+)v", path)]
        return {(x + i, y) for x, y, width in runs for i in range(width)}

    assert cells("matter", "wanted") == cells("found", "wanted")  # as the page says
    n_drawn = len(cells("found", "wanted") | cells("found", "other"))
    n_right = len(cells("found", "wanted"))
    assert f"{n_drawn} of 4096 pairs, {n_right} of the {n_right}" in (PICTURES / "found.svg").read_text("utf-8")
    runs = json.loads((ROOT / "results" / "demo.json").read_text("utf-8"))["runs"]
    assert (PICTURES / "accuracy.svg").read_text("utf-8").count("<circle") == len(runs)


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
