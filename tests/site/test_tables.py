"""Names at the start of table rows are not squeezed into a column of single words."""

import re

import pytest

from tests.site.visits import NARROW, Visit, load_hook

pytestmark = pytest.mark.site

LINES = """nodes => nodes.map(node => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const height = range.getBoundingClientRect().height / parseFloat(getComputedStyle(node).lineHeight);
    return [node.textContent.trim(), Math.round(height)];
})"""


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("<td>SST-2</td>", "short"),
        ('<td style="text-align: right;">1 × 1024²</td>', "short"),
        ("<td>a<code>&lt;b&gt;</code><em>c</em> of 22 letters no</td>", "short"),
        ("<td>a name of more than that</td>", "long"),
    ],
)
def test_first_cells_are_told_apart(cell: str, kind: str) -> None:
    html = f"<table><tr>\n<th>x</th></tr><tr>\n{cell}\n<td>y</td>\n</tr></table>"
    marked = load_hook("table_names").on_page_content(html, None, None, None)
    assert marked == html.replace("<td", f'<td class="name-{kind}"', 1)


def test_second_cells_are_names_where_columns_are_many() -> None:
    def marked(*cells: str) -> list[str | None]:
        row = "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        html = load_hook("table_names").on_page_content(row, None, None, None)
        return [kind or None for kind in re.findall(r"<td(?: class=\"name-(\w+)\")?>", html)]

    assert marked("Text", "SBM", "a", "b", "c", "d") == ["short", "short", None, None, None, None]
    assert marked("Text", "random mask, SBM's density", *"abcd")[:2] == ["short", "long"]
    assert marked("Text", "0.5", *"abcd")[:2] == ["short", None]
    assert marked("Text", "SBM", "a") == ["short", None, None]


def test_names_are_not_squeezed(browser, quick_address: str) -> None:
    with Visit(browser) as visit:
        for name in ("synthetic.html", "language.html", "long-range.html", "benchmarks.html"):
            page = visit.open(quick_address + name).page
            cells = page.eval_on_selector_all("article td.name-short, article td.name-long", LINES)
            assert [text for text, n_lines in cells if n_lines > 2 and len(text) <= 40] == []
            page.set_viewport_size(NARROW)
            cells = page.eval_on_selector_all("article td.name-short", LINES)
            assert len(cells) > 3 and [text for text, n_lines in cells if n_lines > 1] == []
            assert visit.width() <= NARROW["width"]
