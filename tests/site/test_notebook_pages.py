"""Notebooks as the site shows them: solutions folded, remarks for the tests left out, printed tables with columns."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.site.visits import NARROW, NOTEBOOKS, ROOT, WIDE, Visit, load_hook

pytestmark = pytest.mark.site

SUMMARIES = load_hook("notebook_cells").EXERCISE


@pytest.fixture(scope="module")
def visit(browser) -> Iterator[Visit]:
    with Visit(browser) as visitor:
        yield visitor


def hidden_cells(name: str) -> list[dict]:
    cells = json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["metadata"].get("jupyter", {}).get("source_hidden")]


def summary_of(cell: dict) -> str:
    source = "".join(cell["source"])
    return next((said for kind, said in SUMMARIES.items() if f"# {kind}" in source), "Code")


def test_a_cell_is_folded_with_what_it_prints(tmp_path) -> None:
    hidden = {"id": "b.1", "metadata": {"jupyter": {"source_hidden": True}}, "source": ["# Solution\n", "1"]}
    shown = {"id": "b", "metadata": {}, "source": ["# Check"]}
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": [shown, hidden]}), encoding="utf-8")
    remark = '<span class="c1"># NBVAL_CHECK_OUTPUT</span>\n'
    before = f'<div id="cell-id=b"><pre><span></span>{remark}# Check</pre></div>'
    inside = "<div><div>1</div></div><div>printed</div>"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.ipynb", abs_src_path=str(path)))
    html = load_hook("notebook_cells").on_page_content(
        f'{before}<div id="cell-id=b.1">{inside}</div><p></p>', page, None, None
    )
    assert html == (
        '<div id="cell-id=b"><pre><span></span># Check</pre></div><div id="cell-id=b.1">'
        f'<details class="fold solution"><summary>Solution</summary>{inside}</details></div><p></p>'
    )


OUTPUT = '<div class="jp-Cell-outputWrapper"><div><img alt="none" src="x"></div></div>'
INPUT = '<div class="jp-Cell-inputWrapper" tabindex="0"><div>plot()</div></div>'


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"tags": ["bet"]}, f'{INPUT}<details class="fold bet"><summary>{{BET}}</summary>{OUTPUT}</details>'),
        (
            {"jupyter": {"source_hidden": True}},
            f'<details class="fold code"><summary>Code</summary>{INPUT}</details>{OUTPUT}',
        ),
        ({"alt": 'A "mask"'}, INPUT + OUTPUT.replace("none", "A &quot;mask&quot;")),
    ],
)
def test_what_else_a_cell_asks_for(metadata, expected) -> None:
    hook = load_hook("notebook_cells")
    html = hook._shown(INPUT + OUTPUT, {"metadata": metadata, "source": ["plot()"]})
    assert html == expected.replace("{BET}", hook.BET)


@pytest.mark.parametrize("name", list(map(str, NOTEBOOKS)))
def test_solutions_are_folded(site: Path, name: str) -> None:
    html = (site / name.replace(".ipynb", ".html")).read_text(encoding="utf-8")
    cells = dict(part.split('"', 1) for part in html.split('id="cell-id=')[1:])
    hidden = {cell["id"]: summary_of(cell) for cell in hidden_cells(name)}
    assert len(hidden) >= 2
    for key, cell in cells.items():
        found = re.findall(r'<details class="fold (?!bet)\w+"><summary>(.*?)</summary>', cell)
        assert found == ([hidden[key]] if key in hidden else [])
        assert key not in hidden or cell.index("<details") < cell.index("highlight-ipynb")


def test_a_fold_is_opened_by_mouse_and_keys(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + str(NOTEBOOKS[4].with_suffix(".html"))).page
    for kind in ("solution", "check", "code"):
        fold = page.locator(f"details.{kind}").first
        code, summary = fold.locator(".highlight-ipynb"), fold.locator("summary")
        assert not code.is_visible()
        summary.click()
        assert code.is_visible()
        for is_open in (False, True):
            page.keyboard.press("Enter")
            assert code.is_visible() == is_open


@pytest.mark.parametrize("name", list(map(str, NOTEBOOKS)))
def test_remarks_for_the_tests_are_left_out(site, name: str) -> None:
    assert "NBVAL_CHECK_OUTPUT" in (ROOT / name).read_text(encoding="utf-8")
    html = (site / name.replace(".ipynb", ".html")).read_text(encoding="utf-8")
    assert "NBVAL_" not in html


@pytest.mark.parametrize("number", ["07", "11", "12"])
def test_printed_tables_keep_their_lines(visit: Visit, quick_address: str, number: str) -> None:
    (name,) = (str(path) for path in NOTEBOOKS if path.name.startswith(number))
    page = visit.open(quick_address + name.replace(".ipynb", ".html")).page
    page.set_viewport_size(NARROW)
    boxes = page.eval_on_selector_all(
        ".jp-RenderedText pre",
        """nodes => nodes.map(node => {
            const style = getComputedStyle(node), lines = node.textContent.trimEnd().split("\\n").length;
            const room = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
            return [lines, (node.clientHeight - room) / parseFloat(style.lineHeight),
                    node.scrollWidth > node.clientWidth, style.overflowX];
        })""",
    )
    assert all(height < lines + 1 for lines, height, _, _ in boxes)
    assert any(is_wide for *_, is_wide, _ in boxes)
    assert {overflow for *_, overflow in boxes} == {"auto"}


def test_a_hundred_characters_of_code_are_in_sight(visit: Visit, quick_address: str) -> None:
    page = visit.open(quick_address + str(NOTEBOOKS[4].with_suffix(".html"))).page
    room, hundred = page.eval_on_selector(
        ".jp-CodeCell > .jp-Cell-inputWrapper pre",
        """node => {
            const style = getComputedStyle(node), line = document.createElement("span");
            line.textContent = "0".repeat(100);
            node.append(line);
            const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
            return [node.clientWidth - padding, line.getBoundingClientRect().width];
        }""",
    )
    assert hundred <= room
    prose = page.eval_on_selector(".jp-RenderedMarkdown p", "node => node.getBoundingClientRect().width")
    assert prose < room and visit.width() <= WIDE["width"]
