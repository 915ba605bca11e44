"""Names at the start of table rows are told apart by their length; that none is squeezed, every page is asked."""

import re

import pytest

from tests.site.visits import load_hook

pytestmark = pytest.mark.site


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["SST-2", "y"], ["short", None]),
        (['style="text-align: right;">1 × 1024²', "y"], ["short", None]),
        (["a<code>&lt;b&gt;</code><em>c</em> of 22 letters no", "y"], ["short", None]),
        (["a name of more than that", "y"], ["long", None]),
        (["Text", "SBM", "a"], ["short", None, None]),
        (["Text", "SBM", *"abcd"], ["short", "short", None, None, None, None]),  # where columns are many
        (["Text", "random mask, SBM's density", *"abcd"], ["short", "long", None, None, None, None]),
        (["Text", "0.5", *"abcd"], ["short", None, None, None, None, None]),
    ],
)
def test_names_are_told_apart(cells: list[str], expected: list[str | None]) -> None:
    html = "".join(f"<td {cell}</td>" if cell.startswith("style") else f"<td>{cell}</td>" for cell in cells)
    html = f"<table><tr>\n<th>x</th></tr><tr>\n{html}\n</tr></table>"
    marked = load_hook("table_names").on_page_content(html, None, None, None)
    assert [kind or None for kind in re.findall(r'<td(?: class="name-(\w+)")?', marked)] == expected
    assert re.sub(r' class="name-\w+"', "", marked) == html


def test_the_site_asks_for_it(site) -> None:
    assert (site / "benchmarks.html").read_text("utf-8").count('<td class="name-short"') > 10
    assert '<code class="option">--quirks</code>' in (site / "long-range.html").read_text("utf-8")
