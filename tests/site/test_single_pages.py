"""Tests single pages: the landing page, the API, the learning path, and the texts that a search shows."""

import importlib
import re
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from results.claims import n_claims
from sbmt import __version__
from tests.site.visits import DOCS, NOTEBOOKS, ROOT, Visit, load_hook

pytestmark = pytest.mark.site


def test_the_landing_page_counts_claims(site: Path) -> None:
    html = (site / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<!--.*?-->|<[^>]*>", "", html, flags=re.DOTALL).split())
    said = r"(\d+) of the paper's claims: (\d+) hold, (\d+) are wrong or need \w+, (\d+) rest on a wrong \w+, and (\d+)"
    groups = ("all", "reproduced", "conclusion", "proof", "open")
    assert [int(n) for n in re.search(said, text).groups()] == [n_claims(group) for group in groups]


def test_the_first_command_installs_what_the_site_offers(site: Path) -> None:
    """The page installs the wheel that the site offers, without a copy of the repository."""
    text = (DOCS / "index.md").read_text("utf-8")
    wheel = re.search(r'```console\npip install "(.+?\.whl)\[train,plots\]"\nsbmt demo\n```', text)[1]
    assert f"](downloads/{wheel})" in text
    with ZipFile(site / "downloads" / wheel) as archive:
        assert {"sbmt/__init__.py", "sbmt/kernels/loops/draw_exact.cpp"} <= set(archive.namelist())
    with tarfile.open(site / "downloads" / f"sbmt-{__version__}.tar.gz") as archive:
        assert f"sbmt-{__version__}/Makefile" in archive.getnames()


def test_every_public_name_is_documented(site: Path) -> None:
    """Everything in an ``__all__`` is on an API page, under one of the names by which it can be imported."""
    pages = [page.read_text("utf-8") for page in (site / "api").glob("*.html")]
    anchors = {anchor for page in pages for anchor in re.findall(r'id="((?:sbmt|theory)\.[\w.]+)"', page)}
    missing, n_names = [], 0
    for path in [*(ROOT / "sbmt").rglob("*.py"), *(ROOT / "theory").rglob("*.py")]:
        if not re.search(r"^__all__ =", path.read_text("utf-8"), re.MULTILINE):
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        for public in module.__all__:
            thing, above = getattr(module, public), name.rpartition(".")[0]
            home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
            below = any(anchor.startswith(f"{name}.") and anchor.endswith(f".{public}") for anchor in anchors)
            if not ({f"{name}.{public}", f"sbmt.{public}", f"{above}.{public}", home} & anchors or below):
                missing.append(f"{name}.{public}")
            n_names += 1
    assert missing == [] and n_names > 50


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


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        (r"<p>\(n \cdot k\) memberships, \(\operatorname{sg}(p)\)</p>", {}, "<p>n · k memberships, …</p>"),
        (r"\[h_i = \sum_j\] is read", {}, "… is read"),
        (r"<code>\(n\)</code>", {}, r"<code>\(n\)</code>"),
        ("costs $n^2$", {}, "costs $n^2$"),
        ("costs $n^2$, $$x$$", {"is_notebook": True}, "costs n2, …"),
        (r"<pre>''' $n \cdot k$ and $\frac12$ '''</pre>", {"is_api": True}, "<pre>''' n · k and … '''</pre>"),
    ],
)
def test_search_shows_no_tex(text: str, kind: dict[str, bool], found: str) -> None:
    assert load_hook("search_maths").without_maths(text, **kind) == found
