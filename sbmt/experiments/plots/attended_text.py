"""A text in which the shade behind each token says how often it is attended."""

from collections.abc import Sequence
from functools import lru_cache

from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D
from torch import Tensor

from sbmt.experiments.data.listops import CLOSE, TOKENS
from sbmt.experiments.plots.style import INK, MASK_COLOURS, ROLES, is_dark
from sbmt.experiments.training.run import Run

ADVANCE, LINE = 0.602, 1.32  # width of a character of the monospaced font and height of a line, in ems
LONGEST = 24  # characters that are written of a vocabulary's token
_FONT = FontProperties(family="DejaVu Sans Mono")


def byte_glyph(byte: int) -> str:
    r"""How a byte is written: printable ASCII as it is, anything else escaped, such as ``\n`` or ``\xe9``."""
    return repr(bytes([byte]))[2:-1]


def listops_glyph(symbol: int) -> str:
    """How a token of ListOps is written, with a blank after it."""
    if symbol == CLOSE:
        return "] "
    return f"{TOKENS[symbol - 1]} " if 1 <= symbol <= len(TOKENS) else "? "


def word_glyph(glyph: str) -> str:
    """How a token of a vocabulary is written, given its name in the tokeniser: cut to :data:`LONGEST` characters.

    The blank before a word becomes a blank again, and characters that the font lacks are escaped.
    """
    shown = (" " if c == "␣" else c if ord(c) in _known() else c.encode("unicode_escape").decode() for c in glyph)
    text = "".join(shown)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def glyph_of(run: Run, token: int) -> str:
    """How a token of a run's documents is written; padding, of which an empty text has one token, is blank."""
    if run.tokenizer is not None:
        return word_glyph(run.tokenizer.glyph(token))
    symbol = token - run.about["data"]["first_id"]
    if symbol < 0:
        return " "
    return listops_glyph(symbol) if run.config.task == "listops" else byte_glyph(symbol)


@lru_cache(maxsize=1)
def _known() -> frozenset[int]:
    """Characters that the font has."""
    return frozenset(get_font(findfont(_FONT)).get_charmap())


@lru_cache(maxsize=1024)
def _outline(character: str) -> Path:
    return TextPath((0, 0), character, size=1, prop=_FONT)


def wrap(glyphs: Sequence[str], width: int) -> list[tuple[int, int]]:
    """Line and column where each glyph begins; no glyph is broken.

    Example:
        >>> wrap(["a", "bc", "d"], 2)
        [(0, 0), (1, 0), (2, 0)]
    """
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
    """Writes tokens in lines of ``width`` characters, shaded by in-degree, darkest at ``upper``.

    A box is around the query, unless there is no token with this number, and its keys are underlined.
    """
    places = wrap(glyphs, width)
    halo = [withStroke(linewidth=3.4, foreground="white")]  # vermillion on dark blue alone is hard to see
    colours = MASK_COLOURS((in_degrees / upper).clamp(0, 1).double().numpy())
    cells, under = [], []
    outlines: dict[str, list[Path]] = {INK: [], "white": []}
    for at, (glyph, (line, column)) in enumerate(zip(glyphs, places, strict=True)):
        cells.append(Rectangle((column, line), len(glyph), 1))
        outlines["white" if is_dark(colours[at]) else INK] += [
            Affine2D().scale(1 / ADVANCE, -1 / LINE).translate(place, line + 0.74).transform_path(_outline(character))
            for place, character in enumerate(glyph, column)
            if character != " "
        ]
        start = column + (len(glyph) - len(glyph.lstrip()) if glyph.strip() else 0)
        stop = column + len(glyph.rstrip() or " ")
        if is_attended[at]:
            under.append([(start + 0.08, line + 0.93), (stop - 0.08, line + 0.93)])
        if at == query:
            box = Rectangle((start - 0.25, line), stop - start + 0.5, 1, fill=False, edgecolor=ROLES["query"])
            box.set(linewidth=1.6, path_effects=halo, zorder=4)
            axes.add_patch(box)
    axes.add_collection(PatchCollection(cells, facecolors=colours, linewidths=0))
    for colour, paths in outlines.items():
        if paths:
            axes.add_patch(PathPatch(Path.make_compound_path(*paths), facecolor=colour, linewidth=0, zorder=3))
    axes.add_collection(LineCollection(under, colors=ROLES["query"], linewidths=2.0, path_effects=halo))
    axes.set(xlim=(-0.5, width + 0.5), ylim=(places[-1][0] + 1.1, -0.1), aspect=LINE / ADVANCE, anchor="NW")
    axes.axis("off")
