"""Shows the cells of notebooks as a reader needs them.

- Cells whose source the notebook hides, which are the solutions of exercises, are folded together with their output.
  JupyterLab hides the source by itself; mkdocs-jupyter would show it.
- Comments for the tests, such as ``# NBVAL_CHECK_OUTPUT``, are removed.
"""

import json
import re
from pathlib import Path

REMARK = re.compile(r'(?:<span class="c1">)?# NBVAL_[A-Z_]+(?:</span>)?\n')
DIV = re.compile(r"<(/?)div\b[^>]*>")


def on_page_content(html, page, config, files):
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    notebook = json.loads(Path(page.file.abs_src_path).read_text(encoding="utf-8"))
    html = REMARK.sub("", html)
    for cell in notebook["cells"]:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            html = _folded(html, cell)
    return html


def _folded(html, cell):
    tag = re.search(rf'<div\b[^>]*\bid="cell-id={re.escape(cell["id"])}"[^>]*>', html)
    depth = 0
    for div in DIV.finditer(html, tag.start()):
        depth += -1 if div[1] else 1
        if depth == 0:
            break
    inside = html[tag.end() : div.start()]
    name = "Solution" if "# Solution" in "".join(cell["source"]) else "Code"
    fold = f'<details class="solution"><summary>{name}</summary>{inside}</details>'
    return html[: tag.end()] + fold + html[div.start() :]
