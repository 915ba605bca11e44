"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def grid(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown.

    Example:
        >>> print(grid(("n", "time"), [(1, "2 s")]))
        | n | time |
        |---|---|
        | 1 | 2 s |
    """
    first = "".join(f" {heading} |" if heading != "" else " |" for heading in headings)
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in rows]
    return "\n".join([f"|{first}", "|---" * len(headings) + "|", *lines])
