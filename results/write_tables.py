"""Writes the tables and numbers in README.md and the site's pages from the result files.

The text between ``<!-- {{ EXPRESSION }} -->`` and ``<!-- end -->`` is the value of the expression, a Jinja template. It
is a number in a sentence, or a table on separate lines. The expression may call the functions of
:mod:`results.lookup`, :mod:`results.tables` and :mod:`results.claims`, and the macros of ``tables.jinja`` and
``claims.jinja``. The comment before a number must not begin a line, since it would start a block of HTML there.

``python results/write_tables.py`` rewrites the pages. With ``--check``, it exits with 1 if a page is stale.
"""

import re
import sys
from pathlib import Path

from results import claims, lookup, tables
from results.lookup import ENVIRONMENT, ROOT, render
from sbmt.command import run_command
from sbmt.experiments.files import write_bytes

MARKED = re.compile(r"(<!-- (\{\{[^\n]+?\}\}) -->\n?).*?(\n?<!-- end -->)", re.DOTALL)
ENVIRONMENT.globals |= vars(tables) | vars(claims) | vars(lookup)
for name in ("titles.jinja", "tables.jinja", "claims.jinja"):
    ENVIRONMENT.globals |= vars(ENVIRONMENT.get_template(name).module)


def renewed(text: str) -> str:
    """Returns the text of a page, with the current numbers and tables from the result files."""
    return MARKED.sub(lambda found: found[1] + render(found[2]) + found[3], text)


def stale_pages() -> dict[Path, str]:
    """Returns the pages that do not match the result files, with their correct text."""
    pages = {page: page.read_text("utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))}
    new = {page: renewed(text) for page, text in pages.items()}
    return {page: text for page, text in new.items() if text != pages[page]}


def main() -> None:
    """Rewrites or checks every page."""
    stale = stale_pages()
    if stale and "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(page.name for page in stale)}; run python results/write_tables.py")
    for page, text in stale.items():
        write_bytes(page, text.encode())


if __name__ == "__main__":
    run_command(main, "write_tables")
