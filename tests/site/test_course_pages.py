"""The learning path: a card for every notebook, and correct times."""

import re

import pytest

from tests.site.visits import DOCS, NOTEBOOKS, Visit, load_hook

pytestmark = pytest.mark.site


def test_every_notebook_is_a_card_with_its_picture(visit: Visit) -> None:
    page = visit.open("learning-path.html").page
    cards = page.locator(".course > li")
    assert sorted(card.get_attribute("data-notebook") for card in cards.all()) == [path.name[:2] for path in NOTEBOOKS]
    for card in cards.all():
        image = card.locator("img")
        image.scroll_into_view_if_needed()
        image.evaluate("node => node.decode()")
        assert image.evaluate("node => node.naturalWidth") > 200 and image.get_attribute("alt")
        assert re.fullmatch(r"\d.* to read · runs in .+", card.locator(".course-time").inner_text())
    assert "<!--" not in page.locator(".md-content").inner_text()


def test_a_path_takes_the_time_that_it_promises() -> None:
    course = load_hook("course")
    text = (DOCS / "learning-path.md").read_text("utf-8")
    section = text.partition("\n## In two hours\n")[2].partition("\n## ")[0]
    (numbers,) = re.findall(r"<!-- reading time: ([\d ]+) -->", section)
    minutes = {notebook.number: notebook.minutes for notebook in course.notebooks()}
    assert sum(minutes[number] for number in numbers.split()) <= 120
