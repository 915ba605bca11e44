"""Pages on which generated text stands between two HTML comments, which neither the site nor GitHub shows.

A block of lines stands between ``<!-- table NAME: WHAT MAKES IT -->`` and ``<!-- end of table NAME -->``; a number in a
sentence or a cell between ``<!-- n: EXPRESSION -->`` and ``<!-- /n -->``, where the expression is what a Jinja template
has between its braces. A comment for a number must not begin a line: there it would begin a block of HTML.
"""

import re
from collections.abc import Callable, Mapping

TABLE = re.compile(r"(<!-- table (\S+): [^>]+? -->\n).*?(\n<!-- end of table \2 -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- n: (.+?) -->).*?(<!-- /n -->)")


def with_tables(text: str, tables: Mapping[str, str], missing: str) -> str:
    """A page with its tables renewed; ``missing`` stands in for those that the result files do not yield."""
    return TABLE.sub(lambda found: found[1] + tables.get(found[2], missing) + found[3], text)


def with_numbers(text: str, render: Callable[[str], str]) -> str:
    """A page with its single numbers renewed; ``render`` turns a template into text."""
    return NUMBER.sub(lambda found: found[1] + render(f"{{{{ {found[2]} }}}}") + found[3], text)
