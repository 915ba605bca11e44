"""Finds the tokens that a trained model attends to, and draws the examples with the sparsest and densest masks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, isqrt
from pathlib import Path
from textwrap import wrap as wrap_words
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import SubFigure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.patheffects import withStroke
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray
from torch import Tensor

from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError, printable
from sbmt.experiments.data.listops import TOKENS, decode_expression
from sbmt.experiments.plots.masks import add_colorbar
from sbmt.experiments.plots.style import BLUE, INK, MASK_COLOURS, ROLES, SKY, saved_figure
from sbmt.experiments.training.evaluate import Evaluation, evaluate
from sbmt.experiments.training.run import Run

ADVANCE, LINE = 0.602, 1.32  # character width of the monospaced font and line height, in ems
DARKEST = 0.55  # darkest shade of the mask scale that is used, so that dark letters stay legible
_FONT = FontProperties(family="DejaVu Sans Mono")
MOST_TOKENS, MOST_WORDS = 1200, 300  # maximum number of tokens shown for bytes or symbols, and for words or subwords
_WIDTH = 8.0  # inches, about a page width, so that letters keep their size
_ROW, _TITLE = 2.3, 0.65  # heights in inches: of bars and maps, and of an example's title
_MAPS, _COLUMNS = 3, 84  # maps side by side, and characters per line of a text
_LINE_HEIGHT = (_WIDTH - 0.25) / _COLUMNS * LINE / ADVANCE  # inches
Part = tuple[float, str, Callable[[SubFigure], None]]  # height in inches without the title, title, drawing function


@dataclass(frozen=True, eq=False)
class AttendedDocument:
    """The tokens that every head attends to in one document, for one draw of the masks."""

    tokens: Int[Tensor, " n"]  # without the padding at the end
    in_degrees: Float[Tensor, "layers heads n"]  # share of real queries that attend to each key
    densities: Float[Tensor, "layers heads"]  # share of real pairs in the mask
    query: int  # position of the selected query
    is_attended: Bool[Tensor, "layers heads n"]  # whether this query attends to each key


@dataclass(frozen=True, eq=False)
class Inspection:
    """A model's results on single test examples, with the state needed to draw the same masks again."""

    run: Run
    per_example: Evaluation
    calls: tuple[tuple[Tensor, Tensor, torch.Generator], ...]  # per batch: tokens, real-token mask, generator

    @property
    def densities(self) -> NDArray[np.float64]:
        """Density of each example, averaged over layers and heads."""
        return self.per_example.example_densities.double().mean((1, 2)).numpy()

    @torch.no_grad()
    def see(self, example: int, query: int | None = None) -> list[AttendedDocument]:
        """Draws an example's masks again, and returns what a query attends to, by default one of median in-degree."""
        batch, at = divmod(example, len(self.calls[0][0]))
        tokens, is_real, generator = self.calls[batch]
        tokens, is_real = tokens[at : at + 1], is_real[at : at + 1]
        texts, reals = tokens.view(-1, tokens.shape[-1]), is_real.view(-1, tokens.shape[-1])
        mask = None if is_real.all() else is_real
        with examples_from(at * len(texts)):
            drawn = self.run.model.eval()(tokens, mask, generator=generator.clone_state(), return_edges=True)
        masks = torch.stack([layer.edges.to_dense() for layer in drawn.attention], 1)  # documents layers heads n n
        densities = torch.stack([layer.density for layer in drawn.attention], 1)
        found = []
        for number, (text, real) in enumerate(zip(texts, reals, strict=True)):
            n = len(text) if self.run.config.is_image else max([0, *real.nonzero().flatten().tolist()]) + 1
            degrees = masks[number, ..., :n].sum(2) / real.sum().clamp(min=1)
            position = query
            if position is None:  # first real token with the lower median of in-degrees
                degree = degrees.mean((0, 1)).where(real[:n], torch.nan)
                position = int((degree == degree.nanmedian()).long().argmax())
            if not 0 <= position < n:
                raise SbmtError(f"a query position in [0, {n})", position, "count tokens from 0")
            attended = masks[number, :, :, position, :n]
            found.append(AttendedDocument(text[:n], degrees, densities[number], position, attended))
        return found


def inspect_examples(run: Run, n_examples: int | None = None, *, seed: int = 0) -> Inspection:
    """Evaluates a model on the first test examples, or on all, and records what is needed to draw the masks again."""
    if "interval" not in run.about:
        raise SbmtError("a run on labelled examples", f"one on {run.config.task}", "use sbmt evaluate")
    calls = []

    def remember(_: torch.nn.Module, given: tuple[()], named: dict[str, Any]) -> None:
        tokens, mask = named["tokens"], named["mask"]
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        calls.append((tokens, is_real, named["generator"].clone_state()))

    with run.model.register_forward_pre_hook(remember, with_kwargs=True):
        per_example = evaluate(run, n_examples, seed=seed)
    if per_example.n_examples < 2:
        raise SbmtError("at least 2 examples for standard deviations", per_example.n_examples, "inspect more examples")
    return Inspection(run, per_example, tuple(calls))


def word_glyph(glyph: str) -> str:
    """Returns the text that is drawn for a tokeniser's token, with escapes for characters that the font lacks."""
    known = get_font(findfont(_FONT)).get_charmap()
    return "".join(c if ord(c) in known else c.encode("unicode_escape").decode() for c in glyph.replace("␣", " "))


def glyph_of(run: Run, token: int) -> str:
    """Returns the text that is drawn for a token of a run's documents; padding, as in an empty text, is a blank."""
    if run.tokenizer is not None:
        return word_glyph(run.tokenizer.glyph(token))
    symbol = token - run.about["data"]["first_id"]
    if symbol < 0:
        return " "
    if run.config.task == "listops":
        return f"{decode_expression([symbol])} " if 1 <= symbol <= len(TOKENS) else "? "
    return repr(bytes([symbol]))[2:-1]  # escapes all but printable ASCII


def wrap(glyphs: Sequence[str], width: int) -> list[tuple[int, int]]:
    """Returns the line and column at which each glyph starts; glyphs are never split."""
    places, line, column = [], 0, 0
    for glyph in glyphs:
        if column and column + len(glyph) > width:
            line, column = line + 1, 0
        places.append((line, column))
        column += len(glyph)
    return places


def plot_attended_text(
    axes: Axes,
    glyphs: Sequence[str],
    in_degrees: Float[Tensor, " n"],
    is_attended: Bool[Tensor, " n"],
    query: int,
    *,
    upper: float,
    width: int,
) -> None:
    """Draws tokens as text, shaded by in-degree up to ``upper``, with the query boxed and its keys underlined."""
    places = wrap(glyphs, width)
    halo = [withStroke(linewidth=3.4, foreground="white")]  # without it, vermillion on blue is hard to see
    cells = [Rectangle((column, line), len(glyph), 1) for glyph, (line, column) in zip(glyphs, places, strict=True)]
    shades = MASK_COLOURS(DARKEST * (in_degrees / upper).clamp(0, 1).double().numpy())
    axes.add_collection(PatchCollection(cells, facecolors=shades, linewidths=0))
    for line, tokens in groupby(zip(places, glyphs, strict=True), lambda token: token[0][0]):
        vertices, codes = text_to_path.get_text_path(_FONT, "".join(glyph for _, glyph in tokens))
        if len(codes):
            em = Affine2D().scale(1 / text_to_path.FONT_SCALE).scale(1 / ADVANCE, -1 / LINE).translate(0, line + 0.74)
            axes.add_patch(PathPatch(em.transform_path(Outline(vertices, codes)), facecolor=INK, linewidth=0, zorder=3))
    under = []
    for at, (glyph, (line, column)) in enumerate(zip(glyphs, places, strict=True)):
        word = glyph.strip() or " "
        start = column + glyph.find(word)
        if is_attended[at]:
            under.append([(start + 0.08, line + 0.93), (start + len(word) - 0.08, line + 0.93)])
        if at == query:
            look: Any = {"edgecolor": ROLES["query"], "linewidth": 1.6, "path_effects": halo, "zorder": 4}
            axes.add_patch(Rectangle((start - 0.25, line), len(word) + 0.5, 1, fill=False, **look))
    axes.add_collection(LineCollection(under, colors=ROLES["query"], linewidths=2.0, path_effects=halo))
    axes.set(xlim=(-0.5, width + 0.5), ylim=(places[-1][0] + 1.1, -0.1), aspect=LINE / ADVANCE, anchor="NW")
    axes.axis("off")


def draw_long_range_inspection(inspection: Inspection, path: Path, query: int | None = None) -> None:
    """Writes a figure of the densities per layer and head, above the masks of the least and the most dense examples.

    The shade of a pixel or token is the share of queries that attend to it (the paper's Figures 5, 7 and 8).
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
                place.suptitle("\n".join(wrap_words(title, 92)), x=0.008, ha="left", fontsize=9.5, parse_math=False)


def _draw_bars(axes: Axes, inspection: Inspection) -> None:
    """Draws a dark bar per layer and a light bar per head, with standard deviations over inputs (Figure 5)."""
    densities = inspection.per_example.example_densities
    columns = torch.cat([densities.mean(2, keepdim=True), densities], 2).double()  # n layers 1+heads
    mean, deviation = columns.mean(0).numpy(), columns.std(0).numpy()
    n_layers, n_columns = mean.shape
    heads = [f"head {head}" for head in range(n_columns - 1)]
    labels = [name for layer in range(n_layers) for name in (f"layer {layer}", *heads)]
    places = np.arange(n_layers)[:, None] * (n_columns + 0.8) + np.arange(n_columns)
    axes.bar(places.flat, mean.flat, 0.86, color=([BLUE] + [SKY] * (n_columns - 1)) * n_layers)
    axes.errorbar(places.flat, mean.flat, deviation.flat, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    axes.set_xticks(places.ravel(), labels, rotation=0 if len(labels) <= 12 else 90)
    axes.grid(axis="y")
    axes.set(ylim=(0, min(1.05, 1.12 * float((mean + deviation).max())) or 1.0), ylabel="density")
    axes.set_title(f"Mean density, and standard deviation over {len(inspection.densities):,} test inputs")


def _maps(run: Run, document: AttendedDocument, upper: NDArray[np.float32], title: str, _: int) -> Part:
    """Lays out the image, and one map per head that shows how often each pixel is attended to (Figures 7 and 8)."""
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
            add_colorbar(image, ticks=MaxNLocator(4)).ax.tick_params(labelsize=7.5)
            ax.set_title(_head_title(document, head), fontsize=9)

    return _ROW * rows, f"{title}; maps show the share of queries that attend to a pixel", draw


def _texts(run: Run, document: AttendedDocument, upper: NDArray[np.float32], title: str, n_documents: int) -> Part:
    """Lays out the text once per head, shaded by in-degree. Long texts are cut to the surroundings of the query."""
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
    return height * upper.size, f"{title}; boxed: query {document.query:,}, underlined: its keys", draw


def _head_title(document: AttendedDocument, head: tuple[int, ...]) -> str:
    return f"layer {head[0]}, head {head[1]}: density {document.densities[head]:.3f}"


def _title(inspection: Inspection, example: int, number: int, n_documents: int) -> str:
    """Returns a title with the number of the example, the reason for showing it, and the model's answer."""
    densities, numbers = inspection.densities, inspection.per_example
    names = inspection.run.about["data"]["class_names"]
    label, answer = (printable(names[int(x[example])]) for x in (numbers.labels, numbers.predicted))
    which = f"the {'lowest' if example == densities.argmin() else 'highest'} density of {len(densities):,}"
    document = f", document {number}" if n_documents > 1 else ""
    return f"Test example {example}{document}: {which}, {densities[example]:.3f}; label {label}, answer {answer}"
