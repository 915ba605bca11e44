"""Pages with what stands between their markers renewed.

Markers are HTML comments, which neither the site nor GitHub shows. A block of lines stands between
``<!-- table NAME: WHAT MAKES IT -->`` and ``<!-- end of table NAME -->``; a number in a sentence or a cell between
``<!-- n: REFERENCE -->`` and ``<!-- /n -->``. Neither kind of comment for a number may begin a line: it would begin a
block of HTML there.
"""

import re
from collections.abc import Callable, Mapping

TABLE = re.compile(r"(<!-- table (\S+): [^>]+? -->\n).*?(\n<!-- end of table \2 -->)", re.DOTALL)
BENCH = re.compile(r"(<!-- bench (\S+): make bench -->\n).*?(\n<!-- end of bench \2 -->)", re.DOTALL)
DEMO = re.compile(r"(<!-- demo (table): make results -->\n).*?(\n<!-- end of demo table -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- n: (.+?) -->).*?(<!-- /n -->)")


def with_blocks(text: str, kind: re.Pattern[str], blocks: Mapping[str, str], missing: str) -> str:
    """A page with its blocks of one kind as the results have them.

    Args:
        text: The page.
        kind: :data:`TABLE`, :data:`BENCH` or :data:`DEMO`.
        blocks: What belongs between the markers, by the names that the markers call it.
        missing: Stands in for blocks that no result makes.
    """
    return kind.sub(lambda found: found[1] + blocks.get(found[2], missing) + found[3], text)


def with_numbers(text: str, shown: Callable[[str], str]) -> str:
    """A page with its single numbers as the results have them."""
    return NUMBER.sub(lambda found: found[1] + shown(found[2]) + found[3], text)
