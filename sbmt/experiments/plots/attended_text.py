"""A text in which the shade behind each token says how often it is attended."""

from collections.abc import Iterator, Sequence
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
from sbmt.experiments.plots.style import INK, MASK_COLOURS, VERMILLION, is_dark

ADVANCE = 0.602  # width of a character of the monospaced font, in ems
LINE = 1.32  # height of a line, in ems
LONGEST = 24
"""The most characters that are written of a vocabulary's token."""
_FONT = "DejaVu Sans Mono"
_ROOM = 0.25  # left and right inside the query's box, in columns


def byte_glyph(byte: int) -> str:
    r"""How a byte is written: printable ASCII as it is, anything else escaped as Python does.

    Example:
        >>> [byte_glyph(byte) for byte in b"a$\n\x00" + "é".encode()]
        ['a', '$', '\\n', '\\x00', '\\xc3', '\\xa9']
    """
    return repr(bytes([byte]))[2:-1]


def listops_glyph(symbol: int) -> str:
    """How a token of ListOps is written, with a blank after it.

    Example:
        >>> "".join(listops_glyph(symbol) for symbol in [2, 8, 15, 5])
        '[MAX 2 9 ] '
    """
    if symbol == CLOSE:
        return "] "
    return f"{TOKENS[symbol - 1]} " if 1 <= symbol <= len(TOKENS) else "? "


def word_glyph(glyph: str) -> str:
    r"""How :func:`plot_attended_text` writes a token of a vocabulary, given its name in the tokeniser.

    The blank before a word becomes a blank again, characters that the font lacks are escaped as in Python, and tokens
    longer than :data:`LONGEST` are cut.

    Example:
        >>> [word_glyph(glyph) for glyph in ("<s>", "␣film", "s", "␣", "é", "中", r"\xc3")]
        ['<s>', ' film', 's', ' ', 'é', '\\u4e2d', '\\xc3']
    """
    shown = (" " if c == "␣" else c if ord(c) in _known() else c.encode("unicode_escape").decode() for c in glyph)
    text = "".join(shown)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


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


def stretch(n: int, query: int, most: int) -> range:
    """At most ``most`` of n positions in a row, with the query as close to their middle as possible.

    Example:
        >>> stretch(10, 8, 4), stretch(10, 5, 4), stretch(3, 0, 4)
        (range(6, 10), range(3, 7), range(0, 3))
    """
    first = max(0, min(query - most // 2, n - most))
    return range(first, min(n, first + most))


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
    """Writes tokens in a block, shaded by in-degree, with a box around one query and its keys underlined.

    Args:
        axes: Where to write.
        glyphs: How each token is written, in characters of DejaVu Sans Mono; blanks around it are shaded with it.
        in_degrees: Share of queries that attend each token, in [0, 1].
        is_attended: Whether the query attends each token.
        query: Number of the token in the box; none is boxed if it is outside ``range(n)``.
        upper: The share drawn darkest.
        width: Characters per line.
    """
    places = wrap(glyphs, width)
    colours = MASK_COLOURS((in_degrees / upper).clamp(0, 1).double().numpy())
    cells = [Rectangle((column, line), len(glyph), 1) for glyph, (line, column) in zip(glyphs, places, strict=True)]
    axes.add_collection(PatchCollection(cells, facecolors=colours, linewidths=0))
    for is_light, colour in ((True, INK), (False, "white")):
        mine = [at for at, background in enumerate(colours) if is_dark(background) != is_light]
        paths = list(_paths([glyphs[at] for at in mine], [places[at] for at in mine]))
        if paths:
            axes.add_patch(PathPatch(Path.make_compound_path(*paths), facecolor=colour, linewidth=0))
    under = [
        [(column + _indent(glyph) + 0.08, line + 0.93), (column + len(glyph.rstrip() or " ") - 0.08, line + 0.93)]
        for glyph, (line, column), is_key in zip(glyphs, places, is_attended.tolist(), strict=True)
        if is_key
    ]
    halo = [withStroke(linewidth=3.4, foreground="white")]  # vermillion on dark blue alone is hard to see
    axes.add_collection(LineCollection(under, colors=VERMILLION, linewidths=2.0, path_effects=halo))
    if 0 <= query < len(glyphs):
        line, column = places[query]
        start, stop = column + _indent(glyphs[query]), column + len(glyphs[query].rstrip() or " ")
        box = Rectangle((start - _ROOM, line), stop - start + 2 * _ROOM, 1, fill=False)
        box.set(edgecolor=VERMILLION, linewidth=1.6, path_effects=halo)
        axes.add_patch(box)
    n_lines = places[-1][0] + 1
    axes.set(xlim=(-2 * _ROOM, width + 2 * _ROOM), ylim=(n_lines + 0.1, -0.1), aspect=LINE / ADVANCE, anchor="NW")
    axes.axis("off")


def _indent(glyph: str) -> int:
    """Number of blanks before the visible part; 0 if there is none."""
    return len(glyph) - len(glyph.lstrip()) if glyph.strip() else 0


def _paths(glyphs: Sequence[str], places: Sequence[tuple[int, int]]) -> Iterator[Path]:
    """Outlines of all characters, in columns and lines, which count downwards."""
    for glyph, (line, column) in zip(glyphs, places, strict=True):
        for at, character in enumerate(glyph):
            if character != " ":
                placed = Affine2D().scale(1 / ADVANCE, -1 / LINE).translate(column + at, line + 0.74)
                yield placed.transform_path(_outline(character))


@lru_cache(maxsize=1024)
def _outline(character: str) -> Path:
    return TextPath((0, 0), character, size=1, prop=FontProperties(family=_FONT))


@lru_cache(maxsize=1)
def _known() -> frozenset[int]:
    """Characters that the font has."""
    return frozenset(get_font(findfont(FontProperties(family=_FONT))).get_charmap())
