"""What one trained model does with single test examples of its task, in one figure."""

from collections.abc import Callable
from math import ceil, isqrt
from pathlib import Path
from textwrap import wrap as wrap_words

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sbmt.experiments.plots.attended import AttendedDocument, Inspection
from sbmt.experiments.plots.attended_text import ADVANCE, LINE, glyph_of, plot_attended_text, wrap
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, INK, MASK_COLOURS, SKY
from sbmt.experiments.training.run import Run

MOST_TOKENS = 1200  # shown of a text
MOST_WORDS = 300  # the same where tokens are words or parts of words
_WIDTH = 8.0  # inches: about the width of a page, so that letters keep their size
_ROW, _TITLE = 2.3, 0.65  # inches: height of bars and of maps, and of the title of an example
_MAPS = 3  # side by side
_COLUMNS = 84  # characters per line of a text
_LINE_HEIGHT = (_WIDTH - 0.25) / _COLUMNS * LINE / ADVANCE  # inches

Part = tuple[float, str, Callable[[SubFigure], None]]
"""Height in inches without the title, title, and what draws a part of the figure."""


def draw_long_range_inspection(inspection: Inspection, path: Path, query: int | None = None) -> None:
    """Writes a figure: densities per layer and head above, what the least and the most dense example attend below.

    Images are shown beside a map per head, texts once per head; the shade of a pixel or token is the share of queries
    that attend it, on a scale that a head has in all examples of the figure. Texts underline the keys of one query.

    Paper: Figures 5, 7 and 8.
    """
    examples = dict.fromkeys((int(inspection.densities.argmin()), int(inspection.densities.argmax())))
    seen = {example: inspection.see(example, query) for example in examples}
    every = [document for documents in seen.values() for document in documents]
    upper = np.max([document.in_degrees.amax(2).numpy() for document in every], 0)  # layers heads
    upper[upper == 0] = 1.0
    parts: list[Part] = [(_ROW, "", lambda figure: _draw_bars(figure.subplots(), inspection))]
    make = _maps if inspection.run.config.is_image else _texts
    for example, documents in seen.items():
        for number, document in enumerate(documents):
            title = _title(inspection, example, number, len(documents))
            parts.append(make(inspection.run, document, upper, title, len(documents)))
    heights = [height + (_TITLE if title else 0) for height, title, _ in parts]
    with saved_figure(path, _WIDTH, sum(heights)) as figure:
        places = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for place, (_, title, draw) in zip(places, parts, strict=True):
            draw(place)
            if title:
                place.suptitle("\n".join(wrap_words(title, 92)), x=0.008, ha="left", fontsize=9.5)


def _draw_bars(axes: Axes, inspection: Inspection) -> None:
    """A dark bar for each layer, a light one for each of its heads, with deviations over inputs (Figure 5)."""
    mean, deviation = inspection.moments()
    n_layers, n_columns = mean.shape
    heads = [f"head {head}" for head in range(n_columns - 1)]
    labels = [name for layer in range(n_layers) for name in (f"layer {layer}", *heads)]
    places = np.arange(n_layers)[:, None] * (n_columns + 0.8) + np.arange(n_columns)
    axes.bar(places.flat, mean.flat, 0.86, color=([BLUE] + [SKY] * (n_columns - 1)) * n_layers)
    axes.errorbar(places.flat, mean.flat, deviation.flat, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    axes.set_xticks(places.ravel(), labels, rotation=0 if len(labels) <= 12 else 90)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    axes.set(ylim=(0, min(1.05, 1.12 * float((mean + deviation).max())) or 1.0), ylabel="density")
    axes.set_title(f"Mean density, and standard deviation over {len(inspection.densities):,} test inputs")


def _maps(run: Run, document: AttendedDocument, upper: NDArray[np.float32], title: str, _: int) -> Part:
    """The image, then how often each head attends each pixel (Figures 7 and 8)."""
    first_id, side = run.about["data"]["first_id"], isqrt(len(document.tokens))
    columns = min(1 + upper.size, _MAPS)
    rows = ceil((1 + upper.size) / columns)

    def draw(figure: SubFigure) -> None:
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for ax in axes:
            ax.axis("off")
        pixels = (document.tokens - first_id).clamp(min=0).view(side, side).numpy()
        axes[0].imshow(pixels, cmap="gray", vmin=0, vmax=255)
        axes[0].set_title("input")
        for ax, head in zip(axes[1:], np.ndindex(upper.shape), strict=False):
            degrees = document.in_degrees[head].view(side, side).numpy()
            image = ax.imshow(degrees, cmap=MASK_COLOURS, vmin=0, vmax=float(upper[head]))
            bar = ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03, ticks=MaxNLocator(4))
            bar.outline.set_visible(False)
            bar.ax.tick_params(length=0, labelsize=7.5)
            ax.set_title(_head_title(document, head), fontsize=9)

    return _ROW * rows, f"{title}; maps: share of the queries that attend a pixel", draw


def _texts(run: Run, document: AttendedDocument, upper: NDArray[np.float32], title: str, n_documents: int) -> Part:
    """The text once per head, shaded by how often each token is attended; of a long one, what is around the query."""
    n, most = len(document.tokens), (MOST_TOKENS if run.tokenizer is None else MOST_WORDS) // n_documents
    first = max(0, min(document.query - most // 2, n - most))
    shown = slice(first, min(n, first + most))
    glyphs = [glyph_of(run, token) for token in document.tokens[shown].tolist()]
    height = 0.34 + (wrap(glyphs, _COLUMNS)[-1][0] + 1) * _LINE_HEIGHT

    def draw(figure: SubFigure) -> None:
        axes = figure.subplots(upper.size, 1, squeeze=False).ravel()
        for ax, head in zip(axes, np.ndindex(upper.shape), strict=True):
            degrees, attended = document.in_degrees[head][shown], document.is_attended[head][shown]
            scale, at = float(upper[head]), document.query - first
            plot_attended_text(ax, glyphs, degrees, attended, at, upper=scale, width=_COLUMNS)
            ax.set_title(f"{_head_title(document, head)}, darkest: {scale:.3f} of the queries", fontsize=9)

    if most < n:
        title += f", tokens {shown.start:,} to {shown.stop - 1:,} of {n:,}"
    return height * upper.size, f"{title}; boxed: query {document.query:,}, underlined: what it attends", draw


def _head_title(document: AttendedDocument, head: tuple[int, ...]) -> str:
    return f"layer {head[0]}, head {head[1]}: density {document.densities[head]:.3f}"


def _title(inspection: Inspection, example: int, number: int, n_documents: int) -> str:
    """Which example it is, why it is shown, and what the model answered."""
    densities, numbers = inspection.densities, inspection.per_example
    names = inspection.run.about["data"]["class_names"]
    label, answer = (names[int(x[example])] for x in (numbers.labels, numbers.predicted))
    which = f"the {'lowest' if example == densities.argmin() else 'highest'} density of {len(densities):,}"
    if densities.min() == densities.max():
        which = f"as all {len(densities):,}, density"
    document = f", document {number}" if n_documents > 1 else ""
    return f"Test example {example}{document}: {which}, {densities[example]:.3f}; label {label}, answer {answer}"
