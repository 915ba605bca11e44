"""A table of text, for the terminal and for pages."""

from dataclasses import dataclass

LEFT_OUT = "–"  # an empty cell


@dataclass(frozen=True)
class Table:
    """Text in rows and columns."""

    name: str  # on the pages of the documentation
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()  # such as reasons for empty cells

    def markdown(self) -> str:
        """Title, table and notes in Markdown."""
        lines = [self.headings, ("---", *["---:"] * (len(self.headings) - 1)), *self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join([f"*{self.title}.*", table, *(f"{LEFT_OUT} {note}." for note in self.notes)])
