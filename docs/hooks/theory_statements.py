"""Fills ``theory.md`` from the statements themselves and from what they found (results/theory.json).

A statement without a result, or a result without a statement, is a warning, which fails the strict build.
"""

import json
import logging
from pathlib import Path

LOG = logging.getLogger("mkdocs.plugins.theory_statements")
ROOT = Path(__file__).parent.parent.parent
MARK = "<!-- theory statements -->"


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri != "theory.md":
        return markdown
    from theory.report import GRADES
    from theory.statements import STATEMENTS

    found = {row["name"]: row for row in json.loads((ROOT / "results" / "theory.json").read_text("utf-8"))}
    if set(found) != {statement.name for statement in STATEMENTS}:
        LOG.warning("results/theory.json is stale: run python -m theory --json results/theory.json")
    parts = []
    for grade, meaning in GRADES.items():
        chosen = [statement for statement in STATEMENTS if statement.grade == grade]
        parts += [f"## {grade.capitalize()}: {meaning}", ""]
        for statement in chosen:
            row = found.get(statement.name, {"shown": "not run", "outcome": "not run"})
            parts += [
                f"### {statement.name}",
                "",
                f"**Said or needed:** {statement.claim.removeprefix('(needed) ')}.",
                "",
                f"**True:** {statement.verdict}.",
                "",
                f"**Found:** {row['shown']} — *{row['outcome']}* ({statement.evidence}; {statement.reach}).",
                f"By `{statement.function}`, tested in `tests/theory/test_statements.py`.",
                "",
            ]
    return markdown.replace(MARK, "\n".join(parts))
