"""Tables in Markdown, and cells of several of them."""

from collections.abc import Iterable, Sequence
from statistics import median


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


def points(share: float, error: float) -> str:
    """A difference of shares in points, with its standard error."""
    return f"{100 * share:.1f} ± {100 * error:.1f}"


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Median and range."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
