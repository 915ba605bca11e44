"""A table of text, for the terminal and for pages."""

from dataclasses import dataclass

LEFT_OUT = "–"


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        name: Its name on the pages of the documentation.
        title: One line.
        headings: One per column.
        rows: Cells, as many per row as there are headings.
        notes: Remarks below the table, such as why a cell is empty.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Title, table and notes in Markdown."""
        lines = [self.headings, tuple("---:" if i else "---" for i in range(len(self.headings))), *self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join([f"*{self.title}.*", table, *(f"{LEFT_OUT} {note}." for note in self.notes)])
