"""What pages say about the notebooks: the line under each title, and the cards of the learning path."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.site.visits import DOCS, NARROW, NOTEBOOKS, ROOT, Visit, load_hook

pytestmark = pytest.mark.site

LEARNING_PATH = (DOCS / "learning-path.md").read_text("utf-8")


@pytest.fixture(scope="module")
def visit(browser) -> Iterator[Visit]:
    with Visit(browser) as visitor:
        yield visitor


def line_of(repository: str | None, number: int = 2) -> str:
    """The line under a notebook's title, in a site with this setting."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri=str(NOTEBOOKS[number])))
    return load_hook("notebook_page").on_page_content("<h1>A</h1>", page, {"repo_url": repository}, None)


def test_links_to_the_repository_come_with_one_setting() -> None:
    assert not re.search("Source|Colab|https?:", line_of(None))
    elsewhere = line_of("https://git.example.org/group/name/")
    name = NOTEBOOKS[2].name
    assert f'href="https://git.example.org/group/name/blob/main/notebooks/{name}">Source<' in elsewhere
    assert "Colab" not in elsewhere
    github = line_of("https://github.com/someone/name")
    assert f'href="https://github.com/someone/name/blob/main/notebooks/{name}">Source<' in github
    assert (
        f'"https://colab.research.google.com/github/someone/name/blob/main/notebooks/{name}">Open in Colab<' in github
    )
    assert not re.search("<img|<script|<iframe", github)


def test_the_theme_does_not_ask_about_the_repository() -> None:
    html = '<a href="https://github.com/a/b" class="md-source" data-md-component="source">b</a>'
    assert "data-md-component" not in load_hook("notebook_page").on_post_page(html, None, None)


@pytest.mark.parametrize("name", list(map(str, NOTEBOOKS)))
def test_a_notebook_can_be_downloaded(site: Path, name: str) -> None:
    html = (site / name.replace(".ipynb", ".html")).read_text("utf-8")
    (line,) = re.findall(r'<p class="nb-line".*?</p>', html)
    assert re.search(r'<a href="([^"]+)" download>', line)[1] == Path(name).name
    assert (site / name).read_bytes() == (ROOT / name).read_bytes()
    assert "<code>make lab</code>" in line and re.search(r"\d+ min</a> to read", line)
    assert not re.search("Source|Colab", line)


def test_times_are_counted(tmp_path: Path) -> None:
    course = load_hook("course")
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["word " * 390]},
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": ["<details><summary>Hint</summary>", "w " * 999, "</details>"],
        },
        {"cell_type": "code", "metadata": {}, "source": ["x = 1\n", "\n"] * 10, "outputs": []},
        {"cell_type": "code", "metadata": {"jupyter": {"source_hidden": True}}, "source": ["y\n"] * 99, "outputs": []},
    ]
    for text in ("## Exercises\n" + "word " * 999, "## What to remember"):
        cells.append({"cell_type": "markdown", "metadata": {}, "source": [text]})
    path = tmp_path / "00_a.ipynb"
    path.write_text(course.json.dumps({"cells": cells}))
    assert course.Notebook(path).minutes == 3  # 390 / 200 + 10 / 20 = 2.45
    assert [course.spelled(n) for n in (0, 25, 60, 100)] == ["0 min", "25 min", "1 h", "1 h 40 min"]


def test_the_picture_is_the_tagged_one_or_the_last(tmp_path: Path) -> None:
    course = load_hook("course")

    def cell(png: str, **metadata: object) -> dict:
        outputs = [{"output_type": "display_data", "data": {"image/png": png}}]
        return {"cell_type": "code", "metadata": metadata, "source": [], "outputs": outputs}

    path = tmp_path / "00_a.ipynb"
    for cells, expected in (
        ([], None),
        ([cell("YQ=="), cell("Yg==", alt=["first", "last"])], (b"b", "last")),
        ([cell("YQ==", tags=["picture"], alt="this"), cell("Yg==")], (b"a", "this")),
    ):
        path.write_text(course.json.dumps({"cells": cells}))
        assert course.Notebook(path).picture == expected


def test_every_notebook_is_a_card_with_its_picture(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + "learning-path.html").page
    cards = page.locator(".course > li")
    assert [card.get_attribute("data-notebook") for card in cards.all()] == [path.name[:2] for path in NOTEBOOKS]
    for card in cards.all():
        card.scroll_into_view_if_needed()
        image = card.locator("img")
        image.evaluate("node => node.decode()")
        assert image.evaluate("node => node.naturalWidth") > 200 and image.get_attribute("alt")
        assert re.fullmatch(r"\d.* to read · runs in .+", card.locator(".course-time").inner_text())
    assert "<!--" not in page.locator(".md-content").inner_text()
    page.set_viewport_size(NARROW)
    assert visit.width() <= NARROW["width"]


@pytest.mark.parametrize(("heading", "most"), [("In two hours", 120), ("In a day", 8 * 60)])
def test_a_path_takes_the_time_that_it_promises(heading: str, most: int) -> None:
    course = load_hook("course")
    section = re.search(rf"^## {heading}\n(.*?)^## ", LEARNING_PATH, re.MULTILINE | re.DOTALL)[1]
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
