"""What pages say about the notebooks: the line under each title, and the cards of the learning path."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.site.visits import DOCS, NOTEBOOKS, Visit, load_hook

pytestmark = pytest.mark.site


def test_links_to_the_repository_come_with_one_setting() -> None:
    hook, name = load_hook("notebook_page"), NOTEBOOKS[2].name

    def line_of(repository: str | None) -> str:
        page = SimpleNamespace(file=SimpleNamespace(src_uri=str(NOTEBOOKS[2])))
        return hook.on_page_content("<h1>A</h1>", page, {"repo_url": repository}, None)

    assert not re.search("Source|Colab|https?:", line_of(None))
    elsewhere, github = line_of("https://git.example.org/group/name/"), line_of("https://github.com/someone/name")
    assert f'href="https://git.example.org/group/name/blob/main/notebooks/{name}">Source<' in elsewhere
    assert "Colab" not in elsewhere
    assert f'href="https://github.com/someone/name/blob/main/notebooks/{name}">Source<' in github
    colab = f"https://colab.research.google.com/github/someone/name/blob/main/notebooks/{name}"
    assert f'"{colab}">Open in Colab<' in github and not re.search("<img|<script|<iframe", github)
    stars = '<a href="https://github.com/a/b" class="md-source" data-md-component="source">b</a>'
    assert "data-md-component" not in hook.on_post_page(stars, None, None)


def test_times_and_pictures_are_those_of_the_cells(tmp_path: Path) -> None:
    course = load_hook("course")

    def read(*cells: dict) -> object:
        (tmp_path / "00_a.ipynb").write_text(json.dumps({"cells": [{"metadata": {}} | cell for cell in cells]}))
        return course.Notebook(tmp_path / "00_a.ipynb")

    def words(*source: str) -> dict:
        return {"cell_type": "markdown", "source": source}

    def drawn(png: str, **metadata: object) -> dict:
        outputs = [{"output_type": "display_data", "data": {"image/png": png}}]
        return {"cell_type": "code", "metadata": metadata, "source": [], "outputs": outputs}

    notebook = read(
        words("word " * 390),
        words("<details><summary>Hint</summary>", "w " * 999, "</details>"),
        {"cell_type": "code", "source": ["x = 1\n", "\n"] * 10},
        {"cell_type": "code", "source": ["y\n"] * 99, "metadata": {"jupyter": {"source_hidden": True}}},
        words("## Exercises\n", "word " * 999),
        words("## What to remember"),
    )
    assert notebook.minutes == 3 and notebook.picture is None  # 390 / 200 + 10 / 20 = 2.45
    assert read(drawn("YQ=="), drawn("Yg==", alt=["first", "last"])).picture == (b"b", "last")
    assert read(drawn("YQ==", tags=["picture"], alt="this"), drawn("Yg==")).picture == (b"a", "this")
    assert [course.spelled(n) for n in (0, 25, 60, 100)] == ["0 min", "25 min", "1 h", "1 h 40 min"]


def test_every_notebook_is_a_card_with_its_picture(visit: Visit) -> None:
    page = visit.open("learning-path.html").page
    cards = page.locator(".course > li")
    assert [card.get_attribute("data-notebook") for card in cards.all()] == [path.name[:2] for path in NOTEBOOKS]
    for card in cards.all():
        image = card.locator("img")
        image.scroll_into_view_if_needed()
        image.evaluate("node => node.decode()")
        assert image.evaluate("node => node.naturalWidth") > 200 and image.get_attribute("alt")
        assert re.fullmatch(r"\d.* to read · runs in .+", card.locator(".course-time").inner_text())
    assert "<!--" not in page.locator(".md-content").inner_text()


@pytest.mark.parametrize(("heading", "most"), [("In two hours", 120), ("In a day", 8 * 60)])
def test_a_path_takes_the_time_that_it_promises(heading: str, most: int) -> None:
    course = load_hook("course")
    text = (DOCS / "learning-path.md").read_text("utf-8")
    section = re.search(rf"^## {heading}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    (numbers,) = re.findall(r"<!-- reading time: ([\d ]+) -->", section)
    minutes = {notebook.number: notebook.minutes for notebook in course.notebooks()}
    exercises = course.MINUTES_PER_EXERCISE * len(numbers.split()) if "one exercise in each" in section else 0
    assert sum(minutes[number] for number in numbers.split()) + exercises <= most
    words = "zero one two three four five six seven eight nine ten".split()
    assert section.split()[0].lower() == words[len(numbers.split())]


def test_swatches_are_the_colours_of_the_figures(site: Path) -> None:
    from sbmt.experiments.plots import style

    html = (site / "notation.html").read_text("utf-8")
    assert f'style="background: {style.BLUE}" aria-hidden="true"></i>blue</td>' in html
    assert 'style="background: linear-gradient(90deg, #ffffff' in html
    assert not re.search(r"<code>(BLUE|INK)</code>", html)
