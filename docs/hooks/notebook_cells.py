"""Folds and cleans the cells of notebooks for readers.

- Solutions and checks of exercises, whose source the notebook hides, are folded together with their output. In other
  cells with a hidden source, such as those that only plot, only the source is folded.
- The output of a cell tagged ``bet`` is folded, because the reader is asked for a prediction first.
- Figures get the cell's ``alt`` as their alternative text.
- Comments for the tests, such as ``# NBVAL_CHECK_OUTPUT``, are removed.
"""

import json
import re
from html import escape
from pathlib import Path

REMARK = re.compile(r'(?:<span class="c1">)?# NBVAL_[A-Z_]+(?:</span>)?\n')
DIV = re.compile(r"<(/?)div\b[^>]*>")
INPUT = re.compile(r'<div\b[^>]*\bclass="[^"]*\bjp-Cell-inputWrapper\b[^>]*>')
OUTPUT = re.compile(r'<div\b[^>]*\bclass="[^"]*\bjp-Cell-outputWrapper\b[^>]*>')
ALT = re.compile(r'(<img\b[^>]*?\balt=")[^"]*(")')
BET = "Make your prediction, then open"
EXERCISE = {"Solution": "Solution", "Check": "How your answer is judged (spoiler)"}  # remark, summary of its fold


def on_page_content(html, page, config, files):
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    notebook = json.loads(Path(page.file.abs_src_path).read_text(encoding="utf-8"))
    done, rest = [], REMARK.sub("", html)
    for cell in notebook["cells"]:
        before, inside, rest = _split(rest, rf'<div\b[^>]*\bid="cell-id={re.escape(cell["id"])}"[^>]*>')
        done += [before, _shown(inside, cell)]
    return "".join([*done, rest])


def _shown(html, cell):
    """The content of a cell's element, with the appropriate parts folded."""
    metadata, source = cell["metadata"], "".join(cell["source"])
    if "alt" in metadata:
        texts = metadata["alt"] if isinstance(metadata["alt"], list) else [metadata["alt"]]
        rest = iter(texts)
        html = ALT.sub(lambda match: match[1] + escape(next(rest, texts[-1])) + match[2], html)
    if "bet" in metadata.get("tags", []):
        html = _fold(html, OUTPUT, BET, "bet")
    if metadata.get("jupyter", {}).get("source_hidden"):
        kind = next((name for name in EXERCISE if f"# {name}" in source), None)
        html = _details(html, EXERCISE[kind], kind.lower()) if kind else _fold(html, INPUT, "Code", "code")
    return html


def _fold(html, part, summary, kind):
    if not re.search(part, html):
        return html
    start = re.search(part, html).start()
    end = len(html) - len(_split(html, part)[2]) + len("</div>")
    return html[:start] + _details(html[start:end], summary, kind) + html[end:]


def _details(inside, summary, kind):
    return f'<details class="fold {kind}"><summary>{summary}</summary>{inside}</details>'


def _split(html, opening):
    """The text before, inside and after the first element with this opening tag; its tags belong to the outer parts."""
    tag = re.search(opening, html)
    depth = 0
    for div in DIV.finditer(html, tag.start()):
        depth += -1 if div[1] else 1
        if depth == 0:
            return html[: tag.end()], html[tag.end() : div.start()], html[div.start() :]
    raise ValueError(f"an element without an end: {tag[0]}")
