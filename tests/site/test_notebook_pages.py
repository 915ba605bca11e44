"""Notebooks as the site shows them: solutions folded, remarks for the tests left out, printed tables with columns."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.site.visits import NARROW, NOTEBOOKS, ROOT, WIDE, Visit, load_hook

pytestmark = pytest.mark.site

HOOK = load_hook("notebook_cells")
INPUT = '<div class="jp-Cell-inputWrapper" tabindex="0"><div># Check</div></div>'
OUTPUT = '<div class="jp-Cell-outputWrapper"><div><img alt="none" src="x"></div></div>'


@pytest.mark.parametrize(
    ("metadata", "source", "expected"),
    [
        ({}, "# Check", INPUT + OUTPUT),
        (
            {"jupyter": {"source_hidden": True}},
            "# NBVAL_CHECK_OUTPUT\n# Check",
            f'<details class="fold check"><summary>{HOOK.EXERCISE["Check"]}</summary>{INPUT}{OUTPUT}</details>',
        ),
        (
            {"jupyter": {"source_hidden": True}},
            "plot()",
            f'<details class="fold code"><summary>Code</summary>{INPUT}</details>{OUTPUT}',
        ),
        ({"tags": ["bet"]}, "", f'{INPUT}<details class="fold bet"><summary>{HOOK.BET}</summary>{OUTPUT}</details>'),
        ({"alt": 'A "mask"'}, "", INPUT + OUTPUT.replace("none", "A &quot;mask&quot;")),
    ],
)
def test_what_a_cell_asks_for(tmp_path: Path, metadata: dict, source: str, expected: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": [{"id": "b.1", "metadata": metadata, "source": [source]}]}), "utf-8")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.ipynb", abs_src_path=str(path)))
    remark = '<span class="c1"># NBVAL_CHECK_OUTPUT</span>\n'
    before, after = '<p><b></b></p><div id="cell-id=b.1">', "</div><p></p>"
    html = HOOK.on_page_content(before + INPUT.replace("#", remark + "#") + OUTPUT + after, page, None, None)
    assert html == before + expected + after


@pytest.mark.parametrize("name", list(map(str, NOTEBOOKS)))
def test_a_page_is_its_notebook_with_folds(site: Path, name: str) -> None:
    assert (site / name).read_bytes() == (ROOT / name).read_bytes()
    html = (site / name.replace(".ipynb", ".html")).read_text("utf-8")
    assert "NBVAL_" not in html
    (line,) = re.findall(r'<p class="nb-line".*?</p>', html)
    assert re.search(r'<a href="([^"]+)" download>', line)[1] == Path(name).name
    assert "<code>make lab</code>" in line and re.search(r"\d+ min</a> to read", line)

    hidden = {}
    for cell in json.loads((ROOT / name).read_text("utf-8"))["cells"]:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            source = "".join(cell["source"])
            hidden[cell["id"]] = next((said for kind, said in HOOK.EXERCISE.items() if f"# {kind}" in source), "Code")
    assert len(hidden) >= 2
    for part in html.split('id="cell-id=')[1:]:
        key, cell = part.split('"', 1)
        found = re.findall(r'<details class="fold (?!bet)\w+"><summary>(.*?)</summary>', cell)
        assert found == ([hidden[key]] if key in hidden else [])
        assert key not in hidden or cell.index("<details") < cell.index("highlight-ipynb")


def test_a_fold_is_opened_by_mouse_and_keys_and_code_has_room(visit: Visit) -> None:
    page = visit.open(str(NOTEBOOKS[4].with_suffix(".html"))).page
    for kind in ("solution", "check", "code"):
        fold = page.locator(f"details.{kind}").first
        code, summary = fold.locator(".highlight-ipynb"), fold.locator("summary")
        assert not code.is_visible()
        summary.click()
        assert code.is_visible()
        for is_open in (False, True):
            page.keyboard.press("Enter")
            assert code.is_visible() == is_open
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


def test_printed_tables_keep_their_lines(visit: Visit) -> None:
    page = visit.open(str(NOTEBOOKS[12].with_suffix(".html"))).page
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
