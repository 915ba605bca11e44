"""What one trained model does with single test examples of its task, in one figure."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from textwrap import wrap as wrap_words

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from sbmt.experiments.plots.attended import AttendedDocument, Inspection
from sbmt.experiments.plots.attended_text import (
    ADVANCE,
    LINE,
    byte_glyph,
    listops_glyph,
    plot_attended_text,
    stretch,
    word_glyph,
    wrap,
)
from sbmt.experiments.plots.densities import (
    difficulty_measures,
    plot_density_bars,
    plot_density_over,
    plot_in_degrees,
    plot_input_image,
)
from sbmt.experiments.plots.save import figure_format, saved_figure
from sbmt.experiments.training.run import Run

MOST_TOKENS = 1200  # shown of a text
MOST_WORDS = 300  # the same where tokens are words or parts of words
_WIDTH = 8.0  # inches: about the width of a page, so that letters keep their size
_BARS, _DOTS = 2.3, 2.0  # inches: height of the row of bars and of the row of dots below it
_TITLE, _TITLE_LINE = 0.25, 0.2  # inches above an example, and for each line of its title
_TITLE_COLUMNS = 92  # characters per line of a title
_MEASURES = 3  # of difficulty, side by side
_MAPS = 3  # side by side
_COLUMNS = 84  # characters per line of a text
_LINE_HEIGHT = (_WIDTH - 0.25) / _COLUMNS * LINE / ADVANCE  # inches


@dataclass(frozen=True)
class _Part:
    """A part of the figure: one document as every head sees it."""

    title: str
    height: float  # inches, without the title
    draw: Callable[[SubFigure], None]


def draw_long_range_inspection(inspection: Inspection, path: Path, query: int | None = None) -> None:
    """Writes a figure: densities above, what is attended in the least and the most dense example below.

    Densities are shown per layer and head, and against measures of an example's difficulty. Images are shown beside a
    map per head, texts once per head; the shade of a pixel or token is the share of queries that attend it, on a scale
    that a head has in all examples of the figure.

    Texts underline the keys of the query at one position, which is chosen in each if it is not given.

    Raises:
        SbmtError: If the format is unknown, or there is no such position.

    Paper: Figures 5, 7 and 8.
    """
    figure_format(path)
    seen = {example: inspection.see(example, query) for example in inspection.lowest_and_highest()}
    shown = [(example, number) for example, documents in seen.items() for number in range(len(documents))]
    upper = np.max([seen[x][number].in_degrees.amax(2).numpy() for x, number in shown], 0)  # layers heads
    upper[upper == 0] = 1.0
    part_of = _map_part if inspection.run.config.is_image else _text_part
    parts = [part_of(inspection, example, seen[example], number, upper) for example, number in shown]
    measures: dict[str, NDArray[np.float64]] = {}
    if np.ptp(inspection.densities):
        found = difficulty_measures(inspection.per_example.extras, inspection.lengths)
        measures = dict(list(found.items())[:_MEASURES])
    titles = [wrap_words(part.title, _TITLE_COLUMNS) for part in parts]
    heights = [_BARS + (_DOTS if measures else 0)]
    heights += [_TITLE + _TITLE_LINE * len(title) + part.height for title, part in zip(titles, parts, strict=True)]
    with saved_figure(path, _WIDTH, sum(heights)) as figure:
        bars, *others = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        _draw_densities(bars, inspection, measures)
        for title, part, place in zip(titles, parts, others, strict=True):
            place.suptitle("\n".join(title), x=0.008, ha="left", fontsize=9.5)
            part.draw(place)


def _draw_densities(figure: SubFigure, inspection: Inspection, measures: dict[str, NDArray[np.float64]]) -> None:
    """Bars per layer and head; below them each example's density against measures of its difficulty."""
    heights = [_BARS, _DOTS] if measures else [_BARS]
    rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
    plot_density_bars(rows[0, 0].subplots(), inspection.per_example.densities)
    if measures:
        axes = rows[1, 0].subplots(1, len(measures), squeeze=False)[0]
        for ax, (name, measure) in zip(axes, measures.items(), strict=True):
            plot_density_over(ax, inspection.densities, measure, name)
        axes[0].set_ylabel("density")


def _map_part(
    inspection: Inspection, example: int, documents: list[AttendedDocument], number: int, upper: NDArray[np.float32]
) -> _Part:
    """The image, then how often each head attends each pixel."""
    document, first_id = documents[number], inspection.run.about["data"]["first_id"]

    def draw(figure: SubFigure) -> None:
        axes = _grid(figure, 1 + upper.size, columns)
        plot_input_image(axes[0], document.tokens, first_id)
        axes[0].set_title("input")
        for ax, head in zip(axes[1:], np.ndindex(upper.shape), strict=True):
            plot_in_degrees(ax, document.in_degrees[head], float(upper[head]))
            ax.set_title(_head_title(document, head), fontsize=9)

    columns = min(1 + upper.size, _MAPS)
    height = min(2.7, _WIDTH / columns) * ceil((1 + upper.size) / columns)
    title = f"{_title(inspection, example, number, documents)}; maps: share of the queries that attend a pixel"
    return _Part(title, height, draw)


def _text_part(
    inspection: Inspection, example: int, documents: list[AttendedDocument], number: int, upper: NDArray[np.float32]
) -> _Part:
    """The text once per head, shaded by how often each token is attended."""
    document, glyph = documents[number], _glyph_of(inspection.run)
    most = MOST_TOKENS if inspection.run.tokenizer is None else MOST_WORDS
    shown = stretch(len(document.tokens), document.query, most // len(documents))
    glyphs = [glyph(token) for token in document.tokens[shown.start : shown.stop].tolist()]
    n_lines = wrap(glyphs, _COLUMNS)[-1][0] + 1

    def draw(figure: SubFigure) -> None:
        axes = _grid(figure, upper.size, 1)
        for ax, head in zip(axes, np.ndindex(upper.shape), strict=True):
            plot_attended_text(
                ax,
                glyphs,
                document.in_degrees[head][shown.start : shown.stop],
                document.is_attended[head][shown.start : shown.stop],
                document.query - shown.start,
                upper=float(upper[head]),
                width=_COLUMNS,
            )
            scale = f"darkest: {upper[head]:.3f} of the queries"
            ax.set_title(f"{_head_title(document, head)}, {scale}", fontsize=9)

    height = (0.34 + n_lines * _LINE_HEIGHT) * upper.size
    title = _title(inspection, example, number, documents)
    if len(shown) < len(document.tokens):
        title += f", tokens {shown.start:,} to {shown.stop - 1:,} of {len(document.tokens):,}"
    title += f"; boxed: query {document.query:,}, underlined: what it attends"
    return _Part(title, height, draw)


def _glyph_of(run: Run) -> Callable[[int], str]:
    """How the tokens of a task are written; padding, of which an empty text has one token, is blank."""
    if (tokenizer := run.tokenizer) is not None:
        return lambda token: word_glyph(tokenizer.glyph(token))
    symbol_glyph = listops_glyph if run.config.task == "listops" else byte_glyph
    first_id = run.about["data"]["first_id"]
    return lambda token: symbol_glyph(token - first_id) if token >= first_id else " "


def _grid(figure: SubFigure, n: int, n_columns: int) -> list[Axes]:
    """The first ``n`` axes of a grid, row by row; the rest of the last row stays empty."""
    axes = figure.subplots(ceil(n / n_columns), n_columns, squeeze=False).ravel().tolist()
    for ax in axes[n:]:
        ax.axis("off")
    return axes[:n]


def _head_title(document: AttendedDocument, head: tuple[int, ...]) -> str:
    return f"layer {head[0]}, head {head[1]}: density {document.densities[head]:.3f}"


def _title(inspection: Inspection, example: int, number: int, documents: list[AttendedDocument]) -> str:
    """Which example it is, why it is shown, and what the model answered."""
    densities, numbers = inspection.densities, inspection.per_example
    names = inspection.run.about["data"]["class_names"]
    label, answer = (names[int(x[example])] for x in (numbers.labels, numbers.predicted))
    if densities.min() == densities.max():
        which = f"all {len(densities):,} have density {densities[example]:.3f}"
    else:
        extreme = "lowest" if example == densities.argmin() else "highest"
        which = f"the {extreme} density of {len(densities):,}, {densities[example]:.3f}"
    document = f", document {number}" if len(documents) > 1 else ""
    return f"Test example {example}{document}: {which}; label {label}, answer {answer}"
