"""Fills the table of ``theory.md`` from the statements and their results (results/theory.json).

A statement without a result, or a result without a statement, is a warning, which fails the strict build.
"""

import json
import logging
from pathlib import Path

from markdown.extensions.toc import slugify

LOG = logging.getLogger("mkdocs.plugins.theory_statements")
ROOT = Path(__file__).parent.parent.parent
MARK = "<!-- theory statements -->"
HEAD = "| Claim, as printed or needed | What holds | What the check finds, and its evidence |\n|---|---|---|"


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri != "theory.md":
        return markdown
    from theory.report import GRADES
    from theory.statements import STATEMENTS

    found = {row["name"]: row for row in json.loads((ROOT / "results" / "theory.json").read_text("utf-8"))}
    if set(found) != {statement.name for statement in STATEMENTS}:
        LOG.warning("results/theory.json is stale: run python -m theory --json results/theory.json")
    lines = [HEAD]
    for grade, meaning in GRADES.items():
        lines.append(f"| **{grade.capitalize()}: {meaning}** | | |")
        for statement in (one for one in STATEMENTS if one.grade == grade):
            row = found.get(statement.name, {"shown": "not run", "outcome": "not run"})
            place, claim = slugify(statement.name, "-"), statement.claim.replace("(needed)", "*needed:*")
            outcome = "" if row["outcome"] == "as stated" else f" ({row['outcome']})"
            cells = (
                f'<a id="{place}"></a>**{statement.name}**: {claim}',
                statement.verdict,
                f"{row['shown']}{outcome}. *{statement.evidence.capitalize()}:* {statement.reach}",
            )
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;').replace('{', '&#123;') for cell in cells)} |")
    return markdown.replace(MARK, "\n".join(lines))
