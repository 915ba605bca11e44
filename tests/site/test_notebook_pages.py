"""Tests notebook pages: solutions are folded, and comments for the tests are removed."""

import json
import re
from pathlib import Path

import pytest

from tests.site.visits import NOTEBOOKS, ROOT, load_hook

pytestmark = pytest.mark.site

HOOK = load_hook("notebook_cells")


@pytest.mark.parametrize("name", list(map(str, NOTEBOOKS)))
def test_a_page_is_its_notebook_with_folds(site: Path, name: str) -> None:
    assert (site / name).read_bytes() == (ROOT / name).read_bytes()
    html = (site / name.replace(".ipynb", ".html")).read_text("utf-8")
    assert "NBVAL_" not in html
    (line,) = re.findall(r'<p class="nb-line".*?</p>', html)
    assert re.search(r'<a href="([^"]+)" download>', line)[1] == Path(name).name
    assert "<code>make lab</code>" in line and re.search(r"\d+ min</a> to read", line)

    cells = json.loads((ROOT / name).read_text("utf-8"))["cells"]
    hidden, bets = {}, set()
    for cell in cells:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            source = "".join(cell["source"])
            hidden[cell["id"]] = next((said for kind, said in HOOK.EXERCISE.items() if f"# {kind}" in source), "Code")
        if "bet" in cell["metadata"].get("tags", []):
            bets.add(cell["id"])
    assert len(hidden) >= 2
    for part in html.split('id="cell-id=')[1:]:
        key, cell = part.split('"', 1)
        found = re.findall(r'<details class="fold (?!bet)\w+"><summary>(.*?)</summary>', cell)
        assert found == ([hidden[key]] if key in hidden else [])
        assert key not in hidden or cell.index("<details") < cell.index("highlight-ipynb")
        assert ('<details class="fold bet">' in cell) == (key in bets)
